"""What a model is and what it takes to load it, from its config alone."""

import struct
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import psutil
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

import bayesattn.models  # noqa: F401  (our own models are known to transformers from here on)
from bayesattn.evals.memory import GIBIBYTE
from bayesattn.probes.llm.locating import Source, SourceError
from bayesattn.probes.llm.quick_gguf import Header, quick_header
from bayesattn.training.language import LONGEST
from bayesattn.training.machine import without_bars

BATCH_TOKENS = 2048
LONG_PROMPT = 512
"""Tokens of a prompt that memory is reckoned for."""
ENCODERS = ("ForMaskedLM", "Classification", "QuestionAnswering", "ForPreTraining", "EncoderModel")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What will be loaded."""

    name: str
    architecture: str
    layers: int
    heads: int
    """Query heads."""
    kv_heads: int
    head_width: int
    width: int
    """Of the residual stream."""
    window: int | None
    """Keys that a token sees in layers with a sliding window."""
    windowed_layers: int
    vocabulary: int
    context: int | None
    """Most tokens of a prompt; None if there is no limit."""
    parameters: int
    dtype: str
    quantised: str | None
    """How weights are stored, if with less than 16 bits; they are computed with in `dtype`."""
    memory: int
    """Bytes that the model and reading with it take, about."""
    free: int
    """Bytes there are."""

    def rows(self) -> list[tuple[str, str]]:
        """What to print before loading."""
        windowed = f"{self.window or 0:,} tokens in {self.windowed_layers} layers"
        return [
            ("architecture", self.architecture),
            ("layers", str(self.layers)),
            ("heads", f"{self.heads} query, {self.kv_heads} key/value, {self.head_width} wide"),
            ("window", "none" if self.window is None else windowed),
            ("vocabulary", f"{self.vocabulary:,} tokens"),
            ("context", "no limit" if self.context is None else f"{self.context:,} tokens"),
            ("parameters", f"{self.parameters:,}"),
            ("weights", f"{self.dtype}{f', from {self.quantised}' if self.quantised else ''}"),
            (
                "memory",
                f"about {self.memory / GIBIBYTE:.1f} GiB of {self.free / GIBIBYTE:.1f} GiB free",
            ),
        ]

    def require_room(self) -> None:
        """Refuse a model that does not fit into memory."""
        if self.memory <= self.free:
            return
        wide = self.dtype == "float32"
        advice = "load it in bfloat16, " if wide else ""
        raise SourceError(
            f"{self.name} needs about {self.memory / GIBIBYTE:.1f} GiB of memory and "
            f"{self.free / GIBIBYTE:.1f} GiB are free: {advice}free some, or take a smaller model."
        )


def plan(source: Source, *, device: str | torch.device = "cpu", dtype: str = "float32") -> Plan:
    """What loading `source` would give and take; reads its config and no weights."""
    config = read_config(source)
    quantised = _quantised(source, config)
    return describe(config, source.name, device=device, dtype=dtype, quantised=quantised)


def describe(
    config: PreTrainedConfig,
    name: str,
    *,
    device: str | torch.device = "cpu",
    dtype: str = "float32",
    quantised: str | None = None,
    parameters: int | None = None,
) -> Plan:
    """The plan of a model with this config, and `parameters` if they are counted already."""
    text: Any = config.get_text_config(decoder=True)
    heads, width = getattr(text, "num_attention_heads", None), text.hidden_size
    if not heads:
        raise SourceError(
            f"{name} does not attend ({type(config).__name__.removesuffix('Config')}): name a "
            "model with attention and a KV cache."
        )
    head_width = getattr(text, "head_dim", None) or width // heads
    window, windowed = _window(text)
    if parameters is None:
        parameters = sum(x.numel() for x in empty_model(config, name).parameters())
    size = getattr(torch, dtype).itemsize
    inner = getattr(text, "intermediate_size", None) or 4 * width
    # states of a layer, and attention of long prompts: scores, weights and one in between
    reading = BATCH_TOKENS * (size * (8 * width + 3 * inner) + 12 * heads * LONG_PROMPT)
    return Plan(
        name=name,
        architecture=type(config).__name__.removesuffix("Config"),
        layers=text.num_hidden_layers,
        heads=heads,
        kv_heads=_kv_heads(text, heads),
        head_width=head_width,
        width=width,
        window=window,
        windowed_layers=windowed,
        vocabulary=text.vocab_size,
        context=next((n for key in LONGEST if (n := getattr(text, key, None))), None),
        parameters=parameters,
        dtype=dtype,
        quantised=quantised,
        memory=parameters * size + reading,
        free=free_memory(torch.device(device)),
    )


def empty_model(config: PreTrainedConfig, name: str) -> PreTrainedModel:
    """The model with this config, without memory for its weights."""
    try:
        with quiet(), torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
    except (ValueError, ImportError):
        raise _not_causal(name, type(config).__name__.removesuffix("Config")) from None
    model.tie_weights()
    return model


def read_config(source: Source) -> Any:
    """The config, from disk if it is there; refuses what is no causal language model."""
    header = quick_header_of(source)
    if header is not None:
        return header.config()
    options = gguf_options(source)
    config: Any = fetch(source, lambda **where: AutoConfig.from_pretrained(**options, **where))
    names = getattr(config, "architectures", None) or []
    encodes = names and all(name.endswith(ENCODERS) for name in names)
    if config.is_encoder_decoder or encodes:
        what = names[0] if names else type(config).__name__.removesuffix("Config")
        raise _not_causal(source.name, what)
    return config


def quick_header_of(source: Source) -> Header | None:
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

    Args:
        source: where the model is.
        call: takes the arguments of `from_pretrained` that say where to look.
    """
    where = {"pretrained_model_name_or_path": source.location, "revision": source.revision}
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


def free_memory(device: torch.device) -> int:
    """Bytes that can be taken: of a GPU, or of main memory within a container's limit."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    free = psutil.virtual_memory().available
    limit, used = (Path("/sys/fs/cgroup") / name for name in ("memory.max", "memory.current"))
    try:
        return min(free, int(limit.read_text()) - int(used.read_text()))
    except (OSError, ValueError):  # no such system, or "max": no limit
        return free


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


def _kv_heads(text: Any, heads: int) -> int:
    found = getattr(text, "num_key_value_heads", None)
    if found is None and getattr(text, "new_decoder_architecture", False):
        found = text.num_kv_heads
    if found is None and getattr(text, "multi_query", False):
        found = 1
    return heads if found is None else found


def _window(text: Any) -> tuple[int | None, int]:
    """Width of the sliding window, and in how many layers there is one."""
    window = getattr(text, "sliding_window", None)
    if window is None:
        return None, 0
    kinds = getattr(text, "layer_types", None)
    if kinds is None:
        return window, text.num_hidden_layers
    count = sum(kind == "sliding_attention" for kind in kinds)
    return (window, count) if count else (None, 0)


def _quantised(source: Source, config: Any) -> str | None:
    if source.kind != "gguf":
        method = getattr(config, "quantization_config", None)
        return None if method is None else str(dict(method).get("quant_method", "fewer bits"))
    gguf_options(source)
    from gguf import LlamaFileType
    from transformers.integrations.gguf.reader import read_gguf_metadata

    metadata, _ = read_gguf_metadata(str(source.files[0]))
    name = LlamaFileType(metadata.get("general.file_type", LlamaFileType.GUESSED)).name
    stored = name.removeprefix("MOSTLY_")
    return None if stored in ("ALL_F32", "F16", "BF16") else stored
