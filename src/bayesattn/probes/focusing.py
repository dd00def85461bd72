"""Focusing: how sharp attention is, where queries attend, and differences between layers.

    entropy     -Σ_j α_j log α_j / log n over the n visible keys: 1 if even, 0 if all on one
    mass        Σ α_j over consistent, or eliminated, positions (`roles`)
    alignment   mean cos(q, k_j) over consistent minus that over eliminated positions
    own         share of the variance of cos(q_t, k_j) that depends on the query t, given the key j;
                0 if every query sees the same columns

all at the scored positions of held-out sequences.

Roles of positions:

    consistent   earlier positions of a hypothesis that the evidence so far allows
    eliminated   earlier positions of a hypothesis that the evidence excludes

bijection, recall: the pairs with the requested key, and all other pairs. For a new key no position
is consistent, because every earlier pair shows a value that is taken. hmm, revision: the header
rows of hypotheses that are more probable than at the start, and the other rows.
"""

from dataclasses import dataclass, field

import torch
from torch import Generator, Tensor, nn

from bayesattn.attention.kernels.dense import repeat_heads
from bayesattn.probes.anatomy import Anatomy, anatomy
from bayesattn.probes.attention import row_entropy
from bayesattn.probes.capture import capture
from bayesattn.probes.measured import (
    Measured,
    NotApplicableError,
    Untrained,
    mean_over_sequences,
    require_samples,
    shuffled_inside,
)
from bayesattn.tunnels import HMM, Batch, Bijection, Recall, Revision, Tunnel

Roles = dict[str, Tensor]
"""Masks [N, S, T]: sequences, steps, positions."""
PERMUTATIONS = 199
CHUNK = 20
"""Permutations made at once."""
FEWEST_SEQUENCES = 16


@dataclass(frozen=True, kw_only=True)
class Focus:
    """Attention of one head, or of all heads of a layer together."""

    layer: int
    head: int | None
    """None: mean over the heads."""
    entropy: Measured
    """Entropy, beside even attention (1) and the untrained network."""
    mass: dict[str, Measured] = field(default_factory=dict)
    """Mass by role, beside even attention, other sequences' roles, and the untrained network."""
    alignment: Measured | None = None
    """None if no position is consistent, or none eliminated."""
    own: float = 0.0
    by_step: dict[str, list[float]] = field(default_factory=dict)
    """entropy, and mass by role, at each step; NaN where a step has none."""


def measure_focusing(
    model: nn.Module,
    tunnel: Tunnel,
    batch: Batch,
    initial: Untrained = None,
    permutations: int = PERMUTATIONS,
) -> list[Focus]:
    """Every layer with attention: first all its heads together, then each head."""
    parts = anatomy(model)
    parts.require_attention()
    require_samples("sequences", len(batch.inputs), FEWEST_SEQUENCES)
    try:
        masks = roles(tunnel, batch)
    except NotApplicableError:
        masks = {}
    found: list[Focus] = []
    rows, cosines = attention_rows(model, batch), query_key_cosines(model, batch)
    before = {} if initial is None else attention_rows(initial, batch)
    for layer in parts.attending:
        visible = visible_keys(parts, layer, batch)
        heads: list[int | None] = [None, *range(parts.attention(layer).heads)]
        for head in heads:
            pick = slice(None) if head is None else slice(head, head + 1)
            found.append(
                focus(
                    rows[layer][:, :, pick],
                    cosines[layer][:, :, pick],
                    masks,
                    visible,
                    layer=layer,
                    head=head,
                    initial=before[layer][:, :, pick] if before else None,
                    permutations=permutations,
                )
            )
    return found


