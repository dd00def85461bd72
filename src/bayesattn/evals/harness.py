"""Tasks of EleutherAI's lm-eval on any language model; the extra `bayesattn[eval]`.

lm-eval's RULER downloads texts and needs the name of a tokenizer. `offline_ruler_KIND` is our RULER
(corpora/ruler): prompts for the model's tokenizer, with room for the answer, without network.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingImports=false
# pyright: reportMissingTypeStubs=false, reportUnknownLambdaType=false
# (lm-eval has no types, and may not be installed)

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayesattn.corpora.ruler import KINDS, Material, Problem, make_problem
from bayesattn.models.open import LanguageModel

OFFLINE_RULER = "offline_ruler"
"""Prefix of our tasks; alone it means all of them."""
PROMPTS = 20
"""Number of prompts of each of our tasks; `limit` takes the first ones."""


@dataclass(frozen=True)
class Score:
    """One number of one task."""

    task: str
    metric: str
    value: float
    stderr: float | None
    """Standard error over the task's examples, where lm-eval knows it."""
    samples: int


def harness(
    language_model: LanguageModel,
    tasks: Sequence[str],
    *,
    few_shot: int | None = None,
    limit: int | None = None,
    batch_size: int = 8,
    length: int | None = None,
    folder: Path | None = None,
) -> list[Score]:
    """Scores of `tasks`, by lm-eval's `simple_evaluate`.

    Args:
        language_model: the model.
        tasks: names such as hellaswag or arc_easy; or offline_ruler, or offline_ruler_vt.
        few_shot: number of examples in the prompt; by default that of each task.
        limit: use only the first so many examples of each task.
        batch_size: number of sequences read together.
        length: longest input in tokens (the training length by default); longer inputs keep their
            end.
        folder: folder with further tasks as YAML files.
    """
    if not tasks:
        raise ValueError("name at least one task, such as arc_easy")
    try:
        from lm_eval import simple_evaluate
        from lm_eval.models.huggingface import HFLM
        from lm_eval.tasks import TaskManager
    except ImportError:
        raise ValueError("lm-eval is not installed: pip install bayesattn[eval]") from None
    manager = TaskManager(include_path=None if folder is None else str(folder))
    own = {f"{OFFLINE_RULER}_{kind}": kind for kind in KINDS}
    names = [one for task in tasks for one in (own if task == OFFLINE_RULER else [task])]
    if unknown := [one for one in names if one not in own and not manager.match_tasks([one])]:
        raise ValueError(f"lm-eval has no task {unknown[0]!r}; `lm-eval ls tasks` lists them")
    length = length or language_model.length
    ready = [
        _ruler_task(one, own[one], language_model, length) if one in own else one for one in names
    ]
    make: Any = HFLM
    model = make(
        pretrained=language_model.model,
        tokenizer=language_model.tokenizer,
        backend="causal",
        batch_size=batch_size,
        max_length=length,
    )
    evaluate: Any = simple_evaluate
    found = evaluate(
        model=model,
        tasks=ready,
        num_fewshot=few_shot,
        limit=limit,
        task_manager=manager,
        log_samples=False,
    )
    return [score for task, numbers in found["results"].items() for score in _scores(task, numbers)]


def _ruler_task(name: str, kind: str, language_model: LanguageModel, length: int) -> dict[str, Any]:
    """A task in the form of lm-eval's YAML files, with functions instead of strings."""
    from datasets import Dataset

    tokenizer: Any = language_model.tokenizer
    material, room = Material(), KINDS[kind].tokens

    def count(text: str) -> int:
        return len(tokenizer(text, verbose=False)["input_ids"])

    def documents(**_: Any) -> dict[str, Any]:
        made = [
            make_problem(kind, material, count, length - room, depth=n / (PROMPTS - 1), number=n)
            for n in range(PROMPTS)
        ]
        rows = [{"prompt": one.prompt, "answers": list(one.answers)} for one in made]
        return {"test": Dataset.from_list(rows)}

    def results(document: dict[str, Any], written: list[str]) -> dict[str, float]:
        asked = Problem(document["prompt"], tuple(document["answers"]), 0)
        return {"score": asked.score(written[0])}

    return {
        "task": name,
        "custom_dataset": documents,
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": lambda document: document["prompt"],
        "doc_to_target": lambda document: ", ".join(document["answers"]),
        "process_results": results,
        "metric_list": [{"metric": "score", "aggregation": "mean", "higher_is_better": True}],
        "generation_kwargs": {"do_sample": False, "max_gen_toks": room, "until": []},
    }


def _scores(task: str, numbers: dict[str, Any]) -> list[Score]:
    """Scores from lm-eval's {"acc,none": 0.3, "acc_stderr,none": 0.01, ...}."""
    scores: list[Score] = []
    samples = int(numbers.get("sample_len", 0))
    for name, value in numbers.items():
        metric, _, kind = name.partition(",")
        if not isinstance(value, int | float) or not kind or metric.endswith("_stderr"):
            continue
        error = numbers.get(f"{metric}_stderr,{kind}")
        label = metric if kind == "none" else f"{metric} ({kind})"
        known = isinstance(error, int | float)
        scores.append(Score(task, label, float(value), float(error) if known else None, samples))
    return scores
