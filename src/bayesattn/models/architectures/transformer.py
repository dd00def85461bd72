"""The transformer: the decoder layers of `BayesModel`, with any prior, encoding and temperature."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from torch import Tensor

from bayesattn.attention import SCOPES
from bayesattn.attention.ssmax import Scope
from bayesattn.encodings import ENCODINGS
from bayesattn.models.architectures.base import Architecture, Body, TunnelShape
from bayesattn.models.config import BayesConfig
from bayesattn.models.layout import lay_out
from bayesattn.models.transformer import BayesModel
from bayesattn.priors import make_prior

EncodingName = Literal["none", "rope", "sinusoidal", "learned"]


@dataclass(frozen=True, kw_only=True)
class Transformer(Architecture):
    """Pre-norm decoder: attention under a positional prior, then SwiGLU, in every layer."""

    name: ClassVar[str] = "transformer"
    later: ClassVar[tuple[str, ...]] = ("experts",)

    heads: int = 4
    """Query heads; width must be a multiple."""
    kv_heads: int | None = None
    """Key and value heads: grouped-query attention if fewer than heads."""
    inner: int | None = None
    """Width of the SwiGLU layer; twice the width if not given."""
    prior: str = "uniform"
    """Prior over distance: uniform, laplace, ggd, student or bucketed."""
    prior_options: dict[str, Any] = field(default_factory=dict)
    """Arguments of the prior, for example init mixed."""
    encoding: EncodingName = "none"
    """Position encoding besides the prior."""
    ssmax: bool = False
    """Scale the logits with the log of the number of visible keys."""
    ssmax_scope: Scope = "content+prior"
    """What SSMax scales."""
    window: int | None = None
    """Number of most recent keys a query sees, its own included; all if not given."""
    exempt_header: bool = False
    """The tunnel's header keys have log-prior 0 at any distance: a header is not far away."""
    attention_layers: int | None = None
    """Only the first so many layers attend, the later ones are feed-forward; all if not given."""
    max_positions: int | None = None
    """Rows of the learned position table; the tunnel's positions if not given."""
    experts: int | None = None
    """SwiGLU layers side by side in every layer, of which a token uses two; one if not given."""

    def __post_init__(self) -> None:
        """Check the fields against each other, in the words of this class."""
        super().__post_init__()
        self._check_positive(
            "heads", "kv_heads", "inner", "window", "attention_layers", "max_positions", "experts"
        )
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} is not a multiple of kv_heads {self.kv_heads}")
        if self.encoding not in ENCODINGS:
            raise ValueError(
                f"unknown encoding {self.encoding!r}; choose one of {', '.join(ENCODINGS)}"
            )
        if self.encoding == "rope" and self.width // self.heads % 2:
            raise ValueError(
                f"encoding 'rope' turns pairs, but width {self.width} over heads {self.heads} "
                f"gives heads of odd width; make width a multiple of {2 * self.heads}"
            )
        if self.ssmax_scope not in SCOPES:
            raise ValueError(
                f"unknown ssmax_scope {self.ssmax_scope!r}; choose one of {', '.join(SCOPES)}"
            )
        if self.attention_layers is not None and self.attention_layers > self.layers:
            raise ValueError(
                f"attention_layers {self.attention_layers} is more than layers {self.layers}; "
                "leave it out if every layer attends"
            )
        if self.experts == 1:
            raise ValueError("experts 1 leaves no choice of two; leave it out, or take 2 or more")
        make_prior(self.prior, self.heads, **self.prior_options)

    def width_multiple(self) -> int:
        """Heads divide the width, and RoPE turns pairs."""
        return self.heads * (2 if self.encoding == "rope" else 1)

    def config(self, tunnel: TunnelShape) -> BayesConfig:
        """The same choices as the config of a `BayesModel` for this tunnel."""
        return BayesConfig(
            vocab_size=1,  # the predictor embeds the inputs, so no token table is wanted
            hidden_size=self.width,
            intermediate_size=self.inner,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            max_position_embeddings=self.max_positions or tunnel.positions,
            prior=self.prior,
            prior_options=self.prior_options,
            ssmax=self.ssmax,
            ssmax_scope=self.ssmax_scope,
            encoding=self.encoding,
            sliding_window=self.window,
            exempt=tunnel.prefix if self.exempt_header else 0,
            attention_layers=self.attention_layers,
            num_experts=self.experts,
            use_cache=False,
        )

    def body(self, tunnel: TunnelShape) -> "TransformerBody":
        """See the class."""
        return TransformerBody(self.config(tunnel))


class TransformerBody(Body):
    """Encoding and layers of a `BayesModel`, called directly.

    The model's token table and final norm are left out: the predictor has its own. So is its
    Hugging Face forward, whose caches and recorded outputs no tunnel needs.
    """

    def __init__(self, config: BayesConfig) -> None:
        super().__init__()
        model = BayesModel(config)
        self.config = config
        self.encoding = model.encoding
        self.layers = model.layers

    def stages(self, x: Tensor) -> Iterator[Tensor]:
        """See `Body.stages`; the first has the position encoding added."""
        layout = lay_out(self.config, (x.shape[0], x.shape[1]), x.device)
        x = self.encoding.embed(x, layout.positions)
        rotation = self.encoding.rotation(layout.positions, x.dtype)
        yield x
        for layer in self.layers:
            x = layer(x, layout=layout, rotation=rotation)
            yield x
