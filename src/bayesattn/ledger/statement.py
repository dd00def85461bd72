"""The registration of a claim: its statements, and how each is judged.

Each statement gets a verdict. A hash covers all fields that decide the verdict; the other fields
are words, and may be corrected at any time.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bayesattn.ledger.typed import Stored
from bayesattn.stats import Interval
from bayesattn.verdicts import (
    LOOKS,
    Judgement,
    Kind,
    Outcome,
    Rule,
    Transform,
    Value,
    chance_of_yes,
    judge,
    judge_identity,
    seeds_needed,
    word,
)

NO_NUMBER = "no number"
"""Beginning of `reported` if the authors give no number."""
DECIDING = (
    "name",
    "kind",
    "estimand",
    "transform",
    "rule",
    "limit",
    "premise",
    "comparator",
    "looks",
    "resolution",
)


class Statement(Stored):
    """One sentence that can be right or wrong, and the rule that says which."""

    name: str
    """Short, in lower case with hyphens; unique in its claim."""
    kind: Kind
    text: str
    """The sentence; for a replication one that the authors would accept."""
    scale: str
    """The model and its size."""
    estimand: str
    """The number that each seed gives, and how it is averaged."""
    unit: str
    limit: float | tuple[float, float]
    """The least effect of interest; for `within` the margin, low and high."""
    comparator: str
    """The comparator of the effect, on the same seed and data."""
    looks: tuple[int, ...]
    """Numbers of seeds after which the statement is judged; one number for an identity."""
    rule: Rule
    transform: Transform = "identity"
    premise: str = ""
    """Condition with its limit that every compared arm must meet for a seed to count."""
    source: str = ""
    """Paper with its version, and place in it."""
    reported: str = ""
    """The authors' result in words; shown beside the measurement, never compared with it."""
    reported_values: tuple[float, ...] = ()
    """The authors' numbers, in the unit of the estimand: the rule must say yes to them."""
    seed_sd: float = 0.0
    """SD between seeds on the transformed scale, from earlier seeds: noise for this test."""
    trials: int | tuple[int, int] | None = None
    """Trials of one seed, for proportions and their differences: also noise for this test."""
    resolution: float = 0.0
    """Smallest step of the effect, if it changes in steps; seeds may then be equal."""
    possible: tuple[float, float] | None = None
    """Possible range of the estimand; intervals end there."""
    of: str = ""
    """For a control: the replication that it belongs to."""

    def __post_init__(self) -> None:
        if problem := next(_problems(self), None):
            raise ValueError(problem)

    @property
    def hash(self) -> str:
        """Hash of all fields that decide the verdict."""
        return short_hash({name: getattr(self, name) for name in DECIDING})

    @property
    def empirical(self) -> bool:
        """Whether it has sampling error, and so belongs to the family that Holm corrects."""
        return self.kind is not Kind.IDENTITY

    def judge(self, values: Sequence[Value]) -> Judgement:
        """The judgement of seeds, in order."""
        if self.empirical:
            return self._inside(judge(values, looks=self.looks, **self._rule()))
        (look,) = self.looks
        if len(values) < look:
            reason = f"{len(values)} of {look} seeds are there."
            return replace(self._checked(values), outcome=Outcome.UNDECIDED, reason=reason)
        return self._checked(values[:look])

    def _inside(self, found: Judgement) -> Judgement:
        """The interval cut at the possible range, which does not reduce its coverage."""
        if self.possible is None or found.interval is None:
            return found
        return replace(found, interval=Interval(*np.clip(found.interval, *self.possible).tolist()))

    def seeds_needed(self, values: Sequence[Value]) -> int | None:
        """Estimated number of seeds that would decide, if further seeds are alike; or None."""
        return seeds_needed(values, **self._rule()) if self.empirical else None

    def chance_of_yes(self, reported: float) -> float:
        """Chance of a yes in a study with the reported truth and the noise between our seeds."""
        noise = {"seed_sd": self.seed_sd, "trials": self.trials}
        return chance_of_yes(reported, looks=self.looks, **noise, **self._rule())

    def _rule(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("transform", "rule", "limit", "resolution")}

    def _checked(self, values: Sequence[Value]) -> Judgement:
        assert isinstance(self.limit, float | int)  # the fields that every identity has
        return judge_identity(values, limit=self.limit)

    def word(self, outcome: Outcome) -> str:
        return word(self.kind, outcome)

    def says_yes(self, value: float) -> bool:
        """Whether `value` lies on the statement's side of its limit."""
        if isinstance(self.limit, tuple):
            return self.limit[0] <= value <= self.limit[1]
        return value > self.limit if self.rule == "above" else value <= self.limit


