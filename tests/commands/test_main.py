"""The command line, in this process: what it prints, writes and returns."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bayesattn
from bayesattn.claims import all_studies, registry
from bayesattn.commands import demo, names, quick
from bayesattn.commands import main as cli
from bayesattn.commands.help import written
from bayesattn.commands.main import COMMANDS, FORMER_OPTIONS, main
from bayesattn.corpora.ruler import KINDS
from bayesattn.ledger.ledger import Ledger
from tests.ledger.toy import crash, toy


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Every command runs in an empty folder, where nobody watches."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CI", "1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("BAYESATTN_DEBUG", raising=False)
    return tmp_path


@pytest.fixture
def studies(monkeypatch):
    """Toy studies in place of the real ones: `use(toy(), …)`."""
    all_studies()
    # studies made up here exist in this process only
    monkeypatch.setattr("bayesattn.ledger.engines.default_workers", lambda: 1)

    def use(*toys):
        monkeypatch.setattr(registry, "_studies", {t.claim.id: t for t in toys})
        monkeypatch.setattr(registry, "FOLDER", Path("no claims of ours"))

    use(toy("good"), toy("wrong", level=-20.0))
    return use


def ledger(folder="report"):
    return Ledger.load(Path(folder) / "ledger.json").records


def mistake(capsys, *words):
    """The one sentence that a mistake gets."""
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("bayesattn: ") and err.count("\n") == 1
    return err


def test_help_lists_every_command(capsys):
    for words in ([], ["--help"], ["-h"], ["help"]):
        assert main(words) == 0
        out = capsys.readouterr().out
        assert all(name in out for name in COMMANDS)


def test_help_of_a_group_lists_that_group(capsys):
    for words in (["claims"], ["claims", "--help"]):
        assert main(words) == 0
        out = capsys.readouterr().out
        assert "claims list" in out and "claims show" in out
        assert "demo" not in out


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_is_what_the_command_says(capsys, name):
    assert main([*name.split(), "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"usage: bayesattn {name} ")
    assert out == written(name), "an option has changed: run python -m bayesattn.commands.help"


def test_help_with_other_words_comes_from_the_command(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["claims", "run", "bam-size", "--help"])
    assert stop.value.code == 0
    assert "usage: bayesattn claims run" in capsys.readouterr().out


def test_a_switch_has_one_flag(capsys):
    for words, flag, other in (
        (["claims", "run"], "--all", "--no-all"),
        (["demo"], "--no-open", "--no-no-open"),
    ):
        main([*words, "--help"])
        out = capsys.readouterr().out
        assert flag in out and other not in out


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from bayesattn.commands.main import main; main(['--help']); main(['study']);"
        "main(['lm', 'train', '--help']);"
        "heavy = {'torch', 'numpy', 'scipy', 'matplotlib', 'transformers', 'tyro', 'rich'};"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_version_is_told(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"bayesattn {bayesattn.__version__}\n"


def test_python_m_bayesattn_is_the_same_command():
    command = [sys.executable, "-m", "bayesattn", "claims", "nope"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("bayesattn: There is no command 'claims nope'")


def test_arguments_come_from_the_command_line_unless_given(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["bayesattn", "--version"])
    assert main() == 0
    assert "bayesattn" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["dmeo"], "no command 'dmeo': did you mean `bayesattn demo`?"),
        (["claims", "lst"], "no command 'claims lst': did you mean `bayesattn claims list`?"),
        (["zzz"], "no command 'zzz': `bayesattn --help` lists them."),
        (["study"], "`bayesattn study` is now `bayesattn claims`."),
        (["study", "run", "bam-size"], "`bayesattn study run` is now `bayesattn claims run`."),
        (["bench", "attention"], "is now `python -m benchmarks attention`, from a clone"),
        (["lm", "train", "tiny", "--window", "8"], "--window is now --sliding-window"),
        (["tunnel", "train", "hmm", "--kv_heads=2"], "--kv-heads is now --num-key-value-heads"),
        (["tunnel", "train", "hmm", "--exempt-header"], "is now `--exempt header`"),
        (["demo", "--budget", "5"], "--budget is gone; leave claims out with"),
        (["claims", "run", "bam-unifrm"], "no claim 'bam-unifrm': did you mean 'bam-uniform'?"),
        (["claims", "show", "bam-sise"], "no claim 'bam-sise': did you mean 'bam-size'?"),
        (["claims", "run", "bam-size", "--tier", "fast"], "no tier 'fast': choose one of quick"),
        (["claims", "run", "bam-size", "--seeds", "0"], "--seeds 0 names no seed: pass 1 or more"),
        (["claims", "run"], "Name the claims to measure, or pass --all"),
        (["claims", "run", "bam-size", "--all"], "Name the claims to measure, or pass --all"),
        (["claims", "run", "bam-size", "--out", "file/x"], "Cannot write to file/x"),
        (["demo", "--all", "--out", "file/x"], "Cannot write to file/x"),
        (["claims", "add", "nowhere"], "There are no measured seeds in nowhere"),
        (["report"], "no ledger at report/ledger.json: `bayesattn claims run` writes one"),
        (["report", "--readme", "README.md"], "no ledger at report/ledger.json"),
        (
            ["claims", "list", "--json", "no/where.json"],
            "Cannot write no/where.json: there is no folder",
        ),
        (["prior", "draw", "gdd"], "There is no prior 'gdd': did you mean 'ggd'?"),
        (["prior", "draw", "ggd", "--heads", "0"], "num_heads must be"),
        (["prior", "draw", "ggd", "-o", "no/where.png"], "Cannot write no/where.png"),
        (["prior", "draw", "ggd", "-o", "image.what"], "must end in one of .svg, .png, .pdf"),
    ],
)
def test_a_mistake_gets_one_sentence(folder, capsys, words, sentence):
    (folder / "file").touch()
    assert sentence in mistake(capsys, *words)
    assert not (folder / "report").exists()


def test_every_new_name_of_an_option_exists():
    """And no former name is an option of today."""
    for name, former in FORMER_OPTIONS.items():
        page = written(name)
        for old, text in former.items():
            assert re.search(r"--[a-z-]+", text)[0] in page
            assert not re.search(rf"{old}(?![a-z-])", page)


MISTAKES = [
    (["claims", "list", "--colour"], "no option --colour"),
    (["lm", "passkey", "zoo:passkey", "--lenghts", "1x"], "did you mean --lengths?"),
    (["lm", "passkey", "zoo:passkey", "--samples", "few"], "--samples takes a whole number"),
    (["lm", "passkey", "zoo:passkey", "--seed"], "--seed needs a value"),
    (["lm", "passkey"], "`bayesattn lm passkey` needs MODEL"),
    (["lm", "passkey", "zoo:pass"], "There is no 'zoo:pass': the zoo has"),
    (["probe", "./nowhere"], "There is no ./nowhere"),
    (["probe", "not/a/model"], "no name on the Hugging Face hub"),
    (["bayes", "nowhere"], "neither on this machine nor on the"),
    (["tunnel", "fidelity", "nowhere.gguf"], "There is no nowhere.gguf"),
    (["tunnel", "train", "hm"], "There is no tunnel 'hm': did you mean 'hmm'?"),
    (["tunnel", "train", "hmm", "--satates", "3"], "no option --satates"),
    (["lm", "train", "tinny"], "There is no recipe 'tinny': did you mean 'tiny'?"),
    (["lm", "train", "tiny", "--optimizer", "sgd"], "There is no optimizer 'sgd'"),
    (["claims", "run", "bam-size", "--tier", "fast"], "There is no tier 'fast'"),
    (["claims", "show", "bam-sise"], "did you mean 'bam-size'?"),
    (["claims", "list", "more"], "does not know what 'more' is"),
    (["report", "nowhere"], "There is no folder nowhere"),
    (["lm", "zoo", "--import", "no.py"], "--import no.py: there is no such file"),
    (["lm", "train", "tiny"], "Say where the run is to be written: --out RUN."),
    (["tunnel", "train", "hmm"], "Say where the run is to be written: --out RUN."),
    (["lm", "train", "--resume", "nowhere"], "There is no run in nowhere"),
    (["tunnel", "train", "--resume=nowhere"], "There is no run in nowhere"),
    (["lm", "train", "tiny", "--corpus", "no", "--out", "x"], "There is no corpus no: give a file"),
    (["lm", "train", "tiny", "--corpus", "empty", "--out", "x"], "There is no text in empty"),
    (["lm", "train", "tiny", "--device", "gpu", "--out", "x"], "There is no device 'gpu'"),
    (["probe", "zoo:mess3", "--device", "gpu"], "There is no device 'gpu'"),
    (["extend", "zoo:passkey", "--text", "no"], "There is no corpus no"),
    (["lm", "passkey", "zoo:passkey", "--lengths", "1x,far"], "a multiple such as 8x, or a number"),
    (["lm", "passkey", "zoo:hmm-5"], "is a run of a tunnel, which reads no text"),
    (["tunnel", "fidelity", "zoo:passkey"], "which has no exact posterior"),
    (["lm", "ruler", "zoo:passkey", "--kinds", "vt,x"], "There is no kind of prompt 'x'"),
    (["lm", "passkey", "zoo:passkey", "--figure", "x.doc"], "must end in one of .svg, .png, .pdf"),
    (["lm", "passkey", "zoo:passkey", "--json", "no/x.json"], "there is no folder no"),
    (["lm", "export", "zoo:passkey", "."], ". is there already: choose another folder"),
    (["probe", "zoo:passkey", "--prompts", "no.txt"], "There is no file no.txt"),
    (["check-prior", "no.py"], "There is no file no.py"),
    (["prior", "draw", "gdd"], "There is no prior 'gdd': did you mean 'ggd'?"),
    (["cost", "tny"], "There is no size 'tny': did you mean 'tiny'?"),
    (["demo", "--skip", "bam-size"], "pass --all, too"),
    (["report"], "There is no ledger at report/ledger.json"),
]
ALONE = """
import sys
from bayesattn.commands.main import main
for words in {words!r}:
    assert main(words) == {code}, words
