"""Material of prompts: running text, words, keys and values, names of people and cities."""

import re
from collections.abc import Iterator
from functools import cached_property
from itertools import chain, repeat
from random import Random
from typing import Literal
from uuid import UUID

from bayesattn.corpora.sentences import FILLER, WORDS
from bayesattn.corpora.text import CorpusError, documents

Value = Literal["numbers", "words", "uuids"]
NOISE = FILLER
SHORTEST, LONGEST = 4, 10
"""Smallest and largest number of letters of a listed word."""
ADJECTIVES = (
    "amber", "ample", "ancient", "brave", "bright", "broad", "calm", "clever", "cold", "crisp",
    "curly", "daring", "dusty", "eager", "early", "fancy", "fierce", "gentle", "giddy", "golden",
    "grand", "happy", "heavy", "hidden", "hollow", "humble", "icy", "jolly", "keen", "kind",
    "large", "lively", "lucky", "mellow", "merry", "mighty", "narrow", "noble", "odd", "plain",
    "polite", "proud", "quick", "quiet", "rapid", "round", "rusty", "shiny", "silent", "simple",
    "sleepy", "slim", "smooth", "solid", "steep", "stern", "sunny", "swift", "tall", "tiny",
    "vivid", "warm", "wild", "young",
)  # fmt: skip
CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"


class Material:
    """Text and words of one corpus.

    Args:
        corpus: source of running text and of words for lists; see `corpora/text.py`.
    """

    def __init__(self, corpus: str = "pydoc") -> None:
        self.corpus = corpus

    @cached_property
    def words(self) -> list[str]:
        """The running text, word by word."""
        found = [word for document in documents(self.corpus) for word in document.split()]
        if len(found) < SHORTEST:
            raise CorpusError(f"The corpus {self.corpus} has too few words: give more text.")
        return found

    @cached_property
    def starts(self) -> list[int]:
        """Indices of words at which sentences of the running text begin."""
        ends = [place + 1 for place, word in enumerate(self.words) if word.endswith((".", "?"))]
        return [0, *(place for place in ends if place < len(self.words))]

    @cached_property
    def vocabulary(self) -> list[str]:
        """Distinct words of letters only, in alphabetical order."""
        letters = re.compile(rf"[a-z]{{{SHORTEST},{LONGEST}}}")
        return sorted({word for word in self.words if letters.fullmatch(word)})

    def different_words(self, random: Random) -> Iterator[str]:
        """Endless distinct words in random order: first single words, then pairs."""
        singles = random.sample(self.vocabulary, len(self.vocabulary))
        yield from singles
        seen: set[str] = set()
        while True:
            pair = "-".join(random.choices(singles or WORDS, k=2))
            if pair not in seen:
                seen.add(pair)
                yield pair


def value(kind: Value, random: Random) -> str:
    """A number of seven digits, two words, or a uuid."""
    if kind == "numbers":
        return str(random.randrange(1_000_000, 10_000_000))
    if kind == "uuids":
        return str(UUID(int=random.getrandbits(128), version=4))
    return f"{random.choice(ADJECTIVES)}-{random.choice(WORDS)}"


def different_values(kind: Value, random: Random) -> Iterator[str]:
    """Distinct values; values of words get more words if two do not suffice."""
    seen: set[str] = set()
    tries = 0
    while True:
        found = value(kind, random)
        if kind == "words" and tries > len(ADJECTIVES) * len(WORDS) // 4:
            found += f"-{random.choice(WORDS)}"
        tries += 1
        if found not in seen:
            seen.add(found)
            yield found


def different_names(random: Random) -> Iterator[str]:
    """Distinct made-up names such as Belano; no name is part of another."""
    seen: set[str] = set()
    for syllables in chain(repeat(3, 20_000), repeat(4)):
        found = "".join(random.choice(CONSONANTS) + random.choice(VOWELS) for _ in range(syllables))
        # names of each length have their own last letter, so no name begins another
        found += "ndrx"[syllables % 4]
        if found not in seen:
            seen.add(found)
            yield found.capitalize()
