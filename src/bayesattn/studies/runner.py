"""Runs studies one after another and writes each into the ledger as soon as it is done."""

import json
import math
import re
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from bayesattn.drawing import house_style, save_picture
from bayesattn.environment import commit, environment
from bayesattn.errors import UserError
from bayesattn.studies.ledger import NAME, Failure, FigureFile, Record, add_record
from bayesattn.studies.registry import AnyStudy
from bayesattn.studies.study import Numbers, Tier


def parse_tier(name: str) -> Tier:
    """The tier called `name`."""
    try:
        return Tier(name)
    except ValueError:
        raise UserError(f"There is no tier {name!r}: choose one of {', '.join(Tier)}.") from None


def prepare_folder(folder: Path) -> Path:
    """Make `folder` and be sure that a ledger can be written there, before hours of work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(
            f"Cannot write to {folder} ({error.strerror}): choose another --out."
        ) from None
    return folder / NAME


def seeds_of(study: AnyStudy, tier: Tier, count: int | None) -> range:
    """The seeds to measure: `count` of them, or as many as the recipe says."""
    if tier not in study.recipes:
        tiers = ", ".join(study.recipes)
        raise UserError(f"The study {study.claim.id} has no {tier} tier: choose one of {tiers}.")
    if count is not None and count < 1:
        raise UserError(f"--seeds must be 1 or more, not {count}.")
    return range(study.recipes[tier].seeds if count is None else count)


def run_study(
    study: AnyStudy,
    tier: Tier,
    folder: Path,
    count: int | None = None,
    advance: Callable[[], None] = lambda: None,
) -> Record:
    """Measure, judge and draw one study; a crash becomes part of the record.

    Args:
        study: what to run.
        tier: how much of it.
        folder: figures are written to `folder/figures`.
        count: number of seeds, the recipe's if None.
        advance: called after each seed.
    """
    seeds = seeds_of(study, tier, count)
    numbers: dict[int, Numbers] = {}
    verdict, failure, figures = None, None, ()
    start = time.perf_counter()
    try:
        for seed in seeds:
            numbers[seed] = _plain(study.measure(tier, seed))
            advance()
        verdict = study.judge(tier, numbers)
        json.dumps(asdict(verdict), allow_nan=False)  # what the ledger cannot hold fails here
        figures = _draw(study, tier, numbers, folder)
    except Exception as error:  # whatever a study does wrong, the others must still run
        verdict, failure = None, _failure(error)
    return Record(
        claim=study.claim,
        method=study.method,
        null=study.null,
        tier=tier,
        seeds=tuple(seeds),
        recipe=asdict(study.recipes[tier]),
        verdict=verdict,
        failure=failure,
        numbers=numbers,
        figures=figures,
        command=f"bayesattn study run {study.claim.id} --tier {tier} --seeds {len(seeds)}",
        seconds=round(time.perf_counter() - start, 3),
        commit=commit(),
        environment=environment(),
    )


def run_studies(
    studies: Iterable[AnyStudy],
    tier: Tier,
    folder: Path,
    count: int | None = None,
    advance: Callable[[], None] = lambda: None,
) -> Iterator[Record]:
    """Run studies in turn; each record is in the ledger before it is yielded."""
    for study in studies:
        record = run_study(study, tier, folder, count, advance)
        add_record(folder / NAME, record)
        yield record


def _plain(numbers: Numbers) -> Numbers:
    """The numbers as Python's own, which JSON can hold; NaN and infinity are refused."""
    plain: dict[str, float | Sequence[float]] = {}
    for name, value in numbers.items():
        several = isinstance(value, Sequence)
        values = [v if isinstance(v, int) else float(v) for v in (value if several else [value])]
        if not all(math.isfinite(v) for v in values):
            raise ValueError(f"the measured {name!r} is not finite: {value}")
        plain[name] = values if several else values[0]
    return plain


def _draw(
    study: AnyStudy, tier: Tier, numbers: Mapping[int, Numbers], folder: Path
) -> tuple[FigureFile, ...]:
    files: list[FigureFile] = []
    with house_style():
        for picture in study.draw(tier, numbers):
            file = f"figures/{study.claim.id}-{picture.name}.svg"
            save_picture(picture, folder / file)
            files.append(FigureFile(file=file, caption=picture.caption, alt=picture.alt))
    return tuple(files)


def _failure(error: Exception) -> Failure:
    text = "".join(traceback.format_exception(error))
    sentence = " ".join(f"{type(error).__name__}: {error}".split())
    return Failure(sentence=sentence, traceback=re.sub(r'File "([^"]+)"', _short, text))


def _short(match: re.Match[str]) -> str:
    # Where a package is installed says who runs it, not what went wrong.
    path = Path(match[1])
    for root in ("site-packages", "src"):
        if root in path.parts:
            return f'File "{path.as_posix().rpartition(f"/{root}/")[2]}"'
    return f'File "{path.name}"'