class Change(Stored):
    """Reason of a new version of a registration."""

    version: int
    reason: str
    after: bool = False
    """True if seeds count although the change came after them; the page says so."""


class Claim(Stored):
    """A claim with its registration, without the recipes of the tiers."""

    id: str
    title: str
    """The claim in one sentence."""
    source: str
    """The paper, with its arXiv number."""
    method: str
    """The method, in plain words."""
    mind: str = ""
    """Observations that would change our mind."""
    version: int = 1
    """Version of this registration."""
    first_seed: int = 0
    """First seed to measure; raise it after a change, so fresh seeds decide."""
    changes: tuple[Change, ...] = ()
    """One change for each version after the first, oldest first."""
    statements: tuple[Statement, ...] = ()
    """Empty if the claim is not registered yet."""

    def __post_init__(self) -> None:
        if [change.version for change in self.changes] != [*range(2, self.version + 1)]:
            raise ValueError(
                f"version {self.version} needs one [[changes]] for each version after the first"
            )
        names = [one.name for one in self.statements]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"two statements have the name {twice!r}: rename one")
        replications = {one.name for one in self.statements if one.kind is Kind.REPLICATION}
        for one in self.statements:
            if one.of and one.of not in replications:
                raise ValueError(f"{one.name}: of = {one.of!r} is no replication of this claim")


def short_hash(data: object) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def _problems(own: Statement) -> Iterator[str]:
    """Problems of a statement, each in a few words."""
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", own.name):
        yield "a name has lower-case letters and digits, with hyphens between them"
    if (own.rule == "within") != isinstance(own.limit, tuple):
        yield "the rule within needs limit = [low, high], any other rule one number"
    if isinstance(own.limit, tuple) and not own.limit[0] < own.limit[1]:
        yield "limit must be [low, high], the smaller number first"
    if own.possible and not all(
        own.possible[0] <= end <= own.possible[1]
        for end in (own.limit if isinstance(own.limit, tuple) else (own.limit,))
    ):
        yield "limit must lie inside what is possible"
    if own.of and own.kind is not Kind.CONTROL:
        yield "only a control is `of` a replication"
    if not own.empirical:
        if (own.rule, own.transform) != ("below", "identity") or len(own.looks) != 1:
            yield 'an identity has rule = "below", no transform, and looks = [number of seeds]'
        return
    if own.looks not in LOOKS:
        yield f"looks must be {' or '.join(str([*looks]) for looks in LOOKS)}"
    ends = own.limit if isinstance(own.limit, tuple) else (own.limit,)
    if own.transform == "log" and min(ends) <= 0:
        yield "on the log scale a limit is above 0"
    if own.transform == "proportion" and not -1 <= min(ends) <= max(ends) <= 1:
        yield "a proportion, or a difference of two, lies between -1 and 1, and so does its limit"
    if own.kind is Kind.REPLICATION:
        if not re.search(r"arXiv \d{4}\.\d{5}v\d", own.source):
            yield "a replication names its source with version and place: arXiv 2512.22471v3, …"
        if not own.reported_values and not own.reported.startswith(NO_NUMBER):
            yield f"a replication needs reported_values, or reported = '{NO_NUMBER}: …'"
