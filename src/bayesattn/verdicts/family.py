"""Many statements: which verdicts stand together, and the words they are told in."""

from collections.abc import Sequence
from enum import StrEnum

from bayesattn.verdicts.judgement import Outcome
from bayesattn.verdicts.rule import ERROR


class Kind(StrEnum):
    """What a statement is to us."""

    IDENTITY = "identity"
    """A theorem, checked."""
    REPLICATION = "replication"
    """In the authors' own terms."""
    CONTROL = "control"
    """The same effect after the confound is removed."""
    OURS = "ours"
    """Nobody else claimed it."""


WORDS = {
    Kind.IDENTITY: ("holds", "fails"),
    Kind.REPLICATION: ("replicates", "does not replicate"),
    Kind.CONTROL: ("survives", "does not survive"),
    Kind.OURS: ("supported", "refuted"),
}
"""What yes and no are called."""


def word(kind: Kind, outcome: Outcome) -> str:
    """The verdict: `replicates`, `does not survive`, `undecided` and so on."""
    yes, no = WORDS[kind]
    return {Outcome.YES: yes, Outcome.NO: no}.get(outcome, "undecided")


def holm(
    chances: Sequence[float | None], *, m: int | None = None, error: float = ERROR
) -> list[bool]:
    """Which verdicts stand together (Holm 1979): the chance that any is luck is at most `error`.

    Args:
        chances: p of each statement; None, where nothing was decided, never stands.
        m: how many statements there are; those without p count, too.
        error: for the family.
    """
    total = len(chances) if m is None else m
    if total < len(chances):
        raise ValueError(f"m must be {len(chances)} or more, one for each statement, not {total}")
    known = sorted((p, at) for at, p in enumerate(chances) if p is not None)
    stands = [False] * len(chances)
    for rank, (p, at) in enumerate(known):
        if p * (total - rank) > error:
            break
        stands[at] = True
    return stands


def next_look(seeds: int, looks: Sequence[int]) -> int | None:
    """How many seeds the next look takes when so many are there; None after the last."""
    return next((look for look in looks if look > seeds), None)
