"""Words and labels of SULA, chosen for a tokenizer.

A label must be one token, or its probability would not be that of the next token. Labels come from
a list of made-up words, then from all strings consonant, vowel, consonant in alphabetical order;
the first that are one token after "word:" are taken. Which ones depends on the tokenizer only.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import product

from bayesattn.probes.llm.sula import Lexicon

_POSITIVE = (
    "happy calm kind brave bright gentle warm honest clever loyal proud polite cheerful serene "
    "graceful wise generous joyful lively friendly patient tender noble sunny witty sincere keen "
    "humble lovely radiant fair merry eager pleasant charming"
)
_NEGATIVE = (
    "sad angry cruel tense rude lazy bitter harsh selfish jealous gloomy grim nasty stubborn timid "
    "vain hostile greedy anxious cold dull mean sour stern weary wicked bleak clumsy foolish moody "
    "petty reckless ruthless sloppy vile"
)
WORDS = (*_POSITIVE.split(), *_NEGATIVE.split())
CANDIDATES = ("dax", "lug", "mip", "zorb", "wug", "kep", "tuv", "gax")
CONSONANTS, VOWELS = "bcdfghjklmnpqrstvwxyz", "aeiou"
UNKNOWN = "qxzvkqj"
"""If this is one token, that token stands for everything unknown."""
FEWEST_WORDS = 8
"""With fewer words of one token, all words are used and prompts differ in length."""

Encode = Callable[[str], Sequence[int]]
"""From a text to tokens, without any special ones."""


def all_words() -> Lexicon:
    """The 70 words, each anywhere."""
    return Lexicon(WORDS, tuple(range(len(WORDS))))


def even_words(encode: Encode) -> Lexicon:
    """Words of one token each, so that prompts with as many pairs are as many tokens long.

    At the beginning, where no space stands before it, a word may be cut otherwise: only words of
    the most frequent length begin a prompt.
    """
    inner = [word for word in WORDS if len(_added(encode, "word: label,", f" {word}")) == 1]
    if len(inner) < FEWEST_WORDS:
        return all_words()
    lengths = [len(encode(word)) for word in inner]
    (usual, _), *_ = Counter(lengths).most_common(1)
    return Lexicon(tuple(inner), tuple(at for at, n in enumerate(lengths) if n == usual))


def choose_labels(encode: Encode, count: int = 4) -> tuple[str, ...]:
    """The first `count` labels of one token."""
    found: list[str] = []
    for label in _candidates():
        if len(found) == count:
            break
        if _is_one(encode, label):
            found.append(label)
    if len(found) < count:
        raise ValueError(
            f"only {len(found)} of the made-up labels are one token for this tokenizer and "
            f"{count} are needed: name labels of one token with --labels"
        )
    return tuple(found)


def label_tokens(encode: Encode, label: str) -> list[int]:
    """The tokens of a label where it is predicted: after "word:", with a space."""
    return _added(encode, "word:", f" {label}")


def check_labels(encode: Encode, labels: Sequence[str]) -> None:
    """Refuse labels that are not one token each, or not different."""
    if len(set(labels)) < len(labels):
        raise ValueError(f"labels must differ, but {', '.join(labels)} do not")
    for label in labels:
        if not _is_one(encode, label):
            size = len(label_tokens(encode, label))
            what = "unknown to" if size == 1 else f"{size} tokens for"
            raise ValueError(
                f"the label {label!r} is {what} this tokenizer, and must be one token: choose "
                "another, or leave --labels out to have labels chosen"
            )


def _is_one(encode: Encode, label: str) -> bool:
    """Whether a label is one token of its own."""
    tokens = label_tokens(encode, label)
    return len(tokens) == 1 and tokens != label_tokens(encode, UNKNOWN)


def _candidates() -> Iterator[str]:
    yield from CANDIDATES
    for letters in product(CONSONANTS, VOWELS, CONSONANTS):
        if (word := "".join(letters)) not in CANDIDATES:
            yield word


def _added(encode: Encode, before: str, text: str) -> list[int]:
    """What `text` adds to the tokens of `before`; all of it if these change, too."""
    alone, together = list(encode(before)), list(encode(before + text))
    same = together[: len(alone)] == alone
    return together[len(alone) :] if same else together
