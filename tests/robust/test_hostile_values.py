"""Wrong types and impossible sizes from Python and from the command line: a sentence each time."""

import os
import random
import shlex
import struct
from dataclasses import fields
from pathlib import Path

import pytest
import torch

from bayesattn.commands.main import main
from bayesattn.corpora import NeedleMaker, load_tokenizer
from bayesattn.evals.lengths import stretch, token_lengths
from bayesattn.models.architectures import ARCHITECTURES, make_architecture
from bayesattn.models.config import BayesConfig
from bayesattn.priors import PRIORS, make_prior
from bayesattn.training import LanguageConfig, TrainConfig
from bayesattn.tunnels import TUNNELS, make_tunnel
from tests.robust.common import count
from tests.robust.hostile import TEXTS, VALUES, is_sentence

OF_THE_CLASS = ("model_type", "keys_to_ignore_at_inference", "default_theta")
SIZES = {"hidden_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 64}


def tunnel(chance):
    made = make_tunnel(chance.choice([*TUNNELS]), **some(TUNNELS, chance))
    if made.positions < 500:
        made.sample(2, torch.Generator().manual_seed(0))
    return stretch(made, chance.choice(TEXTS))


def some(kinds, chance):
    names = sorted({field.name for kind in kinds.values() for field in fields(kind)})
    return {name: chance.choice(VALUES) for name in chance.sample(names, chance.randint(1, 2))}


def architecture(chance):
    return make_architecture(chance.choice([*ARCHITECTURES]), **some(ARCHITECTURES, chance))


def training(chance):
    return TrainConfig(**some({"one": TrainConfig}, chance))


def language(chance):
    return LanguageConfig(size="nano", **some({"one": LanguageConfig}, chance) | {"size": "nano"})


def config(chance):
    names = chance.sample([*BayesConfig.__annotations__], chance.randint(1, 2))
    own = {name: chance.choice(VALUES) for name in names if name not in OF_THE_CLASS}
    return BayesConfig(**SIZES | own)


def prior(chance):
    names = ("init", "learn_mu", "positive", "learned", "windows", "alpha", "mu", "x")
    options = {name: chance.choice(VALUES) for name in chance.sample(names, chance.randint(0, 2))}
    return make_prior(chance.choice([*PRIORS, *VALUES]), chance.choice((1, 4, *VALUES)), **options)


def needles(chance):
    named = {"kind": "passkey", "digits": 5, "values": "numbers"}
    for name in chance.sample([*named, "haystack"], chance.randint(0, 2)):
        named[name] = chance.choice(VALUES)
    maker = NeedleMaker(load_tokenizer("words"), **named)
    given = [100, [0.5], 1, 0]
    given[chance.randrange(4)] = chance.choice(VALUES)
    return maker.prompts(*given)


def lengths(chance):
    return token_lengths(chance.choice(TEXTS), 128)


MAKERS = (tunnel, architecture, training, language, config, prior, needles, lengths)


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
@pytest.mark.filterwarnings("ignore")
def test_wrong_values_are_refused_in_a_sentence(make):
    internal = {}
    for number in range(count(50 if make is needles else 250, 1000)):
        try:
            make(random.Random(f"{make.__name__} {number}"))
        except Exception as error:
            if not is_sentence(error):
                internal.setdefault(f"{type(error).__name__}: {error}"[:150], number)
    assert internal == {}


PARTS = count(1, 10)
"""Of all wrong words: each has a time limit of its own."""
TRAIN = ["--steps", "1", "--batch-size", "2", "--layers", "1", "--width", "8", "--heads", "2"]
COMMANDS = (
    *(["tunnel", "train", "bijection", *TRAIN, flag, ""] for flag in ("--alphabet", "--length")),
    *(["tunnel", "train", "hmm", *TRAIN, flag, ""] for flag in ("--states", "--lr", "--prior")),
    ["tunnel", "train", "", *TRAIN],
    ["tunnel", "train", "bijection", *TRAIN, "--prior-options", ""],
    ["tunnel", "train", "--resume", ""],
    ["tunnel", "fidelity", ""],
    ["tunnel", "fidelity", "zoo:bijection-10", "--sequences", "2", "--length", ""],
    ["tunnel", "fidelity", "zoo:bijection-10", "--sequences", ""],
    ["tunnel", "show", "zoo:bijection-10", "--step", ""],
    ["lm", "train", "tiny", "--steps", "1", "--batch-size", "2", "--corpus", ""],
    ["lm", "train", "tiny", "--steps", "1", "--batch-size", "2", "--length", ""],
    ["lm", "generate", "zoo:passkey", "", "--tokens", "1"],
    ["lm", "passkey", "zoo:passkey", "--depths", "1", "--samples", "1", "--lengths", ""],
    ["lm", "passkey", "", "--lengths", "1x"],
    *(["lm", "passkey", "zoo:passkey", "--lengths", "1x", flag, ""] for flag in ("--seed", "--n")),
    ["claims", "show", ""],
    ["claims", "run", "bam-size", "--seeds", ""],
    ["claims", "run", ""],
    ["claims", "add", ""],
    ["claims", "bank", ""],
    ["report", ""],
    ["prior", "draw", ""],
    ["prior", "draw", "ggd", "--length", ""],
    ["prior", "draw", "ggd", "--heads", ""],
    # after the word "--" options are none, which without them would mean the default model
    *([name, "", "--device", "cpu"] for name in ("probe", "sula")),
    ["probe", "zoo:bijection-10", "--sequences", ""],
    ["", ""],
)


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.filterwarnings("ignore")
def test_wrong_words_on_the_command_line_are_refused_in_a_sentence(
    part, tmp_path, monkeypatch, capsys
):
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("BAYESATTN_RUNS", str(work / "runs"))
    internal = {}
    for number in range(part, count(40, 2000), PARTS):
        chance = random.Random(number)
        words = [*COMMANDS[number % len(COMMANDS)]]
        words = [word or chance.choice(TEXTS) for word in words]
        if "train" in words and "--resume" not in words:
            words += ["--out", str(work / str(number))]
        try:
            code = main(words)
            assert code in (0, 1, 2), words
        except SystemExit:
            pass
        except Exception as error:
            internal.setdefault(f"{type(error).__name__}: {error}"[:150], words)
        assert "Traceback" not in capsys.readouterr().err, words
    assert internal == {}
    assert os.listdir(tmp_path) == ["work"]  # nothing was written elsewhere


@pytest.mark.parametrize(
    "words",
    [
        ["probe", "a" * 300],
        ["lm", "passkey", "9" * 5000, "--lengths", "1x"],
        ["lm", "train", "tiny", "--steps", "1", "--corpus", "\ud800"],
        ["prior", "draw", "ggd", "--length", "9" * 30],
    ],
    ids=lambda words: words[0],
)
def test_names_that_no_file_can_have_get_one_sentence(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    told = capsys.readouterr().err
    assert told.startswith("bayesattn: ") and told.count("\n") == 1 and len(told) < 200


WRONG = (Path(__file__).parent / "wrong_words.txt").read_text().splitlines()
"""What people type wrongly, by hand."""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with files that are not what they seem."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BAYESATTN_RUNS", str(tmp_path / "runs"))
    for name in ("empty", "pipe.json", "junk", "badledger", "badledger2", "badm/measured"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "badm2" / "measured").mkdir(parents=True)
    gguf = (b"GG", b"GGUF" + bytes(64), gguf_with(9, 1), gguf_with(3, 2**60))
    for name, data in zip(("short", "no", "v9", "huge"), gguf, strict=True):
        (tmp_path / f"{name}.gguf").write_bytes(data)
    texts = {"text.txt": "hello world " * 300, "empty.txt": "", "f.md": "no marks"}
    texts |= {"junk/ledger.json": "{", "junk/config.json": "[]", "badledger2/ledger.json": "[]"}
    texts |= {"badledger/ledger.json": '{"records": 3}', "badm/measured/x.json": "{}"}
    for name, text in (texts | {"badm2/measured/x-quick-0.json": "nonsense"}).items():
        (tmp_path / name).write_text(text)
    (tmp_path / "bin.bin").write_bytes(bytes(range(256)) * 8)
    (tmp_path / "latin.txt").write_bytes(b"\xe4\xf6" * 400)
    return tmp_path


def gguf_with(version, count):
    return b"GGUF" + struct.pack("<IQQ", version, count, count) + bytes(40)


@pytest.mark.filterwarnings("ignore")
def test_what_people_type_wrongly_gets_one_sentence(place, capsys):
    before = sorted(path.name for path in place.iterdir())
    wrong = {}
    for line in WRONG:
        code, told = main(shlex.split(line)), capsys.readouterr()
        if code != 2 or not told.err.startswith("bayesattn: ") or told.err.count("\n") != 1:
            wrong[line] = code, told.err
    assert wrong == {}
    made = {path.name for path in place.iterdir()} - {"runs", "report"}
    assert sorted(made) == before
    assert len(WRONG) > 100
