"""Training a language model, and loading any: from a run, a Hugging Face folder or the hub."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from bayesattn.corpora import fingerprint, load_tokenizer
from bayesattn.training.config import TrainConfig
from bayesattn.training.errors import RunError
from bayesattn.training.language_config import LanguageConfig
from bayesattn.training.language_data import make_task
from bayesattn.training.learner import load_model_tensors
from bayesattn.training.machine import device, without_bars
from bayesattn.training.runs import Run
from bayesattn.training.shared import finish, reading, shared_run
from bayesattn.training.timing import steps_within
from bayesattn.training.trackers import require_tracker
from bayesattn.zoo import locate

LONGEST = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length")
"""What configs of Hugging Face call the longest input a model was made for."""
UNLIMITED = 2048
"""Stands for it where a model has no longest input."""


@dataclass(frozen=True)
class LanguageModel:
    """A causal language model that is ready for evaluation."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    length: int
    """Tokens it was trained at, or made for."""
    name: str


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
    with reading(run, "language model"):
        language, training = run.config["language"], run.config["training"]
        return LanguageConfig(**language), TrainConfig(**training)


def load_language_model(
    source: Run | Path | str, step: int | None = None, **changes: Any
) -> LanguageModel:
    """A run's model at `step`, or as it is now; or any causal model of Hugging Face.

    Args:
        source: a run or its folder, zoo:NAME, a folder written by `save_pretrained`, or a name of
            the hub.
        step: one of the run's checkpoints.
        changes: settings of the model's config that need no training, such as sliding_window=128
            (local RoPE) or rope_parameters (YaRN, dynamic NTK).
    """
    if isinstance(source, Run):
        return _of_run(source, step, changes)
    if isinstance(source, str):
        if source.startswith((".", "/", "~")) and not Path(source).exists():  # no name of the hub
            raise ValueError(f"There is no {source}: name the folder of a run or of a model.")
        source = locate(source)
    if (source / "config.json").exists():
        run = Run.open(source)
        if "model_type" not in run.config:
            return _of_run(run, step, changes)
    if step is not None:
        raise ValueError(f"{source} is no run, so it has no checkpoint of step {step}.")
    return _of_hugging_face(str(source), changes)


def _of_run(run: Run, step: int | None, changes: dict[str, Any]) -> LanguageModel:
    language, training = parse_config(run)
    tokenizer = load_tokenizer(language.tokenizer)
    if fingerprint(tokenizer) != run.config["data"]["tokenizer"]:
        raise RunError(
            f"The run in {run.folder} was trained with another tokenizer than "
            f"{language.tokenizer!r} is now: restore the one it had."
        )
    checkpoint = run.checkpoint(step)
    model = language.build(tokenizer, training.seed, **changes)
    average = checkpoint.tensors("ema") if checkpoint.has("ema") else {}
    load_model_tensors(model, {**checkpoint.tensors("model"), **average})
    return _ready(model, tokenizer, language.length, run.folder.resolve().name)


def _of_hugging_face(name: str, changes: dict[str, Any]) -> LanguageModel:
    try:
        with without_bars():
            model: Any = AutoModelForCausalLM.from_pretrained(name, **changes)
    except (OSError, ValueError) as error:  # both have paragraphs
        reason = str(error).strip().splitlines()[0]
        raise ValueError(
            f"{name!r} is no run, and no causal model of Hugging Face either ({reason})"
        ) from None
    tokenizer = load_tokenizer(name)
    known = len(model.get_input_embeddings().weight)
    if len(tokenizer) > known:
        raise ValueError(
            f"The tokenizer in {name} has {len(tokenizer)} tokens, but the model only {known}: "
            "they do not belong together."
        )
    lengths = [getattr(model.config, attribute, None) for attribute in LONGEST]
    length = next((found for found in lengths if found), None)
    return _ready(model, tokenizer, length or UNLIMITED, name)


def _ready(model: Any, tokenizer: PreTrainedTokenizerBase, length: int, name: str) -> LanguageModel:
    return LanguageModel(model.eval().to(device()), tokenizer, length, name)


def _finished(folder: Path | str, config: dict[str, Any]) -> Run | None:
    """The run in `folder` if it is complete, which needs no corpus to see."""
    if not (Path(folder) / "config.json").exists():
        return None
    run = Run.open(folder)
    if run.finished:
        run.require_same(config | {"data": run.config.get("data")})
    return run if run.finished else None
