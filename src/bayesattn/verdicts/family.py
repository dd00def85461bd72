"""Many statements: which verdicts hold together, and the words of verdicts."""

from collections.abc import Sequence
from enum import StrEnum

from bayesattn.verdicts.judgement import Outcome
from bayesattn.verdicts.rule import ERROR


class Kind(StrEnum):
    """Kind of a statement."""

    IDENTITY = "identity"
    """A theorem, checked."""
    REPLICATION = "replication"
    """The effect in the authors' own terms."""
    CONTROL = "control"
    """The same effect after a confound is removed."""
    OURS = "ours"
    """A statement that nobody else made."""


WORDS = {
    Kind.IDENTITY: ("holds", "fails"),
    Kind.REPLICATION: ("replicates", "does not replicate"),
    Kind.CONTROL: ("survives", "does not survive"),
    Kind.OURS: ("supported", "refuted"),
}
"""Words for yes and no."""


def word(kind: Kind, outcome: Outcome) -> str:
    """The verdict: `replicates`, `does not survive`, `undecided` and so on."""
    yes, no = WORDS[kind]
    return {Outcome.YES: yes, Outcome.NO: no}.get(outcome, "undecided")


def holm(
    chances: Sequence[float | None], *, m: int | None = None, error: float = ERROR
) -> list[bool]:
    """Which verdicts hold together (Holm 1979): P(any of them is wrong) is at most `error`.

    Args:
        chances: p of each statement; None for undecided ones, which never hold.
        m: number of statements; those without p count, too.
        error: of the family.
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
    """Number of seeds at the next look, given the present number; None after the last look."""
    return next((look for look in looks if look > seeds), None)
