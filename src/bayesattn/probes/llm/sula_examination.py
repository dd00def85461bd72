"""SULA as a measurement: is a model calibrated, and does evidence move its values along an axis?"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Generator, Tensor

from bayesattn.linear import correlation, spearman
from bayesattn.probes.examination import Row, measured_row
from bayesattn.probes.llm import sula
from bayesattn.probes.llm.causal import RANDOM_AXES, Intervention, intervene
from bayesattn.probes.llm.subject import Subject
from bayesattn.probes.llm.sula_answers import Answers, answer, even_words, pick_labels, plain_encode
from bayesattn.probes.measured import Measured, mean_over_sequences, shuffled_columns
from bayesattn.probes.readout import Component, first_component, order

PROMPTS, EACH = 50, 15
PERMUTATIONS = 499


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Entropies of a model beside those of Bayes; all in bits."""

    condition: str
    shots: int | None
    """Pairs shown; None: all prompts together."""
    prompts: int
    model: Measured
    """Mean H_model."""
    posterior: float
    """Mean H_post."""
    predictive: float
    """Mean H_pred."""
    unaware: float
    """Mean H_post for an observer who does not know that labels are coins or masked."""
    error_posterior: Measured
    """Mean |H_model - H_post|, beside 1 bit always, ideal predictions, and exchanged answers."""
    error_predictive: Measured
    """Mean |H_model - H_pred|, beside the same."""
    correlation_posterior: float | None
    """Pearson; None where H_post does not vary."""
    correlation_predictive: float | None
    mass: float
    """Mean probability of the two labels among all tokens: is the task understood at all?"""

    def rows(self) -> Iterator[Row]:
        where = self.condition if self.shots is None else f"{self.condition}, k = {self.shots}"
        bayes = {"H_post": self.posterior, "H_pred": self.predictive}
        if abs(self.unaware - self.posterior) > 1e-9:
            bayes["unaware"] = self.unaware
        shown = {"H of the model, bits": replace(self.model, nulls=bayes)}
        if self.shots is None:
            shown["|H - H_post|, bits"] = self.error_posterior
            shown["|H - H_pred|, bits"] = self.error_predictive
            for name, value in (
                ("r with H_post", self.correlation_posterior),
                ("r with H_pred", self.correlation_predictive),
                ("probability of both labels", self.mass),
            ):
                if value is not None:
                    shown[name] = Measured(value=value)
        return (measured_row("calibration", where, name, one) for name, one in shown.items())


@dataclass(frozen=True, kw_only=True)
class Movement:
    """Is the first component of values in the order of the entropy that the labels leave?

    Of ranks, for which H_post and H_pred are one; where labels are coins or masked, the entropy is
    that of an unaware observer. Beside every number: entropies exchanged among prompts.
    """

    condition: str
    layer: int
    axis: str
    """centred, or standardised by column."""
    share: float
    """Of the variance on the component."""
    order: Measured | None
    """|Spearman| over all prompts; None where the entropy is constant."""
    given_shots: Measured | None
    """The same given the number of pairs, and so, nearly, the length."""
    by_shots: dict[int, Measured]
    """For each number of pairs where the entropy varies."""
    shots: float | None
    """Spearman of the component and the number of pairs; None where that is fixed."""
    length: float | None
    """Spearman with the number of tokens."""
    own: Measured | None
    """|Spearman| with the model's own entropy."""

    def rows(self) -> Iterator[Row]:
        shown = {
            "|ρ(PC 1, H)|": self.order,
            "|ρ(PC 1, H)| given k": self.given_shots,
            **{f"|ρ(PC 1, H)| at k = {k}": found for k, found in self.by_shots.items()},
            "|ρ(PC 1, H of the model)|": self.own,
            "ρ(PC 1, k)": None if self.shots is None else Measured(value=self.shots),
            "ρ(PC 1, length)": None if self.length is None else Measured(value=self.length),
        }
        where = f"{self.condition}, L{self.layer}"
        for name, measured in shown.items():
            if measured is not None:
                yield measured_row("movement", where, name, measured)


@dataclass(frozen=True, kw_only=True)
class SulaFound:
    """Everything that SULA tells of one model."""

    labels: tuple[str, ...]
    """The pair, and that of remap."""
    layer: int
    alpha: float
    calibration: list[Calibration]
    movement: list[Movement]
    intervention: Intervention | None = None
    skipped: dict[str, str] = field(default_factory=dict)
    """Why something is missing."""

    def rows(self) -> list[Row]:
        centred = [one for one in self.movement if one.axis == "centred"]
        parts = [*self.calibration, *centred, *([self.intervention] if self.intervention else [])]
        return [row for one in parts for row in one.rows()]


