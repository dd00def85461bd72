"""Studies for the tests: tiny, and as well or badly behaved as a test needs."""

from dataclasses import replace

from bayesattn.claims import Claim, Kind, Picture, Recipe, Statement, Study, Tier, Value
from bayesattn.ledger.runner import run_claims


def statement(**changes):
    """A statement of our own about the toy's effect, or another one."""
    words = {"text": "The effect is large.", "scale": "one toy", "unit": "points"}
    rule = {"estimand": "the mean effect", "rule": "above", "limit": 5.0, "looks": (4, 8, 12)}
    own = {"name": "effect", "kind": Kind.OURS, "comparator": "no toy", **words, **rule}
    return Statement(**{**own, **changes})


CLAIM = Claim(
    id="toy",
    title="Toys work.",
    source="arXiv 0000.00000",
    method="By playing.",
    mind="A toy that does not work.",
    statements=(statement(),),
)


class Toy(Study):
    """Measures its seed plus a level, against 0."""

    claim = CLAIM
    recipes = {Tier.QUICK: Recipe(seeds=3), Tier.FULL: Recipe()}  # noqa: RUF012
    level = 10.0

    def measure(self, tier, seed):
        return {"effect": self.level + seed, "many": [1.0, 2.0]}

    def values(self, tier, one):
        return {"effect": Value(one["effect"], comparator=0.0)}

    def draw(self, tier, numbers):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(2, 2))
        axes = figure.add_subplot()
        axes.plot([n["effect"] for n in numbers.values()])
        axes.set_title("effects")
        return [Picture("effects", figure, "The <effects>.", 'A line & "more".')]


def toy(name="toy", *bases, statements=CLAIM.statements, **changes):
    """A toy study with another id and other statements, attributes or methods."""
    claim = replace(CLAIM, id=name, title=f"{name} works.", statements=statements)
    return type(name, (Toy, *bases), {"claim": claim, **changes})()


PAPER = {
    "kind": Kind.REPLICATION,
    "source": "arXiv 2512.22471v3, figure 1",
    "reported": "8 to 10",
    "reported_values": (8.0, 10.0),
}


def paper(name="paper", control=-10.0, **changes):
    """A toy study of what a paper states: the effect replicates, and `control` is left of it."""

    def values(self, tier, one):
        left = one["effect"] - self.level + control
        return {"effect": Value(one["effect"], 0.0), "alone": Value(left)}

    alone = statement(name="alone", kind=Kind.CONTROL, text="It is the toy's own.", scale="two")
    statements = (statement(**PAPER), alone)
    return toy(name, statements=statements, **{"values": values, **changes})


def run_study(study, tier, folder, count=None):
    """Measure one claim here and now, whatever was measured before."""
    *_, record = run_claims([study], tier, folder, count, again=True)
    return record


def crash(self, tier, seed):
    raise RuntimeError("the toy\nbroke")
