"""Studies for the tests: tiny, and as well or badly behaved as a test needs."""

from bayesattn.claims import Claim, Finding, Picture, Recipe, Study, Tier
from bayesattn.ledger.runner import run_claims
from bayesattn.stats import judge_effect


class Toy(Study):
    """Measures its seed plus a level, against 0."""

    claim = Claim(id="toy", statement="Toys work.", source="arXiv 0000.00000", reported="always")
    method = "By playing."
    null = "No toy."
    recipes = {Tier.QUICK: Recipe(seeds=3), Tier.FULL: Recipe(seeds=5)}  # noqa: RUF012
    level = 10.0

    def measure(self, tier, seed):
        return {"effect": self.level + seed, "many": [1.0, 2.0]}

    def judge(self, tier, numbers):
        judgement = judge_effect([n["effect"] for n in numbers.values()])
        return Finding(judgement, unit="points", null=0.0)

    def draw(self, tier, numbers):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(2, 2))
        axes = figure.add_subplot()
        axes.plot([n["effect"] for n in numbers.values()])
        axes.set_title("effects")
        return [Picture("effects", figure, "The <effects>.", 'A line & "more".')]


def toy(name="toy", *bases, **changes):
    """A toy study with another id and other attributes or methods."""
    claim = Claim(id=name, statement=f"{name} works.", source="arXiv 0000.00000", reported="always")
    return type(name, (Toy, *bases), {"claim": claim, **changes})()


def run_study(study, tier, folder, count=None):
    """Measure one claim here and now, whatever was measured before."""
    (record,) = run_claims([study], tier, folder, count, again=True)
    return record


def crash(self, tier, seed):
    raise RuntimeError("the toy\nbroke")
