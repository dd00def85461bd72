"""tunnel-bijection: does a small transformer eliminate hypotheses as Bayes does?

    error = mean over held-out sequences and steps of | H(model) - H(Bayes) |, in bits

The bijection of every sequence is new. With keys that never return the posterior is uniform over
the values not yet seen; with keys that return, known ones must also be looked up. The two have
different trivial predictors, so they are measured apart.
"""

from collections.abc import Mapping

from bayesattn.claims.exhibits import belief_exhibit
from bayesattn.claims.panels import draw_curves, mean_curve, panels
from bayesattn.claims.registry import register
from bayesattn.claims.tunnels import TunnelRecipe
from bayesattn.ledger.study import Exhibit, Finding, Picture, Study, Tier
from bayesattn.ledger.trained import TunnelTraining, mean
from bayesattn.ledger.typed import Stored
from bayesattn.stats import Outcome, judge_all, judge_below
from bayesattn.tunnels import Bijection

LIMIT = 0.01
"""Bits: the upper end of what is claimed."""
VARIANTS = ("keys never return", "keys return")
SAMPLED = "sampled values"


class BijectionRecipe(TunnelRecipe):
    """A transformer on bijections with keys that return or not."""

    alphabet: int
    layers: int
    recall_steps: int
    """Steps with keys that return: recall takes longer to be found."""
    lr: float = 3e-3
    sampled: bool
    """Also train on sampled values instead of posteriors."""
    sequences: int = 2000

    def training(self, variant: str, seed: int) -> TunnelTraining:
        tunnel = Bijection(self.alphabet, replacement=variant == VARIANTS[1])
        # half the heads start local, which finds the key before a value sooner
        network = self.transformer(self.layers, prior="ggd", prior_options={"init": "mixed"})
        config = self.config(
            seed,
            self.recall_steps if tunnel.replacement else self.steps,
            labels="sampled" if variant == SAMPLED else "posterior",
            dynamics=variant == VARIANTS[0],  # dynamics-frame-precision follows this one
        )
        return TunnelTraining(tunnel, network, config)

    def trainings(self, seed: int) -> dict[str, TunnelTraining]:
        variants = (*VARIANTS, SAMPLED) if self.sampled else VARIANTS
        return {variant: self.training(variant, seed) for variant in variants}


class Elimination(Stored):
    """Errors of one model, and by step the entropies."""

    mae_tok: float
    mae_pos: float
    kl: float
    tv: float
    support: float
    recall: float | None
    """Where keys return."""
    uniform: float
    """Entropy error of the uniform predictor."""
    untrained: float
    """Of the same network before training."""
    entropy_model: list[float]
    entropy_bayes: list[float]
    error_by_step: list[float]


Found = Mapping[int, Mapping[str, Elimination]]


@register("tunnel-bijection")
class TunnelBijection(Study[BijectionRecipe, Mapping[str, Elimination]]):
    """Trains transformers on fresh bijections, with and without returning keys."""

    def measure(self, tier: Tier, seed: int) -> Mapping[str, Elimination]:
        recipe = self.recipes[tier]
        trainings = recipe.trainings(seed).items()
        return {variant: _measure(training, recipe.sequences) for variant, training in trainings}

    def judge(self, tier: Tier, found: Found) -> Finding:
        """Both variants below the limit, or not; the worse one is quoted."""
        errors = {name: [one[name].mae_tok for one in found.values()] for name in VARIANTS}
        parts = {name: judge_below(values, limit=LIMIT) for name, values in errors.items()}
        worst = max(parts, key=lambda name: parts[name].value)
        judgement = judge_all({worst: parts[worst], **parts})
        if judgement.outcome is Outcome.SUPPORTED:  # all hold
            judgement = judgement._replace(reason=f"{worst}: {judgement.reason}")
        return Finding(judgement, unit="bits", null=next(iter(found.values()))[worst].uniform)

    def draw(self, tier: Tier, found: Found) -> list[Picture]:
        figure, (entropy, error) = panels(2)
        for colour, variant in enumerate(VARIANTS):
            bayes = mean_curve(found, lambda one, v=variant: one[v].entropy_bayes)
            model = mean_curve(found, lambda one, v=variant: one[v].entropy_model)
            entropy.plot(range(1, len(bayes) + 1), bayes, color=f"C{colour}", lw=4, alpha=0.3)
            draw_curves(entropy, {variant: model}, color=f"C{colour}")
        entropy.set(xlabel="pair", ylabel="entropy, bits", title="model (thin), Bayes (thick)")
        trained = next(iter(found.values()))
        errors = {v: mean_curve(found, lambda one, v=v: one[v].error_by_step) for v in trained}
        draw_curves(error, errors)
        error.set(xlabel="pair", ylabel="|H(model) - H(Bayes)|, bits", yscale="log")
        caption = "Predictive entropy at each pair, and its error; means over seeds."
        alt = "Left, the model's entropy lies on that of Bayes; right, the error in bits."
        return [Picture("entropy", figure, caption, alt)]

    def exhibits(self, tier: Tier, found: Found) -> list[Exhibit]:
        shown = self.recipes[tier].training(VARIANTS[1], 0)
        return [
            belief_exhibit(
                shown.model(),
                shown.tunnel,
                title="elimination, step by step",
                caption="A transformer learns a fresh bijection from pairs of keys and values. At "
                "every key it bets on the value; values that belong to other keys are out, and "
                "keys that return are looked up. The orange bars are exact.",
            )
        ]


def _measure(training: TunnelTraining, sequences: int) -> Elimination:
    part = training.fidelity(sequences=sequences).parts["inside"]
    curves = part.curves()
    assert isinstance(training.tunnel, Bijection)
    return Elimination(
        **{name: mean(part, name) for name in ("mae_tok", "mae_pos", "kl", "tv", "support")},
        recall=mean(part, "recall") if training.tunnel.replacement else None,
        uniform=mean(part, "mae_tok", "uniform"),
        untrained=training.untrained_mae(sequences=sequences),
        entropy_model=curves["entropy_model"],
        entropy_bayes=curves["entropy_bayes"],
        error_by_step=curves["mae_tok"],
    )
