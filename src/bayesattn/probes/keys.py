"""Do the keys of hypotheses form a frame? Cosines between the keys of different tokens.

    |cos|            mean over pairs of tokens i ≠ j of |k_i · k_j| / (‖k_i‖ ‖k_j‖)
    centred |cos|    the same after the mean key is subtracted: a part that all keys share adds the
                     same number to every score, which cancels in the softmax
    effective rank   exp of the entropy of the singular values, between 1 and min(n, d)

k_i is the key of token i as attention receives it, averaged over the occurrences of the token in
held-out sequences. In the first layer of a model without added positions all occurrences have the
same key. Signed cosines are no evidence: n unit vectors have a mean of at least -1/(n-1), and
random ones of about 0.

"Orthogonal keys" has three meanings; each is measured under its own name.

    weights   mean |cos| between the d_k columns of one head's W_K, vectors of the model's width:
              the authors' definition
    tokens    mean |cos| between the keys of different tokens in one head, vectors of the head's
              width, before rotation and as attention receives them
    heads     mean |cos| between the keys of different heads at the last token of a prompt

Random directions in D dimensions have Γ(D/2) / (√π Γ((D+1)/2)); D is the model's width for
weights and the head's for the other two. Below that is more orthogonal than chance.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from bayesattn.models.architectures import Predictor
from bayesattn.models.layers import BayesDecoderLayer
from bayesattn.probes.anatomy import anatomy
from bayesattn.probes.capture import stream
from bayesattn.probes.measured import (
    Measured,
    NotApplicableError,
    Untrained,
    mean_over_sequences,
    measure_each,
    random_cosine,
    require_samples,
    shuffled_columns,
)
from bayesattn.stats import Interval, t_interval
from bayesattn.tunnels import HMM, Batch, Bijection, Recall, Tunnel
from bayesattn.tunnels.recall import FIRST_KEY

PERMUTATIONS = 999
FEWEST_TOKENS = 4
TOKENS = 100
"""Number of distinct tokens whose keys are compared."""
RANDOM = "random directions"
WEIGHTS = "|cos| of W_K"
BEFORE_ROTATION = "|cos| of tokens, before rotation"
AS_ATTENDED = "|cos| of tokens, as attended to"
HEADS = "|cos| of heads"


@dataclass(frozen=True, kw_only=True)
class KeyFrame:
    """The keys of a set of tokens in one key/value head."""

    layer: int
    head: int
    tokens: str
    count: int
    width: int
    cosine: Measured
    """Mean |cos|, beside random directions, shuffled coordinates, and the untrained network."""
    centred: Measured
    rank: Measured


def measure_keys(
    model: nn.Module,
    tunnel: Tunnel,
    batch: Batch,
    initial: Untrained = None,
    permutations: int = PERMUTATIONS,
) -> list[KeyFrame]:
    """The frame of every set of hypothesis tokens in every head of every layer."""
    anatomy(model).require_attention()
    tokens = hypothesis_tokens(tunnel, batch.inputs)

    def by_head(network: nn.Module) -> dict[tuple[int, int, str], Tensor]:
        return {
            (layer, head, name): keys[:, head]
            for (name, layer), keys in token_keys(network, batch.inputs, tokens).items()
            for head in range(keys.shape[1])
        }

    return measure_each(
        lambda place, keys, permutations: key_frame(keys, *place, permutations=permutations),
        by_head(model).items(),
        None if initial is None else by_head(initial),
        permutations,
    )


def key_frame(
    keys: Tensor,
    layer: int = 0,
    head: int = 0,
    tokens: str = "tokens",
    *,
    permutations: int = PERMUTATIONS,
) -> KeyFrame:
    """The frame that `keys` [n, d] form. Small p: more orthogonal than shuffled coordinates."""
    count, width = keys.shape
    require_samples(f"keys of {tokens}", count, FEWEST_TOKENS)
    keys = keys.double()
    generator = Generator().manual_seed(0)
    shuffled = shuffled_columns(keys, permutations, generator)
    directions = torch.randn(permutations, count, width, generator=generator, dtype=torch.float64)
    return KeyFrame(
        layer=layer,
        head=head,
        tokens=tokens,
        count=count,
        width=width,
        cosine=Measured(value=float(pair_cosine(keys)), interval=jackknife(cosines(keys)))
        .beside(random=random_cosine(width))
        .against(pair_cosine(shuffled), "shuffled", less=True),
        centred=Measured(value=float(pair_cosine(keys, centre=True)))
        .beside(random=float(pair_cosine(directions, centre=True).mean()))
        .against(pair_cosine(shuffled, centre=True), "shuffled", less=True),
        rank=Measured(value=float(effective_rank(keys))).beside(
            random=float(effective_rank(directions[:99]).mean())
        ),
    )


def pair_cosine(keys: Tensor, centre: bool = False) -> Tensor:
    """Mean |cos| over pairs of different rows of [..., n, d]."""
    if centre:
        keys = keys - keys.mean(dim=-2, keepdim=True)
    count = keys.shape[-2]
    return cosines(keys).sum(dim=(-1, -2)) / (count * (count - 1))


def welch_bound(count: int, width: int, centre: bool = False) -> float:
    """Least rms cosine of `count` unit vectors: √((n - d) / (d (n - 1))), 0 up to n = d.

    Centred ones have n - 1 dimensions at most; the bound is then 1/(n - 1), that of a simplex, or
    more. Keys of equal |cos| that reach it are as orthogonal as keys can be (Welch 1974).
    """
    width = min(width, count - 1) if centre else width
    return math.sqrt(max(count - width, 0) / (width * (count - 1)))


def effective_rank(keys: Tensor) -> Tensor:
    """exp(-Σ p ln p), p the singular values of [..., n, d] over their sum (Roy & Vetterli 2007)."""
    values = torch.linalg.svdvals(keys)
    shares = values / values.sum(dim=-1, keepdim=True)
    return (-torch.xlogy(shares, shares).sum(dim=-1)).exp()


def hypothesis_tokens(tunnel: Tunnel, inputs: Tensor) -> dict[str, Tensor]:
    """Hypothesis, or piece of evidence, at each position [N, T]; -1 for none."""
    match tunnel:
        case Bijection():
            size = tunnel.alphabet
            is_key = inputs < size
            return {
                "keys": torch.where(is_key, inputs, -1),
                "values": torch.where(is_key, -1, inputs - size),
            }
        case Recall():
            keys, values = inputs - FIRST_KEY, inputs - FIRST_KEY - tunnel.keys
            return {
                "keys": torch.where(values < 0, keys.clamp(min=-1), -1),
                "values": values.clamp(min=-1),
            }
        case HMM(header="tokens"):
            assert tunnel.vocabulary is not None
            return {"symbols": (inputs - tunnel.vocabulary + tunnel.symbols).clamp(min=-1)}
        case HMM():
            spoken = inputs[..., -tunnel.symbols :]
            state = torch.arange(tunnel.positions).expand(len(inputs), -1)
            return {
                "transition rows": torch.where(state < tunnel.states, state, -1),
                "emission rows": torch.where(
                    (state >= tunnel.states) & (state < tunnel.prefix), state - tunnel.states, -1
                ),
                "symbols": torch.where(spoken.sum(-1) > 0, spoken.argmax(-1), -1),
            }
        case _:
            raise NotApplicableError(f"no input of the {tunnel.name} tunnel names a hypothesis")


def token_keys(
    model: nn.Module, inputs: Tensor, tokens: Mapping[str, Tensor]
) -> dict[tuple[str, int], Tensor]:
    """Mean key [n, heads, d] of each token of each set in each layer that attends."""
    sums: dict[tuple[str, int], Tensor] = {}
    start = 0
    for captured in stream(model, inputs, ["layers.*.k"]):
        for layer in anatomy(model).attending:
            keys = captured[f"layers.{layer}.k"].double()
            for name, ids in tokens.items():
                own = ids[start : start + len(keys)]
                size = (int(ids.max()) + 1, *keys.shape[2:])
                total = sums.setdefault((name, layer), keys.new_zeros(size))
                total.index_add_(0, own[own >= 0], keys[own >= 0])
        start += len(keys)
    times = {name: ids[ids >= 0].bincount() for name, ids in tokens.items()}
    for name, count in times.items():
        if bool((count == 0).any()):
            raise ValueError(f"some {name} never occurred: take more sequences")
    return {(name, layer): x / times[name][:, None, None] for (name, layer), x in sums.items()}


def embedding_keys(model: Predictor, tokens: Tensor) -> Tensor:
    """[n, heads, d] first-layer keys W_K norm(e) of `tokens` [n], no position added."""
    block = anatomy(model).layers[0].block
    assert isinstance(block, BayesDecoderLayer)
    part = anatomy(model).attention(0)
    with torch.no_grad():
        raw = part.projections["k"](block.input_layernorm(model.embedding(tokens)))
    return raw.unflatten(-1, (-1, part.width))


def cosines(keys: Tensor) -> Tensor:
    """|cos| of all pairs [..., n, n], 0 on the diagonal."""
    unit = nn.functional.normalize(keys, dim=-1, eps=1e-300)
    found = (unit @ unit.transpose(-1, -2)).abs()
    return found - torch.diag_embed(found.diagonal(dim1=-2, dim2=-1))


def jackknife(pairs: Tensor) -> Interval:
    """Interval of the mean over pairs of tokens [n, n], from leaving out one at a time."""
    count = len(pairs)
    left = (pairs.sum() - 2 * pairs.sum(1)) / ((count - 1) * (count - 2))
    error = float(((count - 1) / count * (left - left.mean()).square().sum()).sqrt())
    return t_interval(float(pairs.sum() / (count * (count - 1))), error, count - 1)


def measure_layer_keys(
    own: dict[str, Tensor], fresh: dict[str, Tensor], width: int
) -> dict[str, Measured]:
    """All measurements of keys in one layer of a language model, beside `fresh` weights.

    Args:
        own: `WEIGHTS`: `weight_cosines` [G]; `BEFORE_ROTATION` and `AS_ATTENDED`: keys [n, G, d] of
            n different tokens; `HEADS`: keys [N, G, d] at the last token of N prompts.
        fresh: the same for the network with fresh weights, or empty.
        width: width of the model.
    """
    found: dict[str, Measured] = {}
    for name, x in own.items():
        if name == HEADS and x.shape[1] == 1:  # it has no other to be compared with
            continue
        control = _cosine(name, fresh[name], width).value if name in fresh else None
        found[name] = _cosine(name, x, width).beside(random_init=control)
    return found


def _cosine(name: str, x: Tensor, width: int) -> Measured:
    """Mean |cos| of one kind of keys, beside random directions."""
    if name == WEIGHTS:
        measured = Measured(value=float(x.mean()))
        return measured.beside(**{RANDOM: random_cosine(width)})
    keys = x.double()
    if name == HEADS:  # of the same prompt
        measured = mean_over_sequences(pair_cosine(keys)[:, None])
    else:
        pairs = torch.stack([cosines(head) for head in keys.unbind(1)]).mean(0)
        mean = pairs.sum() / (len(pairs) * (len(pairs) - 1))
        measured = Measured(value=float(mean), interval=jackknife(pairs))
    return measured.beside(**{RANDOM: random_cosine(x.shape[-1])})


def weight_cosines(weight: Tensor) -> Tensor:
    """[G] mean |cos| of the columns of each head, from W_K as [G, d_k, width]."""
    return pair_cosine(weight.double())


def different_tokens(prompts: Sequence[Sequence[int]]) -> list[int]:
    """Places of the first occurrences of up to `TOKENS` different tokens, over all prompts.

    Position 0 is left out, because it often is an attention sink.
    """
    tokens = ((token, position) for prompt in prompts for position, token in enumerate(prompt))
    first: dict[int, int] = {}
    for place, (token, position) in enumerate(tokens):
        if position > 0:
            first.setdefault(token, place)
    return list(first.values())[:TOKENS]
