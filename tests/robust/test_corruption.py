"""Damaged files: a sentence, or the same numbers; never a traceback, never other numbers unsaid.

Each scene makes files once. Then a copy of them is damaged, and used: what is found must be what
was found before, or something must have been said (an error, a warning, a note on the page).
"""

import random
import re
import shutil
import warnings

import pytest
import torch

from bayesattn import zoo
from bayesattn.claims import Tier
from bayesattn.corpora import load_tokenizer, prepare
from bayesattn.errors import UserError
from bayesattn.evals.passkey import KeptAnswers
from bayesattn.ledger.judging import judge_seeds
from bayesattn.ledger.measured import FOLDER
from bayesattn.ledger.study import Exhibit
from bayesattn.ledger.typed import to_plain
from bayesattn.models.architectures import LSTM
from bayesattn.models.open import open_tunnel
from bayesattn.report.page import write_page
from bayesattn.report.runs import render_runs
from bayesattn.runs import Run as OpenRun
from bayesattn.training import Run, TrainConfig, train_tunnel
from bayesattn.tunnels import Bijection
from tests.ledger.toy import run_study, toy
from tests.robust.common import count
from tests.robust.corruption import damage
from tests.training.language_toy import write_corpus

NOT_READ = {".lock"}


class Resume:
    """A training that was killed in the middle, gone on with; and its page."""

    tunnel, architecture = Bijection(3), LSTM(layers=1, width=4)
    config = TrainConfig(
        steps=12, threads=1, batch_size=4, log_every=1, checkpoint_every=4, evaluate_every=5
    )

    def make(self, folder):
        self._train(folder / "run")
        shutil.rmtree(folder / "run" / "checkpoints" / "step-000012")
        (folder / "run" / "finished.json").unlink()

    def use(self, folder):
        run = self._train(folder / "run")
        numbers = [{k: v for k, v in line.items() if k != "seconds"} for line in run.metrics()]
        weights = run.weights()
        return numbers, run.finished["metrics"], {n: x.tolist() for n, x in weights.items()}

    def _train(self, folder):
        parts = (self.tunnel, self.architecture, self.config)
        return train_tunnel(*parts, folder, progress=False)


class Finished(Resume):
    """A run that is complete: its page, its weights, and the same command once more."""

    def make(self, folder):
        self._train(folder / "run")

    def use(self, folder):
        page = render_runs([folder / "run"])
        if "Not as it was recorded" in page:
            raise Said
        page = re.sub(r"[\d.]+ seconds", "", page)
        model, _ = open_tunnel(folder / "run")
        weights = {name: x.tolist() for name, x in model.state_dict().items()}
        return page, weights, self._train(folder / "run").finished


class Corpus:
    """Tokens of a corpus, found again."""

    def make(self, folder):
        write_corpus(folder / "text.jsonl", documents=30)
        self._prepare(folder)
        (folder / "text.jsonl").rename(folder / ".text.jsonl")

    def use(self, folder):
        shutil.copy2(folder / ".text.jsonl", folder / "text.jsonl")
        store = self._prepare(folder)
        streams = {split: store.stream(split).tolist() for split in ("train", "heldout")}
        documents = {split: len([*store.documents(split)]) for split in streams}
        return streams, documents, store.about["train"], store.bytes_per_token("heldout")

    def _prepare(self, folder):
        tokenizer = load_tokenizer("bytes")
        with pytest.MonkeyPatch.context() as patch:  # a copy is the same corpus
            patch.setattr("bayesattn.corpora.store.listing", lambda source: ["text"])
            return prepare(str(folder / "text.jsonl"), tokenizer, folder / "store")


def exhibits(self, tier, numbers):
    data = {"x": [1, 2], "series": [{"name": "n", "y": [0.5, 0.25]}], "logX": False}
    labels = {"xLabel": "x", "yLabel": "y"}
    yield Exhibit(kind="curves", title="t", caption="c", data=data | labels)


class Page:
    """A ledger with a figure and an exhibit, as a page."""

    study = toy("toy", exhibits=exhibits)

    def make(self, folder):
        run_study(self.study, Tier.FULL, folder)
        shutil.rmtree(folder / FOLDER)

    def use(self, folder):
        page = write_page(folder, folder / "index.html").read_text(encoding="utf-8")
        if "measure the claim again to" in page:
            raise Said
        return page


class Seeds:
    """Measured seeds, judged once more."""

    study = toy("toy")

    def make(self, folder):
        run_study(self.study, Tier.FULL, folder)
        for path in folder.iterdir():
            if path.name != FOLDER:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def use(self, folder):
        return to_plain(judge_seeds(self.study, Tier.FULL, folder).rows)


