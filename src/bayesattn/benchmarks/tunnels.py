"""`bayesattn bench tunnels`: the vectorised samplers against one sequence at a time, in one run."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Annotated

import numpy as np
import torch
from rich.console import Console
from tyro.conf import arg

from bayesattn.benchmarks.measure import interleave
from bayesattn.benchmarks.per_sample import PER_SAMPLE, PerSample
from bayesattn.console import show_rows, write_json
from bayesattn.errors import UserError
from bayesattn.training.machine import keep_memory
from bayesattn.tunnels import (
    HMM,
    Bijection,
    GroupFilter,
    Hops,
    Recall,
    Revision,
    StickyChain,
    Tunnel,
)
from bayesattn.tunnels.compiled import has_numba

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
}
"""What is timed: the papers' sizes where they state any."""

_CHECKED = 16


@dataclass(frozen=True)
class Row:
    """One sampler, with exact posteriors in both columns of times."""

    tunnel: str
    ratio: float
    """Sequences per second over those of the per-sample code, best rounds of each."""
    ratio_low: float
    ratio_high: float
    """Quartiles of the ratio round by round."""
    rounds: int
    per_second: float
    """Sequences per second in the best round."""
    plain_per_second: float
    """The same of the per-sample code."""
    batch: int
    max_error: float
    """Largest difference of the two posteriors on sequences of the vectorised sampler."""


@dataclass(frozen=True, kw_only=True)
class TunnelsBench:
    """Time each vectorised sampler against plain Python that draws one sequence at a time."""

    tunnels: Annotated[str, arg(metavar="NAME,...")] = ",".join(PER_SAMPLE)
    """Which tunnels."""
    batch: int = 1024
    """Sequences of one call of the vectorised sampler."""
    plain: int = 8
    """Sequences that the per-sample code draws in the same round."""
    seconds: float = 5.0
    """Time to spend on each sampler; three rounds at the least."""
    json: Annotated[str | None, arg(metavar="FILE")] = None
    """Write JSON to this file as well ("-": to standard output, instead of a table)."""

    def run(self) -> int:
        """Measure and print."""
        rows = list(run(self))
        if self.json:
            terms = {"threads": torch.get_num_threads(), "numba": has_numba()}
            write_json([asdict(row) | terms for row in rows], self.json)
        if self.json != "-":
            numba = "with" if has_numba() else "without"
            print(f"{torch.get_num_threads()} threads, batches of {self.batch}, {numba} numba")
            show_rows([_printed(row) for row in rows])
        return 0


def run(config: TunnelsBench) -> Iterator[Row]:
    """Measurements, tunnel by tunnel."""
    wanted = [word.strip() for word in config.tunnels.split(",")]
    for word in wanted:
        if word not in PER_SAMPLE:
            raise UserError(f"There is no tunnel {word!r}; choose from {', '.join(PER_SAMPLE)}.")
    if config.batch < 1 or config.plain < 1:
        raise UserError("--batch and --plain count sequences: they must be positive.")
    keep_memory()  # as in training
    log = Console(stderr=True)
    for label, tunnel in CASES.items():
        if tunnel.name in wanted:
            with log.status(label):
                yield _measure(label, tunnel, config)


def _measure(label: str, tunnel: Tunnel, config: TunnelsBench) -> Row:
    plain = PER_SAMPLE[tunnel.name](tunnel)
    calls = {"ours": _vectorised(tunnel, config.batch), "plain": _one_by_one(plain, config.plain)}
    times = interleave(calls, "ours", config.seconds)
    # a round draws more sequences in the vectorised call than in the other one
    share, found = config.batch / config.plain, times["plain"]
    return Row(
        label,
        found.ratio * share,
        found.low * share,
        found.high * share,
        found.rounds,
        config.batch / times["ours"].seconds,
        config.plain / found.seconds,
        config.batch,
        _difference(tunnel, plain),
    )


def _vectorised(tunnel: Tunnel, batch: int) -> Callable[[], object]:
    generator = torch.Generator().manual_seed(0)
    return lambda: tunnel.sample(batch, generator)


def _one_by_one(plain: PerSample, count: int) -> Callable[[], object]:
    rng = np.random.default_rng(0)
    return lambda: [plain.sample(rng) for _ in range(count)]


def _difference(tunnel: Tunnel, plain: PerSample) -> float:
    batch = tunnel.sample(_CHECKED, torch.Generator().manual_seed(1))
    return max(
        float(np.abs(plain.posterior(inputs.numpy()) - posterior.numpy()).max())
        for inputs, posterior in zip(batch.inputs, batch.posterior, strict=True)
    )


def _printed(row: Row) -> dict[str, str]:
    return {
        "tunnel": row.tunnel,
        "ratio": f"{row.ratio:.0f}",
        "quartiles": f"{row.ratio_low:.0f}-{row.ratio_high:.0f}",
        "rounds": str(row.rounds),
        "sequences/s": f"{row.per_second:,.0f}",
        "one by one": f"{row.plain_per_second:,.0f}",
        "max error": f"{row.max_error:.1e}",
    }
