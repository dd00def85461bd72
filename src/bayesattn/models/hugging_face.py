"""Causal language models of Hugging Face: config, tokenizer and weights of a `Source`.

What is on this machine is loaded without a single call to the network, and what cannot be loaded is
refused in one sentence.
"""

import re
import struct
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from functools import lru_cache
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GgufConfig,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.integrations.ggml import GGUF_CONFIG_MAPPING
from transformers.integrations.gguf.dequant import GGML_BLOCK, dequantize
from transformers.integrations.gguf.reader import (
    GgufHeader,
    load_gguf_state_dict,
    read_gguf_metadata,
)
from transformers.utils import logging

import bayesattn.models  # noqa: F401  (our own models are known to transformers from here on)
from bayesattn.models.bounds import require_memory, require_sane
from bayesattn.models.retrofitted import RetrofitConfig, RetrofittedForCausalLM
from bayesattn.models.source import Source, SourceError

ENCODERS = ("ForMaskedLM", "Classification", "QuestionAnswering", "ForPreTraining", "EncoderModel")
LONGEST = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length")
"""What configs call the longest input that a model was made for."""
NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""Of tensors in .gguf files, and in transformers; those of layers come after "blk.NUMBER."."""
NEEDED = {"llama.attention.head_count", "llama.attention.head_count_kv", "tokenizer.ggml.tokens"}
TENSOR = re.compile(r"(?:blk\.(?P<layer>\d+)\.)?(?P<part>\w+)\.weight")


def longest_input(config: PreTrainedConfig) -> int | None:
    """Tokens of the longest input that a model was made for; None if there is no limit."""
    text = config.get_text_config(decoder=True)
    return next((n for name in LONGEST if (n := getattr(text, name, None))), None)


def read_tokenizer(source: Source, config: PreTrainedConfig) -> PreTrainedTokenizerBase:
    """The tokenizer; refuses one that knows no words, or more than a model with this config."""
    options = gguf_options(source)
    # Auto reads the whole file once more to choose a class that is then this one
    kind: Any = AutoTokenizer if quick_header_of(source) is None else PreTrainedTokenizerFast
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
    tensors = _tensors(source)
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
    require_memory(config, "A model with this config")
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
    model.tie_weights()
    return model


def read_config(source: Source, changes: Mapping[str, Any] | None = None) -> Any:
    """The config with some `changes`; refuses what is no causal language model."""
    changes = changes or {}
    header = quick_header_of(source)
    if header is not None:
        return _changed(header.config(changes), changes)
    options: dict[str, Any] = {**gguf_options(source), **changes}
    config: Any = fetch(source, lambda **where: AutoConfig.from_pretrained(**options, **where))
    names = getattr(config, "architectures", None) or []
    encodes = names and all(name.endswith(ENCODERS) for name in names)
    if config.is_encoder_decoder or encodes:
        what = names[0] if names else type(config).__name__.removesuffix("Config")
        raise _not_causal(source.name, what)
    require_sane(config, source)
    return _changed(config, changes)


def quick_header_of(source: Source) -> "Header | None":
    """The header of a .gguf file that can be read quickly."""
    if source.kind != "gguf":
        return None
    gguf_options(source)
    try:
        return quick_header(source.files[0])
    except (ValueError, struct.error) as error:
        raise _refusal(source, error) from None


def gguf_options(source: Source) -> dict[str, Any]:
    """What transformers has to be told besides of a .gguf file."""
    if source.kind != "gguf":
        return {}
    if find_spec("gguf") is None:
        raise SourceError("Reading .gguf files needs gguf: pip install 'bayesattn[gguf]'.")
    return {"gguf_file": source.files[0].name}


def fetch(source: Source, call: Callable[..., Any]) -> Any:
    """`call` with what is on this machine, and only for names of the hub with the hub.

    It takes the arguments of `from_pretrained` that say where to look.
    """
    where: dict[str, Any] = {
        "pretrained_model_name_or_path": source.location,
        "revision": source.revision,
        "trust_remote_code": False,  # left open, transformers would ask on the terminal
    }
    if source.revision is None:
        del where["revision"]
    with quiet():
        # Files of others fail in any way they like: tokenizers even raises plain Exception.
        try:
            return call(**where, local_files_only=True)
        except Exception as error:
            if source.local or not isinstance(error, OSError):
                raise _refusal(source, error) from error
        try:
            return call(**where)
        except Exception as error:
            raise _refusal(source, error) from error


@contextmanager
def quiet() -> Iterator[None]:
    """No bars, no warnings of transformers: what matters is said in one sentence."""
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        # one of its bars does not ask whether bars are wanted
        with without_bars(), redirect_stderr(StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(before)


@contextmanager
def without_bars() -> Iterator[None]:
    """Hugging Face shows no progress bars in here: reading and writing small models is instant."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _tensors(source: Source) -> dict[str, Tensor] | None:
    """Weights that are read here; None if transformers does it."""
    header = quick_header_of(source)
    if header is not None:
        return header.weights()
    if source.kind != "safetensors":
        return None
    try:
        return {name: x for file in source.files for name, x in load_file(file).items()}
    except (OSError, SafetensorError) as error:
        raise SourceError(f"{source.name} cannot be read ({error}): get it once more.") from None


