"""Needles: values hidden under keys in noise, in running text, or among other needles."""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Literal

from bayesattn.corpora.ruler.draft import Draft, spread
from bayesattn.corpora.ruler.material import NOISE, Material, Value, different_values, value

Haystack = Literal["noise", "text", "needles"]
NEEDLE = "One of the special magic {kind} for {key} is: {value}."


@dataclass(frozen=True)
class Needles:
    """How many of what."""

    haystack: Haystack
    keys: Literal["words", "uuids"] = "words"
    values: Value = "numbers"
    distractors: int = 0
    """Keys with a value that nobody asks for."""
    values_of_key: int = 1
    asked: int = 1
    """Keys that are asked for."""

    def draft(self, material: Material, random: Random, depth: float) -> Draft:
        """The first key stands at `depth`, the others anywhere."""
        names, numbers = different_values(self.keys, random), different_values(self.values, random)
        asked = list(islice(names, self.asked))
        answers = [next(numbers) for _ in range(self.asked * self.values_of_key)]
        keys = [key for key in asked for _ in range(self.values_of_key)]
        hidden = [*zip(keys, answers, strict=True)]
        hidden += [*zip(names, islice(numbers, self.distractors), strict=False)]
        needles = [NEEDLE.format(kind=self.values, key=key, value=one) for key, one in hidden]
        depths = [depth, *(random.random() for _ in needles[1:])]
        filler = self._filler(material, random)
        head, question = self._frame(asked)

        def write(units: int) -> str:
            return (
                f"{head}\n{filler.body(units, list(zip(depths, needles, strict=True)))}\n{question}"
            )

        return Draft(write, tuple(answers))

    def _filler(self, material: Material, random: Random) -> "Noise | Running | Others":
        if self.haystack == "noise":
            return Noise()
        if self.haystack == "text":
            return Running(material, random.choice(material.starts))
        return Others(random.getrandbits(64), self.keys, self.values)

    def _frame(self, keys: list[str]) -> tuple[str, str]:
        """What stands before and after the text; the question ends as an answer begins."""
        many = len(keys) * self.values_of_key > 1
        kind, is_, are = (self.values, "are", "Some") if many else (self.values[:-1], "is", "A")
        asked = ", ".join(keys[:-1]) + f", and {keys[-1]}" if len(keys) > 1 else keys[0]
        every = "all " if many else ""
        about = f"special magic {kind} for {asked} mentioned in the provided text"
        head = (
            f"{are} special magic {kind} {is_} hidden within the following text. Make sure to "
            f"memorize it. I will quiz you about the {kind} afterwards."
        )
        question = f"What {is_} {every}the {about}? The {about} {is_}"
        return head, question


class Noise:
    """One repeated line; needles are lines of their own."""

    def body(self, units: int, needles: list[tuple[float, str]]) -> str:
        inserts = [(int(depth * units), needle) for depth, needle in needles]
        return "\n".join(spread([NOISE] * units, inserts))


class Running:
    """Words of running text from a place on, again and again; needles stand between sentences."""

    def __init__(self, material: Material, start: int) -> None:
        self._words, self._start = material.words, start

    def body(self, units: int, needles: list[tuple[float, str]]) -> str:
        total, start = len(self._words), self._start
        words = [self._words[(start + n) % total] for n in range(units)]
        ends = [0, *(n + 1 for n, word in enumerate(words) if word.endswith((".", "?")))]
        places = ((bisect_right(ends, depth * units) - 1, needle) for depth, needle in needles)
        inserts = [(ends[place], needle) for place, needle in places]
        return " ".join(spread(words, inserts))


class Others:
    """Needles that nobody asks for, as many as there is room."""

    def __init__(self, seed: int, keys: Literal["words", "uuids"], values: Value) -> None:
        self._random = Random(seed)
        self._keys = different_values(keys, self._random)
        self._values: Value = values
        self._made: list[str] = []

    def body(self, units: int, needles: list[tuple[float, str]]) -> str:
        taken = " ".join(needle for _, needle in needles)
        while len(self._made) < units:
            key = next(self._keys)
            if f" for {key} is:" not in taken:
                one = value(self._values, self._random)
                self._made.append(NEEDLE.format(kind=self._values, key=key, value=one))
        inserts = [(int(depth * units), needle) for depth, needle in needles]
        return "\n".join(spread(self._made[:units], inserts))
