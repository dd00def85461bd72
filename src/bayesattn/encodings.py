"""Position encodings that are not priors: they change the content, not the density over distance.

    rope         (R_i q)·(R_j k) = q·(R_{j-i} k), R_i turns the pairs of a head by i·theta^(-2m/D)
    sinusoidal   x_i + [sin(i w_0), cos(i w_0), sin(i w_1), ...], w_m = 10000^(-2m/hidden_size)
    learned      x_i + table_i, one trained row per position; initialised small, or as sinusoids
    none         nothing; the prior carries the order

RoPE: Su et al. 2021, arXiv 2104.09864. Its length scalings (linear, dynamic NTK, YaRN) are
transformers' functions, so this baseline is the usual one. Local RoPE is RoPE
with a sliding window set after training; the window is an argument of `attend`, not an encoding.
"""

from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from bayesattn.checks import readable

if TYPE_CHECKING:  # importing transformers registers our models, which need this file whole
    from transformers import PreTrainedConfig

ROPE_TYPES = ("default", "linear", "dynamic", "yarn")


class Rotation(NamedTuple):
    """Cosine and sine of every token's angles, each [B or 1, 1, T, D], ready for q and k."""

    cos: Tensor
    sin: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Turn x [B, H, T, D]; dimension m is paired with m + D/2, as in Llama checkpoints."""
        left, right = x.chunk(2, dim=-1)
        turned = x * self.cos + torch.cat((-right, left), dim=-1) * self.sin
        return turned.to(x.dtype)  # under autocast the angles are wider than x


class Encoding(nn.Module):
    """No encoding: token embeddings, queries and keys stay as they are."""

    name: ClassVar[str] = "none"

    def __init__(self, config: "PreTrainedConfig") -> None:
        super().__init__()

    def embed(self, embeddings: Tensor, positions: Tensor) -> Tensor:
        """Token embeddings [B, T, hidden] at positions [B or 1, T], with position added."""
        return embeddings

    def rotation(self, positions: Tensor, dtype: torch.dtype) -> Rotation | None:
        """Rotation of queries and keys at positions [B or 1, T]; None for no rotation."""
        return None


class Sinusoidal(Encoding):
    """Absolute encoding of Vaswani et al. 2017, arXiv 1706.03762, added to the embeddings."""

    name: ClassVar[str] = "sinusoidal"
    theta: ClassVar[float] = 10_000.0

    def embed(self, embeddings: Tensor, positions: Tensor) -> Tensor:
        """Add [sin, cos, sin, cos, ...], for positions of any size."""
        dtype = _working_dtype(embeddings.dtype)
        return embeddings + self.waves(positions.to(dtype), embeddings.shape[-1]).to(embeddings)

    @classmethod
    def waves(cls, positions: Tensor, hidden_size: int) -> Tensor:
        """The sinusoids [..., hidden_size] of positions [...], in the dtype of the positions."""
        even = torch.arange(0, hidden_size, 2, device=positions.device, dtype=positions.dtype)
        angle = positions[..., None] * cls.theta ** (-even / hidden_size)
        return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)[..., :hidden_size]


class Learned(Encoding):
    """Absolute positions of GPT-2: a trained table that is added to the embeddings.

    Rows beyond the longest training sequence never get a gradient and keep their initial values.

    The table is initialised with small random numbers, or as sinusoids. With random rows, a model
    must learn for each row how to attend to the previous token. With sinusoids, one matrix maps
    every row to the previous row, so tasks that need this, such as returning keys, are learnt
    sooner.
    """

    name: ClassVar[str] = "learned"
    std: ClassVar[float] = 0.02

    def __init__(self, config: "PreTrainedConfig") -> None:
        super().__init__(config)
        self.init: str = getattr(config, "position_init", "normal")
        shape = (config.max_position_embeddings, config.hidden_size)
        self.table = nn.Parameter(torch.empty(shape))
        if self.init == "sinusoidal":
            self.table.data = self.sinusoids()
        else:
            nn.init.normal_(self.table, std=self.std)

    def sinusoids(self) -> Tensor:
        """The table of sinusoids."""
        rows, hidden_size = self.table.shape
        positions = torch.arange(rows, device=self.table.device, dtype=self.table.dtype)
        return Sinusoidal.waves(positions, hidden_size)

    def embed(self, embeddings: Tensor, positions: Tensor) -> Tensor:
        """Add the row of every position."""
        rows = self.table.shape[0]
        if positions.shape[-1] > rows or (readable(positions) and bool((positions >= rows).any())):
            raise ValueError(
                f"encoding 'learned' has a row for positions 0 to {rows - 1} only; "
                "build the model with a larger max_position_embeddings, or choose none, rope or "
                "sinusoidal, which go to any position"
            )
        return embeddings + self.table[positions].to(embeddings.dtype)


class Rope(Encoding):
    """Rotary encoding with transformers' `rope_parameters` (rope_type, rope_theta, factor, ...).

    Dynamic NTK depends on the length: it is computed from the longest position of each call and
    remembers nothing between calls. Keys already in a cache keep the angles of the call that wrote
    them, as in transformers, so past the trained length a dynamic model's cached decoding differs
    from one full forward.
    """

    name: ClassVar[str] = "rope"

    def __init__(self, config: "PreTrainedConfig") -> None:
        super().__init__(config)
        self.config = config
        self.rope_type: str = config.rope_parameters["rope_type"]
        # Plain numbers, not a buffer: a model is built on the meta device and cast to bfloat16, and
        # neither may touch the frequencies.
        with torch.device("cpu"):
            frequency, self.scaling = self._frequency()
        self.frequency: list[float] = frequency.tolist()

    def _frequency(self, length: Tensor | None = None) -> tuple[Tensor, float]:
        if self.rope_type == "default":
            even = torch.arange(0, self.config.head_dim, 2, dtype=torch.float)
            theta = self.config.rope_parameters["rope_theta"]
            return 1.0 / theta ** (even / self.config.head_dim), 1.0
        device = None if length is None else length.device
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        return ROPE_INIT_FUNCTIONS[self.rope_type](self.config, device, length)

    def rotation(self, positions: Tensor, dtype: torch.dtype) -> Rotation:
        """Angles position · frequency, each frequency for dimensions m and m + D/2."""
        working = _working_dtype(dtype)
        if self.rope_type == "dynamic":
            frequency = self._frequency(positions.max() + 1)[0].to(working)
        else:
            frequency = torch.tensor(self.frequency, device=positions.device, dtype=working)
        angle = positions[..., None].to(working) * frequency
        angle = torch.cat((angle, angle), dim=-1)[:, None]
        return Rotation(
            (angle.cos() * self.scaling).to(dtype), (angle.sin() * self.scaling).to(dtype)
        )


POSITION_INITS = ("normal", "sinusoidal")
"""Initialisations of the table of learned positions."""
ENCODINGS: dict[str, type[Encoding]] = {
    kind.name: kind for kind in (Encoding, Rope, Sinusoidal, Learned)
}


def _working_dtype(dtype: torch.dtype) -> torch.dtype:
    """Angles need float32, because bfloat16 cannot tell position 257 from 256."""
    return torch.promote_types(dtype, torch.float32)
