"""Sentences of needles, of their haystack and of the questions about them.

The passkey prompt is the authors' (Bianchessi et al. 2025), word for word. The others follow RULER
(Hsieh et al. 2024, arXiv 2404.06654).
"""

from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal["passkey", "noise", "essay", "multikey", "multivalue"]
Values = Literal["numbers", "words"]
KINDS: tuple[Kind, ...] = get_args(Kind)
VALUES: tuple[Values, ...] = get_args(Values)

FILLER = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
DISTRACTOR = "The {key} key is {value}. Remember it. {value} is the {key} key."
"""Sentence of a distractor beside a passkey."""
NEEDLES = 4
"""Number of needles in a prompt with several."""

# All of the same length, so byte tokenizers give each equally many tokens.
WORDS = (
    "apple", "beach", "bread", "brick", "chair", "cloud", "coach", "coral", "daisy", "eagle",
    "fairy", "flame", "flute", "ghost", "giant", "glove", "grape", "horse", "house", "juice",
    "knife", "lemon", "maple", "medal", "mouse", "music", "night", "ocean", "olive", "onion",
    "paint", "panda", "paper", "pearl", "piano", "plant", "queen", "river", "robot", "salad",
    "sheep", "smoke", "snake", "spoon", "stone", "storm", "table", "tiger", "torch", "train",
    "uncle", "whale", "wheat", "witch",
)  # fmt: skip


@dataclass(frozen=True)
class Wording:
    """The pieces of one kind of prompt: head, needles among filler, question, answer.

    {value} is the hidden value, {key} its key; an answer lists {value0}, {value1}…
    """

    head: str
    needle: str
    question: str
    answer: str
    needles: int = 1
    """Number of needles in the text."""


def wording(kind: Kind, values: Values = "numbers") -> Wording:
    if kind == "passkey":
        return Wording(
            "There is an important info hidden inside a lot of irrelevant text. Find it and "
            "memorize them. I will quiz you about the important information there.",
            "The pass key is {value}. Remember it. {value} is the pass key.",
            "What is the pass key? The pass key is",
            " {value0}",
        )
    one, many = values.removesuffix("s"), values
    needle = f"One of the special magic {many} for {{key}} is: {{value}}."
    asked = "for {key} mentioned in the provided text"
    if kind == "multivalue":
        return Wording(
            f"Some special magic {many} are hidden within the following text. Make sure to "
            f"memorize it. I will quiz you about the {many} afterwards.",
            needle,
            f"What are all the special magic {many} {asked}? The special magic {many} {asked} are",
            " " + ", ".join(f"{{value{count}}}" for count in range(NEEDLES)),
            NEEDLES,
        )
    return Wording(
        f"A special magic {one} is hidden within the following text. Make sure to memorize it. "
        f"I will quiz you about the {one} afterwards.",
        needle,
        f"What is the special magic {one} {asked}? The special magic {one} {asked} is",
        " {value0}",
        NEEDLES if kind == "multikey" else 1,
    )
