import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from bayesattn.corpora import CorpusError, fingerprint, load_tokenizer
from bayesattn.errors import RunError
from bayesattn.files import parse
from bayesattn.models.open import open_language
from bayesattn.training import Run, train_language, train_tunnel
from bayesattn.training.language import LanguageTask, make_task
from tests.training.language_toy import STEPS, toy_language, toy_run, toy_training, write_corpus
from tests.training.test_tunnel import SMALL, TUNNEL, config
from tests.training.toy import assert_same

TOKENS = torch.arange(20)[None] + 300


def logits(model):
    with torch.no_grad():
        return model(TOKENS).logits


def test_train_open_and_load(trained, corpus):
    assert trained.finished["step"] == STEPS
    assert set(trained.finished["metrics"]) == {"heldout", "bits_per_byte", "needles"}
    found = open_language(trained)
    assert (found.length, found.name) == (112, "run")
    assert not found.model.training and found.tokenizer.vocab_size == len(load_tokenizer("words"))
    task, _ = make_task(toy_language(corpus), found.tokenizer, 0)
    with torch.no_grad():
        assert task.evaluate(found.model) == trained.finished["metrics"]
    by_path = open_language(str(trained.folder), step=STEPS)
    assert torch.equal(logits(by_path.model), logits(found.model))


def test_averaged_weights_are_what_is_loaded(tmp_path, corpus):
    training = toy_training(ema=0.9, steps=3)
    run = train_language(toy_language(corpus), training, tmp_path / "run", progress=False)
    found = open_language(run).model
    average = run.checkpoint().tensors("ema")
    assert torch.equal(found.lm_head.weight, average["lm_head.weight"])


def losses(run):
    return [line["loss"] for line in run.metrics() if "loss" in line]


def test_pieces_learn_the_same(tmp_path, corpus, trained):
    """Rows have different numbers of targets, and yet nothing changes."""
    training = toy_training(accumulate=2)
    run = train_language(toy_language(corpus), training, tmp_path / "run", progress=False)
    assert losses(run) == pytest.approx(losses(trained), rel=1e-5)
    assert run.finished["metrics"]["heldout"] == pytest.approx(
        trained.finished["metrics"]["heldout"], rel=1e-5
    )


def test_half_precision_learns_nearly_the_same(tmp_path, corpus, trained):
    training = toy_training(precision="bf16")
    run = train_language(toy_language(corpus), training, tmp_path / "run", progress=False)
    assert losses(run) == pytest.approx(losses(trained), rel=5e-3)
    assert losses(run) != losses(trained)


class Killed(BaseException):
    """As sudden as kill -9."""


def test_a_run_that_died_ends_the_same(tmp_path, corpus, trained, monkeypatch):
    batch = LanguageTask.batch
    for last in (2, 5):

        def mortal(self, generator, batch_size, step, last=last):
            if step == last:
                raise Killed
            return batch(self, generator, batch_size, step)

        with monkeypatch.context() as patch:
            patch.setattr(LanguageTask, "batch", mortal)
            with pytest.raises(Killed):
                toy_run(tmp_path / "run", corpus)
    assert_same(trained, toy_run(tmp_path / "run", corpus))


def test_a_finished_run_needs_no_corpus(tmp_path, corpus):
    own = write_corpus(tmp_path / "own.jsonl")
    toy_run(tmp_path / "run", own)
    own.unlink()
    again = toy_run(tmp_path / "run", own)
    assert again.finished
    assert open_language(again).length == 112
    with pytest.raises(RunError, match="language.prior"):
        toy_run(tmp_path / "run", own, prior="uniform", prior_options={})


def test_a_corpus_that_changed_is_noticed(tmp_path, corpus):
    own = write_corpus(tmp_path / "own.jsonl")
    run = toy_run(tmp_path / "run", own)
    (run.folder / "finished.json").unlink()
    write_corpus(own, documents=130)
    with pytest.raises(RunError, match="data.train"):
        toy_run(tmp_path / "run", own)


def test_another_config_is_refused(trained, corpus):
    with pytest.raises(RunError, match='language.encoding \\("none" there, "rope" now\\)'):
        toy_run(trained.folder, corpus, encoding="rope")


def test_a_run_of_an_older_version_is_continued(tmp_path, trained, corpus):
    run = toy_run(tmp_path / "run", corpus)
    old = run.config["language"] | {"window": None, "rope_parameters": {}, "ssmax": True}
    (run.folder / "config.json").write_text(json.dumps({**run.config, "language": old}))
    (run.folder / "finished.json").unlink()
    assert_same(trained, toy_run(tmp_path / "run", corpus))


def test_mistakes_are_found_before_a_folder_is_made(tmp_path, corpus):
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    short = tmp_path / "short.txt"
    short.write_text("The sky is blue.")
    for changes in (
        {"corpus": str(empty)},
        {"corpus": str(short)},
        {"corpus": str(tmp_path / "nowhere.txt")},
        {"length": 20},
        {"tokenizer": str(tmp_path)},
    ):
        with pytest.raises(CorpusError):
            toy_run(tmp_path / "run", **{"corpus": corpus, **changes})
        assert not (tmp_path / "run").exists()


