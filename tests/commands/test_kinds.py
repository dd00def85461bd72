"""Commands × kinds of models: each works, or refuses with the reason and the command that fits."""

import pytest

from bayesattn.commands import sula as sula_command
from bayesattn.commands.main import main
from bayesattn.models.architectures import Transformer
from bayesattn.models.open import find, open_language
from bayesattn.training import Run, TrainConfig, train_tunnel
from bayesattn.tunnels import Bijection
from tests.probes.llm.files import save_folder, save_gguf
from tests.training.language_toy import toy_run, write_corpus

KINDS = ("tunnel run", "language run", "zoo tunnel", "zoo language", "folder", "gguf", "package")
TUNNELS = ("tunnel run", "zoo tunnel")
COMMANDS = {
    "probe": ("probe", "MODEL", "--out", "page.html"),
    "lm passkey": ("lm", "passkey", "MODEL", "--lengths", "400", "--depths", "2", "--samples", "1"),
    "lm perplexity": ("lm", "perplexity", "MODEL", "--length", "64", "--window", "32"),
    "sula": ("sula", "MODEL"),
    "tunnel fidelity": ("tunnel", "fidelity", "MODEL", "--sequences", "50"),
}
FEW = {
    "lm perplexity": ("--sequences", "2", "--text", "text.txt"),
    "language probe": ("--prompts", "prompts.txt", "--draws", "10"),
    "tunnel probe": ("--sequences", "64"),
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
    save_folder(folder / "folder")
    save_gguf(folder / "tiny.gguf")
    about = folder / "site" / "carries_a_model-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: carries-a-model\nVersion: 1.0\n")
    (about / "RECORD").write_text("carried/tiny.gguf,,\n")
    (folder / "site" / "carried").mkdir()
    save_gguf(folder / "site" / "carried" / "tiny.gguf")
    return folder, {
        "tunnel run": str(folder / "tunnel"),
        "language run": str(folder / "language"),
        "zoo tunnel": "zoo:bijection-10",
        "zoo language": "zoo:passkey",
        "folder": str(folder / "folder"),
        "gguf": str(folder / "tiny.gguf"),
        "package": "carries-a-model",
    }


@pytest.fixture
def names(models, tmp_path, monkeypatch):
    folder, names = models
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(folder / "site")
    monkeypatch.delenv("BAYESATTN_DEBUG", raising=False)
    lines = [f"{number} small {word}" for number in range(6) for word in ("words", "cats", "sun")]
    (tmp_path / "prompts.txt").write_text("\n".join(lines))
    (tmp_path / "text.txt").write_text("All work and no play makes this text long. " * 20)
    return names


def test_what_each_name_is(names):
    kinds = ["tunnel", "language", "tunnel", "language", "folder", "gguf", "gguf"]
    assert [find(names[kind]).kind for kind in KINDS] == kinds


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_takes_each_kind_or_says_why_not(command, kind, names, capsys, monkeypatch):
    asked = []

    def examine(subject, **_):  # labels need a larger vocabulary than these models have
        asked.append(subject.name)
        raise ValueError("loaded")

    monkeypatch.setattr(sula_command, "examine_sula", examine)
    name = names[kind]
    few = FEW.get(command, ())
    if command == "probe":
        few = FEW["tunnel probe" if kind in TUNNELS else "language probe"]
    words = [name if word == "MODEL" else word for word in COMMANDS[command]]
    code = main([*words, *few])
    out, err = capsys.readouterr()
    if command == "probe":
        assert code == 0, err
        assert out.endswith("Page: page.html\n")
    elif (command == "tunnel fidelity") != (kind in TUNNELS):
        assert code == 2 and err.count("\n") == 1
        reason = "which has no exact posterior" if kind not in TUNNELS else "which reads no text"
        assert reason in err and f"`bayesattn probe {name}`" in err
    elif command == "sula":
        assert asked == [name] and err == "bayesattn: loaded\n"
    else:
        assert code == 0, err


def test_a_run_and_its_checkpoints(names):
    folder = names["language run"]
    step = Run.open(folder).steps()[-1]
    assert open_language(folder, step).name == "language"
    with pytest.raises(ValueError, match="is no run, so it has no checkpoint of step 1"):
        open_language(names["folder"], 1)
    with pytest.raises(ValueError, match="is on disk and has no revision 'main'"):
        open_language(folder, revision="main")
