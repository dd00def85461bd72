"""A folder of one's own text: tokenizer, model, perplexity, export, and another process."""

import json
import random
import subprocess
import sys

import pytest

from bayesattn.commands.main import main, options
from bayesattn.corpora import NeedleMaker, fingerprint
from bayesattn.models.open import language_config, open_language
from bayesattn.runs import Run
from bayesattn.source import find

SMALL = ["--size", "nano", "--layers", "1", "--width", "16", "--heads", "2", "--length", "48"]
SMALL += ["--steps", "30", "--batch-size", "4", "--log-every", "2", "--threads", "1"]
TEXT = "the prior of a head says where to look and likelihood what it finds there"
LOAD = """
import sys
import bayesattn
from transformers import AutoModelForCausalLM, AutoTokenizer
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
inputs = tokenizer("the prior", return_tensors="pt")
written = model.generate(inputs["input_ids"], max_new_tokens=5, do_sample=False, pad_token_id=2)
print(tokenizer.decode(written[0]), end="")
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with text, and a run that was trained on it by the command line."""
    folder = tmp_path_factory.mktemp("own")
    chance = random.Random(0)
    (folder / "text").mkdir()
    for number in range(30):
        text = " ".join(chance.choices(TEXT.split(), k=200)) + f" {number} times.\n"
        (folder / "text" / f"{number}.txt").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BAYESATTN_RUNS", str(folder / "runs"))
        patch.chdir(folder)
        words = ["lm", "train", "tiny", "--corpus", "text", "--tokenizer", "train:300", *SMALL]
        assert main([*words, "--out", "run"]) == 0
        yield folder


def test_the_way_of_a_text(place, capsys):
    run = Run.open("run")
    assert run.config["language"]["needle_share"] == 0
    assert main(["lm", "perplexity", "run", "--json", "found.json"]) == 0
    out = capsys.readouterr().out
    assert "sequences of the held-out text of text, the corpus of this run" in out
    found = json.loads((place / "found.json").read_text())
    assert (
        found["windows"][-1]["to"] == 8 * 48 and found["windows"][0]["perplexity"] < 250
    )  # of 300 words
    assert main(["lm", "export", "run", "exported"]) == 0
    words = [sys.executable, "-c", LOAD, "exported"]
    loaded = subprocess.run(words, capture_output=True, text=True, check=False)
    assert loaded.returncode == 0, loaded.stderr
    assert loaded.stdout == "the prior" + open_language("run").generate("the prior", tokens=5)
    assert fingerprint(open_language("exported").tokenizer) == run.config["data"]["tokenizer"]


def test_a_run_keeps_its_tokenizer(place, capsys):
    """Without its text it can still be opened; with other text it does not go on."""
    (place / "text").rename(place / "away")
    try:
        opened = open_language("run")
        assert len(opened.tokenizer) == 300 == opened.model.config.vocab_size
        assert language_config(find("run")).vocab_size == 300
        NeedleMaker(opened.tokenizer)
    finally:
        (place / "away").rename(place / "text")


def test_the_first_lines_say_what_is_read(place, capsys):
    words = ["lm", "train", "tiny", "--corpus", "text", *SMALL, "--tokenizer", "bytes"]
    assert main([*words, "--out", "first"]) == 0
    first, head, row, *lines = capsys.readouterr().err.splitlines()
    assert first.startswith("Reads text, without needles")
    cells = dict(zip(head.split("  "), row.split("  "), strict=False))
    assert cells["parameters"].replace(",", "").isdigit()
    assert lines[-1].startswith("step 30/30  loss ") and "tokens/s" in lines[-1]


@pytest.mark.parametrize(
    ("words", "share"),
    [
        ("", 0.9),
        ("--corpus text", 0.0),
        ("--corpus=text", 0.0),
        ("--corpus text --needle-share 0.3", 0.3),
        ("--corpus text --needles noise", 0.9),
        ("--needle-share 0.2", 0.2),
    ],
)
def test_needles_are_hidden_in_a_text_of_one_s_own_only_if_asked(words, share):
    language, _ = options("lm train", ["tiny", *words.split()]).chosen()
    assert language.needle_share == share


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("small", "'small' trained the tiny model for longer and is called 'tiny-long' now"),
        (
            "tiny --device tpu",
            "There is no device 'tpu': did you mean 'cpu'? choose one of cpu, cuda.",
        ),
        ("tiny --corpus empty", "There is no text in empty: no file in it ends in .txt"),
        ("tiny --corpus text --tokenizer train:9999", "supports a tokenizer of"),
        ("tiny --corpus text --tokenizer train:20", "choose train:259 or more"),
        ("tiny --corpus nowhere", "There is no corpus nowhere"),
    ],
)
def test_what_cannot_be_is_said_in_one_sentence(place, words, said, capsys):
    (place / "empty").mkdir(exist_ok=True)
    assert main(["lm", "train", *words.split(), "--out", "refused"]) == 2
    err = capsys.readouterr().err.splitlines()
    assert said in err[-1] and not (place / "refused").exists()