def examine_sula(
    subject: Subject,
    *,
    labels: Sequence[str] = (),
    prompts: int = PROMPTS,
    each: int = EACH,
    alpha: float = sula.ALPHA,
    layer: int = -1,
    controls: Sequence[str] = sula.CONTROLS,
    cut_layers: Sequence[int] = (),
    axes: int = RANDOM_AXES,
    seed: int = 0,
    tell: Callable[[str], None] = lambda text: None,
) -> tuple[SulaFound, dict[str, Answers]]:
    """Ask, compare with Bayes, look at values, and cut the axis if layers are named.

    What was found, and the answers by condition that it was found in. The options are those of the
    command; `cut_layers` are edited together, beside cuts of random `axes`.
    """
    chosen = pick_labels(subject, labels)
    layer = subject.parts.resolve(layer)
    edited = tuple(subject.parts.resolve(one) for one in cut_layers)
    generator = Generator().manual_seed(seed)
    evidence = sula.sample(sula.ALL_WORDS, generator, count=prompts, alpha=alpha)
    even = even_words(plain_encode(subject))
    asked = [
        *(
            sula.condition(name, evidence, sula.ALL_WORDS, chosen, generator)
            for name in (sula.MAIN, *controls)
        ),
        *sula.fixed_conditions(even, chosen, each=each, seed=seed),
    ]
    answers: dict[str, Answers] = {}
    for one in asked:
        tell(f"{one.name}: {len(one.texts)} prompts")
        answers[one.name] = answer(subject, one, (layer, *edited))
    intervention, skipped = None, {}
    if edited:
        tell(f"cutting the axis of layer {', '.join(map(str, edited))} and {axes} random ones")
        try:
            intervention = intervene(subject, answers[sula.FIXED], edited, axes=axes, seed=seed)
        except ValueError as error:
            skipped["interventions"] = str(error)
    found = SulaFound(
        labels=chosen,
        layer=layer,
        alpha=alpha,
        calibration=[found for one in answers.values() for found in calibrate(one)],
        movement=[found for one in answers.values() for found in move(one, layer)],
        intervention=intervention,
        skipped=skipped,
    )
    return found, answers


def calibrate(answers: Answers) -> list[Calibration]:
    """All prompts together, then those of each number of pairs."""
    shots = answers.condition.shots
    numbers = shots.unique().tolist()
    whole = torch.ones_like(shots, dtype=torch.bool)
    found = [_calibration(answers, whole, None)]
    return found + [_calibration(answers, shots == k, k) for k in numbers if len(numbers) > 1]


def move(answers: Answers, layer: int) -> list[Movement]:
    states = answers.values[layer][None]
    return [
        _movement(answers, layer, name, first_component(states, standardise=flag))
        for name, flag in (("centred", False), ("standardised", True))
    ]


def _movement(answers: Answers, layer: int, name: str, component: Component) -> Movement:
    condition, scores = answers.condition, component.scores[0]
    bits, shots = condition.unaware_bits, condition.shots
    by_shots = {
        k: found
        for k in shots.unique().tolist()
        if (found := order(scores[shots == k], bits[shots == k])) is not None
    }
    several = len(shots.unique()) > 1
    uneven = len(answers.lengths.unique()) > 1
    return Movement(
        condition=condition.name,
        layer=layer,
        axis=name,
        share=float(component.share[0]),
        order=order(scores, bits),
        given_shots=order(scores, bits, shots) if several else None,
        by_shots=by_shots if several else {},
        shots=float(spearman(shots, scores)) if several else None,
        length=float(spearman(answers.lengths, scores)) if uneven else None,
        own=order(scores, answers.bits),
    )


def _calibration(answers: Answers, some: Tensor, shots: int | None) -> Calibration:
    condition, bits = answers.condition, answers.bits[some]
    post, pred = condition.posterior_bits[some], condition.predictive_bits[some]
    return Calibration(
        condition=condition.name,
        shots=shots,
        prompts=int(some.sum()),
        model=mean_over_sequences(bits[:, None]),
        posterior=float(post.mean()),
        predictive=float(pred.mean()),
        unaware=float(condition.unaware_bits[some].mean()),
        error_posterior=_error(bits, post, pred),
        error_predictive=_error(bits, pred, pred),
        correlation_posterior=_pearson(bits, post),
        correlation_predictive=_pearson(bits, pred),
        mass=float(answers.mass[some].mean()),
    )


def _error(bits: Tensor, target: Tensor, ideal: Tensor) -> Measured:
    """Mean |bits - target| [N]; p: how often exchanged answers are as near."""
    exchanged = shuffled_columns(bits[:, None], PERMUTATIONS, Generator().manual_seed(0))[..., 0]
    null = (exchanged - target).abs().mean(1)
    found = mean_over_sequences((bits - target).abs()[:, None]).beside(
        always_1_bit=float((1 - target).abs().mean()),
        ideal_predictions=float((ideal - target).abs().mean()),
    )
    return found.against(null, "exchanged", less=True)


def _pearson(x: Tensor, y: Tensor) -> float | None:
    if len(x) < 3 or float(y.var()) < 1e-12 or float(x.var()) < 1e-12:
        return None
    return float(correlation(x, y))
