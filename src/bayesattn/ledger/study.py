"""What a study is: a claim, how much to compute per tier, and how to measure and draw it."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, get_args

from bayesattn.drawing import Picture
from bayesattn.ledger.statement import Claim
from bayesattn.ledger.typed import Stored, from_plain
from bayesattn.verdicts import Value

if TYPE_CHECKING:
    from bayesattn.ledger.trained import Training


class Exhibit(Stored):
    """Data for one of the report's interactive parts."""

    kind: str
    """Which part: beliefs, heatmap, curves or manifold."""
    title: str
    caption: str
    data: Mapping[str, Any]
    """Plain JSON values, in the form that the part reads (report/templates)."""


class Tier(StrEnum):
    """How much a study computes."""

    QUICK = "quick"
    FULL = "full"
    PAPER = "paper"


class Recipe(Stored):
    """What a tier computes. Studies add their own fields."""

    wishes: ClassVar[frozenset[str]] = frozenset({"seeds"})
    """Fields that say what is to be measured, not how: with others of these, a number that is there
    still stands. What names parts of a study is one of them, `measure` must not read it."""
    seeds: int = 2
    """Of the quick tier; in the others the statements' looks say how many there are."""

    def trainings(self, seed: int) -> "Mapping[str, Training]":
        """What is trained before one seed is measured, by name."""
        return {}


R = TypeVar("R", bound=Recipe)
M = TypeVar("M")
P = TypeVar("P")


class Study(ABC, Generic[R, M]):
    """Measures one claim. A new one is a subclass, under `@register`, in a file of claims/.

    R is the type of its recipes. M is what one seed measures, `Stored`: what is kept as
    JSON is read back as one. `measure` must depend on nothing but the recipe and the seed, so that
    it can be repeated and seeds can run anywhere.
    """

    claim: Claim
    recipes: Mapping[Tier, R]

    def trainings(self, tier: Tier, seed: int) -> "Mapping[str, Training]":
        """What `measure` will look at, by name. All are done before, as many at once as can be."""
        return self.recipes[tier].trainings(seed)

    def parts(self, tier: Tier) -> Sequence[str | None]:
        """What is measured one by one; None is all of a seed."""
        return (None,)

    def needed(self, tier: Tier, seed: int, part: str | None) -> "Iterable[Training]":
        """What is trained before this part is measured: the training of its name."""
        trainings = self.trainings(tier, seed).items()
        return [own for name, own in trainings if part in (None, name)]

    @abstractmethod
    def measure(self, tier: Tier, seed: int) -> M:
        """The result of one seed."""

    def values(self, tier: Tier, one: M) -> Mapping[str, Value]:
        """What the result of one seed says about each statement, by the statement's name."""
        return {}

    def draw(self, tier: Tier, found: Mapping[int, M]) -> list[Picture]:
        """Figures for the report."""
        return []

    def exhibits(self, tier: Tier, found: Mapping[int, M]) -> list[Exhibit]:
        """What the report shows for the reader to play with, each of another kind."""
        return []

    def read(self, numbers: Mapping[int, Any]) -> dict[int, M]:
        """Results of seeds from plain JSON; a ValueError if they are not of this claim as it is."""
        return from_plain(dict[int, self.result_type()], {**numbers})

    @classmethod
    def result_type(cls) -> Any:
        """M of the Study[R, M] that it is."""
        for base in cls.__mro__:
            for generic in base.__dict__.get("__orig_bases__", ()):
                if get_args(generic) and not generic.__parameters__:
                    return get_args(generic)[-1]
        return Any

    def said(self, tier: Tier, found: Mapping[int, M]) -> dict[str, dict[int, Value]]:
        """What each seed says, by statement."""
        values = {seed: self.values(tier, one) for seed, one in found.items()}
        names = [one.name for one in self.claim.statements]
        for own in values.values():
            if set(own) != set(names):
                wrong = ", ".join(sorted(set(own) ^ set(names)))
                raise ValueError(
                    f"the statements of {self.claim.id} and what `values` gives differ in {wrong}"
                )
        return {name: {seed: own[name] for seed, own in values.items()} for name in names}


class PartedStudy(Study[R, Mapping[str, P]]):
    """A study of several trainings that are measured one by one, since a whole seed takes long."""

    def parts(self, tier: Tier) -> Sequence[str]:
        """Names of the trainings."""
        return tuple(self.trainings(tier, 0))

    @abstractmethod
    def measure_part(self, tier: Tier, seed: int, part: str) -> P:
        """The result of one seed from one training."""

    def measure(self, tier: Tier, seed: int) -> Mapping[str, P]:
        """Of all parts, by name."""
        return {part: self.measure_part(tier, seed, part) for part in self.parts(tier)}

    @classmethod
    def result_type(cls) -> Any:
        """By part the P of the PartedStudy[R, P] that it is."""
        return Mapping[str, super().result_type()]


AnyStudy = Study[Any, Any]
