"""The ledger as one page."""

from collections.abc import Iterator
from pathlib import Path

from bayesattn import files
from bayesattn.claims.recorded import recorded_ledger
from bayesattn.claims.registry import listed
from bayesattn.ledger import words
from bayesattn.ledger.ledger import NAME, ExhibitFile, FigureFile, Ledger, Record
from bayesattn.ledger.study import Exhibit
from bayesattn.ledger.typed import from_plain
from bayesattn.report import html
from bayesattn.report.live import Live, compare
from bayesattn.report.live import recorded as recorded_rows
from bayesattn.report.markdown import LEADS, lead
from bayesattn.report.table import RULE, make_table

PAGE = "index.html"
GALLERY = Path(__file__).with_name("gallery.json")
STATES = {"yes": "✓ yes", "no": "✗ no", "undecided": "? undecided", "error": "! error"}
"""What the table can be filtered by."""


def render(ledger: Ledger, folder: Path, live: Live | None = None) -> str:
    """The page for `ledger`, whose figures lie in `folder`; `live` is what a demo has found."""
    registered = {claim.id: claim for claim, _ in listed()}
    records = [record for _, record in sorted(ledger.records.items())]
    claims = [registered.get(record.claim.id, record.claim) for record in records]
    table = make_table(claims, ledger)
    exhibits = {record.claim.id: list(shown(record, folder)) for record in records}
    every = [exhibit for own in exhibits.values() for exhibit in own]
    found = [
        html.embedded(f"live-{number}", exhibit, exhibit.data)
        for number, exhibit in enumerate(live.exhibits if live else ())
    ]
    record = recorded_rows() if live else {}
    gallery = list(playable())
    first = lead(ledger)
    far = next((own.claim for own in LEADS if own.claim in ledger.records), "")
    pictures = ledger.records[far].figures if far else ()
    tables = [own for own in exhibits.get(far, ()) if own["kind"] == "heatmap"]
    apart = [own for own in every if own["kind"] == "beliefs"] + tables
    still = {name: [own for own in shown if own not in apart] for name, shown in exhibits.items()}
    return html.render(
        "page.html",
        live=live,
        live_exhibits=found,
        compared={row.what: compare(row, record) for row in live.rows} if live else {},
        records=records,
        claims={claim.id: claim for claim in claims},
        cells={name: [cell for cell in table.cells if cell.claim.id == name] for name in exhibits},
        table=table,
        states={own: said for own, said in STATES.items() if own in {c.state for c in table.cells}},
        missing=[name for name in registered if name not in ledger.records],
        rule=RULE,
        gallery=gallery,
        lead=first,
        league=[own for own in pictures if first is None or own != first[0]],
        league_tables=tables,
        far=far,
        all_exhibits=[*found, *gallery, *every],
        players=[exhibit for exhibit in every if exhibit["kind"] == "beliefs"],
        exhibits=still,
        words=words,
        image=lambda own: html.data_uri(folder / own.file),
        problem=lambda own: problem(own, folder),
    )


def playable() -> Iterator[dict[str, str]]:
    """The exhibits that `report.gallery` has made of models that come along."""
    if GALLERY.exists():
        for name, own in files.read_json(GALLERY).items():
            exhibit = from_plain(Exhibit, own)
            yield html.embedded(f"play-{name}", exhibit, exhibit.data)


def write_page(folder: Path | None, path: Path, live: Live | None = None) -> Path:
    """The page for the ledger in `folder`, or for the recorded one, written to `path`."""
    if folder is None:
        clone = Path("results")
        ledger = Ledger.load(clone / NAME) if (clone / NAME).exists() else recorded_ledger()
        page = render(ledger, clone, live)
    else:
        page = render(Ledger.load(folder / NAME), folder, live)
    with files.writing(str(path), "make room, or choose another folder"):
        files.write_text(path, page)
    return path


def shown(record: Record, folder: Path) -> Iterator[dict[str, str]]:
    """The interactive parts of a claim whose data is there."""
    for exhibit in record.exhibits:
        if not problem(exhibit, folder):
            data = files.read_json(folder / exhibit.file)
            yield html.embedded(f"{record.claim.id}-{exhibit.kind}", exhibit, data)


def problem(own: FigureFile | ExhibitFile, folder: Path) -> str | None:
    """Why a file beside the ledger is not shown; None if it is what was recorded."""
    path = files.inside(folder, own.file)
    if path is None:
        return "lies outside the folder of the ledger"
    if not path.is_file():
        return "is missing"
    try:
        if own.sha256 and files.sha256(path) != own.sha256:
            return "is not the one that was recorded"
        if isinstance(own, ExhibitFile):
            files.read_json(path)
    except (OSError, ValueError) as error:
        return f"cannot be read ({error})"
    return None
