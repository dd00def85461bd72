"""`BayesConfig`: every choice of the decoder, one field each, checked when it is made."""

import difflib
import math
from collections.abc import Iterable
from dataclasses import fields
from typing import Any, ClassVar

import torch
from huggingface_hub.dataclasses import strict
from transformers import GenerationConfig, PreTrainedConfig
from transformers.modeling_rope_utils import RopeParameters

from bayesattn.attention import KERNELS, SCOPES
from bayesattn.encodings import ENCODINGS, ROPE_TYPES
from bayesattn.priors import PRIORS, make_prior

_POSITIVE = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "sliding_window",
    "attention_layers",
    "num_experts",
    "num_experts_per_tok",
)

# What transformers, its quantisers and older versions of it pass to any config or save with it,
# besides its own attributes. Generation settings were once part of a config.
_OF_TRANSFORMERS = {
    *GenerationConfig().to_dict(),
    "attn_implementation",
    "auto_map",
    "custom_pipelines",
    "experts_implementation",
    "finetuning_task",
    "model_type",
    "num_labels",
    "partial_rotary_factor",
    "per_layer_config",
    "prefix",
    "pruned_heads",
    "quantization_config",
    "rope_scaling",
    "rope_theta",
    "task_specific_params",
    "tokenizer_class",
    "torch_dtype",
    "torchscript",
    "use_bfloat16",
}