class Answers:
    """Answers to passkey prompts: those that are lost are asked again."""

    def __init__(self):
        self.about = {"model": "m", "identity": "01", "scoring": "teacher", "tolerance": None}
        self.truth = {f"{number * 7919:016x}": number % 3 > 0 for number in range(40)}

    def make(self, folder):
        KeptAnswers(self.about, folder / "answers.jsonl").add(self.truth)

    def use(self, folder):
        known = KeptAnswers(self.about, folder / "answers.jsonl")
        known.add({key: right for key, right in self.truth.items() if key not in known})
        return {key: known[key] for key in self.truth}


class Zoo:
    """What is known of models that come along, and the models."""

    def make(self, folder):
        for kind, name in (("models", "bijection-10"), ("language", "passkey")):
            source = {"models": zoo.MODELS, "language": zoo.LANGUAGE}[kind] / name
            ignore = shutil.ignore_patterns("checkpoints" if kind == "language" else "none")
            shutil.copytree(source, folder / kind / name, ignore=ignore)

    def use(self, folder):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(zoo, "MODELS", folder / "models")
            patch.setattr(zoo, "LANGUAGE", folder / "language")
            found = (zoo.entry("bijection-10"), zoo.language_entry("passkey"))
            environment = OpenRun.open(folder / "language" / "passkey").environment
            model, tunnel = open_tunnel(folder / "models" / "bijection-10")
            finished = OpenRun.open(folder / "models" / "bijection-10").finished
        return found, environment, tunnel, finished, sum(x.sum().item() for x in model.parameters())


class Said(Exception):
    """The page says that a number is not the recorded one."""


SCENES = {kind.__name__: kind for kind in (Resume, Finished, Corpus, Page, Seeds, Answers, Zoo)}
QUICK = {"Resume": 10, "Finished": 10, "Corpus": 12, "Page": 8, "Seeds": 15, "Answers": 15}


@pytest.fixture(scope="module", params=SCENES)
def scene(request, tmp_path_factory):
    """A scene, its files, and what is found in them."""
    folder = tmp_path_factory.mktemp(request.param)
    own = SCENES[request.param]()
    (folder / "made").mkdir()
    own.make(folder / "made")
    shutil.copytree(folder / "made", folder / "clean")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return request.param, own, folder, own.use(folder / "clean")


def test_damage_is_said_or_changes_nothing(scene):
    name, own, folder, expected = scene
    torch.manual_seed(0)
    silent = []
    for number in range(count(QUICK.get(name, 8), 80)):
        chance = random.Random(f"{name} {number}")
        copy = folder / f"copy-{number}"
        shutil.copytree(folder / "made", copy)
        paths = sorted(path for path in copy.rglob("*") if path.is_file())
        paths = [path for path in paths if path.name not in NOT_READ and path.name[0] != "."]
        what = damage(chance.choice(paths), chance)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                same = own.use(copy) == expected
            except (UserError, Said):
                same = True
            except ValueError as error:  # of KeptAnswers, which commands turn into a UserError
                assert "damaged" in str(error) or "holds answers with" in str(error), what
                same = True
            except Exception as error:
                raise AssertionError(f"{name} {number}: {what}") from error
        if not (same or any(one.category is UserWarning for one in said)):
            silent.append(f"{number}: {what}")
        shutil.rmtree(copy)
    assert silent == []


def test_a_training_goes_on_without_what_is_decoration(tmp_path):
    """Environment and lines of metrics are set aside, in one line, and the result is the same."""
    own = Resume()
    own.make(tmp_path)
    shutil.copytree(tmp_path / "run", tmp_path / "clean" / "run")
    _, metrics, weights = own.use(tmp_path / "clean")
    run = tmp_path / "run"
    (run / "environment.json").write_text("{")
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join([*lines[:2], "nonsense\n", *lines[3:]]))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = own.use(tmp_path)
    assert found[1:] == (metrics, weights)
    texts = {str(one.message) for one in said}
    assert any("environment.json" in text and "set aside" in text for text in texts)
    assert any("1 of 12 lines of metrics.jsonl are damaged or lost" in text for text in texts)
    assert all("\n" not in text for text in texts)
    assert (run / "environment.aside-1.json").read_text() == "{"
    assert (run / "metrics.aside-1.jsonl").exists()
    with pytest.warns(UserWarning, match="1 of 12 lines"):  # it still knows that one is gone
        Run.open(run).metrics()


def test_an_answer_that_was_turned_round_is_asked_again(tmp_path):
    own, file = Answers(), tmp_path / "answers.jsonl"
    own.make(tmp_path)
    file.write_text(file.read_text().replace('"right": false', '"right": true', 1))
    with pytest.warns(UserWarning, match="1 lines of .* are damaged"):
        known = KeptAnswers(own.about, file)
    assert own.truth.keys() - known.keys() == {f"{0:016x}"}
