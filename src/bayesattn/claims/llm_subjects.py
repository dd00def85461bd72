"""The language model that studies look into, loaded once."""

from functools import lru_cache

from bayesattn.probes.llm.subject import DEFAULT, Subject, load

MODEL = DEFAULT


@lru_cache(maxsize=2)
def subject(model: str = MODEL, random_init: int | None = None) -> Subject:
    """A model, or the same network with fresh weights of a seed."""
    return load(model, random_init=random_init)
