"""One decoder layer: x + attention(norm(x)), then x + mlp(norm(x)).

    attention   o( Σ_j posterior_ij v_j ), posterior_ij ∝ exp(q_i·k_j/√d) · prior(i - j)
                with forget gates of x and a sink if the config says so
    mlp         down( silu(gate(x)) · up(x) )                              (SwiGLU)
    experts     Σ_e g_e mlp_e(x), g the softmax of the largest router scores, 0 elsewhere

Shapes: B batch, H query heads, G key/value heads, T new tokens, S keys, D head width.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import Cache
from transformers.modeling_layers import GradientCheckpointingLayer

from bayesattn.attention import LogTemperature, SSMax, attend
from bayesattn.attention.posterior import Kernel
from bayesattn.attention.ssmax import Scope
from bayesattn.encodings import Rotation
from bayesattn.models.config import BayesConfig
from bayesattn.models.gate_cache import split_gates, with_gates
from bayesattn.models.layout import Layout
from bayesattn.priors import ForgetGate, Prior, Sink, Uniform, make_prior

# Kernels by `attn_implementation`; None leaves the choice to config.kernel.
KERNEL_OF: dict[str, Kernel | None] = {
    "eager": "dense",
    "sdpa": None,
    "flex_attention": "flex",
}


@contextmanager
def full_precision() -> Generator[None]:
    """Make float32 the default dtype while transformers builds a half-precision model."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.promote_types(default, torch.float32))
    try:
        yield
    finally:
        torch.set_default_dtype(default)


def build_prior(config: BayesConfig, layer: int = 0) -> Prior:
    """The prior that `config` names for a layer, never in half precision."""
    options = config.prior_options_of(layer)
    with full_precision():
        return make_prior(config.prior, config.num_attention_heads, **options)


def shared_table(prior: Prior | None, length: int) -> Tensor | None:
    """Table [H, length] of the prior that all layers share; None if no table is needed."""
    return None if prior is None or isinstance(prior, Uniform) else prior.table(length)


def build_ssmax(config: BayesConfig) -> SSMax | LogTemperature | None:
    """The temperatures of `config`, never in half precision; None if it has none."""
    heads, learned = config.num_attention_heads, config.ssmax_learned
    if config.log_temperature is not None:
        return LogTemperature(heads, config.log_temperature, config.log_temperature_start)
    if not config.ssmax:
        return None
    scope, horizon = cast(Scope, config.ssmax_scope), config.ssmax_horizon
    with full_precision():
        return SSMax(heads, learned=learned, scope=scope, horizon=horizon)


def keep_frozen(model: nn.Module) -> None:
    """Freeze again the frozen parameters of priors and temperatures in `model`."""
    for module in model.modules():
        if isinstance(module, Prior | SSMax):
            for name in module.frozen:
                getattr(module, name).requires_grad_(False)


def in_use(module: Any) -> Any:
    """The module, or the copy of it that PEFT trains (`modules_to_save`).

    PEFT makes all parameters of its copy trainable, so frozen parameters are frozen again here.
    """
    ours = Tensor | Prior | SSMax | LogTemperature | Sink
    if module is None or isinstance(module, ours) or not hasattr(module, "modules_to_save"):
        return module
    if module.disable_adapters or not module.active_adapters:
        return module.original_module
    module = module.modules_to_save[module.active_adapters[0]]
    keep_frozen(module)
    return module


