"""`python -m benchmarks tunnels`: whole batches against the same sampler, one sequence a call."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import torch
from rich.console import Console
from tyro.conf import arg

from bayesattn.errors import UserError
from bayesattn.system import keep_memory
from bayesattn.tunnels import (
    HMM,
    RRXOR,
    TUNNELS,
    Bijection,
    Dice,
    GroupFilter,
    Hops,
    Labels,
    Markov,
    Mess3,
    Recall,
    Revision,
    StickyChain,
    Tunnel,
)
from benchmarks.measure import interleave, report

CASES: dict[str, Tunnel] = {
    "bijection": Bijection(20, 19),
    "bijection, replacement": Bijection(20, 19, replacement=True),
    "hmm, rows": HMM(5, 5, 20),
    "hmm, tokens": HMM(5, 5, 20, header="tokens"),
    "recall": Recall(),
    "revision": Revision(),
    "sticky": StickyChain(),
    "hops": Hops(),
    "group": GroupFilter(),
    "mess3": Mess3(),
    "rrxor": RRXOR(),
    "dice": Dice(faces=6),
    "markov": Markov(),
    "labels": Labels(),
}
"""What is timed: the papers' sizes where they state any."""
SINGLE = 8
"""Sequences that a round draws one at a time: their time grows with their number."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One sampler, exact posteriors included."""

    tunnel: str
    ratio: float
    """Sequences per second of whole batches over those of single sequences, best rounds."""
    ratio_low: float
    ratio_high: float
    """Quartiles of the ratio round by round."""
    rounds: int
    per_second: float
    """Sequences per second of whole batches, best round."""
    single_per_second: float
    """The same, one sequence at a time."""
    batch: int


@dataclass(frozen=True, kw_only=True)
class TunnelsBench:
    """Time each sampler: whole batches against one sequence at a time."""

    tunnels: Annotated[str, arg(metavar="NAME,...")] = ",".join(TUNNELS)
    """Which tunnels."""
    batch: int = 1024
    """Sequences of a batch."""
    seconds: float = 5.0
    """Time to spend on each sampler; three rounds at the least."""
    json: Annotated[str | None, arg(metavar="FILE")] = None
    """Write JSON to this file as well ("-": to standard output, instead of a table)."""

    def run(self) -> int:
        """Measure and print."""
        rows = list(measure_all(self))
        return report(rows, _printed, f", batches of {self.batch}", self.json)


def measure_all(config: TunnelsBench) -> Iterator[Row]:
    """Measurements, tunnel by tunnel."""
    wanted = [word.strip() for word in config.tunnels.split(",")]
    for word in wanted:
        if word not in TUNNELS:
            raise UserError(f"There is no tunnel {word!r}; choose from {', '.join(TUNNELS)}.")
    if config.batch < 1:
        raise UserError("--batch counts sequences: it must be positive.")
    keep_memory()  # as in training
    log = Console(stderr=True)
    for label, tunnel in CASES.items():
        if tunnel.name in wanted:
            with log.status(label):
                yield measure(label, tunnel, config.batch, config.seconds)


def measure(label: str, tunnel: Tunnel, batch: int, seconds: float) -> Row:
    """One sampler, both ways in turn."""
    generator = torch.Generator().manual_seed(0)
    calls = {
        "batch": lambda: tunnel.sample(batch, generator),
        "single": lambda: [tunnel.sample(1, generator) for _ in range(SINGLE)],
    }
    times = interleave(calls, "batch", seconds)
    found, share = times["single"], batch / SINGLE
    return Row(
        tunnel=label,
        ratio=found.ratio * share,
        ratio_low=found.low * share,
        ratio_high=found.high * share,
        rounds=found.rounds,
        per_second=batch / times["batch"].seconds,
        single_per_second=SINGLE / found.seconds,
        batch=batch,
    )


def _printed(row: Row) -> dict[str, str]:
    return {
        "tunnel": row.tunnel,
        "ratio": f"{row.ratio:.0f}",
        "quartiles": f"{row.ratio_low:.0f}-{row.ratio_high:.0f}",
        "rounds": str(row.rounds),
        "sequences/s": f"{row.per_second:,.0f}",
        "one at a time": f"{row.single_per_second:,.0f}",
    }
