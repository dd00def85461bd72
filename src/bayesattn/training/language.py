"""Training a language model."""

from pathlib import Path
from typing import Any

from bayesattn.corpora import load_tokenizer
from bayesattn.models.language_config import LanguageConfig
from bayesattn.runs import Run
from bayesattn.training.config import TrainConfig
from bayesattn.training.language_data import make_task
from bayesattn.training.loop import finish, in_present_words, shared_run
from bayesattn.training.timing import steps_within
from bayesattn.training.trackers import require_tracker


def train_language(
    language: LanguageConfig,
    training: TrainConfig,
    folder: Path | str,
    *,
    progress: bool = True,
    command: str | None = None,
) -> Run:
    """Train in the run `folder`: begin it, continue it, or just open it.

    Args:
        language: the model and its text.
        training: how to train.
        folder: of the run; one with another config is refused.
        progress: whether to show a bar if standard error is a terminal.
        command: what was typed to get this run, for the record.

    Raises:
        Interrupted: after Ctrl-C; everything is saved.
    """
    require_tracker(training.track)
    config = run_config(language, training, command)
    if finished := _finished(folder, config):
        return finished
    tokenizer = load_tokenizer(language.tokenizer)
    task, data = make_task(language, tokenizer, training.seed)
    model = language.build(tokenizer, training.seed)
    run = shared_run(folder, config | {"data": data})
    return finish(run, task, model, training, progress, "bayesattn lm train")


def steps_for(minutes: float, language: LanguageConfig, training: TrainConfig) -> int:
    """Steps of such a training that take about `minutes`, which trying a few shows."""
    tokenizer = load_tokenizer(language.tokenizer)
    task, _ = make_task(language, tokenizer, training.seed)
    return steps_within(minutes, task, language.build(tokenizer, training.seed), training)


def run_config(
    language: LanguageConfig, training: TrainConfig, command: str | None = None
) -> dict[str, Any]:
    """What decides a run, and its command; config.json also says which data were found."""
    return {"language": language.to_dict(), "training": training.to_dict(), "command": command}


def parse_config(run: Run) -> tuple[LanguageConfig, TrainConfig]:
    """What a run was made of."""
    with run.reading("language model"):
        language, training = run.config["language"], run.config["training"]
        return LanguageConfig.read(language), TrainConfig(**training)


def _finished(folder: Path | str, config: dict[str, Any]) -> Run | None:
    """The run in `folder` if it is complete, which needs no corpus to see."""
    if not (Path(folder) / "config.json").exists():
        return None
    run = Run.open(folder)
    if run.finished:
        run.require_same(config | {"data": run.config.get("data")}, in_present_words)
    return run if run.finished else None
