"""What a model answers to SULA prompts, in labels and words chosen for its tokenizer.

    P(first) = softmax of the two labels' logits,   H_model = h2(P(first)) bits

A label must be one token, or its probability would not be that of the next token. Labels come from
a list of made-up words, then from all strings consonant, vowel, consonant in alphabetical order;
the first that are one token after "word:" are taken. Which ones depends on the tokenizer only.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product

import torch
from torch import Tensor

from bayesattn.probes.llm.capture import capture_prompts
from bayesattn.probes.llm.subject import Subject
from bayesattn.probes.llm.sula import ALL_WORDS, WORDS, Condition, Lexicon, binary_entropy

CANDIDATES = ("dax", "lug", "mip", "zorb", "wug", "kep", "tuv", "gax")
CONSONANTS, VOWELS = "bcdfghjklmnpqrstvwxyz", "aeiou"
UNKNOWN = "qxzvkqj"
"""If this is one token, that token stands for everything unknown."""
FEWEST_WORDS = 8
"""With fewer words of one token, all words are used and prompts differ in length."""

Encode = Callable[[str], Sequence[int]]
"""From a text to tokens, without any special ones."""


@dataclass(frozen=True)
class Answers:
    """Answers to the N prompts of one condition."""

    condition: Condition
    first: Tensor
    """[N] P(first label), of the two."""
    mass: Tensor
    """[N] probability of the two labels together, of all tokens."""
    values: Mapping[int, Tensor]
    """By layer, [N, d]: value heads at the last token, side by side."""
    lengths: Tensor
    """[N] tokens."""

    @property
    def bits(self) -> Tensor:
        """[N] H_model."""
        return binary_entropy(self.first)


def answer(subject: Subject, condition: Condition, layers: tuple[int, ...] = (-1,)) -> Answers:
    """Run `subject` over a condition and keep values of `layers`."""
    prompts = [subject.encode(text) for text in condition.texts]
    states = capture_prompts(subject, prompts, names=("values", "logits"))
    first, mass = read_labels(states.logits, label_pair(subject, condition.pair))
    values = {layer: states.values[layer].flatten(1) for layer in layers}
    return Answers(condition, first, mass, values, states.lengths)


def read_labels(logits: Tensor, pair: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """P(first) of the two, and their mass among all tokens, from logits [..., V]."""
    logits = logits.double()
    two = logits[..., list(pair)]
    mass = (torch.logsumexp(two, -1) - torch.logsumexp(logits, -1)).exp()
    return two.softmax(-1)[..., 0], mass


def label_pair(subject: Subject, pair: tuple[str, str]) -> tuple[int, int]:
    (first,), (second,) = (label_tokens(plain_encode(subject), label) for label in pair)
    return first, second


def plain_encode(subject: Subject) -> Encode:
    """The tokenizer without special tokens."""
    tokenizer = subject.tokenizer
    if tokenizer is None:
        raise ValueError(f"{subject.name} has no tokenizer, and SULA is text: add its files")
    return lambda text: tokenizer.encode(text, add_special_tokens=False)


def even_words(encode: Encode) -> Lexicon:
    """Words of one token each, so that prompts with as many pairs are as many tokens long.

    At the start of a prompt, where no space stands before it, a word may be cut otherwise: only
    words of the most frequent length start one.
    """
    inner = [word for word in WORDS if len(_added(encode, "word: label,", f" {word}")) == 1]
    if len(inner) < FEWEST_WORDS:
        return ALL_WORDS
    lengths = [len(encode(word)) for word in inner]
    (usual, _), *_ = Counter(lengths).most_common(1)
    return Lexicon(tuple(inner), tuple(at for at, n in enumerate(lengths) if n == usual))


def pick_labels(subject: Subject, labels: Sequence[str] = ()) -> tuple[str, ...]:
    """Two pairs of labels: those asked for, and what the rule gives for the rest."""
    encode = plain_encode(subject)
    if len(labels) not in (0, 2, 4):
        raise ValueError(
            f"--labels takes two labels, or four with those of remap: not {len(labels)}"
        )
    check_labels(encode, labels)
    chosen = choose_labels(encode, 4) if len(labels) < 4 else ()
    more = [label for label in chosen if label not in labels]
    return (*labels, *more)[:4]


def choose_labels(
    encode: Encode, count: int = 4, candidates: Iterable[str] | None = None
) -> tuple[str, ...]:
    """The first `count` different labels of one token; the candidates are the rule's own if None.

    One may spell another's token, as upper case does where a tokenizer ignores it.
    """
    found: dict[int, str] = {}
    for label in chain(CANDIDATES, made_up()) if candidates is None else candidates:
        if len(found) < count and _is_one(encode, label):
            found.setdefault(label_tokens(encode, label)[0], label)
    if len(found) < count:
        raise ValueError(
            f"only {len(found)} of the labels that were tried are one token for this tokenizer and "
            f"{count} are needed: name labels of one token with --labels"
        )
    return tuple(found.values())


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


def label_tokens(encode: Encode, label: str) -> list[int]:
    """The tokens of a label where it is predicted: after "word:", with a space."""
    return _added(encode, "word:", f" {label}")


def _is_one(encode: Encode, label: str) -> bool:
    tokens = label_tokens(encode, label)
    return len(tokens) == 1 and tokens != label_tokens(encode, UNKNOWN)


def made_up() -> Iterator[str]:
    """Consonant, vowel, consonant, in alphabetical order."""
    for letters in product(CONSONANTS, VOWELS, CONSONANTS):
        if (word := "".join(letters)) not in CANDIDATES:
            yield word


def _added(encode: Encode, before: str, text: str) -> list[int]:
    """What `text` adds to the tokens of `before`; all of it if these change, too."""
    alone, together = list(encode(before)), list(encode(before + text))
    same = together[: len(alone)] == alone
    return together[len(alone) :] if same else together
