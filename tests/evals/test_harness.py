"""lm-eval on a model of ours; without it, a sentence that says what to install."""

import importlib.util
import json
import socket
import sys
from functools import cache

import pytest

from bayesattn.commands.main import main
from bayesattn.evals.harness import _scores, harness
from tests.evals.language import untrained

INSTALLED = importlib.util.find_spec("lm_eval") is not None
TASK = """
task: capitals
dataset_path: json
dataset_kwargs:
  data_files: {{test: {data}}}
test_split: test
output_type: multiple_choice
doc_to_text: "The capital of {{{{country}}}} is"
doc_to_choice: ["Paris", "Rome"]
doc_to_target: answer
metric_list: [{{metric: acc}}]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With a task of ones own; lm-eval reads ten thousand files to know the others, once here."""
    from lm_eval import tasks

    folder = tmp_path_factory.mktemp("tasks")
    data = folder / "capitals.jsonl"
    rows = [{"country": "France", "answer": 0}, {"country": "Italy", "answer": 1}] * 4
    data.write_text("\n".join(map(json.dumps, rows)))
    (folder / "capitals.yaml").write_text(TASK.format(data=data))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "TaskManager", cache(tasks.TaskManager))
        yield folder


def test_without_lm_eval_a_sentence_says_what_to_install(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(ValueError, match=r"not installed: pip install bayesattn\[eval\]"):
        harness(untrained(), ["arc_easy"])
    made = untrained()
    made.model.save_pretrained(tmp_path)
    made.tokenizer.save_pretrained(tmp_path)
    assert main(["lm", "harness", str(tmp_path), "--tasks", "arc_easy"]) == 2
    assert "pip install bayesattn[eval]" in capsys.readouterr().err


def test_a_task_must_be_named():
    with pytest.raises(ValueError, match="name at least one task"):
        harness(untrained(), [])


def test_numbers_of_a_task_become_scores():
    numbers = {
        "alias": "arc",
        "sample_len": 7,
        "acc,none": 0.5,
        "acc_stderr,none": 0.1,
        "exact_match,strict": 1.0,
        "exact_match_stderr,strict": "N/A",
    }
    first, second = _scores("arc", numbers)
    assert (first.metric, first.value, first.stderr, first.samples) == ("acc", 0.5, 0.1, 7)
    assert (second.metric, second.value, second.stderr) == ("exact_match (strict)", 1.0, None)


@pytest.mark.skipif(not INSTALLED, reason="lm-eval is not installed: pip install bayesattn[eval]")
@pytest.mark.filterwarnings("ignore")
def test_a_task_of_ones_own(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    model = untrained()
    (score,) = harness(model, ["capitals"], folder=folder, batch_size=3)
    assert score.task == "capitals" and score.metric == "acc" and 0 <= score.value <= 1
    with pytest.raises(ValueError, match="lm-eval has no task 'nonsense'"):
        harness(model, ["nonsense"], folder=folder)


@pytest.mark.skipif(not INSTALLED, reason="lm-eval is not installed: pip install bayesattn[eval]")
@pytest.mark.filterwarnings("ignore")
def test_our_ruler_is_a_task_that_needs_no_network(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(socket.socket, "connect", None)
    tasks = ["offline_ruler_vt", "offline_ruler_fwe"]
    found = harness(untrained(), tasks, folder=folder, limit=2, length=512)
    assert [(score.task, score.metric, score.value) for score in found] == [
        (task, "score", 0.0) for task in tasks
    ]
    assert [score.samples for score in found] == [2, 2]
    with pytest.raises(ValueError, match="A prompt of cwe has at least"):
        harness(untrained(), ["offline_ruler"], folder=folder, limit=1, length=512)
