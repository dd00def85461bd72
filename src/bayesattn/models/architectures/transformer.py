"""The transformer: the decoder layers of `BayesModel`, with any prior, encoding and temperature."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor

from bayesattn.models.architectures.base import Architecture, Body
from bayesattn.models.choices import choices
from bayesattn.models.config import BayesConfig
from bayesattn.models.layers import shared_table
from bayesattn.models.layout import lay_out
from bayesattn.models.transformer import BayesModel
from bayesattn.tunnels import Tunnel


@dataclass(frozen=True, kw_only=True)
class Transformer(choices(layers=2, width=64, heads=4, prior="uniform", ssmax=False), Architecture):
    """Pre-norm decoder: attention under a positional prior, then SwiGLU, in every layer.

    It has a field for each choice of `BayesConfig`.
    """

    name: ClassVar[str] = "transformer"

    exempt: int | Literal["header"] = 0
    """So many first keys, or those of the tunnel's header, have log-prior 0 at any distance."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.exempt, str) and self.exempt != "header":
            raise ValueError(f"exempt is a number of keys or 'header', not {self.exempt!r}")
        self._config(1, 0)

    def width_multiple(self) -> int:
        """The width is a multiple of the heads; RoPE also needs an even head width."""
        return 1 if self.head_dim else self.heads * (2 if self.encoding == "rope" else 1)

    def config(self, tunnel: Tunnel) -> BayesConfig:
        """The same choices as the config of a `BayesModel` for this tunnel."""
        return self._config(tunnel.positions, tunnel.prefix)

    def _config(self, positions: int, header: int) -> BayesConfig:
        given: dict[str, Any] = {"exempt": header} if self.exempt == "header" else {}
        # The predictor embeds the inputs, so the body needs no token table.
        return self.decoder(positions, **given, vocab_size=1, use_cache=False)

    def body(self, tunnel: Tunnel) -> "TransformerBody":
        return TransformerBody(self.config(tunnel))


class TransformerBody(Body):
    """Encoding and layers of a `BayesModel`, called directly.

    The model's token table and final norm are left out, because the predictor has these parts. The
    Hugging Face forward pass is left out, because tunnels need no caches and recorded outputs.
    """

    def __init__(self, config: BayesConfig) -> None:
        super().__init__()
        model = BayesModel(config)
        self.config = config
        self.encoding = model.encoding
        self.prior = model.prior
        self.layers = model.layers

    def stages(self, x: Tensor) -> Iterator[Tensor]:
        """See `Body.stages`; the first has the position encoding added."""
        layouts = lay_out(self.config, (x.shape[0], x.shape[1]), x.device)
        x = self.encoding.embed(x, layouts[0].positions)
        rotation = self.encoding.rotation(layouts[0].positions, x.dtype)
        yield x
        table = shared_table(self.prior, layouts[0].length)
        for layer, layout in zip(self.layers, layouts, strict=True):
            x = layer(x, table, layout=layout, rotation=rotation)
            yield x
