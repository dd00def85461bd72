"""`bayesattn probe` on small models of every kind: what it writes, and what it refuses."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from bayesattn.commands import probe as probe_commands
from bayesattn.commands.main import main
from bayesattn.evals.fidelity import EVAL_SEED
from bayesattn.models.architectures import LSTM, Transformer
from bayesattn.models.open import open_tunnel
from bayesattn.probes import examine_language, examine_tunnel, states
from bayesattn.probes.ablation import errors
from bayesattn.probes.attention import EVENNESS
from bayesattn.probes.examine_language import observe
from bayesattn.probes.examine_tunnel import TunnelSubject
from bayesattn.probes.keys import HEADS
from bayesattn.probes.llm.capture import capture_prompts
from bayesattn.probes.llm.prompts import entropy_of
from bayesattn.probes.llm.subject import load
from bayesattn.probes.selfcheck import SelfCheck
from bayesattn.training import Run, TrainConfig, train_tunnel
from bayesattn.tunnels import HMM, Bijection
from tests.probes.llm.small import save_small, small_subject

ENDS = ("svg", "png")
FEW = ("--sequences", "64")
FAST = ("--length", "8", "--candidates", "30", "--each", "3", "--draws", "20")
SMALL = Transformer(layers=2, width=16, heads=2, prior="ggd")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    dynamics = TrainConfig(steps=6, batch_size=4, dynamics=True, threads=1, seed=3)
    again = Bijection(5, 6, replacement=True)
    train_tunnel(again, SMALL, dynamics, folder / "bijection", progress=False)
    train_tunnel(HMM(3, 3, 4), LSTM(width=8), dynamics, folder / "lstm", progress=False)
    return folder


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BAYESATTN_DEBUG", raising=False)
    return tmp_path


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return [save_small(folder / name, seed) for seed, name in enumerate(("one", "two"))]


def command(*words):
    return main(["probe", *map(str, words)])


def mistake(capsys, *words):
    assert command(*words) == 2
    *before, err = capsys.readouterr().err.splitlines()
    assert err.startswith("bayesattn: ") and not any("bayesattn: " in one for one in before), err
    return err


def test_table_page_and_json_of_a_transformer(runs, capsys, folder):
    assert command(runs / "bijection", *FEW, "--json", "p.json", "--out", "page.html") == 0
    out = capsys.readouterr().out
    assert out.endswith("Page: page.html\n")
    (found,) = json.loads((folder / "p.json").read_text())["models"]
    assert found["skipped"].keys() == {"clusters", "beliefs"}
    assert "clusters was not measured: the posterior" in out
    assert found["check"]["good"] and found["about"]["step"] == 6
    for probe in ("fidelity", "keys", "focusing", "values", "ablation", "sublayers", "drift"):
        assert re.search(rf"^{probe} ", out, re.MULTILINE), probe
    assert len(found["keys"]) == 2 * 2 * 2 and len(found["drift"]["trained"]["steps"]) > 3
    model, tunnel = open_tunnel(runs / "bijection")
    batch = tunnel.sample(64, torch.Generator().manual_seed(EVAL_SEED))
    whole = errors(model, batch)[0].mean()
    kl = found["ablation"]["kl"]["value"]
    assert kl == pytest.approx(float(whole))
    assert f"{kl:.3g}" in next(line for line in out.splitlines() if line.startswith("fidelity"))
    page = (folder / "page.html").read_text()
    assert page.count("data:image/svg+xml;base64,") == 6
    assert "http://" not in page and "https://" not in page
    assert "ties" in page and page.count("<tr>") > 30
    assert {path.name for path in folder.iterdir()} == {"p.json", "page.html"}


@pytest.mark.usefixtures("unrendered")
def test_a_folder_holds_everything_and_an_lstm_has_no_attention(runs, capsys, folder):
    assert command(runs / "lstm", *FEW, "--json", "-", "--out", "look") == 0
    whole = json.loads(capsys.readouterr().out)
    (found,) = whole["models"]
    assert found["skipped"].keys() == {"keys", "focusing", "sublayers", "drift"}
    assert found["skipped"]["keys"] == "an lstm has no attention"
    assert {c["layer"] for c in found["clusters"]} == {-1, 0, 1}
    assert {m["states"] for m in found["values"]} == {"residual"}
    names = {path.name for path in (folder / "look").iterdir()}
    pictures = [f"{name}.{end}" for name in ("fidelity", "manifold", "ablation") for end in ENDS]
    assert names == {"index.html", "probe.json", *pictures}
    assert json.loads((folder / "look" / "probe.json").read_text()) == whole


def test_it_is_the_trained_model_beside_its_own_start(runs):
    subject = TunnelSubject.load(Run.open(runs / "bijection"))
    first = open_tunnel(runs / "bijection", 0)[0]
    for own, start in zip(subject.initial.parameters(), first.parameters(), strict=True):
        assert torch.equal(own, start)
    earlier = TunnelSubject.load(Run.open(runs / "bijection"), 0)
    assert earlier.step == 0 and subject.step == 6


def test_a_capture_that_cannot_be_believed_ends_it(runs, models, monkeypatch, capsys):
    wrong = SelfCheck({"logits": 0.1})
    monkeypatch.setattr(examine_tunnel, "check_capture", lambda *_: wrong)
    monkeypatch.setattr(examine_language, "check_prompts", lambda *_: wrong)
    for words in ((runs / "bijection",), (models[0], *FAST)):
        assert "off: logits by 0.1): its probes would mean nothing" in mistake(capsys, *words)


@pytest.mark.usefixtures("unrendered")
def test_one_check_does_not_cost_the_others(models, capsys, monkeypatch, folder):
    """Values that are wrong are not measured; attention that rounding explains is in doubt."""
    check = SelfCheck({"values": 0.1, "recomputed rows": 0.4}, {"recomputed rows": 0.8}, slack=0.9)
    monkeypatch.setattr(examine_language, "check_prompts", lambda *_: check)
    assert command(models[0], *FAST, "--json", "p.json") == 0
    out = capsys.readouterr().out
    assert "values was not measured: what is captured is not what the model computes" in out
    assert "attention is in doubt: scores are so large that rounding" in out
    rows = [
        line for line in out.splitlines() if line.startswith(("states ", "keys ", "attention "))
    ]
    assert all(("in doubt" in row) == row.startswith("attention ") for row in rows[1:])
    (one,) = json.loads((folder / "p.json").read_text())["models"]
    assert {*one["check"]["refused"], *one["skipped"]} == {"values"}
    assert {
        row["where"].split()[-1] for row in one["measurements"] if row["probe"] == "states"
    } == {
        "outputs",
        "residual",
    }
    assert all(bool(m["doubt"]) == (m["probe"] == "attention") for m in one["measurements"])
    page = (folder / "probe.html").read_text()
    assert "refused values and is in doubt about attention" in page and "in doubt</td>" in page


def test_mistakes_get_one_sentence(runs, capsys, folder):
    assert "neither on this machine nor on the" in mistake(capsys, "nowhere", "--out", "p.html")
    assert "the zoo has" in mistake(capsys, "zoo:elephant")
    assert "no step 99" in mistake(capsys, runs / "lstm", "--step", "99")
    assert "64 or more" in mistake(capsys, runs / "lstm", "--sequences", "3")
    assert "no folder to write in" in mistake(capsys, runs / "lstm", "--out", "a/b.html")
    assert "there is no folder a" in mistake(capsys, runs / "lstm", "--json", "a/b.json")
    (folder / "note").write_text("")
    assert "ends in .html, or a folder" in mistake(capsys, runs / "lstm", "--out", "note")
    shutil.copytree(runs / "lstm", folder / "empty")
    shutil.rmtree(folder / "empty" / "checkpoints")
    assert "has no checkpoint yet" in mistake(capsys, "empty")


@pytest.mark.usefixtures("unrendered")
def test_table_page_and_json_of_a_language_model(models, capsys, folder):
    assert command(models[0], *FAST, "--json", "p.json") == 0
    out = capsys.readouterr().out
    plan, _, first = out.partition("keys and attention; states and fresh weights follow")
    first, _, rest = first.partition(f"{models[0]}: inside")
    assert "query, 2 key/value" in plan and "memory" in plan
    assert "15 of 30 candidates, 8 tokens each" in plan
    assert re.search(r"^keys ", first, re.MULTILINE) and "fresh weights" not in first
    assert "The authors' criteria: " in rest and rest.endswith("Page: probe.html\n")
    found = json.loads((folder / "p.json").read_text())
    assert found["schema"] == 2 and len(found["models"]) == 1
    (one,) = found["models"]
    assert one["check"]["good"] and one["skipped"] == {} and one["prompts"]["prompts"] == 15
    assert len(one["entropy"]) == len(one["entropy, random init"]) == 15
    keys = {"probe", "where", "layer", "what", "measured", "interval", "null", "p", "reported"}
    keys |= {"times noise", "doubt"}
    assert all(set(row) == keys for row in one["measurements"])
    assert {row["probe"] for row in one["measurements"]} == {"states", "keys", "attention"}
    assert {p["states"] for p in one["planes"]} == {"values", "outputs", "residual"}
    page = (folder / "probe.html").read_text()
    assert page.count("data:image/svg+xml;base64,") == 3
    assert "http://" not in page and "https://" not in page
    assert page.count('<section class="lead">') == 3 and f"bayesattn probe {models[0]}" in page
    assert "fresh weights" in page and one["prompts"]["texts"][0].split("\n")[0][:5] in page
    check_numbers(one, models[0])


def check_numbers(one, folder):
    """They are those of the model, and of fresh weights, on the prompts that are listed."""
    own, fresh = load(str(folder)), load(str(folder), random_init=0)
    tokens = [own.encode(text) for text in one["prompts"]["texts"]]
    expected = {}
    for name, subject in (("measured", own), ("random init", fresh)):
        seen = capture_prompts(subject, tokens)
        expected[name] = states.point(seen.values[-1].flatten(1).double(), entropy_of(seen.logits))
    rows = {row["what"]: row for row in one["measurements"] if row["where"] == "L2 values"}
    share = rows[states.SHARE]
    assert share["times noise"] == share["measured"] / share["null"]["noise"]
    for what, value in expected["measured"].items():
        assert rows[what]["measured"] == pytest.approx(value, abs=1e-9), what
        fresh_value = rows[what]["null"]["random init"]
        assert fresh_value == pytest.approx(expected["random init"][what], abs=1e-9), what


def test_a_second_run_is_the_same(models, folder):
    for name in ("a", "b"):
        assert command(models[0], *FAST, "--out", name, "--seed", "1") == 0
    names = {path.name for path in (folder / "a").iterdir()}
    pictures = [f"{name}.{end}" for name in ("plane", "keys", "attention") for end in ENDS]
    assert names == {"index.html", "probe.json", *pictures}
    for name in names:
        assert (folder / "a" / name).read_bytes() == (folder / "b" / name).read_bytes(), name


@pytest.mark.usefixtures("unrendered")
def test_several_models_stand_side_by_side(models, capsys):
    assert command(*models, *FAST, "--no-control", "--json", "-", "--layers", "all") == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in found["models"]] == [str(m) for m in models]
    for one in found["models"]:
        assert one["entropy, random init"] is None
        assert {row["layer"] for row in one["measurements"] if row["probe"] == "states"} == {
            0,
            1,
            2,
        }
        assert not any("random init" in row["null"] for row in one["measurements"])


@pytest.mark.usefixtures("unrendered")
def test_fresh_weights_instead(models, capsys):
    assert command(models[0], *FAST, "--random-init", "0", "--json", "-") == 0
    (one,) = json.loads(capsys.readouterr().out)["models"]
    assert "random weights 0" in one["name"]
    # and beside other ones, not beside themselves
    assert one["entropy"] != one["entropy, random init"]


@pytest.mark.usefixtures("unrendered")
def test_prompts_of_a_file_and_those_of_the_authors(models, capsys, folder):
    (folder / "mine.txt").write_text("\n".join(f"the number is {n} and" for n in range(9)))
    assert command(models[0], "--draws", "5", "--prompts", "mine.txt", "--json", "-") == 0
    (one,) = json.loads(capsys.readouterr().out)["models"]
    assert one["prompts"]["prompts"] == 9 and one["prompts"]["rule"] == (
        "the lines of mine.txt, at most 2,000 of them"
    )
    assert command(models[0], "--draws", "5", "--domain", "authors", "--json", "-") == 0
    (one,) = json.loads(capsys.readouterr().out)["models"]
    assert one["prompts"]["prompts"] == 13 and one["skipped"] == {}


@pytest.mark.usefixtures("unrendered")
def test_a_failed_measurement_does_not_lose_the_others(models, capsys, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no such thing")

    monkeypatch.setattr("bayesattn.probes.keys.jackknife", broken)
    monkeypatch.setattr(examine_language, "summarise", broken)
    assert command(models[0], *FAST) == 0
    out = capsys.readouterr().out
    assert "keys was not measured: RuntimeError: no such thing." in out
    assert "attention was not measured: RuntimeError: no such thing." in out
    assert re.search(r"^states ", out, re.MULTILINE) and "not all measured" in out


@pytest.mark.usefixtures("unrendered")
def test_a_model_that_fails_does_not_lose_the_others(models, capsys, folder):
    shutil.copytree(models[1], folder / "mute")
    (folder / "mute" / "tokenizer.json").unlink()
    assert command(models[0], "mute", *FAST, "--json", "p.json") == 1
    out = capsys.readouterr().out
    assert "mute could not be probed: mute has no tokenizer that works" in out
    (one,) = json.loads((folder / "p.json").read_text())["models"]
    assert one["name"] == str(models[0]) and out.endswith("Page: probe.html\n")
    assert "has no tokenizer that works" in mistake(capsys, "mute", *FAST)


def test_a_model_that_stops_in_a_way_nobody_knows(models, capsys, monkeypatch):
    def stop(*_):
        raise RuntimeError("no such\nthing")

    monkeypatch.setattr(examine_language, "check_prompts", stop)
    assert f"{models[0]} stopped with RuntimeError (no such thing): BAYESATTN_DEBUG=1" in mistake(
        capsys, models[0], *FAST
    )


def test_a_page_that_cannot_be_written_does_not_lose_the_numbers(models, capsys, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device", "probe.html")

    monkeypatch.setattr(probe_commands, "write", full)
    assert command(models[0], *FAST, "--json", "p.json") == 1
    out = capsys.readouterr().out
    assert "The page could not be written: [Errno 28] No space left" in out
    assert re.search(r"^states ", out, re.MULTILINE) and json.loads(Path("p.json").read_text())


@pytest.mark.usefixtures("unrendered")
@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't allocate memory: 9 bytes")])
def test_memory_that_ends_in_the_middle(models, capsys, monkeypatch, error):
    calls = []

    def full(*words, **options):
        calls.append(words)
        if len(calls) == before + 1:
            raise error
        return observe(*words, **options)

    monkeypatch.setattr(examine_language, "observe", full)
    before = 1  # fails for fresh weights; what was measured before is kept
    assert command(models[0], *FAST) == 0
    out = capsys.readouterr().out
    assert "fresh weights was not measured: the memory of this machine was not enough" in out
    assert re.search(r"^states ", out, re.MULTILINE)
    before = len(calls)
    assert "not be read to the end: the memory of this" in mistake(capsys, models[0], *FAST)


@pytest.mark.parametrize("name", ["model.norm.weight", "model.layers.1.self_attn.k_proj.weight"])
def test_a_model_that_puts_out_nan(models, capsys, folder, name):
    shutil.copytree(models[0], folder / "nan")
    tensors = load_file(folder / "nan" / "model.safetensors")
    tensors[name][:] = float("nan")
    save_file(tensors, folder / "nan" / "model.safetensors", metadata={"format": "pt"})
    assert "puts out NaN: its weights are damaged" in mistake(capsys, "nan", *FAST)


def test_a_model_that_puts_out_nan_after_some_prompts(models, capsys, monkeypatch):
    def some(logits):
        bits = entropy_of(logits)
        bits[1:3] = float("nan")
        return bits

    monkeypatch.setattr("bayesattn.probes.llm.prompts.entropy_of", some)
    assert "puts out NaN or infinity after 2 of 30" in mistake(capsys, models[0], *FAST)


def test_from_the_cache_alone(monkeypatch):
    subject = small_subject()
    seen = capture_prompts(subject, [[1, 2, 3]] * 2, mode="cache")
    monkeypatch.setattr(examine_language, "capture_prompts", lambda *_: seen)
    found = observe(subject, [[1, 2, 3]] * 2, [2])
    assert {*found.states} == {(2, "values")} and {"outputs", "residual"} <= found.skipped.keys()
    assert torch.equal(found.keys[1][HEADS], seen.turned_keys[1])
    assert EVENNESS in found.rows


def test_mistakes_about_language_models_get_one_sentence(models, capsys, folder):
    one = models[0]
    assert "no folder to write in" in mistake(capsys, one, "--out", "a/b.html")
    (folder / "x").write_text("def f():")
    assert "leave out --domain" in mistake(capsys, one, "--prompts", "x", "--domain", "code")
    assert "x.txt" in mistake(capsys, one, "--prompts", "x.txt")
    assert "no layer 9" in mistake(capsys, one, *FAST, "--layers", "9")
    assert "--layers is all, or" in mistake(capsys, one, *FAST, "--layers", "some")
    assert "There is no corpus nowhere" in mistake(capsys, one, "--domain", "nowhere")
    assert "cannot be drawn from 10" in mistake(capsys, one, "--candidates", "10")
    assert "--draws must be 2" in mistake(capsys, one, "--draws", "1")
    assert "name one" in mistake(capsys, *models, "--revisions", "a,b")
    assert "no revision 'a'" in mistake(capsys, one, "--revisions", "a,b")
    assert "There is no ./nowhere" in mistake(capsys, "./nowhere")
    (folder / "long.txt").write_text("\n".join(["word " * 100] * 9))
    assert "no more than 64" in mistake(capsys, one, "--prompts", "long.txt")


@pytest.mark.usefixtures("unrendered")
def test_models_of_both_kinds_share_a_page(runs, models, capsys, folder):
    assert command(runs / "lstm", models[0], *FEW, *FAST, "--out", "both") == 0
    out = capsys.readouterr().out
    assert "inside a model of hmm" in out and "The authors' criteria: " in out
    found = json.loads((folder / "both" / "probe.json").read_text())["models"]
    assert [one["name"] for one in found] == [str(runs / "lstm"), str(models[0])]
    names = {path.stem for path in (folder / "both").glob("*.svg")}
    assert names == {"fidelity", "manifold", "ablation", "plane", "keys", "attention"}


def test_options_without_a_meaning_are_refused(runs, models, capsys):
    for words, kind in (
        ((runs / "lstm", "--domain", "code"), "a run of a tunnel"),
        ((runs / "lstm", "--random-init", "0"), "a run of a tunnel"),
        ((models[0], "--sequences", "64"), "a language model"),
        ((models[0], "--step", "0"), "no run"),
        ((runs / "lstm", runs / "bijection", "--no-control"), "a run of a tunnel"),
    ):
        option = next(word for word in words if str(word).startswith("--"))
        told = mistake(capsys, *words)
        assert f"{option} means nothing for " in told and f", {kind}: leave it out." in told
