"""Needles: values hidden under keys in noise, in running text, or among other needles."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
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
    """Numbers and kinds of needles in a prompt."""

    haystack: Haystack
    keys: Literal["words", "uuids"] = "words"
    values: Value = "numbers"
    distractors: int = 0
    """Number of keys that are not in question."""
    values_of_key: int = 1
    asked: int = 1
    """Number of keys in question."""

    def draft(self, material: Material, random: Random, depth: float) -> Draft:
        """The first key is at `depth`, the others anywhere."""
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
            return f"{head}\n{filler(units, list(zip(depths, needles, strict=True)))}\n{question}"

        return Draft(write, tuple(answers))

    def _filler(self, material: Material, random: Random) -> "Filler":
        if self.haystack == "noise":
            return noise
        if self.haystack == "text":
            return running(material.words, random.choice(material.starts))
        return others(random.getrandbits(64), self.keys, self.values)

    def _frame(self, keys: list[str]) -> tuple[str, str]:
        """Head and question; the question ends with the beginning of an answer."""
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


Filler = Callable[[int, list[tuple[float, str]]], str]
"""Makes a text of so many units with needles at their depths."""


def noise(units: int, needles: list[tuple[float, str]]) -> str:
    """One repeated line; each needle is a separate line."""
    return "\n".join(spread([NOISE] * units, _at(units, needles)))


def running(words: Sequence[str], start: int) -> Filler:
    """Repeated words of running text from a place on; needles stand between sentences."""

    def body(units: int, needles: list[tuple[float, str]]) -> str:
        text = [words[(start + n) % len(words)] for n in range(units)]
        ends = [0, *(n + 1 for n, word in enumerate(text) if word.endswith((".", "?")))]
        places = ((bisect_right(ends, depth * units) - 1, needle) for depth, needle in needles)
        return " ".join(spread(text, [(ends[place], needle) for place, needle in places]))

    return body


def others(seed: int, kind: Literal["words", "uuids"], values: Value) -> Filler:
    """Needles that are not in question, as many as fit."""
    random = Random(seed)
    keys = different_values(kind, random)
    made: list[str] = []

    def body(units: int, needles: list[tuple[float, str]]) -> str:
        taken = " ".join(needle for _, needle in needles)
        while len(made) < units:
            key = next(keys)
            if f" for {key} is:" not in taken:
                made.append(NEEDLE.format(kind=values, key=key, value=value(values, random)))
        return "\n".join(spread(made[:units], _at(units, needles)))

    return body


def _at(units: int, needles: list[tuple[float, str]]) -> list[tuple[int, str]]:
    return [(int(depth * units), needle) for depth, needle in needles]
