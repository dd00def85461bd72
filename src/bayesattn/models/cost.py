"""Predicts the cost of a model: operations, memory, and bytes that attention moves.

    forward     2 · weights of all products per token + 4 · H D · visible pairs per layer
    backward    twice the products; attention 5/2 of its forward, the posterior being recomputed
    memory      weights, gradients, two moments of Adam, and what backward needs of each layer

Where the dense kernel writes every score out, as for few keys, all pairs count as visible and the
posterior is kept. A multiplication and an addition count as two operations. Small terms (norms,
softmax, priors) are left out; `bayesattn cost --measure` says how far that is off.
"""

from dataclasses import dataclass

from bayesattn.attention.posterior import SMALL
from bayesattn.models.config import BayesConfig

BYTES = {"fp32": 4, "bf16": 2}
MASTER = 4
"""Weights, gradients and moments are stored in fp32 for any precision of the products."""
BLOCK = 2048
"""Largest number of rows of a bias that the strided kernel reads at once."""


def layer_weights(config: BayesConfig) -> int:
    """Weights of the products of all layers; every token passes all experts."""
    heads, experts = _key_heads(config) + config.num_attention_heads, config.num_experts
    inner = 3 * (config.intermediate_size or 0) * (experts or 1) + (experts or 0)
    attention = config.num_attending * 2 * _head_dim(config) * heads
    return config.hidden_size * (attention + config.num_hidden_layers * inner)


def weights(config: BayesConfig) -> int:
    """Parameters of all matrices."""
    tables = 1 if config.tie_word_embeddings else 2
    embeddings = config.vocab_size * config.hidden_size * tables
    return layer_weights(config) + embeddings


@dataclass(frozen=True)
class Cost:
    """Cost of one step on `batch` sequences of `length` tokens."""

    forward: float
    """Operations of a forward pass."""
    training: float
    """Operations of a forward and a backward pass."""
    state: int
    """Bytes of weights, gradients and moments."""
    activations: int
    """Bytes of the forward pass that the backward pass reads."""

    @property
    def memory(self) -> int:
        return self.state + self.activations


def cost(config: BayesConfig, length: int, batch: int = 1, precision: str = "fp32") -> Cost:
    """Predict a step; `precision` is fp32 or bf16, of products and activations."""
    tokens, words = batch * length, config.vocab_size * config.hidden_size
    products = 2 * tokens * (layer_weights(config) + words)
    windows = (min(length, window or length) for window in config.windows()[: config.num_attending])
    pairs = sum(length * window - window**2 / 2 for window in windows)
    kept = 0
    if written_out(config, length):
        pairs = config.num_attending * length**2
        kept = batch * config.num_attention_heads * pairs
    attention = 4 * batch * config.num_attention_heads * _head_dim(config) * pairs
    return Cost(
        forward=products + attention,
        training=3 * products + (3 if kept else 3.5) * attention,
        state=4 * MASTER * weights(config),
        activations=(tokens * _activations(config) + kept) * BYTES[precision]
        + 2 * tokens * config.vocab_size * 4,
    )


def written_out(config: BayesConfig, length: int) -> bool:
    """Whether the dense kernel is used on a CPU; a uniform prior has a kernel of its own."""
    few = config.kernel == "auto" and length <= SMALL and config.prior != "uniform"
    return few or config.kernel == "dense"


def _activations(config: BayesConfig) -> int:
    """Numbers per token that the backward pass reads, without the logits."""
    attention = 2 * (config.num_attention_heads + _key_heads(config)) * _head_dim(config)
    # two norms with their inputs, attention in and out, gate, up, their product and the silu
    layer = 4 * config.hidden_size + attention + 4 * (config.intermediate_size or 0)
    return config.num_hidden_layers * layer + 2 * config.hidden_size


def _key_heads(config: BayesConfig) -> int:
    return config.num_key_value_heads or config.num_attention_heads


def _head_dim(config: BayesConfig) -> int:
    assert config.head_dim is not None  # BayesConfig fills it in
    return config.head_dim


@dataclass(frozen=True)
class AttentionCost:
    """Cost of one way to compute attention: one layer, one sequence, forward pass."""

    operations: float
    extra: int
    """Bytes beyond queries, keys, values and output."""
    moved: float
    """Bytes moved that no cache can save: keys and values once per block, and a bias."""


METHODS = ("dense bias", "strided", "strided, SSMax on the prior", "flex")


def attention_cost(method: str, config: BayesConfig, length: int) -> AttentionCost:
    """Predicted cost of one of `METHODS` in fp32."""
    heads, width = config.num_attention_heads, _head_dim(config)
    causal = 2 * heads * width * length**2
    read = 2 * 4 * heads * width * length * max(1, length / BLOCK) / 2
    table = 4 * heads * length
    match method:
        case "dense bias":  # a T × T matrix, written and read
            matrix = 4 * heads * length**2
            return AttentionCost(2 * causal, matrix, 2 * read + 2 * matrix)
        case "strided":
            return AttentionCost(causal, 3 * table, read + table)
        case "strided, SSMax on the prior":  # one tile at a time, all tiles in sum
            written = 4 * heads * length**2 / 2
            return AttentionCost(causal, 3 * table + 2**23, read + 2 * written)
        case "flex":  # the prior is computed in the kernel
            return AttentionCost(causal, table, read + table)
        case _:
            raise ValueError(f"unknown method {method!r}; choose one of {', '.join(METHODS)}")
