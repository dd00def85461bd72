"""Makes the record of a claim from its measured seeds: rows, figures, exhibits."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bayesattn.drawing import Picture, house_style, save_picture
from bayesattn.errors import MissingModelError
from bayesattn.files import sha256, write_json
from bayesattn.ledger.jobs import failure, one_thread
from bayesattn.ledger.ledger import ExhibitFile, Failure, FigureFile, Record, Row
from bayesattn.ledger.measured import seed_numbers, seeds_in
from bayesattn.ledger.statement import Claim, Statement
from bayesattn.ledger.study import AnyStudy, Tier
from bayesattn.ledger.words import command
from bayesattn.system import environment
from bayesattn.verdicts import Outcome, Value, next_look

FIGURES = "figures"
"""Folder beside the ledger."""


def seeds_of(study: AnyStudy, tier: Tier, look: int | None = None) -> range:
    """The seeds of the quick tier, or of a look; of all looks if None."""
    if tier is Tier.QUICK:
        count = study.recipes[tier].seeds
    else:
        count = look or max((own.looks[-1] for own in study.claim.statements), default=0)
    return range(study.claim.first_seed, study.claim.first_seed + count)


def first_look(claim: Claim) -> int:
    return min((own.looks[0] for own in claim.statements), default=0)


def look_after(record: Record) -> int | None:
    """Number of seeds at the next look; None if all is decided or no look is left.

    If no seed of a look met a premise, no more seeds are run: they would not help.
    """
    further = [
        next_look(len(record.seeds), own.looks)
        for own, row in record.judged()
        if row.outcome is Outcome.UNDECIDED and (row.seeds or not row.left_out)
    ]
    return min((look for look in further if look is not None), default=None)


def judge_seeds(
    study: AnyStudy,
    tier: Tier,
    folder: Path,
    seeds: Iterable[int] | None = None,
    failed: Failure | None = None,
) -> Record:
    """The record of the measurements in `folder`; failures are recorded, too.

    Args:
        study: the study of the claim.
        tier: of the measurements.
        folder: of the ledger.
        seeds: seeds that count, if they are measured; all if None.
        failed: failures of the measurements.
    """
    there = seeds_in(study, tier, folder, seeds_of(study, tier) if seeds is None else seeds)
    files = [one for own in there.values() for one in own]
    rows: dict[str, Row] = {}
    figures: tuple[FigureFile, ...] = ()
    exhibits: tuple[ExhibitFile, ...] = ()
    if failed is None:
        try:
            found = study.read({seed: seed_numbers(own) for seed, own in there.items()})
            rows = _rows(study, tier, found)
            if found:
                figures = tuple(
                    FigureFile(
                        file=f"{FIGURES}/{path.name}",
                        sha256=sha256(path),
                        caption=picture.caption,
                        alt=picture.alt,
                    )
                    for picture, path in draw_figures(study, tier, found, folder / FIGURES)
                )
                with one_thread():
                    exhibits = tuple(_exhibits(study, tier, found, folder))
        except Exception as error:  # an error of one claim must not stop the others
            rows, failed = {}, failure(error)
    return Record(
        claim=study.claim,
        tier=tier,
        seeds=tuple(there),
        recipe=asdict(study.recipes[tier]),
        rows=rows,
        failure=failed,
        figures=figures,
        exhibits=exhibits,
        command=command(study.claim.id, tier),
        seconds=round(sum(one.seconds for one in files), 3),
        commits=tuple(dict.fromkeys(one.commit for one in files if one.commit)),
        environment=environment(),
    )


def _rows(study: AnyStudy, tier: Tier, found: Mapping[int, Any]) -> dict[str, Row]:
    said = study.said(tier, found)
    rows = {own.name: judge_row(own, said[own.name], tier) for own in study.claim.statements}
    json.dumps([asdict(row) for row in rows.values()], allow_nan=False)  # fails here, not later
    return rows


def judge_row(own: Statement, said: Mapping[int, Value], tier: Tier) -> Row:
    """The row of a statement from its seeds, in order; without verdict in the quick tier."""
    values = [*said.values()]
    judged = own.judge(values)
    looked = [*said][: judged.seeds]
    at_end = judged.outcome is Outcome.UNDECIDED and len(values) >= own.looks[-1]
    verdict = {
        "outcome": judged.outcome,
        "verdict": own.word(judged.outcome),
        "interval": judged.interval,
        "level": judged.level,
        "p": judged.p,
        "reason": judged.reason,
        "needed": own.seeds_needed(values) if at_end else None,
    }
    if tier is Tier.QUICK:
        reason = "The quick tier gives no verdicts: so few seeds of so small models decide nothing."
        verdict = {**dict.fromkeys(verdict), "reason": reason}
    return Row(
        registered=own.hash,
        value=judged.value,
        comparator=judged.comparator,
        seeds=tuple(seed for seed in looked if said[seed].learnt),
        left_out=tuple(seed for seed in looked if not said[seed].learnt),
        **verdict,
    )


def draw_figures(
    study: AnyStudy, tier: Tier, found: Mapping[int, Any], folder: Path, ending: str = "svg"
) -> Iterator[tuple[Picture, Path]]:
    """The figures of a claim, and their files in `folder`."""
    with house_style():
        for picture in study.draw(tier, found):
            path = folder / f"{study.claim.id}-{picture.name}.{ending}"
            save_picture(picture, path)
            yield picture, path


def _exhibits(
    study: AnyStudy, tier: Tier, found: Mapping[int, Any], folder: Path
) -> Iterator[ExhibitFile]:
    try:
        drawn = [*study.exhibits(tier, found)]
    except MissingModelError:  # seeds came from another machine: numbers need no model, players do
        return
    for exhibit in drawn:
        file = f"exhibits/{study.claim.id}-{exhibit.kind}.json"
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        write_json(folder / file, exhibit.data)
        own = {"file": file, "sha256": sha256(folder / file)}
        words = {"kind": exhibit.kind, "title": exhibit.title, "caption": exhibit.caption}
        yield ExhibitFile(**own, **words)
