"""Text from a language model."""

from pathlib import Path
from typing import Any

import torch

from bayesattn.models.open import open_language
from bayesattn.runs import Run


def generate(
    source: Run | Path | str,
    prompt: str,
    *,
    tokens: int = 100,
    temperature: float = 0.0,
    seed: int = 0,
    step: int | None = None,
) -> str:
    """What a model writes after `prompt`.

    Args:
        source: whatever `open_language` takes.
        prompt: the beginning of a document.
        tokens: to add, at most.
        temperature: 0 always takes the most probable token.
        seed: of the draws.
        step: one of the run's checkpoints.
    """
    if tokens < 1:
        raise ValueError(f"tokens must be 1 or more, not {tokens}.")
    if not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature must be 0 or more, not {temperature}.")
    found = open_language(source, step)
    inputs = found.tokenizer(prompt, return_tensors="pt").to(found.model.device)
    if inputs["input_ids"].shape[1] == 0:
        raise ValueError("The prompt is empty: give the model a beginning.")
    options = {"do_sample": True, "temperature": temperature} if temperature else {}
    model: Any = found.model
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        output = model.generate(
            inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            max_new_tokens=tokens,
            pad_token_id=found.tokenizer.pad_token_id or found.tokenizer.eos_token_id,
            **options,
        )
    added = output[0, inputs["input_ids"].shape[1] :]
    return str(found.tokenizer.decode(added, skip_special_tokens=True))
