"""`BayesConfig`: one field for each choice of the decoder, checked when the config is made."""

import difflib
import math
from collections.abc import Iterable
from dataclasses import fields
from typing import Any, ClassVar

import torch
from huggingface_hub.dataclasses import strict
from transformers import GenerationConfig, PreTrainedConfig
from transformers.modeling_rope_utils import RopeParameters

from bayesattn import plugins
from bayesattn.attention import KERNELS, SCOPES
from bayesattn.attention.log_temperature import check_scale
from bayesattn.checks import check_kinds, shortened, unknown
from bayesattn.encodings import ENCODINGS, POSITION_INITS, ROPE_TYPES
from bayesattn.models.far import LOCAL_WINDOW, check_rope_layers, far_layers, layer_options
from bayesattn.models.folder import OnlyNamed, check_version
from bayesattn.priors import PRIORS, make_prior
from bayesattn.priors.forget_gate import check_time

MOST = {"num_hidden_layers": 1000, "num_attention_heads": 2**16}
"""No model has more, and finding out what so many would take takes for ever."""
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
    "log_temperature_start",
)

_NAMES = {
    "prior": PRIORS,
    "ssmax_scope": SCOPES,
    "encoding": ENCODINGS,
    "position_init": POSITION_INITS,
    "kernel": KERNELS,
}

