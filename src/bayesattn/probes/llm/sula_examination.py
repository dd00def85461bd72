"""Everything that SULA tells of one model; what fails does not lose the rest."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Generator

from bayesattn.probes.llm.causal import RANDOM_AXES, Intervention, intervene
from bayesattn.probes.llm.subject import Subject
from bayesattn.probes.llm.sula import ALPHA, Lexicon, draw, draw_fixed
from bayesattn.probes.llm.sula_answers import Answers, answer, plain_encode
from bayesattn.probes.llm.sula_controls import CONTROLS, MAIN, Condition, condition
from bayesattn.probes.llm.sula_measures import Calibration, Movement, calibrate, move
from bayesattn.probes.llm.sula_words import all_words, check_labels, choose_labels, even_words

FIXED, BLIND = "fixed length", "fixed length, labels masked"
"""The second is the null of the first: the same prompts without any evidence."""
PROMPTS, EACH = 50, 15


@dataclass(frozen=True, kw_only=True)
class SulaFound:
    """What was found."""

    labels: tuple[str, ...]
    """The pair, and that of remap."""
    layer: int
    alpha: float
    calibrations: list[Calibration]
    movements: list[Movement]
    intervention: Intervention | None = None
    skipped: dict[str, str] = field(default_factory=dict)
    """Why something is missing."""
    answers: dict[str, Answers] = field(default_factory=dict, repr=False)
    """By condition: for figures, not for the record."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "labels": list(self.labels),
            "layer": self.layer,
            "alpha": self.alpha,
            "calibration": [one.to_dict() for one in self.calibrations],
            "movement": [one.to_dict() for one in self.movements],
            "intervention": self.intervention and self.intervention.to_dict(),
            "skipped": self.skipped,
        }


def pick_labels(subject: Subject, labels: Sequence[str] = ()) -> tuple[str, ...]:
    """Two pairs of labels: those asked for, and what the rule gives for the rest."""
    encode = plain_encode(subject)
    if len(labels) not in (0, 2, 4):
        raise ValueError(
            f"--labels takes two labels, or four with those of remap: not {len(labels)}"
        )
    check_labels(encode, labels)
    chosen = choose_labels(encode, 4) if len(labels) < 4 else ()
    more = [label for label in chosen if label not in labels]
    return (*labels, *more)[:4]


def conditions(
    lexicon: Lexicon,
    labels: tuple[str, ...],
    *,
    prompts: int,
    alpha: float = ALPHA,
    controls: Sequence[str] = CONTROLS,
    seed: int = 0,
) -> list[Condition]:
    """The task and its controls over the same evidence."""
    generator = Generator().manual_seed(seed)
    evidence = draw(lexicon, generator, count=prompts, alpha=alpha)
    return [condition(name, evidence, lexicon, labels, generator) for name in (MAIN, *controls)]


def fixed_conditions(
    lexicon: Lexicon, labels: tuple[str, ...], *, each: int, seed: int = 0, **options: Any
) -> tuple[Condition, Condition]:
    """Prompts of one length, and the same with labels masked."""
    generator = Generator().manual_seed(seed)
    evidence = draw_fixed(lexicon, generator, count=each, **options)
    shown = condition(MAIN, evidence, lexicon, labels)
    masked = condition("mask_labels", evidence, lexicon, labels)
    return replace(shown, name=FIXED), replace(masked, name=BLIND)


def examine_sula(
    subject: Subject,
    *,
    labels: Sequence[str] = (),
    prompts: int = PROMPTS,
    each: int = EACH,
    alpha: float = ALPHA,
    layer: int = -1,
    controls: Sequence[str] = CONTROLS,
    cut_layers: Sequence[int] = (),
    axes: int = RANDOM_AXES,
    seed: int = 0,
    tell: Callable[[str], None] = lambda text: None,
) -> SulaFound:
    """Ask, compare with Bayes, look at values, and cut the axis if layers are named.

    Args:
        subject: the model.
        labels: two, or four with those of remap; chosen by rule if none.
        prompts: for each number of pairs.
        each: prompts of fixed length for each difference of labels.
        alpha: how often a shown label is the latent one.
        layer: whose values are looked at.
        controls: which of `CONTROLS`.
        cut_layers: edited together.
        axes: random axes beside.
        seed: of the prompts and of these axes.
        tell: is told what is going on.
    """
    chosen = pick_labels(subject, labels)
    layer = subject.parts.resolve(layer)
    edited = tuple(subject.parts.resolve(one) for one in cut_layers)
    asked = conditions(
        all_words(), chosen, prompts=prompts, alpha=alpha, controls=controls, seed=seed
    )
    even = even_words(plain_encode(subject))
    asked += fixed_conditions(even, chosen, each=each, seed=seed)
    answers: dict[str, Answers] = {}
    for one in asked:
        tell(f"{one.name}: {len(one.texts)} prompts")
        answers[one.name] = answer(subject, one, (layer, *edited))
    intervention, skipped = None, {}
    if edited:
        tell(f"cutting the axis of layer {', '.join(map(str, edited))} and {axes} random ones")
        try:
            intervention = intervene(subject, answers[FIXED], edited, axes=axes, seed=seed)
        except ValueError as error:
            skipped["interventions"] = str(error)
    return SulaFound(
        labels=chosen,
        layer=layer,
        alpha=alpha,
        calibrations=[found for one in answers.values() for found in calibrate(one)],
        movements=[found for one in answers.values() for found in move(one, layer)],
        intervention=intervention,
        skipped=skipped,
        answers=answers,
    )
