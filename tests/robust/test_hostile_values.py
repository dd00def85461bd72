"""Wrong types and impossible sizes from Python and from the command line: a sentence each time."""

import os
import random
from dataclasses import fields

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
    ["probe", ""],
    ["probe", "zoo:bijection-10", "--sequences", ""],
    ["sula", ""],
    ["", ""],
)


@pytest.mark.filterwarnings("ignore")
def test_wrong_words_on_the_command_line_are_refused_in_a_sentence(tmp_path, monkeypatch, capsys):
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("BAYESATTN_RUNS", str(work / "runs"))
    internal = {}
    for number in range(count(40, 2000)):
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
