"""Tracking: a chain of variables that stand for one number, in a repeated line (`vt`)."""

from itertools import pairwise
from random import Random
from string import ascii_uppercase

from bayesattn.corpora.ruler.draft import Draft, spread
from bayesattn.corpora.ruler.material import NOISE, Material

HOPS = 4
LETTERS = 5
"""Number of letters of a variable."""


def track_variables(material: Material, random: Random, depth: float) -> Draft:
    """One chain of five variables; its links are in order at random places."""
    names: dict[str, None] = {}
    while len(names) < HOPS + 1:
        names["".join(random.choices(ascii_uppercase, k=LETTERS))] = None
    variables = list(names)
    number = str(random.randrange(10_000, 100_000))
    links = [f"VAR {variables[0]} = {number}"]
    links += [f"VAR {new} = VAR {old}" for old, new in pairwise(variables)]
    depths = sorted(random.random() for _ in links)

    def write(units: int) -> str:
        inserts = [(int(at * units), link) for at, link in zip(depths, links, strict=True)]
        body = "\n".join(spread([NOISE] * units, inserts))
        return (
            "Memorize and track the chain(s) of variable assignment hidden in the following text."
            f"\n\n{body}\nQuestion: Find all variables that are assigned the value {number} in the "
            "text above. Answer: According to the chain(s) of variable assignment in the text "
            f"above, {len(variables)} variables are assigned the value {number}, they are:"
        )

    return Draft(write, tuple(variables))