def _changed(config: Any, changes: Mapping[str, Any]) -> Any:
    if strange := [name for name in changes if not hasattr(config, name)]:
        raise SourceError(f"the model has no setting {strange[0]!r} that could be changed.")
    return config


def _refusal(source: Source, error: Exception) -> SourceError:
    text = str(error)
    reason = text.strip().splitlines()[0] if text.strip() else type(error).__name__
    if "gated" in text:
        return SourceError(
            f"{source.name} is gated: accept its licence at https://huggingface.co/"
            f"{source.location} and log in with `hf auth login`."
        )
    if "trust_remote_code" in text or "custom code" in text:
        return SourceError(
            f"{source.name} needs code of its own, which is never run: name a model that "
            "transformers knows."
        )
    if "mismatched" in text:
        return SourceError(
            f"The weights of {source.name} have other sizes than its config.json says: they do not "
            "belong together."
        )
    if source.kind == "hub" and isinstance(error, OSError):
        return SourceError(
            f"{source.name} is neither here nor to be had from the Hugging Face hub: check its "
            "name and the network, or name a folder."
        )
    return SourceError(f"{source.name} cannot be loaded ({reason}): see whether it is complete.")


def _not_causal(name: str, what: str) -> SourceError:
    return SourceError(
        f"{name} is no causal language model ({what}): name a model that continues text."
    )


class Header(NamedTuple):
    """What a .gguf file says before its tensors.

    Transformers reads such files by way of Python objects for each token, several times over, which
    takes most of a minute for SmolLM2. Here the header is walked once and tensors are unpacked by
    torch, in a second. What is not plainly a Llama (other names of tensors, rotation that is
    scaled, rare types of blocks) is left to transformers, whose result is the same bit by bit.
    """

    metadata: dict[str, Any]
    tensors: GgufHeader

    def config(self, changes: Mapping[str, Any]) -> LlamaConfig:
        """The config, named as transformers names what the file says; with some changes."""
        named = {
            name: self.metadata[f"{group}.{key}"]
            for group in ("general", "llama", "tokenizer")
            for key, name in GGUF_CONFIG_MAPPING[group].items()
            if isinstance(name, str) and f"{group}.{key}" in self.metadata
        }
        del named["model_type"]
        # of lists of words the header tells how long they are
        named.setdefault("vocab_size", self.metadata["tokenizer.ggml.tokens"])
        tied = all(tensor.name != "output.weight" for tensor in self.tensors.tensors)
        return LlamaConfig(**{**named, "tie_word_embeddings": tied, **changes})

    def weights(self) -> dict[str, Tensor]:
        stored = load_gguf_state_dict(self.tensors)
        heads = {
            "attn_q": self.metadata["llama.attention.head_count"],
            "attn_k": self.metadata["llama.attention.head_count_kv"],
        }
        found: dict[str, Tensor] = {}
        for tensor in self.tensors.tensors:
            x = stored[tensor.name][...]
            if tensor.ggml_type in GGML_BLOCK:
                x = dequantize(x.flatten(), tensor.ggml_type).view(tensor.shape)
            part = tensor.name.split(".")[-2]
            if part in heads:
                x = _unpermuted(x, heads[part])
            found[_name(tensor.name)] = x.to(torch.float32)
        return found


def quick_header(path: Path) -> Header | None:
    """The header of a file that is plainly a Llama; None for any other."""
    return _header(str(path), path.stat().st_mtime_ns)


@lru_cache(maxsize=8)
def _header(path: str, changed: int) -> Header | None:
    metadata, names = read_gguf_metadata(path)
    plain = metadata["general.architecture"] == "llama"
    plain &= "mistral" not in str(metadata.get("general.name", "")).lower()
    plain &= not any(key.startswith("llama.rope.scaling") for key in metadata)
    plain &= metadata.keys() >= NEEDED
    if not plain or not all(_known(name) for name in names):
        return None
    try:
        return Header(metadata, GgufHeader.from_file(path))
    except ValueError:  # a type of blocks that only the slow reader knows
        return None


def _unpermuted(weight: Tensor, heads: int) -> Tensor:
    """Rows as transformers turns them, in halves; llama.cpp turns neighbours."""
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).reshape(weight.shape)


def _known(name: str) -> bool:
    found = TENSOR.fullmatch(name)
    return found is not None and found["part"] in NAMES


def _name(name: str) -> str:
    found = TENSOR.fullmatch(name)
    assert found is not None
    layer = "" if found["layer"] is None else f"model.layers.{found['layer']}."
    return f"{layer}{NAMES[found['part']]}.weight"
