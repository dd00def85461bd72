"""A study: a claim, its recipe for each tier, and how to measure and draw it."""

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
    """Kind of part: beliefs, heatmap, curves or manifold."""
    title: str
    caption: str
    data: Mapping[str, Any]
    """Plain JSON values in the form of the part (report/templates)."""


class Tier(StrEnum):
    """Amount of computation of a study."""

    QUICK = "quick"
    FULL = "full"
    PAPER = "paper"


class Recipe(Stored):
    """Settings of a tier. Studies add their own fields."""

    wishes: ClassVar[frozenset[str]] = frozenset({"seeds"})
    """Fields that select what is measured. If they change, stored numbers stay valid. `measure`
    must not read them. Fields with names of parts of a study are among them."""
    seeds: int = 2
    """Number of seeds of the quick tier; in other tiers the statements' looks decide."""

    def trainings(self, seed: int) -> "Mapping[str, Training]":
        """Trainings before the measurement of a seed, by name."""
        return {}


R = TypeVar("R", bound=Recipe)
M = TypeVar("M")
P = TypeVar("P")


class Study(ABC, Generic[R, M]):
    """Measures one claim. A new one is a subclass, under `@register`, in a file of claims/.

    R is the type of its recipes. M, a `Stored`, is the type of one seed's result; it is written to
    JSON and read back. `measure` must depend on the recipe and the seed only, so measurements can
    be repeated on any machine.
    """

    claim: Claim
    recipes: Mapping[Tier, R]

    def trainings(self, tier: Tier, seed: int) -> "Mapping[str, Training]":
        """Trainings that `measure` reads, by name. All run before, in parallel if possible."""
        return self.recipes[tier].trainings(seed)

    def parts(self, tier: Tier) -> Sequence[str | None]:
        """Parts that are measured one by one; None is the whole seed."""
        return (None,)

    def needed(self, tier: Tier, seed: int, part: str | None) -> "Iterable[Training]":
        """Trainings before the measurement of a part: the one of its name."""
        trainings = self.trainings(tier, seed).items()
        return [own for name, own in trainings if part in (None, name)]

    @abstractmethod
    def measure(self, tier: Tier, seed: int) -> M:
        """The result of one seed."""

    def values(self, tier: Tier, one: M) -> Mapping[str, Value]:
        """The value of each statement from the result of one seed, by name."""
        return {}

    def draw(self, tier: Tier, found: Mapping[int, M]) -> list[Picture]:
        """Figures for the report."""
        return []

    def exhibits(self, tier: Tier, found: Mapping[int, M]) -> list[Exhibit]:
        """Data of the interactive parts of the report, each of another kind."""
        return []

    def read(self, numbers: Mapping[int, Any]) -> dict[int, M]:
        """Results of seeds from plain JSON; ValueError if they do not fit the present claim."""
        return from_plain(dict[int, self.result_type()], {**numbers})

    @classmethod
    def result_type(cls) -> Any:
        """The type M of this Study[R, M]."""
        for base in cls.__mro__:
            for generic in base.__dict__.get("__orig_bases__", ()):
                if get_args(generic) and not generic.__parameters__:
                    return get_args(generic)[-1]
        return Any

    def said(self, tier: Tier, found: Mapping[int, M]) -> dict[str, dict[int, Value]]:
        """The values of each statement, seed by seed."""
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
    """A study whose trainings are measured one by one, because a whole seed takes long."""

    def parts(self, tier: Tier) -> Sequence[str]:
        """Names of the trainings."""
        return tuple(self.trainings(tier, 0))

    @abstractmethod
    def measure_part(self, tier: Tier, seed: int, part: str) -> P:
        """The result of one seed from one training."""

    def measure(self, tier: Tier, seed: int) -> Mapping[str, P]:
        """The results of all parts, by name."""
        return {part: self.measure_part(tier, seed, part) for part in self.parts(tier)}

    @classmethod
    def result_type(cls) -> Any:
        """A mapping from parts to the type P of this PartedStudy[R, P]."""
        return Mapping[str, super().result_type()]


AnyStudy = Study[Any, Any]