print([name for name in ("torch", "transformers", "scipy", "matplotlib") if name in sys.modules])
"""


def alone(words, code):
    """Standard error of commands in a process of their own, which must not import what is slow."""
    script = ALONE.format(words=words, code=code)
    places = {"HF_HUB_OFFLINE": "1", "BAYESATTN_DEBUG": "0"}
    run = {"capture_output": True, "text": True, "env": os.environ | places}
    done = subprocess.run([sys.executable, "-c", script], **run)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("[]\n"), done.stdout
    return done.stderr


def test_mistakes_are_answered_before_anything_slow_is_imported(folder):
    (folder / "empty").mkdir()
    lines = alone([words for words, _ in MISTAKES], code=2).splitlines()
    assert len(lines) == len(MISTAKES)
    for line, (_, sentence) in zip(lines, MISTAKES, strict=True):
        assert line.startswith("bayesattn: ") and sentence in line


def test_kinds_of_prompts_are_read_from_their_table():
    assert names.kinds() == list(KINDS)


def test_lists_are_given_before_anything_slow_is_imported():
    words = [["claims", "list"], ["tunnel", "zoo"], ["lm", "zoo"], ["claims", "show", "bam-size"]]
    assert alone(words, code=0) == ""


def test_a_list_has_every_claim_of_the_registry():
    assert [claim for claim, _ in registry.listed()] == [own.claim for own in all_studies()]
    assert [tiers for _, tiers in registry.listed()] == [[*own.recipes] for own in all_studies()]


def test_options_that_help_names_are_known_to_the_quick_check():
    """Every value that tyro takes for a default is taken here, too: nothing right is refused."""
    right = [
        ("lm passkey", "zoo:passkey --lengths 1x,8x --json - --tolerance 1e-3 --give-up 2"),
        ("lm train", "tiny --no-ssmax --out RUN --betas 0.9 0.95 --prior-options init=mixed a=1"),
        ("tunnel train", "hmm --out=RUN --states 5 --tunnel.width 3 --exempt header --no-ssmax"),
        ("probe", "--no-control zoo:passkey zoo:hmm-5 --layers -1 -o x.html"),
        ("claims run", "bam-size bam-uniform --skip bam-size --seeds 1-3 --on here"),
        ("lm train", "--resume RUN --steps 900"),
        ("demo", "--all --skip bam-size --out x"),
        ("lm export", "zoo:passkey folder"),
    ]
    Path("RUN").mkdir()
    Path("RUN/config.json").touch()
    for name, line in right:
        quick.refuse(name, line.split(), {})


def test_show_tells_what_is_recorded_where_nothing_was_measured(capsys, tmp_path):
    assert main(["claims", "show", "bam-size", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "not measured" not in out and out.count("✓ holds") == 2


def test_debugging_shows_where_a_mistake_was_found(monkeypatch):
    monkeypatch.setenv("BAYESATTN_DEBUG", "1")
    with pytest.raises(ValueError, match="no claim"):
        main(["claims", "show", "nope"])


def test_a_bug_of_ours_is_not_passed_off_as_a_mistake(monkeypatch):
    def broken():
        raise ValueError("ours")

    monkeypatch.setattr("bayesattn.commands.claims.listed", broken)
    with pytest.raises(ValueError, match="ours"):
        main(["claims", "list"])


def test_an_interrupt_ends_quietly(monkeypatch, capsys):
    def interrupted(words):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_run", interrupted)
    assert main(["demo"]) == 130
    assert capsys.readouterr().err == "Stopped.\n"


def test_list_shows_every_claim(studies, capsys):
    assert main(["claims", "list"]) == 0
    out = capsys.readouterr().out
    assert "good works." in out and "wrong works." in out and "quick, full" in out


def test_list_as_json(studies, capsys):
    assert main(["claims", "list", "--json", "-"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in rows] == ["good", "wrong"]
    assert rows[0]["tiers"] == ["quick", "full"]
    assert main(["claims", "list", "--json", "list.json"]) == 0
    assert json.loads(Path("list.json").read_text()) == rows


def test_run_measures_what_is_named_until_it_is_decided(studies, capsys):
    assert main(["claims", "run", "good", "--tier", "full"]) == 0
    assert list(ledger()) == ["good"]
    assert ledger()["good"].tier == "full"
    assert ledger()["good"].seeds == (0, 1, 2, 3)
    out, err = capsys.readouterr()
    assert "✓ supported" in out and "11.5 points [5.76, 17.2]" in out
    assert "✓ supported           good/effect: 11.5 points" in err
    assert main(["claims", "run", "wrong", "good"]) == 0
    assert {name: len(record.seeds) for name, record in ledger().items()} == {"wrong": 3, "good": 3}
    assert "speaks against it" in capsys.readouterr().out


def test_run_says_that_it_goes_on_to_the_next_look(studies, capsys):
    studies(toy("unclear", level=-1.0))
    assert main(["claims", "run", "unclear", "--tier", "full"]) == 0
    err = capsys.readouterr().err
    assert "unclear: going on to 8 seeds" in err and "unclear: going on to 12 seeds" in err
    assert err.count("? undecided") == 3


def test_seeds_of_two_machines_are_judged_together(studies, capsys):
    main(["claims", "run", "good", "--tier", "full", "--seeds", "0-1", "--out", "here"])
    main(["claims", "run", "good", "--tier", "full", "--seeds", "2-3", "--out", "there"])
    assert ledger("there")["good"].seeds == ()
    capsys.readouterr()
    assert main(["claims", "add", "there", "--out", "here"]) == 0
    out, err = capsys.readouterr()
    assert "✓ supported" in out and err == "2 added, 0 there before.\n"
    assert ledger("here")["good"].rows["effect"].seeds == (0, 1, 2, 3)


def test_run_all_leaves_out_what_has_no_such_tier_and_says_so(studies, capsys):
    studies(toy("good"), toy("short", recipes={"quick": toy().recipes["quick"]}))
    assert main(["claims", "run", "--all", "--tier", "full", "--out", "elsewhere"]) == 0
    assert list(ledger("elsewhere")) == ["good"]
    assert "Left out, having no full tier or no statements: short." in capsys.readouterr().err


def test_run_as_json_keeps_standard_output_clean(studies, capsys):
    assert main(["claims", "run", "--all", "--tier", "full", "--json", "-"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert [r["rows"]["effect"]["verdict"] for r in records] == ["supported", "refuted"]


def test_a_refuted_claim_exits_with_0_and_a_crashed_study_with_1(studies, capsys):
    assert main(["claims", "run", "wrong", "--tier", "full"]) == 0
    studies(toy("bad", measure=crash), toy("good"))
    assert main(["claims", "run", "--all", "--tier", "full"]) == 1
    assert ledger()["wrong"].rows["effect"].verdict == "refuted"
    assert ledger()["good"].rows["effect"].verdict == "supported"
    out, err = capsys.readouterr()
    assert "RuntimeError: the toy broke" in err
    assert "Traceback" not in err and "! error" in out
    assert "Traceback" in ledger()["bad"].failure.traceback


def test_run_sets_an_unreadable_ledger_aside(studies, capsys):
    Path("report").mkdir()
    Path("report/ledger.json").write_text("{")
    assert main(["claims", "run", "good"]) == 0
    assert "set aside as ledger.aside-1.json" in capsys.readouterr().err
    assert Path("report/ledger.aside-1.json").read_text() == "{"
    assert list(ledger()) == ["good"]


def test_show_tells_the_claim_and_then_its_verdict(studies, capsys):
    assert main(["claims", "show", "good"]) == 0
    out = capsys.readouterr().out
    assert "good works." in out and "By playing." in out
    assert "not measured yet" in out and "bayesattn claims run good --tier full" in out
    main(["claims", "run", "good", "--tier", "full", "--out", "there"])
    capsys.readouterr()
    assert main(["claims", "show", "good", "--out", "there"]) == 0
    out = capsys.readouterr().out
    assert "11.5 points [5.76, 17.2]" in out and "✓ supported" in out and "above 5 points" in out
    assert main(["claims", "show", "good", "--out", "there", "--json", "-"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["record"]["rows"]["effect"]["value"] == 11.5


def test_show_tells_how_a_study_crashed(studies, capsys):
    studies(toy("bad", measure=crash))
    main(["claims", "run", "bad"])
    capsys.readouterr()
    assert main(["claims", "show", "bad"]) == 0
    out = capsys.readouterr().out
    assert "! error" in out and "Traceback (most recent call last)" in out


def test_demo_writes_ledger_and_page_and_says_where(studies, capsys):
    assert main(["demo", "--all"]) == 0
    assert {record.tier for record in ledger().values()} == {"quick"}
    out = capsys.readouterr().out
    assert f"Report: {Path('report/index.html')}" in out
    assert "speaks against it" in Path("report/index.html").read_text(encoding="utf-8")


def test_demo_writes_its_page_even_when_a_study_crashed(studies, capsys):
    studies(toy("bad", measure=crash), toy("good"))
    assert main(["demo", "--all", "--out", "new/folder", "--json", "-"]) == 1
    assert len(json.loads(capsys.readouterr().out)) == 2
    assert "! error" in Path("new/folder/index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("terminal", "ci", "screen", "flags", "opened"),
    [
        (True, "", ":0", [], True),
        (True, "", ":0", ["--no-open"], False),
        (True, "", "", [], False),
        (True, "true", ":0", [], False),
        (False, "", ":0", [], False),
    ],
)
def test_demo_opens_the_page_only_for_a_person(
    studies, monkeypatch, terminal, ci, screen, flags, opened
):
    pages = []
    monkeypatch.setattr(demo.webbrowser, "open", pages.append)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("DISPLAY", screen)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert main(["demo", "--all", *flags]) == 0
    assert pages == ([Path("report/index.html").resolve().as_uri()] if opened else [])


def test_report_makes_the_page_again_where_asked(studies, capsys):
    main(["claims", "run", "--all"])
    capsys.readouterr()
    assert main(["report"]) == 0
    assert capsys.readouterr().out == f"{Path('report/index.html')}\n"
    assert main(["report", "report", "-o", "page.html"]) == 0
    assert Path("page.html").read_text() == Path("report/index.html").read_text()
    assert Path("page.html").read_text().count("<img") == 2


def test_report_fills_the_table_of_a_readme(studies, capsys):
    main(["claims", "run", "--all", "--tier", "full", "--out", "results"])
    Path("results/index.html").unlink()  # which the run has written
    Path("README.md").write_text("A\n<!-- ledger:begin -->\n<!-- ledger:end -->\nB\n")
    assert main(["report", "results", "--readme", "README.md"]) == 0
    text = Path("README.md").read_text()
    assert "supported 1" in text
    assert text.startswith("A\n") and text.endswith("\nB\n")
    assert not Path("results/index.html").exists()


def test_report_writes_a_page_for_each_claim(studies, capsys):
    main(["claims", "run", "--all", "--out", "results"])
    capsys.readouterr()
    assert main(["report", "results", "--pages", "pages"]) == 0
    assert capsys.readouterr().out == "pages\n"
    assert {path.name for path in Path("pages").iterdir()} == {"good.md", "wrong.md", "index.md"}


def test_a_prior_draws_itself(capsys):
    assert main(["prior", "draw", "laplace", "--heads", "2", "-o", "a.svg"]) == 0
    assert Path("a.svg").read_text().startswith("<?xml")
    assert main(["prior", "draw", "ggd"]) == 0
    assert Path("ggd.png").read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out == "a.svg\nggd.png\n"
