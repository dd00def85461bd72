"""Commands × kinds of models: each works, or refuses with the reason and the command that fits."""

import pytest

from bayesattn.commands.main import main
from bayesattn.corpora import load_tokenizer
from bayesattn.models.architectures import Transformer
from bayesattn.models.open import find, open_language
from bayesattn.training import Run, TrainConfig, train_tunnel
from bayesattn.tunnels import Bijection
from tests.probes.llm.files import save_gguf, tiny_llama
from tests.training.language_toy import toy_run, write_corpus

KINDS = {  # as `find` calls them
    "tunnel run": "tunnel",
    "language run": "language",
    "zoo tunnel": "tunnel",
    "zoo language": "language",
    "folder": "folder",
    "gguf": "gguf",
    "package": "gguf",
    "hub": "hub",
}
COMMANDS = {
    "probe": "MODEL --out page.html",
    "sula": "MODEL --prompts 4 --each 4 --no-controls --labels a b c d",
    "tunnel fidelity": "MODEL --sequences 50",
    "tunnel show": "MODEL --sequences 50 --out beliefs.png",
    "lm passkey": "MODEL --lengths 400 --depths 2 --samples 1",
    "lm perplexity": "MODEL --length 64 --window 32 --sequences 2 --text text.txt",
    "lm generate": "MODEL Hello --tokens 3",
    "lm priors": "MODEL",
    "lm export": "MODEL exported",
    "lm harness": "MODEL --tasks=",
}
FEW = {"tunnel": "--sequences 64", "language": "--prompts prompts.txt --draws 10"}
"""A probe has options of its own for tunnels and for language models."""

WORKS = ""
NO_TEXT = "which reads no text: name a language model, or use `bayesattn tunnel fidelity "
NO_POSTERIOR = "which has no exact posterior: name a run of a tunnel, or use `bayesattn probe "
NO_RUN = "There is no run in owner/nothing"
NOT_THERE = "neither on this machine nor on the Hugging Face hub"
NO_PRIOR = "has no prior over distance: train a model that has with `bayesattn lm train`"
NO_TASK = "ame at least one task"
"""The sentence after a model was opened: no task comes along."""


def row(*cells):
    return dict(zip(KINDS, cells, strict=True))


EVERYTHING = row(*[WORKS] * 7, NOT_THERE)
TUNNELS = row(WORKS, NO_POSTERIOR, WORKS, *[NO_POSTERIOR] * 4, NO_RUN)
TEXTS = row(NO_TEXT, WORKS, NO_TEXT, *[WORKS] * 4, NOT_THERE)
TABLE = {
    "probe": EVERYTHING,
    "sula": TEXTS,
    "tunnel fidelity": TUNNELS,
    "tunnel show": TUNNELS,
    "lm passkey": TEXTS,
    "lm perplexity": TEXTS,
    "lm generate": TEXTS,
    "lm priors": row(NO_TEXT, WORKS, NO_TEXT, WORKS, *[NO_PRIOR] * 3, NOT_THERE),
    "lm export": TEXTS,
    "lm harness": row(NO_TEXT, NO_TASK, NO_TEXT, *[NO_TASK] * 4, NOT_THERE),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A name for each kind of model."""
    folder = tmp_path_factory.mktemp("kinds")
    small = TrainConfig(steps=1, batch_size=4)
    train_tunnel(Bijection(4), Transformer(layers=1, width=8, heads=2), small, folder / "tunnel")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BAYESATTN_RUNS", str(folder))
        toy_run(folder / "language", write_corpus(folder / "corpus.jsonl"))
    words = load_tokenizer("words")
    for part in (tiny_llama(vocab_size=len(words), max_position_embeddings=512), words):
        part.save_pretrained(folder / "folder")
    about = folder / "site" / "carries_a_model-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: carries-a-model\nVersion: 1.0\n")
    (about / "RECORD").write_text("carried/tiny.gguf,,\n")
    (folder / "site" / "carried").mkdir()
    for path in (folder / "tiny.gguf", folder / "site" / "carried" / "tiny.gguf"):
        save_gguf(path, merges=[f"Ġ {letter}" for letter in "abcd"], context=512)
    names = (
        *(folder / "tunnel", folder / "language", "zoo:bijection-10", "zoo:passkey"),
        *(folder / "folder", folder / "tiny.gguf", "carries-a-model", "owner/nothing"),
    )
    return folder / "site", row(*map(str, names))


@pytest.fixture
def names(models, tmp_path, monkeypatch, unrendered):
    installed, names = models
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(installed)
    monkeypatch.delenv("BAYESATTN_DEBUG", raising=False)
    lines = [f"{number} small {word}" for number in range(6) for word in ("words", "cats", "sun")]
    (tmp_path / "prompts.txt").write_text("\n".join(lines))
    (tmp_path / "text.txt").write_text("All work and no play makes this text long. " * 20)
    return names


def test_what_each_name_is(names):
    assert {kind: find(name).kind for kind, name in names.items()} == KINDS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", TABLE)
def test_each_command_takes_each_kind_or_says_why_not(command, kind, names, capsys):
    words = f"{command} {COMMANDS[command]}".replace("MODEL", names[kind])
    if command == "probe":
        words += " " + FEW["tunnel" if KINDS[kind] == "tunnel" else "language"]
    code = main(words.split())
    out, err = capsys.readouterr()
    refusal = TABLE[command][kind]
    if refusal:
        assert refusal in err and err.count("\n") == 1
        assert code == 2 and out == ""
    else:
        assert code == 0, err
        assert out != ""


def test_a_run_and_its_checkpoints(names):
    folder = names["language run"]
    step = Run.open(folder).steps()[-1]
    assert open_language(folder, step).name == "language"
    with pytest.raises(ValueError, match="is no run, so it has no checkpoint of step 1"):
        open_language(names["folder"], 1)
    with pytest.raises(ValueError, match="is on disk and has no revision 'main'"):
        open_language(folder, revision="main")
