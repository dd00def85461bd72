"""Causal language models of Hugging Face: config, tokenizer and weights of a `Source`.

Files on this machine are loaded without any call to the network. A model that cannot be loaded is
refused in one sentence.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from importlib.util import find_spec
from io import StringIO
from typing import Any

import torch
from huggingface_hub import get_hf_file_metadata, hf_hub_url
from huggingface_hub.utils import logging as hub_logging
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GgufConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging

import bayesattn.models  # noqa: F401  (our own models are known to transformers from here on)
from bayesattn.gguf_header import Header, HeaderError, read_header
from bayesattn.models import gguf
from bayesattn.models.bounds import require_memory, require_sane
from bayesattn.models.retrofitted import RetrofitConfig, RetrofittedForCausalLM
from bayesattn.source import Source, SourceError

ENCODERS = ("ForMaskedLM", "Classification", "QuestionAnswering", "ForPreTraining", "EncoderModel")
LONGEST = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length")
"""Names of the longest input in configs."""
HUB_SECONDS = 5.0
"""Seconds after which the hub counts as unreachable."""


def longest_input(config: PreTrainedConfig) -> int | None:
    """Longest input of a model in tokens; None if there is no limit."""
    text = config.get_text_config(decoder=True)
    return next((n for name in LONGEST if (n := getattr(text, name, None))), None)


def read_tokenizer(source: Source, config: PreTrainedConfig) -> PreTrainedTokenizerBase:
    """The tokenizer; refuses one without tokens, or with more tokens than this config."""
    options = gguf_options(source)
    header = header_of(source)
    # Auto reads the whole file once more to choose a class that is then this one
    quick = header is not None and gguf.is_quick(header)
    kind: Any = PreTrainedTokenizerFast if quick else AutoTokenizer
    if header is not None and header.values.get("tokenizer.ggml.add_bos_token") is True:
        options["add_bos_token"] = True  # transformers does not read this
    try:
        tokenizer: Any = fetch(source, lambda **where: kind.from_pretrained(**options, **where))
        # without its files transformers may build one that knows no words
        works = bool(tokenizer("a b", add_special_tokens=False)["input_ids"])
    except SourceError:
        works = False
    if not works:
        raise SourceError(
            f"{source.name} has no tokenizer that works: put the tokenizer.json that it was "
            "trained with beside its weights."
        )
    # besides, transformers may add special tokens that no text contains
    known: int = config.get_text_config(decoder=True).vocab_size
    if tokenizer.vocab_size > known:
        raise SourceError(
            f"The tokenizer of {source.name} has {tokenizer.vocab_size:,} tokens and the model "
            f"{known:,}: they do not belong together."
        )
    return tokenizer


def read_model(source: Source, config: PreTrainedConfig, settings: Mapping[str, Any]) -> Any:
    """The model with its trained weights; `settings` are arguments of `from_pretrained`."""
    options: dict[str, Any] = gguf_options(source)
    if options:
        options["quantization_config"] = GgufConfig(dequantize=True)
    tensors = _tensors(source, config, settings.get("dtype", torch.float32))
    kind: Any = AutoModelForCausalLM
    if tensors is not None:
        kind = type(empty_model(config, source.name))
        if isinstance(config, RetrofitConfig):
            kind = RetrofittedForCausalLM
        options = {"state_dict": tensors}

    def call(**where: Any) -> Any:
        if tensors is not None:
            where = {"pretrained_model_name_or_path": None}
        return kind.from_pretrained(
            **where,
            **options,
            **settings,
            config=config,
            use_safetensors=True,
            output_loading_info=True,
        )

    model, loaded = fetch(source, call)
    missing = sorted(loaded["missing_keys"])
    if missing:
        raise SourceError(
            f"{source.name} lacks {len(missing)} weights of its model, such as {missing[0]}: it is "
            "incomplete, or was not trained to continue text."
        )
    return model


def fresh_model(config: PreTrainedConfig, seed: int, settings: Mapping[str, Any]) -> Any:
    name = "A model with this config"
    require_memory(empty_model(config, name).num_parameters(), name)
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config, **settings)


def empty_model(config: PreTrainedConfig, name: str) -> PreTrainedModel:
    """The model with this config, without memory for its weights."""
    try:
        with quiet(), torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
    except (ValueError, ImportError):
        raise _not_causal(name, type(config).__name__.removesuffix("Config")) from None
    except Exception as error:  # sizes that are no sizes fail in any way they like
        raise SourceError(
            f"No model can be made with the config of {name} ({_first_line(error)}): see whether "
            "it is complete."
        ) from None
    model.tie_weights()
    return model


def read_config(source: Source, changes: Mapping[str, Any] | None = None) -> Any:
    """The config with some `changes`; refuses models that are not causal language models."""
    changes = changes or {}
    header = header_of(source)
    if header is not None and gguf.is_quick(header):
        return _changed(fetch(source, lambda **_: gguf.config_of(header, changes)), changes)
    options: dict[str, Any] = {**gguf_options(source), **changes}
    config: Any = fetch(source, lambda **where: AutoConfig.from_pretrained(**options, **where))
    names = getattr(config, "architectures", None) or []
    encodes = names and all(name.endswith(ENCODERS) for name in names)
    if config.is_encoder_decoder or encodes:
        what = names[0] if names else type(config).__name__.removesuffix("Config")
        raise _not_causal(source.name, what)
    require_sane(config, source)
    return _changed(config, changes)


def header_of(source: Source) -> Header | None:
    """The header of a .gguf file; refuses a damaged one."""
    if source.kind != "gguf":
        return None
    gguf_options(source)
    try:
        header = read_header(source.files[0])
        gguf.check(header)
    except (HeaderError, OSError) as error:
        raise SourceError(
            f"{source.name} cannot be read: {error}. Download the file again."
        ) from None
    return header


def gguf_options(source: Source) -> dict[str, Any]:
    """Further arguments of transformers for a .gguf file."""
    if source.kind != "gguf":
        return {}
    if find_spec("gguf") is None:
        raise SourceError("Reading .gguf files needs gguf: pip install 'bayesattn[gguf]'.")
    return {"gguf_file": source.files[0].name}


def fetch(source: Source, call: Callable[..., Any]) -> Any:
    """`call` with files on this machine; with the network only for names of the hub.

    `call` takes the arguments of `from_pretrained` that say where to look.
    """
    where: dict[str, Any] = {
        "pretrained_model_name_or_path": source.location,
        "revision": source.revision,
        "trust_remote_code": False,  # left open, transformers would ask on the terminal
    }
    if source.revision is None:
        del where["revision"]
    with quiet():
        # Foreign files fail with any error: tokenizers even raises plain Exception.
        try:
            return call(**where, local_files_only=True)
        except Exception as error:
            if source.local or not isinstance(error, OSError):
                raise _refusal(source, error) from error
        try:
            _ask_hub(source)
            return call(**where)
        except Exception as error:
            raise _refusal(source, error) from error


def _ask_hub(source: Source) -> None:
    """Ask once whether a name exists; without a network transformers retries for a minute."""
    try:
        config = hf_hub_url(source.location, "config.json", revision=source.revision)
        get_hf_file_metadata(config, timeout=HUB_SECONDS)
    except OSError:
        raise
    except Exception as error:  # no connection, in the words of one HTTP library or another
        raise OSError(str(error)) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Switch off progress bars and warnings of transformers and the hub; errors are raised."""
    loggers = (logging, hub_logging)
    before = [own.get_verbosity() for own in loggers]
    for own in loggers:
        own.set_verbosity_error()
    try:
        # one of its bars does not ask whether bars are wanted
        with without_bars(), redirect_stderr(StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for own, verbosity in zip(loggers, before, strict=True):
            own.set_verbosity(verbosity)


@contextmanager
def without_bars() -> Iterator[None]:
    """Context without Hugging Face's progress bars, for small models."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _tensors(
    source: Source, config: PreTrainedConfig, dtype: torch.dtype
) -> dict[str, Tensor] | None:
    """Weights that bayesattn reads itself; None if transformers reads them."""
    header = header_of(source)
    if header is not None and gguf.is_quick(header):
        empty = empty_model(config, source.name)
        return fetch(source, lambda **_: gguf.weights_of(header, config, empty, dtype))
    if source.kind != "safetensors":
        return None
    try:
        return {name: x for file in source.files for name, x in load_file(file).items()}
    except (OSError, SafetensorError) as error:
        raise SourceError(f"{source.name} cannot be read ({error}): download it again.") from None


def _changed(config: Any, changes: Mapping[str, Any]) -> Any:
    if strange := [name for name in changes if not hasattr(config, name)]:
        raise SourceError(f"the model has no setting {strange[0]!r} that could be changed.")
    return config


def _refusal(source: Source, error: Exception) -> SourceError:
    text, reason = str(error), _first_line(error)
    if "gated" in text:
        return SourceError(
            f"{source.name} is gated: accept its licence at https://huggingface.co/"
            f"{source.location} and log in with `hf auth login`."
        )
    if "trust_remote_code" in text or "custom code" in text:
        return SourceError(
            f"{source.name} needs its own code, which is never run: name a model that "
            "transformers knows."
        )
    if "mismatched" in text:
        return SourceError(
            f"The weights of {source.name} have other sizes than its config.json says: they do not "
            "belong together."
        )
    if source.kind == "hub" and isinstance(error, OSError):
        return SourceError(
            f"{source.name} is neither on this machine nor on the Hugging Face hub: check its "
            "name and the network, or name a folder."
        )
    return SourceError(f"{source.name} cannot be loaded ({reason}): check whether it is complete.")


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0].rstrip(":.") if text else type(error).__name__


def _not_causal(name: str, what: str) -> SourceError:
    return SourceError(
        f"{name} is no causal language model ({what}): name a model that continues text."
    )