def attend_and_record(
    output_attentions: bool,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    prior: Prior | Tensor | None,
    *,
    tolerance: float | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Output of `attend`, and the exact posterior [B, H, T, S] if `output_attentions`."""
    prior = in_use(prior)
    options |= {name: in_use(options[name]) for name in ("ssmax", "sink") if name in options}
    if output_attentions:
        parts = attend(q, k, v, prior, decompose=True, **options)
        return parts.output, parts.posterior
    if tolerance is not None:
        return attend(q, k, v, prior, tolerance=tolerance, **options).output, None
    return attend(q, k, v, prior, **options), None


class BayesMLP(nn.Module):
    """SwiGLU feed-forward layer without biases."""

    def __init__(self, config: BayesConfig) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        assert inner is not None  # BayesConfig fills it in
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class BayesExperts(nn.Module):
    """SwiGLU experts; every token uses the few experts with the highest router scores.

    All experts compute all tokens, as one wide layer, and the router weights select: in small
    models this is quicker than sorting tokens. There is no load balancing.
    """

    def __init__(self, config: BayesConfig) -> None:
        super().__init__()
        hidden, inner, count = config.hidden_size, config.intermediate_size, config.num_experts
        assert inner is not None and count is not None
        self.used = config.num_experts_per_tok
        self.router = nn.Linear(hidden, count, bias=False)
        self.gate_proj = nn.Linear(hidden, count * inner, bias=False)
        self.up_proj = nn.Linear(hidden, count * inner, bias=False)
        self.down_proj = nn.Linear(count * inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.router(x)
        best, chosen = scores.topk(self.used, dim=-1)
        weights = torch.zeros_like(scores).scatter(-1, chosen, best.softmax(-1))
        inner = nn.functional.silu(self.gate_proj(x)) * self.up_proj(x)
        inner = inner.unflatten(-1, (scores.shape[-1], -1)) * weights[..., None]
        return self.down_proj(inner.flatten(-2))


class BayesAttention(nn.Module):
    """Grouped-query attention under a positional prior; the prior is None if layers share one."""

    def __init__(self, config: BayesConfig, layer_idx: int) -> None:
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        width, hidden = config.head_dim, config.hidden_size
        assert kv_heads is not None and width is not None  # BayesConfig fills them in
        self.q_proj = nn.Linear(hidden, heads * width, bias=False)
        self.k_proj = nn.Linear(hidden, kv_heads * width, bias=False)
        self.v_proj = nn.Linear(hidden, kv_heads * width, bias=False)
        self.o_proj = nn.Linear(heads * width, hidden, bias=False)
        self.prior = None if config.shared_prior else build_prior(config, layer_idx)
        self.ssmax = build_ssmax(config)
        with full_precision():
            self.forget = ForgetGate(hidden, heads, config.forget_time) if config.forget else None
            self.sink = Sink(heads) if config.sink else None

    def forward(
        self,
        x: Tensor,
        shared_prior: Prior | Tensor | None,
        layout: Layout,
        rotation: Rotation | None,
        cache: Cache | None,
        output_attentions: bool,
        start: int = 0,
    ) -> tuple[Tensor, Tensor | None]:
        """Output [B, T - start, hidden] of the tokens from `start` on; all tokens are keys.

        Also the posterior [B, H, T - start, S] if `output_attentions`.
        """
        if self.config.tolerance is not None and self.training:
            raise ValueError(
                "tolerance skips keys and is for inference only; set config.tolerance to None "
                "to train, or call model.eval()"
            )
        q, k, v = (
            project(tokens).unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)
            for project, tokens in (
                (self.q_proj, x[:, start:]),
                (self.k_proj, x),
                (self.v_proj, x),
            )
        )
        if rotation is not None:
            q, k = Rotation(*(angles[:, :, start:] for angles in rotation))(q), rotation(k)
        gates = None if self.forget is None else self.forget(x)
        if cache is not None:
            kept = k if gates is None else with_gates(k, gates)
            k, v = cache.update(kept, v, self.layer_idx)
            if k.shape[2] > layout.keys:  # transformers' window of one key drops no key
                k, v = k[:, :, -layout.keys :], v[:, :, -layout.keys :]
            if gates is not None:
                k, gates = split_gates(k, v.shape[-1])
        if start == x.shape[1]:
            return x[:, start:], None
        attended, posterior = attend_and_record(
            output_attentions,
            q,
            k,
            v,
            self.prior if shared_prior is None else shared_prior,
            ssmax=self.ssmax,
            forget=gates,
            sink=self.sink,
            documents=layout.documents,
            padding=layout.padding,
            offset=layout.offset + start,
            window=layout.window,
            exempt=layout.exempt,
            kernel=self._kernel(),
            tolerance=self.config.tolerance,
        )
        return self.o_proj(attended.transpose(1, 2).flatten(2)), posterior

    @property
    def window(self) -> int | None:
        """Number of most recent keys that a query sees; None if all."""
        return self.config.windows()[self.layer_idx]

    def _kernel(self) -> Kernel:
        implementation = self.config._attn_implementation or "sdpa"
        return KERNEL_OF[implementation] or cast(Kernel, self.config.kernel)


class BayesDecoderLayer(GradientCheckpointingLayer):
    """Pre-norm residual layer: attention (in the first `attention_layers`), then feed-forward."""

    def __init__(self, config: BayesConfig, layer_idx: int) -> None:
        super().__init__()
        self.attends = config.attention_layers is None or layer_idx < config.attention_layers
        if self.attends:
            self.self_attn = BayesAttention(config, layer_idx)
            self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.mlp = BayesMLP(config) if config.num_experts is None else BayesExperts(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(
        self,
        x: Tensor,
        shared_prior: Prior | Tensor | None = None,
        *,
        layout: Layout,
        rotation: Rotation | None = None,
        past_key_values: Cache | None = None,
        output_attentions: bool = False,
        start: int = 0,
    ) -> Tensor:
        """[B, T, hidden] to [B, T - start, hidden], the tokens from `start` on.

        `x` and the table of a shared prior carry gradients, so re-entrant checkpointing needs them
        as positional arguments.
        """
        if self.attends:
            attended, _ = self.self_attn(
                self.input_layernorm(x),
                shared_prior,
                layout,
                rotation,
                past_key_values,
                output_attentions,
                start,
            )
            x = x[:, start:] + attended
        else:
            x = x[:, start:]
        return x + self.mlp(self.post_attention_layernorm(x))
