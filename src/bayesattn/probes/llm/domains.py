"""Text of four domains, composed by rule from sentences with slots.

A sentence is drawn, then a word for each of its slots; slots that name one thing throughout a
sentence keep their word. As much text as wanted, and another text for each seed.
"""

import json
import random
import re
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "data" / "domains.json"
DOMAINS = ("mathematics", "code", "philosophy", "general")
SLOT = re.compile(r"\{(\w+)\}")


def compose(domain: str, sentences: int, seed: int = 0) -> str:
    """`sentences` sentences of a domain."""
    grammar = _grammars()[domain]
    # its own stream for each domain and seed; strings seed alike in every process
    rng = random.Random(f"{domain} {seed}")
    return grammar["between"].join(_sentence(grammar, rng) for _ in range(sentences))


def authors_prompts() -> list[str]:
    """The prompts that the authors released, from certain to uncertain."""
    return [text for group in _grammars()["authors"].values() for text in group]


def _sentence(grammar: dict[str, Any], rng: random.Random) -> str:
    chosen: dict[str, str] = {}

    def word(match: re.Match[str]) -> str:
        slot = match[1]
        drawn = rng.choice(grammar["words"][slot])
        return chosen.setdefault(slot, drawn) if slot in grammar["bound"] else drawn

    text = SLOT.sub(word, rng.choice(grammar["sentences"]))
    prose = grammar["between"] == " "
    return text[0].upper() + text[1:] if prose else text


@cache
def _grammars() -> dict[str, Any]:
    return json.loads(FILE.read_text(encoding="utf-8"))
