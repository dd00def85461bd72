"""Every attention kernel against plain causal SDPA, interleaved in one run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

from rich.console import Console
from tyro.conf import arg

from bayesattn.errors import UserError
from bayesattn.system import peak_bytes
from benchmarks.contenders import (
    KERNELS,
    MODES,
    PRIORS,
    REFERENCE,
    TEMPERATURES,
    Contender,
    Mode,
    contenders,
)
from benchmarks.measure import interleave, report
from benchmarks.problem import Problem

Word = TypeVar("Word", bound=str)


@dataclass(frozen=True)
class Row:
    """One measurement."""

    kernel: str
    prior: str
    ssmax: str
    mode: Mode
    length: int
    ratio: float
    """Best time over the best time of plain SDPA in the same rounds."""
    median: float
    """Median time over the median time of plain SDPA."""
    ratio_low: float
    ratio_high: float
    """Quartiles of the ratio round by round."""
    rounds: int
    extra_bytes: int
    """Peak memory of the call beyond its inputs and results (and kept scratch, some 10 MiB)."""
    max_error: float
    """From the float64 definition at some query rows: of outputs, or relative of gradients."""


@dataclass(frozen=True, kw_only=True)
class AttentionBench:
    """Time attention kernels against plain causal SDPA, interleaved in one run, on the CPU."""

    lengths: Annotated[str, arg(metavar="N,N,...")] = "1024,4096,16384"
    """Sequence lengths. At 65536 plain attention alone takes minutes."""
    modes: Annotated[str, arg(metavar="MODE,...")] = ",".join(MODES)
    """What to time: forward; backward, which is both passes; decode, one query on a full cache."""
    kernels: Annotated[str, arg(metavar="NAME,...")] = "strided"
    """What to compare with sdpa: strided, skipping, dense bias, flex, blocked. All but the first
    two stop at the lengths they can bear."""
    priors: Annotated[str, arg(metavar="NAME,...")] = "mixed"
    """Priors: ggd, as training leaves it; mixed, half of the heads local; local, all of them;
    alibi; uniform; gates, which forget. Blocked also takes score, a function of the distance."""
    ssmax: Annotated[str, arg(metavar="NAME,...")] = "none,horizon"
    """SSMax: none, content, content+prior, or horizon, content+prior with the horizon 128."""
    heads: int = 8
    """Query and key/value heads."""
    width: int = 64
    """Head width."""
    batch: int = 1
    """Sequences."""
    seconds: float = 10.0
    """Time to spend on each mode at each length."""
    rounds: int = 3
    """Rounds at the least."""
    tolerance: float = 1e-4
    """Share of the posterior that certified skipping may miss."""
    times_only: bool = False
    """Leave out errors and memory, which take as long as some rounds."""
    json: Annotated[str | None, arg(metavar="FILE")] = None
    """Write JSON to this file ("-": standard output) instead of a table."""

    def run(self) -> int:
        """Measure and print."""
        terms = f", {self.heads} heads of width {self.width}"
        return report(list(run(self)), _printed, terms, self.json)


def run(config: AttentionBench) -> Iterator[Row]:
    """Measurements, length by length and mode by mode."""
    lengths = _numbers(config.lengths)
    modes = _chosen("mode", config.modes, MODES)
    kernels = _chosen("kernel", config.kernels, KERNELS)
    priors = _chosen("prior", config.priors, PRIORS)
    wanted = contenders(kernels, priors, _chosen("ssmax", config.ssmax, TEMPERATURES))
    log = Console(stderr=True)
    for length in lengths:
        for mode in modes:
            fitting = [c for c in wanted if length <= c.limit(mode)]
            if fitting:
                with log.status(f"{mode} at {length}"):
                    yield from _measure(fitting, mode, length, config)


def _measure(
    wanted: list[Contender], mode: Mode, length: int, config: AttentionBench
) -> Iterator[Row]:
    problem = Problem.random(mode, (config.batch, config.heads, length, config.width))
    prepared = {c.name: problem.prepare(c, config.tolerance, not config.times_only) for c in wanted}
    ratios = interleave(
        {n: call for n, (call, _) in prepared.items()}, REFERENCE, config.seconds, config.rounds
    )
    for contender in wanted:
        call, error = prepared[contender.name]
        peak = 0 if config.times_only else peak_bytes(call)
        extra = max(0, peak - problem.result_bytes)
        r = ratios[contender.name]
        what = (contender.kernel, contender.prior, contender.ssmax, mode, length)
        yield Row(*what, r.ratio, r.median, r.low, r.high, r.rounds, extra, error)


def _numbers(text: str) -> list[int]:
    try:
        lengths = [int(word) for word in text.split(",")]
    except ValueError:
        lengths = []
    if not lengths or min(lengths) < 1:
        raise UserError(f"--lengths takes positive numbers such as 1024,4096, not {text!r}.")
    return lengths


def _chosen(what: str, text: str, allowed: Sequence[Word]) -> list[Word]:
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in allowed:
            raise UserError(f"There is no {what} {word!r}; choose from {', '.join(allowed)}.")
    return [name for name in allowed if name in words]


def _printed(row: Row) -> dict[str, str]:
    return {
        "length": str(row.length),
        "mode": row.mode,
        "kernel": row.kernel,
        "prior": row.prior,
        "ssmax": row.ssmax,
        "ratio": f"{row.ratio:.2f}",
        "median": f"{row.median:.2f}",
        "quartiles": f"{row.ratio_low:.2f}-{row.ratio_high:.2f}",
        "rounds": str(row.rounds),
        "extra MiB": f"{row.extra_bytes / 2**20:.1f}",
        "max error": f"{row.max_error:.1e}",
    }
