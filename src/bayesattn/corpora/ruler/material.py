"""What prompts are made of: running text, words, keys and values, names of people and cities."""

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
"""Letters of a word that is listed."""
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
    """Of one corpus.

    Args:
        corpus: whose running text hides needles, and whose words are listed; see `corpora/text.py`.
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
        """Where sentences of the running text begin."""
        ends = [place + 1 for place, word in enumerate(self.words) if word.endswith((".", "?"))]
        return [0, *(place for place in ends if place < len(self.words))]

    @cached_property
    def vocabulary(self) -> list[str]:
        """Different words of letters alone, in the order of the alphabet."""
        letters = re.compile(rf"[a-z]{{{SHORTEST},{LONGEST}}}")
        return sorted({word for word in self.words if letters.fullmatch(word)})

    def different_words(self, random: Random) -> Iterator[str]:
        """Words in random order, each once: first single ones, then pairs, without an end."""
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
    """Values of which no two are alike; words get longer once two do not suffice."""
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
    """Made-up names such as Belano, of which no two are alike, and none is part of another."""
    seen: set[str] = set()
    for syllables in chain(repeat(3, 20_000), repeat(4)):
        found = "".join(random.choice(CONSONANTS) + random.choice(VOWELS) for _ in range(syllables))
        # a last letter of its own length: no name begins another
        found += "ndrx"[syllables % 4]
        if found not in seen:
            seen.add(found)
            yield found.capitalize()
