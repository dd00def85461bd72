"""The thirteen kinds of prompts, with RULER's names and its limits for answers."""

import hashlib
from collections.abc import Callable
from functools import partial
from random import Random
from typing import NamedTuple

from bayesattn.checks import registered
from bayesattn.corpora.ruler.draft import Draft, Problem, fit
from bayesattn.corpora.ruler.lists import common_words, frequent_words
from bayesattn.corpora.ruler.material import Material
from bayesattn.corpora.ruler.needles import Needles
from bayesattn.corpora.ruler.questions import ask_birthplace
from bayesattn.corpora.ruler.tracking import track_variables

Make = Callable[[Material, Random, float], Draft]


class Kind(NamedTuple):
    """One kind of prompt."""

    make: Make
    """Makes a draft from material, a random generator, and the depth of the needle in question."""
    tokens: int
    """Number of tokens that a model may write."""
    about: str


def _needles(about: str, needles: Needles) -> Kind:
    return Kind(needles.draft, 128, about)


KINDS: dict[str, Kind] = {
    "niah_single_1": _needles("a number in a repeated line", Needles("noise")),
    "niah_single_2": _needles("a number in running text", Needles("text")),
    "niah_single_3": _needles("a uuid in running text", Needles("text", values="uuids")),
    "niah_multikey_1": _needles("one of four keys", Needles("text", distractors=3)),
    "niah_multikey_2": _needles("one needle among needles", Needles("needles")),
    "niah_multikey_3": _needles(
        "one uuid among uuids", Needles("needles", keys="uuids", values="uuids")
    ),
    "niah_multivalue": _needles("four values of one key", Needles("text", values_of_key=4)),
    "niah_multiquery": _needles("four keys at once", Needles("text", asked=4)),
    "vt": Kind(track_variables, 30, "a chain of variables"),
    "cwe": Kind(common_words, 120, "the ten words that come most often"),
    "fwe": Kind(frequent_words, 50, "the three coded words that come most often"),
    "qa_facts": Kind(
        partial(ask_birthplace, hops=1), 32, "a question about one document; not RULER's SQuAD"
    ),
    "qa_hops": Kind(
        partial(ask_birthplace, hops=2), 32, "a question about two documents; not RULER's HotpotQA"
    ),
}


def make_problem(
    name: str,
    material: Material,
    count: Callable[[str], int],
    length: int,
    *,
    depth: float = 0.5,
    seed: int = 0,
    number: int = 0,
) -> Problem:
    """A prompt of at most `length` tokens; its needles are the same at every length.

    Args:
        name: one of `KINDS`.
        material: words and text.
        count: gives the number of tokens of a text.
        length: largest number of tokens of the prompt, without its answer.
        depth: of the needle in question, from 0 at the start to 1; not for `vt`, `cwe` and `fwe`.
        seed: of the random generator.
        number: of the prompt among those of this seed.
    """
    kind = registered("kind of prompt", name, KINDS)
    digest = hashlib.sha256(f"{name} {seed} {number}".encode()).digest()
    draft = kind.make(material, Random(int.from_bytes(digest[:8], "little")), depth)
    return fit(name, draft, count, length)