# Attributes that transformers, its quantisers and its older versions pass to any config or save
# with it. Generation settings were once part of a config.
_OF_TRANSFORMERS = {
    *GenerationConfig().to_dict(),
    "attn_implementation",
    "auto_map",
    "bayesattn_import",
    "bayesattn_version",
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
class BayesConfig(OnlyNamed, PreTrainedConfig):
    """Settings of a Llama-like decoder whose attention has a positional prior.

    The defaults are the published setting: a learned generalised Gaussian per head and layer with
    uniform initialisation, SSMax on content and prior, no other encoding, the authors' 12 layers.

    This class lists the decoder's choices once. `LanguageConfig`, the `Transformer` of tunnels and
    the command line take their fields and their help from here.
    """

    model_type: ClassVar[str] = "bayesattn"
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values"]
    default_theta: ClassVar[float] = 500_000.0

    vocab_size: int = 32_768
    """Number of tokens."""
    hidden_size: int = 768
    """Width of the residual stream."""
    intermediate_size: int | None = None
    """Width of the SwiGLU layer; twice the width of the model if not given."""
    num_hidden_layers: int = 12
    """Number of layers."""
    num_attention_heads: int = 16
    """Query heads; the width must be a multiple."""
    num_key_value_heads: int | None = None
    """Key and value heads: grouped-query attention if fewer than query heads."""
    head_dim: int | None = None
    """Width of a head; width over heads if not given."""
    max_position_embeddings: int = 512
    """Longest sequence in tokens, and rows of the table of encoding learned."""
    rms_norm_eps: float = 1e-5
    """Number added to the mean square in norms."""
    prior: str = "ggd"
    """Prior over distance: uniform, laplace, ggd, student or bucketed."""
    prior_options: dict | None = None
    """Arguments of the prior, for example init=mixed."""
    shared_prior: bool = False
    """One prior for all layers instead of one per layer."""
    ssmax: bool = True
    """Scale the logits with the log of the number of visible keys."""
    ssmax_scope: str = "content+prior"
    """What SSMax scales: content+prior (published) or content."""
    ssmax_horizon: int | None = None
    """Beyond so many visible keys, SSMax counts further keys only as far as the prior gives them
    weight; this keeps local heads as they were trained. May be set after training. If not given,
    all keys count, as published."""
    ssmax_learned: bool = True
    """Learn a temperature per head; otherwise all temperatures stay 1."""
    log_temperature: float | None = None
    """The number a (0.1 in Llama 4, not learned): instead of SSMax, scale the content with
    1 + a ln(floor(n / n0) + 1) for n visible keys."""
    log_temperature_start: int = 8192
    """n0 of log_temperature; with fewer visible keys the factor is 1."""
    forget: bool = False
    """Forget gates (FoX) beside the prior: a token with a closed gate removes the weight of all
    tokens before it. Learned from the content, per head and layer."""
    forget_time: float | None = None
    """At initialisation the heads remember from 1 to so many tokens. If not given, all gates are
    initialised at 1/2, as published."""
    sink: bool = False
    """A learned score per head for attention to no token (gpt-oss)."""
    encoding: str = "none"
    """Position encoding besides the prior: none, rope, sinusoidal or learned."""
    position_init: str = "normal"
    """Initialisation of encoding learned: normal (random rows, 0.02 in size) or sinusoidal."""
    rope_parameters: RopeParameters | dict | None = None
    """Arguments of encoding rope as transformers names them, for example rope_theta=10000; theta is
    500,000 if not given."""
    rope_layers: str = "all"
    """Layers with encoding rope: all, or local (those that are not global; SWAN, Llama 4)."""
    global_layers: list[int] | str = "all"
    """Layers whose heads may look far: all, last, or their numbers. They have the mixed
    initialisation unless one is given. In other layers all heads are initialised local and see
    sliding_window keys."""
    sliding_window: int | None = None
    """Number of most recent keys that a query sees, its own included; all keys if not given. With
    global_layers, the window holds in the other layers only, and is 256 if not given. May be
    changed after training (local RoPE)."""
    exempt: int = 0
    """So many first keys of a sequence have log-prior 0 at any distance."""
    attention_layers: int | None = None
    """Only so many first layers have attention, later ones are feed-forward; all if not given."""
    num_experts: int | None = None
    """Number of SwiGLU experts with a router in every layer; if not given, one without router."""
    num_experts_per_tok: int = 2
    """Number of experts that every token uses."""
    kernel: str = "auto"
    """How attention is computed: auto, dense, strided, flex or blocked."""
    tolerance: float | None = None
    """Largest share of the posterior that attention may skip, for long prompts on a CPU. None
    skips nothing. Refused in training."""
    tie_word_embeddings: bool = False
    """Use the token table also as the output layer."""
    use_cache: bool = True
    """Return a cache of keys and values, except in training."""
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        """Fill in fields that follow from others, then check all fields."""
        # PreTrainedConfig accepts any extra keyword, so a misspelt field would have no effect.
        for name in _unknown(kwargs):
            raise unknown("setting", name, _FIELDS, "BayesConfig")
        check_kinds(_OWN, {name: getattr(self, name) for name in _OWN})
        for name, most in MOST.items():
            if (value := getattr(self, name)) > most:
                raise ValueError(f"{name} must be at most {most:,}, not {shortened(value)}")
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
        if self.sliding_window is None and self.global_layers != "all":
            self.sliding_window = LOCAL_WINDOW
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
        """The config of a file; fields that other programs added are kept.

        Unknown fields of a newer version of bayesattn are refused, since they would have no effect.
        """
        plugins.require("prior", str(config_dict.get("prior")), PRIORS, config_dict)
        notes = [name for name in _unknown(config_dict) if not _misspelt(name)]
        check_version(config_dict.get("bayesattn_version"), notes)
        for name in _unknown(kwargs):  # others may be arguments of from_pretrained
            if _misspelt(name):
                raise unknown("setting", name, _FIELDS, "BayesConfig")
        known = {name: value for name, value in config_dict.items() if name not in notes}
        found = super().from_dict(known, **kwargs)
        config = found[0] if isinstance(found, tuple) else found
        for name in notes:
            setattr(config, name, config_dict[name])
        return found

    def looks_far(self, layer: int) -> bool:
        """Whether the heads of this layer may look farther than a window."""
        return layer in far_layers(self.global_layers, self.num_attending)

    def windows(self) -> list[int | None]:
        """Number of most recent keys that a query of each layer sees; None if all."""
        count, window = self.num_hidden_layers, self.sliding_window
        if self.global_layers == "all":
            return [window] * count
        if window is None:
            raise ValueError(
                "layers that are not global need a sliding_window; make it as long as your texts "
                "to see all keys"
            )
        far = far_layers(self.global_layers, self.num_attending)
        return [None if layer in far else window for layer in range(count)]

    def prior_options_of(self, layer: int) -> dict[str, Any]:
        options = dict(self.prior_options or {})
        if self.global_layers == "all":
            return options
        heads, local = self.num_attention_heads, not self.looks_far(layer)
        return layer_options(self.prior, heads, options, local=local)

    @property
    def num_attending(self) -> int:
        """Number of layers with attention, which come first."""
        return self.num_hidden_layers if self.attention_layers is None else self.attention_layers

    @property
    def layer_types(self) -> list[str] | None:
        """Types for the caches of transformers, which keep only a window for sliding layers."""
        if self.global_layers == "all":
            return None  # caches read sliding_window
        kinds = ("full_attention", "sliding_attention")
        return [kinds[window is not None] for window in self.windows()]

    def validate_architecture(self) -> None:
        """Raise ValueError with one sentence about the first invalid setting."""
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
        self._check_temperature_and_gates()
        for name, allowed in _NAMES.items():
            _one_of(name, getattr(self, name), allowed)
        if self.shared_prior and self.global_layers != "all":
            raise ValueError(
                "shared_prior is one prior for all layers, but only some of them are global; "
                "drop one of the two"
            )
        kinds = {self.looks_far(layer): layer for layer in range(self.num_attending)}
        with torch.device("cpu"):  # raises on options the prior does not have
            for layer in kinds.values():
                make_prior(self.prior, self.num_attention_heads, **self.prior_options_of(layer))
        check_rope_layers(self.rope_layers, self.encoding, self.global_layers)
        if self.encoding == "rope":
            self._check_rope(dict(self.rope_parameters or {}))

    def _check_temperature_and_gates(self) -> None:
        if self.log_temperature is not None:
            if self.ssmax:
                raise ValueError("log_temperature takes the place of SSMax; set ssmax to False")
            check_scale(self.log_temperature)
        if self.forget_time is not None and not self.forget:
            raise ValueError("forget_time needs forget gates; set forget to True")
        check_time(self.forget_time)

    def _check_rope(self, rope: dict[str, Any]) -> None:
        for name in rope.keys() - RopeParameters.__annotations__.keys():
            raise unknown("rope parameter", name, RopeParameters.__annotations__, "rope_parameters")
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


_FIELDS = [field.name for field in fields(BayesConfig)]
_OWN = {name: kind for name, kind in BayesConfig.__annotations__.items() if name in _FIELDS}


def _unknown(settings: Iterable[str]) -> list[str]:
    """Names that neither bayesattn nor transformers knows."""
    known = _OF_TRANSFORMERS.union(_FIELDS)
    strange = (name for name in settings if name not in known and not name.startswith("_"))
    return [name for name in strange if not hasattr(PreTrainedConfig, name)]


def _misspelt(name: str) -> bool:
    return bool(difflib.get_close_matches(name, _FIELDS, n=1, cutoff=0.75))


def _one_of(name: str, value: object, allowed: Any) -> None:
    if value not in allowed:
        plugins.load()
    if value not in allowed:
        raise ValueError(f"unknown {name} {value!r}; choose one of {', '.join(allowed)}")