def test_a_tokenizer_that_does_not_fit_the_checkpoint(trained, monkeypatch):
    monkeypatch.setattr("bayesattn.models.open.fingerprint", lambda _: "other")
    with pytest.raises(RunError, match="trained with another tokenizer than 'words' is now"):
        open_language(trained)


def test_runs_of_something_else(tmp_path, trained):
    tunnel = train_tunnel(TUNNEL, SMALL, config(steps=1), tmp_path / "tunnel")
    with pytest.raises(ValueError, match="is a run of a tunnel, which reads no text"):
        open_language(tunnel.folder)
    copy = Path(shutil.copytree(trained.folder, tmp_path / "copy"))
    kept = parse((copy / "config.json").read_text())
    kept["language"]["spin"] = 1
    (copy / "config.json").write_text(json.dumps(kept))
    with pytest.raises(RunError, match="made by another version of bayesattn, .*spin"):
        open_language(copy)
    (copy / "config.json").write_text('{"langu')
    with pytest.raises(RunError, match="config.json in .* is damaged"):
        open_language(copy)


def test_settings_that_need_no_training_can_change(tmp_path, corpus):
    run = toy_run(tmp_path / "run", corpus, encoding="rope", prior="uniform", prior_options={})
    plain, local = open_language(run), open_language(run, sliding_window=4)
    assert local.model.config.sliding_window == 4
    assert not torch.allclose(logits(plain.model), logits(local.model))
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 112}
    stretched = open_language(run, rope_parameters={**yarn, "rope_theta": 500_000.0})
    assert stretched.model.config.rope_parameters["factor"] == 4.0
    assert not torch.allclose(logits(plain.model), logits(stretched.model))
    with pytest.raises(ValueError, match="unknown setting 'windw'"):
        open_language(run, windw=4)


def test_an_export_is_the_same_model(tmp_path, trained):
    folder = open_language(trained).export(tmp_path / "deep" / "model")
    found, original = open_language(folder), open_language(trained)
    assert torch.equal(logits(found.model), logits(original.model))
    assert (found.length, found.name) == (112, str(folder))
    text = "The sky is blue. 12345"
    assert found.tokenizer(text).input_ids == original.tokenizer(text).input_ids
    assert (folder / "generation_config.json").exists()
    suffixes = {path.suffix for path in folder.iterdir()}
    assert suffixes == {".json", ".safetensors", ".md", ".py"}
    with pytest.raises(RunError, match="is there already: choose another folder"):
        open_language(trained).export(folder)
    with pytest.raises(ValueError, match="is no run, so it has no checkpoint of step 3"):
        open_language(folder, step=3)
    local = open_language(folder, sliding_window=4)
    assert local.model.config.sliding_window == 4


def test_an_earlier_checkpoint_can_be_exported(tmp_path, trained):
    first = open_language(trained, trained.steps()[0]).export(tmp_path / "first")
    last = open_language(trained).export(tmp_path / "last")
    models = [open_language(folder).model for folder in (first, last)]
    assert not torch.equal(logits(models[0]), logits(models[1]))


def test_an_export_that_fails_leaves_nothing(tmp_path, trained, monkeypatch):
    def full(*_, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("transformers.PreTrainedTokenizerBase.save_pretrained", full)
    with pytest.raises(ValueError, match="Cannot write .*No space left on device"):
        open_language(trained).export(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def llama(folder, vocabulary):
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    made = LlamaConfig(vocab_size=vocabulary, max_position_embeddings=64, **size, **heads)
    LlamaForCausalLM(made).save_pretrained(folder)
    load_tokenizer("words").save_pretrained(folder)
    return folder


def test_any_model_of_hugging_face(tmp_path):
    folder = llama(tmp_path / "llama", 1024)
    found = open_language(folder)
    assert isinstance(found.model, LlamaForCausalLM)
    assert (found.length, found.name) == (64, str(folder))


def test_a_tokenizer_with_more_tokens_than_the_model(tmp_path):
    with pytest.raises(ValueError, match="has 1,024 tokens and the model 100: they do not"):
        open_language(llama(tmp_path / "llama", 100))


def test_neither_run_nor_model():
    with pytest.raises(
        ValueError, match="is neither on this machine nor on the Hugging Face hub"
    ) as error:
        open_language("nowhere/at-all")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["./no/such/folder", "../nowhere", "/no/such/folder"])
def test_a_path_that_leads_nowhere_is_not_asked_for_at_the_hub(name):
    with pytest.raises(ValueError, match=f"There is no {name}: name the folder of a run"):
        open_language(name)


def test_a_folder_without_anything(tmp_path):
    with pytest.raises(ValueError, match="is neither a run nor a model"):
        open_language(tmp_path)
    with pytest.raises(RunError, match="has no checkpoint yet"):
        Run.create(tmp_path / "new", {"training": {}})
        begun = Run.create(
            tmp_path / "begun",
            {
                "language": toy_language("pydoc").to_dict(),
                "training": toy_training().to_dict(),
                "data": {"tokenizer": fingerprint(load_tokenizer("words"))},
            },
        )
        open_language(begun)
