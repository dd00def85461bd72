"""A prompt of adjustable length: as many units of filler as fit.

    prompt(n) = head · n units of filler with the needles among them · question

The tokenizer reads the whole prompt, as it would read a user's. So lengths are exact for any
tokenizer, also if it merges tokens across pieces.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bayesattn.corpora.text import CorpusError


@dataclass(frozen=True)
class Draft:
    """A prompt of adjustable length, and its answers."""

    write: Callable[[int], str]
    """The prompt with a number of units of filler; more units never make it shorter."""
    answers: tuple[str, ...]
    """Strings that the continuation should contain; the score is the share that it contains."""


@dataclass(frozen=True)
class Problem:
    """A prompt of one length."""

    prompt: str
    answers: tuple[str, ...]
    tokens: int
    """Number of tokens of the prompt."""

    def score(self, continuation: str) -> float:
        """Share of the answers in the continuation; case does not matter."""
        return sum(self.holds(one, continuation) for one in self.answers) / len(self.answers)

    def holds(self, answer: str, continuation: str) -> bool:
        return answer.lower() in continuation.lower()


class TooShort(CorpusError):
    """The length is too short even for a prompt without filler."""

    def __init__(self, kind: str, length: int, least: int) -> None:
        super().__init__(
            f"A prompt of {kind} has at least {least} tokens with this tokenizer and does not fit "
            f"into {length}: choose {least} or more."
        )
        self.least = least


def fit(kind: str, draft: Draft, count: Callable[[str], int], length: int) -> Problem:
    """The longest prompt of at most `length` tokens.

    Args:
        kind: for messages.
        draft: the prompt of adjustable length.
        count: gives the number of tokens of a text.
        length: largest number of tokens.
    """
    low, prompt = 0, draft.write(0)
    tokens = count(prompt)
    if tokens > length:
        raise TooShort(kind, length, tokens)
    high: int | None = None
    units = 16
    while high is None or high - low > 1:
        text = draft.write(units)
        counted = count(text)
        if counted > length:
            high = units
        else:
            if (
                high is None and units > 2 * length
            ):  # a unit without tokens would never fill the length
                raise CorpusError(
                    f"The filler of {kind} has no tokens: give text with words in it."
                )
            low, prompt, tokens = units, text, counted
        # tokens grow about linearly; if a step is too large, bisection follows
        each = counted / units
        guess = low + max(1, int((length - tokens) / each * (0.99 if high is None else 1.0)))
        units = guess if high is None or guess < high else (low + high + 1) // 2
        if high is not None and units >= high:
            units = high - 1
    return Problem(prompt, draft.answers, tokens)


def spread(filler: Sequence[str], inserts: Sequence[tuple[int, str]]) -> list[str]:
    """`filler` with each insert before the unit of its place; equal places keep their order."""
    pieces: list[str] = []
    last = 0
    for place, text in sorted(inserts, key=lambda insert: insert[0]):
        pieces += [*filler[last:place], text]
        last = place
    return [*pieces, *filler[last:]]
