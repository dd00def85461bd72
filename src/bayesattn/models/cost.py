"""What a model costs before it exists: operations, memory, and bytes that attention moves.

    forward     2 · weights of all products per token + 2 · H D T² per layer for a causal sequence
    backward    twice the products; attention 5/2 of its forward, the posterior being recomputed
    memory      weights, gradients, two moments of Adam, and what backward needs of each layer

A multiplication and an addition count as two operations. Small terms (norms, softmax, priors) are
left out; `bayesattn cost --measure` says how far that is off.
"""

from dataclasses import dataclass

from bayesattn.models.config import BayesConfig

BYTES = {"fp32": 4, "bf16": 2}
MASTER = 4
"""Weights, gradients and moments are kept in fp32 whatever products are computed in."""
BLOCK = 2048
"""Rows of a bias that the strided kernel looks at at once, at most."""


@dataclass(frozen=True)
class Shape:
    """What of a config decides its cost."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    inner: int
    vocabulary: int
    tied: bool

    @staticmethod
    def of(config: BayesConfig) -> "Shape":
        """Read from a config."""
        assert config.head_dim is not None and config.intermediate_size is not None
        kv_heads = config.num_key_value_heads or config.num_attention_heads
        return Shape(
            layers=config.num_hidden_layers,
            width=config.hidden_size,
            heads=config.num_attention_heads,
            kv_heads=kv_heads,
            head_width=config.head_dim,
            inner=config.intermediate_size,
            vocabulary=config.vocab_size,
            tied=bool(config.tie_word_embeddings),
        )

    @property
    def layer_weights(self) -> int:
        """Of the products of one layer."""
        attention = self.width * self.head_width * 2 * (self.heads + self.kv_heads)
        return attention + 3 * self.width * self.inner

    @property
    def weights(self) -> int:
        """Parameters of all matrices."""
        embeddings = self.vocabulary * self.width * (1 if self.tied else 2)
        return self.layers * self.layer_weights + embeddings


@dataclass(frozen=True)
class Cost:
    """Of one step on `batch` sequences of `length` tokens."""

    forward: float
    """Operations of a forward pass."""
    training: float
    """Of a forward and a backward pass."""
    state: int
    """Bytes of weights, gradients and moments."""
    activations: int
    """Bytes that the backward pass needs of the forward pass."""

    @property
    def memory(self) -> int:
        """Bytes of a training step."""
        return self.state + self.activations


def cost(shape: Shape, length: int, batch: int = 1, precision: str = "fp32") -> Cost:
    """Predict a step.

    Args:
        shape: of the model.
        length: tokens of a sequence.
        batch: sequences.
        precision: fp32 or bf16, of products and activations.
    """
    tokens = batch * length
    products = 2 * tokens * (shape.layers * shape.layer_weights + shape.vocabulary * shape.width)
    attention = 2 * batch * shape.layers * shape.heads * shape.head_width * length**2
    state = 4 * MASTER * shape.weights
    return Cost(
        forward=products + attention,
        training=3 * products + 3.5 * attention,
        state=state,
        activations=tokens * _activations(shape) * BYTES[precision]
        + 2 * tokens * shape.vocabulary * 4,
    )


def _activations(shape: Shape) -> int:
    """Numbers per token that the backward pass reads, without the logits."""
    attention = 2 * (shape.heads + shape.kv_heads) * shape.head_width
    # two norms with their inputs, attention in and out, gate, up, their product and the silu
    return shape.layers * (4 * shape.width + attention + 4 * shape.inner) + 2 * shape.width


@dataclass(frozen=True)
class AttentionCost:
    """One way to compute attention of one layer, one sequence, forward."""

    operations: float
    extra: int
    """Bytes beyond queries, keys, values and output."""
    moved: float
    """Bytes read and written that no cache can save: keys and values once per block, and a bias."""


METHODS = ("dense bias", "strided", "strided, SSMax on the prior", "flex")


def attention_cost(method: str, shape: Shape, length: int) -> AttentionCost:
    """Predict one of `METHODS` in fp32."""
    heads, width = shape.heads, shape.head_width
    causal = 2 * heads * width * length**2
    read = 2 * 4 * heads * width * length * max(1, length / BLOCK) / 2
    table = 4 * heads * length
    match method:
        case "dense bias":  # all pairs, and a matrix of all of them, written and read
            matrix = 4 * heads * length**2
            return AttentionCost(2 * causal, matrix, 2 * read + 2 * matrix)
        case "strided":
            return AttentionCost(causal, 3 * table, read + table)
        case "strided, SSMax on the prior":  # a tile at a time, but all of them in the end
            written = 4 * heads * length**2 / 2
            return AttentionCost(causal, 3 * table + 2**23, read + 2 * written)
        case "flex":  # the prior is computed in the kernel
            return AttentionCost(causal, table, read + table)
        case _:
            raise ValueError(f"unknown method {method!r}; choose one of {', '.join(METHODS)}")
