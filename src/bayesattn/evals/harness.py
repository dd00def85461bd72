"""Tasks of EleutherAI's lm-eval on any language model; the extra `bayesattn[eval]`."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingImports=false
# (lm-eval has no types, and may not be installed)

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayesattn.models.open import LanguageModel


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
        language_model: what to measure.
        tasks: names such as hellaswag or arc_easy.
        few_shot: examples in the prompt; as each task says by default.
        limit: use only the first so many examples of each task.
        batch_size: sequences read together.
        length: longest input in tokens, of which the end is kept; the training length by default.
        folder: with further tasks as YAML files.
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
    if unknown := [task for task in tasks if not manager.match_tasks([task])]:
        raise ValueError(f"lm-eval has no task {unknown[0]!r}; `lm-eval ls tasks` lists them")
    model: Any = HFLM(
        pretrained=language_model.model,
        tokenizer=language_model.tokenizer,
        backend="causal",
        batch_size=batch_size,
        max_length=length or language_model.length,
    )
    found: Any = simple_evaluate(
        model=model,
        tasks=list(tasks),
        num_fewshot=few_shot,
        limit=limit,
        task_manager=manager,
        log_samples=False,
    )
    return [score for task, numbers in found["results"].items() for score in _scores(task, numbers)]


def _scores(task: str, numbers: dict[str, Any]) -> list[Score]:
    """From lm-eval's {"acc,none": 0.3, "acc_stderr,none": 0.01, ...}."""
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