def focus(
    attention: Tensor,
    cosine: Tensor,
    masks: Roles,
    visible: Tensor,
    *,
    layer: int = 0,
    head: int | None = None,
    initial: Tensor | None = None,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> Focus:
    """Focus of attention rows and cosines [N, S, H, T] that see `visible` [S, T] keys."""
    generator = Generator().manual_seed(seed)
    entropy = normalised_entropy(attention, visible)
    wide = visible.sum(-1) > 1  # a query that sees one key has no choice
    measured = mean_over_sequences(entropy[:, wide]).beside(even=1.0)
    if initial is not None:
        untrained = normalised_entropy(initial, visible)[:, wide]
        measured = measured.beside(untrained=float(untrained.mean()))
    by_step = {"entropy": _by_step(entropy.mean(2), wide.expand(len(entropy), -1))}
    rows = attention.mean(2)
    orders = _other_sequences(masks, permutations, generator)
    mass: dict[str, Measured] = {}
    for name, mask in masks.items():
        some = mask.any(-1)
        if not bool(some.any()):
            continue
        own = (rows * mask).sum(-1)
        others = _reordered(rows, mask, orders, some)
        even = (mask.sum(-1) / visible.sum(-1))[some].mean()
        mass[name] = mean_over_sequences(own, some).beside(even=float(even)).against(others)
        if initial is not None:
            start = (initial.mean(2) * mask).sum(-1)[some].mean()
            mass[name] = mass[name].beside(untrained=float(start))
        by_step[name] = _by_step(own, some)
    return Focus(
        layer=layer,
        head=head,
        entropy=measured,
        mass=mass,
        alignment=_alignment(cosine.mean(2), masks, orders),
        own=query_share(cosine, visible),
        by_step=by_step,
    )


def normalised_entropy(attention: Tensor, visible: Tensor) -> Tensor:
    """[N, S, H] entropy over the log of the number of visible keys; 1 where there is but one."""
    nats = row_entropy(attention).double()
    most = visible.sum(-1).double().log()[:, None]
    return torch.where(most > 0, nats / most.clamp(min=1e-9), 1.0)


def query_share(cosine: Tensor, visible: Tensor) -> float:
    """1 - variance of the column means / variance of cos(q_t, k_j) over visible pairs."""
    seen = visible[None, :, None, :].double()
    cosine = cosine.double()
    count = seen.sum(1).clamp(min=1)
    columns = ((cosine * seen).sum(1) / count)[:, None]
    mean = (cosine * seen).sum((1, 3), keepdim=True) / seen.sum((1, 3), keepdim=True)
    inside = ((cosine - columns).square() * seen).sum()
    total = ((cosine - mean).square() * seen).sum()
    return float(inside / total.clamp(min=1e-30))


def visible_keys(parts: Anatomy, layer: int, batch: Batch) -> Tensor:
    """[S, T] which keys a scored position sees in a layer."""
    key, query = torch.arange(batch.inputs.shape[1]), batch.scored[:, None]
    window = parts.attention(layer).module.window
    return (key <= query) & (key > query - window if window is not None else key >= 0)


def attention_rows(model: nn.Module, batch: Batch) -> dict[int, Tensor]:
    """[N, S, H, T] attention of the scored positions, by layer."""
    captured = capture(model, batch.inputs, ["layers.*.attention"], batch.scored)
    return {at: captured[f"layers.{at}.attention"] for at in anatomy(model).attending}


def query_key_cosines(model: nn.Module, batch: Batch) -> dict[int, Tensor]:
    """[N, S, H, T] cos(q_t, k_j) of the scored positions with all keys, by layer."""
    queries = capture(model, batch.inputs, ["layers.*.q"], batch.scored)
    keys = capture(model, batch.inputs, ["layers.*.k"])
    cosines: dict[int, Tensor] = {}
    for layer in anatomy(model).attending:
        q = queries[f"layers.{layer}.q"].transpose(1, 2)
        k = repeat_heads(keys[f"layers.{layer}.k"].transpose(1, 2), q.shape[1])
        q, k = (nn.functional.normalize(x, dim=-1) for x in (q, k))
        cosines[layer] = (q @ k.transpose(-1, -2)).transpose(1, 2)
    return cosines


def _alignment(cosine: Tensor, masks: Roles, orders: Tensor | None) -> Measured | None:
    if not {"consistent", "eliminated"} <= masks.keys() or orders is None:
        return None
    good, bad = masks["consistent"], masks["eliminated"]
    both = good.any(-1) & bad.any(-1)
    if not bool(both.any()):
        return None

    def contrast(one: Tensor, other: Tensor) -> Tensor:
        means = ((cosine * mask).sum(-1) / mask.sum(-1).clamp(min=1) for mask in (one, other))
        return next(means) - next(means)

    null: list[Tensor] = []
    for some in orders.split(CHUNK):
        one, other = _exchanged(good, some), _exchanged(bad, some)
        ok = both & one.any(-1) & other.any(-1)
        null.append((contrast(one, other) * ok).sum((1, 2)) / ok.sum((1, 2)))
    return mean_over_sequences(contrast(good, bad), both).against(torch.cat(null))


def _other_sequences(masks: Roles, count: int, generator: Generator) -> Tensor | None:
    """[M, N, S] whose roles each sequence gets at each step, among those with the same roles.

    Rows with something consistent exchange with such rows only, so that nothing but the place of
    the roles changes.
    """
    if not masks:
        return None
    kind = torch.stack([mask.any(-1) for mask in masks.values()]).long()
    kind = sum(row * 2**at for at, row in enumerate(kind))
    assert isinstance(kind, Tensor)
    return shuffled_inside(kind, count, generator)


def _reordered(rows: Tensor, mask: Tensor, orders: Tensor | None, some: Tensor) -> Tensor:
    """[M] mean mass under the roles of other sequences."""
    assert orders is not None
    masses: list[Tensor] = []
    for part in orders.split(CHUNK):
        mass = (rows * _exchanged(mask, part)).sum(-1)
        masses.append((mass * some).sum((1, 2)) / some.sum())
    return torch.cat(masses).double()


def _exchanged(mask: Tensor, orders: Tensor) -> Tensor:
    """[M, N, S, T]: at each step every sequence has the mask of another."""
    return mask[orders, torch.arange(mask.shape[1])]


def _by_step(values: Tensor, some: Tensor) -> list[float]:
    """Mean over the sequences that have a value, at each step; NaN where none has."""
    count = some.sum(0)
    total = (values.double() * some).sum(0)
    return torch.where(count > 0, total / count, torch.nan).tolist()


def roles(tunnel: Tunnel, batch: Batch) -> Roles:
    """Masks of consistent and eliminated positions."""
    match tunnel:
        case Bijection():
            return _bijection(batch)
        case Recall():
            return _recall(tunnel, batch)
        case HMM() | Revision():
            return _header(tunnel, batch)
        case _:
            raise NotApplicableError(f"no position of a {tunnel.name} stands for one hypothesis")


def _bijection(batch: Batch) -> Roles:
    keys = batch.metadata["keys"]
    pair = torch.arange(batch.inputs.shape[1]) // 2
    earlier = pair < torch.arange(keys.shape[1])[:, None]
    same = keys[:, :, None] == keys[:, None, pair]
    return {"consistent": same & earlier, "eliminated": ~same & earlier}


def _recall(tunnel: Recall, batch: Batch) -> Roles:
    pair = torch.arange(tunnel.positions) // 4
    stored = (pair < tunnel.pairs).expand(*batch.labels.shape, -1)
    same = batch.metadata["asked"][..., None] == pair
    return {"consistent": same & stored, "eliminated": ~same & stored}


def _header(tunnel: HMM | Revision, batch: Batch) -> Roles:
    about = torch.full((tunnel.positions,), -1)
    if isinstance(tunnel, Revision):
        about[: tunnel.hypotheses] = torch.arange(tunnel.hypotheses)
    elif tunnel.header == "rows":
        about[: tunnel.prefix] = torch.arange(tunnel.states).repeat(2)
    else:
        states, symbols = torch.arange(tunnel.states), tunnel.symbols
        first = 1 + tunnel.states**2
        about[1:first] = states.repeat_interleave(tunnel.states)
        about[first + 1 : tunnel.prefix - 1] = states.repeat_interleave(symbols)
    likely = batch.posterior > 1 / tunnel.outcomes
    named = about >= 0
    return {
        "consistent": likely[..., about.clamp(min=0)] & named,
        "eliminated": ~likely[..., about.clamp(min=0)] & named,
    }
