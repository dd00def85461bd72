"""tunnel-bijection: does a small transformer eliminate hypotheses as Bayes does?

    error = mean over held-out sequences and steps of | H(model) - H(Bayes) |, in bits

The bijection of every sequence is new. With keys that never return the posterior is uniform over
the values not yet seen; with keys that return, known ones must also be looked up. The two have
different trivial predictors, so they are measured apart.
"""

from collections.abc import Mapping
from dataclasses import field

from bayesattn.claims.bank import registered_training
from bayesattn.claims.exhibits import belief_exhibit
from bayesattn.claims.panels import draw_curves, mean_curve, panels
from bayesattn.claims.registry import register
from bayesattn.claims.tunnels import TunnelRecipe
from bayesattn.ledger.study import Exhibit, Picture, Study, Tier, Value
from bayesattn.ledger.trained import TunnelTraining, mean
from bayesattn.ledger.typed import Stored
from bayesattn.tunnels import Bijection

VARIANTS = ("keys never return", "keys return")
SAMPLED = "sampled values"
STATEMENTS = dict(
    zip(("never-returning", "returning", "sampled-labels"), (*VARIANTS, SAMPLED), strict=True)
)


class BijectionRecipe(TunnelRecipe):
    """A transformer on bijections with keys that return or not, and one on sampled values."""

    alphabet: int
    layers: int
    recall_steps: int
    """Steps with keys that return: recall takes longer to be found."""
    lr: float = 3e-3
    sequences: int = 2000
    bank: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variants whose models are the bank's, each by its name and hash there."""

    def training(self, variant: str, seed: int) -> TunnelTraining:
        if variant in self.bank:
            name, digest = self.bank[variant].split()
            return registered_training(name, digest, seed)
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
        """Those that are not in the bank."""
        missing = [name for name in STATEMENTS.values() if name not in self.bank]
        return {variant: self.training(variant, seed) for variant in missing}


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


@register("tunnel-bijection")
class TunnelBijection(Study[BijectionRecipe, Mapping[str, Elimination]]):
    """Transformers on fresh bijections, with and without returning keys, by two kinds of labels."""

    def measure(self, tier: Tier, seed: int) -> Mapping[str, Elimination]:
        recipe = self.recipes[tier]
        return {
            variant: _measure(recipe.training(variant, seed), recipe.sequences)
            for variant in STATEMENTS.values()
        }

    def values(self, tier: Tier, one: Mapping[str, Elimination]) -> Mapping[str, Value]:
        return {
            name: Value(one[variant].mae_tok, one[variant].uniform)
            for name, variant in STATEMENTS.items()
        }

    def draw(self, tier: Tier, found: Mapping[int, Mapping[str, Elimination]]) -> list[Picture]:
        figure, (entropy, error) = panels(2)
        for colour, variant in enumerate(VARIANTS):
            bayes = mean_curve(found, lambda one, v=variant: one[v].entropy_bayes)
            model = mean_curve(found, lambda one, v=variant: one[v].entropy_model)
            entropy.plot(range(1, len(bayes) + 1), bayes, color=f"C{colour}", lw=4, alpha=0.3)
            draw_curves(entropy, {variant: model}, color=f"C{colour}")
        entropy.set(xlabel="pair", ylabel="entropy, bits", title="model (thin), Bayes (thick)")
        trained = STATEMENTS.values()
        errors = {v: mean_curve(found, lambda one, v=v: one[v].error_by_step) for v in trained}
        draw_curves(error, errors)
        error.set(xlabel="pair", ylabel="|H(model) - H(Bayes)|, bits", yscale="log")
        caption = "Predictive entropy at each pair, and its error; means over seeds."
        alt = "Left, the model's entropy lies on that of Bayes; right, the error in bits."
        return [Picture("entropy", figure, caption, alt)]

    def exhibits(self, tier: Tier, found: Mapping[int, Mapping[str, Elimination]]) -> list[Exhibit]:
        shown = self.recipes[tier].training(VARIANTS[1], min(found))
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