@strict
class BayesConfig(PreTrainedConfig):
    """Settings of a Llama-like decoder whose attention has a positional prior.

    The defaults are the published setting: a learned generalised Gaussian per head and layer that
    starts uniform, SSMax on content and prior, no other encoding, at the authors' 12-layer size.

    Args:
        intermediate_size: width of the SwiGLU layer; twice `hidden_size` if None.
        num_key_value_heads: grouped-query attention if fewer than `num_attention_heads`.
        head_dim: `hidden_size / num_attention_heads` if None.
        prior: a name from `bayesattn.priors.PRIORS`.
        prior_options: arguments of that prior, for example `{"init": "mixed"}`.
        shared_prior: one prior for all layers instead of one per layer.
        ssmax: scale the logits with the log of the number of visible keys.
        ssmax_scope: "content+prior" (published) or "content".
        ssmax_horizon: beyond so many visible keys, such as those of training, further ones count
            only as far as the prior leaves them in play, so that local heads stay as they are. May
            be set after training. None counts them all, as published.
        ssmax_learned: False keeps every temperature at 1.
        encoding: "none", "rope", "sinusoidal" or "learned" (a table of `max_position_embeddings`
            rows, and no position beyond it).
        rope_parameters: transformers' dictionary (rope_type, rope_theta, factor, ...), only with
            encoding "rope"; theta is 500,000 if not given.
        sliding_window: number of most recent keys a query sees, its own included. May be changed
            after training (local RoPE).
        exempt: this many first keys of a sequence have log-prior 0 at any distance.
        attention_layers: only the first so many layers attend, the later ones are feed-forward;
            all of them if None.
        num_experts: SwiGLU layers side by side in every layer, with a router; one without if None.
        num_experts_per_tok: how many of them every token uses.
        kernel: how attention is computed, a name from `bayesattn.attention.KERNELS`.
        tolerance: share of the posterior that attention may provably leave out, for long prompts on
            a CPU; None computes all of it. Refused in training.
    """

    model_type: ClassVar[str] = "bayesattn"
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values"]
    default_theta: ClassVar[float] = 500_000.0

    vocab_size: int = 32_768
    hidden_size: int = 768
    intermediate_size: int | None = None
    num_hidden_layers: int = 12
    num_attention_heads: int = 16
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    max_position_embeddings: int = 512
    rms_norm_eps: float = 1e-5
    prior: str = "ggd"
    prior_options: dict | None = None
    shared_prior: bool = False
    ssmax: bool = True
    ssmax_scope: str = "content+prior"
    ssmax_horizon: int | None = None
    ssmax_learned: bool = True
    encoding: str = "none"
    rope_parameters: RopeParameters | dict | None = None
    sliding_window: int | None = None
    exempt: int = 0
    attention_layers: int | None = None
    num_experts: int | None = None
    num_experts_per_tok: int = 2
    kernel: str = "auto"
    tolerance: float | None = None
    tie_word_embeddings: bool = False
    use_cache: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        """Fill in what follows from other fields, then check everything."""
        # PreTrainedConfig keeps any extra keyword: a misspelt setting would have no effect.
        for name in _unknown(kwargs):
            near = _nearest(name, cutoff=0.6)
            hint = f"did you mean {near[0]!r}?" if near else "BayesConfig has no such field."
            raise ValueError(f"unknown setting {name!r}: {hint}")
        if self.head_dim is None and self.num_attention_heads > 0:
            if self.hidden_size % self.num_attention_heads:
                raise ValueError(
                    f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads "
                    f"{self.num_attention_heads}; change one of them or set head_dim"
                )
            self.head_dim = self.hidden_size // self.num_attention_heads
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads
        if self.intermediate_size is None:
            self.intermediate_size = 2 * self.hidden_size
        self.prior_options = dict(self.prior_options or {})
        rope = dict(self.rope_parameters or {})
        rope_given = bool(rope) or any(key in kwargs for key in ("rope_theta", "rope_scaling"))
        self.rope_parameters = rope or None
        _one_of("encoding", self.encoding, ENCODINGS)
        if rope_given and self.encoding != "rope":
            raise ValueError(
                f"rope_parameters need encoding 'rope', not {self.encoding!r}; drop one of the two"
            )
        super().__post_init__(**kwargs)
        if self.encoding != "rope":
            self.rope_parameters = None
        # `@strict` would run this too, but wraps the sentence in an error of its own.
        self.validate_architecture()

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """From a file, in which other programs may have left notes of their own: they are kept."""
        notes = [name for name in _unknown(config_dict) if not _nearest(name, cutoff=0.75)]
        known = {name: value for name, value in config_dict.items() if name not in notes}
        found = super().from_dict(known, **kwargs)
        config = found[0] if isinstance(found, tuple) else found
        for name in notes:
            setattr(config, name, config_dict[name])
        return found

    def validate_architecture(self) -> None:
        """Raise ValueError with one sentence about the first setting that cannot work."""
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be a positive integer, not {value}")
        if self.num_attention_heads % self.num_key_value_heads:  # pyright: ignore[reportOperatorIssue]
            raise ValueError(
                f"num_attention_heads {self.num_attention_heads} is not a multiple of "
                f"num_key_value_heads {self.num_key_value_heads}; each key head serves equally many"
            )
        if not (math.isfinite(self.rms_norm_eps) and self.rms_norm_eps > 0):
            raise ValueError(f"rms_norm_eps must be a positive number, not {self.rms_norm_eps}")
        if self.exempt < 0:
            raise ValueError(f"exempt must be 0 or more keys, not {self.exempt}")
        if self.tolerance is not None and not 0 < self.tolerance < 1:
            raise ValueError(
                f"tolerance is a share of the posterior, between 0 and 1, not {self.tolerance}"
            )
        if self.attention_layers is not None and self.attention_layers > self.num_hidden_layers:
            raise ValueError(
                f"attention_layers {self.attention_layers} is more than num_hidden_layers "
                f"{self.num_hidden_layers}; leave it out if every layer attends"
            )
        if self.num_experts is not None and self.num_experts_per_tok > self.num_experts:
            raise ValueError(
                f"num_experts_per_tok {self.num_experts_per_tok} is more than num_experts "
                f"{self.num_experts}; leave num_experts out for one feed-forward layer"
            )
        if self.ssmax_horizon is not None and self.ssmax_horizon < 1:
            raise ValueError(f"ssmax_horizon must be 1 or more, or None, not {self.ssmax_horizon}")
        _one_of("prior", self.prior, PRIORS)
        _one_of("ssmax_scope", self.ssmax_scope, SCOPES)
        _one_of("encoding", self.encoding, ENCODINGS)
        _one_of("kernel", self.kernel, KERNELS)
        with torch.device("cpu"):  # raises on options the prior does not have
            make_prior(self.prior, self.num_attention_heads, **(self.prior_options or {}))
        if self.encoding == "rope":
            self._check_rope(dict(self.rope_parameters or {}))

    def _check_rope(self, rope: dict[str, Any]) -> None:
        _one_of("rope_type", rope.get("rope_type"), ROPE_TYPES)
        if self.head_dim is not None and self.head_dim % 2:
            raise ValueError(f"encoding 'rope' needs an even head_dim, not {self.head_dim}")
        theta = rope.get("rope_theta")
        if not (isinstance(theta, int | float) and math.isfinite(theta) and theta > 0):
            raise ValueError(f"rope_theta must be a positive number, not {theta!r}")
        factor = rope.get("factor", 1.0 if rope["rope_type"] == "default" else None)
        if not (isinstance(factor, int | float) and math.isfinite(factor) and factor >= 1):
            raise ValueError(
                f"rope_type {rope['rope_type']!r} needs a factor of 1 or more, not {factor!r}"
            )


def _unknown(settings: Iterable[str]) -> list[str]:
    """Names that mean nothing to us or to transformers."""
    known = _OF_TRANSFORMERS.union(field.name for field in fields(BayesConfig))
    strange = (name for name in settings if name not in known and not name.startswith("_"))
    return [name for name in strange if not hasattr(PreTrainedConfig, name)]


def _nearest(name: str, cutoff: float) -> list[str]:
    """The field that was meant, if one is so similar."""
    names = [field.name for field in fields(BayesConfig)]
    return difflib.get_close_matches(name, names, n=1, cutoff=cutoff)


def _one_of(name: str, value: object, allowed: Any) -> None:
    if value not in allowed:
        raise ValueError(f"unknown {name} {value!r}; choose one of {', '.join(allowed)}")
