"""What a study is: a claim, how much to compute per tier, and how to measure, judge and draw it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from bayesattn.drawing import Picture
from bayesattn.stats import Interval, Judgement, Outcome
from bayesattn.training.config import TrainConfig
from bayesattn.training.runs import Run


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """Data for one of the report's interactive parts."""

    kind: str
    """Which part: beliefs, heatmap, curves or manifold."""
    title: str
    caption: str
    data: Mapping[str, Any]
    """Plain JSON values, in the form that the part reads (report/templates)."""


Numbers = Mapping[str, float | Sequence[float]]
"""What one seed measured, by name: plain numbers, so that the ledger keeps all of them."""


class Tier(StrEnum):
    """How much a study computes."""

    QUICK = "quick"
    FULL = "full"
    PAPER = "paper"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One checkable statement of a paper."""

    id: str
    statement: str
    """The claim in one sentence."""
    source: str
    """Paper and place, with an arXiv number."""
    reported: str
    """What the authors report, as text; shown beside the measurement, never compared with it."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a tier computes. Studies add their own fields."""

    wishes: ClassVar[frozenset[str]] = frozenset({"seeds"})
    """Fields that say what is to be measured, not how: with others of these, a number that is there
    still stands. What names parts of a study is one of them, `measure` must not read it."""
    seeds: int
    """Seeds 0 .. seeds-1 are measured."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a study found."""

    outcome: Outcome
    measured: float
    unit: str
    interval: Interval | None
    """None for an exact statement, which has no sampling error."""
    null: float
    """The same quantity where the claim is false by construction."""
    reported: str
    seeds: tuple[int, ...]
    tier: Tier
    reason: str
    """Why this outcome, in one sentence."""
    p: float | None = None
    """Chance of so clear a verdict if the effect were just at the limit."""


R = TypeVar("R", bound=Recipe)


class Training(Protocol):
    """A training whose result a study looks at; equal ones are done once."""

    @property
    def folder(self) -> Path:
        """Of its run."""
        ...

    @property
    def kind(self) -> str:
        """The same for every seed."""
        ...

    @property
    def config(self) -> TrainConfig:
        """How long, among other things."""
        ...

    def train(self) -> Run:
        """Its run: found if there is one, else trained now."""
        ...


class Study(ABC, Generic[R]):
    """Measures one claim. A new one is a subclass, under `@register`, in a file of this folder.

    `measure` must depend on nothing but the recipe and the seed, so that a study can be repeated
    and its seeds can run anywhere.
    """

    claim: ClassVar[Claim]
    method: ClassVar[str]
    """How it is measured, in plain words."""
    null: ClassVar[str]
    """What it is compared with, in plain words."""
    recipes: Mapping[Tier, R]

    def trainings(self, tier: Tier, seed: int) -> Mapping[str, Training]:
        """What `measure` will look at, by name. All are done before, as many at once as can be."""
        return {}

    def measure(self, tier: Tier, seed: int) -> Numbers:
        """Numbers of one seed: those of all `parts`; a study without parts says how."""
        if not self.parts(tier):
            raise NotImplementedError(f"{self.claim.id} has neither parts nor a way to measure")
        parts = [self.measure_part(tier, seed, part) for part in self.parts(tier)]
        return {name: value for part in parts for name, value in part.items()}

    def parts(self, tier: Tier) -> Sequence[str]:
        """Trainings that `measure_part` looks at one by one, if a whole seed takes too long."""
        return ()

    def measure_part(self, tier: Tier, seed: int, part: str) -> Numbers:
        """Numbers of one seed from one of the `parts`."""
        raise NotImplementedError(f"{self.claim.id} names no parts")  # never asked for then

    @abstractmethod
    def judge(self, tier: Tier, numbers: Mapping[int, Numbers]) -> Verdict:
        """Verdict from the numbers of all seeds."""

    def draw(self, tier: Tier, numbers: Mapping[int, Numbers]) -> list[Picture]:
        """Figures for the report."""
        return []

    def exhibits(self, tier: Tier, numbers: Mapping[int, Numbers]) -> list[Exhibit]:
        """What the report shows for the reader to play with, each of another kind."""
        return []

    def verdict(
        self,
        judgement: Judgement,
        *,
        tier: Tier,
        seeds: Sequence[int],
        unit: str,
        null: float,
    ) -> Verdict:
        """`judgement` as a verdict on this claim."""
        return Verdict(
            outcome=judgement.outcome,
            measured=judgement.value,
            unit=unit,
            interval=judgement.interval,
            null=null,
            reported=self.claim.reported,
            seeds=tuple(seeds),
            tier=tier,
            reason=judgement.reason,
            p=judgement.p,
        )
