"""Data for the interactive parts of the report, from trained models."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bayesattn.bits import entropy
from bayesattn.figures.tunnel import beliefs
from bayesattn.ledger.study import Exhibit
from bayesattn.models.architectures import Predictor
from bayesattn.probes.anatomy import anatomy
from bayesattn.probes.capture import capture
from bayesattn.probes.values import components
from bayesattn.tunnels import HMM, Bijection, Tunnel

SEED = 20_000
SEQUENCES = 3
POINTS = 400


def belief_exhibit(model: Predictor, tunnel: Tunnel, *, title: str, caption: str) -> Exhibit:
    """A few held-out sequences: beliefs of model and Bayes at every step, attention by layer."""
    batch = tunnel.sample(SEQUENCES, torch.Generator().manual_seed(SEED))
    shown = beliefs(model, tunnel, SEQUENCES, SEED)
    tokens = [_tokens(tunnel, row) for row in batch.inputs]
    layers = anatomy(model).attending
    names = [f"layers.{layer}.attention" for layer in layers]
    rows = capture(model, batch.inputs, names, batch.scored)
    sequences = [
        {
            "tokens": tokens[at],
            "steps": [_step(tunnel, tokens[at], int(position)) for position in batch.scored],
            "posterior": _rounded(shown.posterior[at]),
            "model": _rounded(shown.model[at]),
            "labels": shown.labels[at].numpy().tolist(),
            "attention": [_rounded(rows[name][at].mean(1), 3) for name in names],
        }
        for at in range(SEQUENCES)
    ]
    sign = "v" if isinstance(tunnel, Bijection) else ""
    outcomes = [f"{sign}{at}" for at in range(tunnel.outcomes)]
    data = {"outcomes": outcomes, "sequences": sequences}
    return Exhibit(kind="beliefs", title=title, caption=caption, data=data)


def manifold_exhibit(model: Predictor, tunnel: Tunnel, *, title: str, caption: str) -> Exhibit:
    """The residual stream after the last layer on its first three components, by entropy."""
    batch = tunnel.sample(64, torch.Generator().manual_seed(SEED))
    name = f"layers.{len(anatomy(model).layers) - 1}.residual_after"
    found = components(capture(model, batch.inputs, [name], batch.scored)[name])
    shares = found.variances / found.variances.sum()
    points, bits = found.scores[..., :3].flatten(0, 1), entropy(batch.posterior).flatten()
    chosen = torch.linspace(0, len(points) - 1, min(POINTS, len(points))).long()
    data = {
        "points": _rounded(points[chosen], 4),
        "colour": _rounded(bits[chosen], 4),
        "axes": [f"PC {at + 1} ({share:.0%})" for at, share in enumerate(map(float, shares[:3]))],
        "colourLabel": "entropy of the exact posterior, bits",
    }
    return Exhibit(kind="manifold", title=title, caption=caption, data=data)


def heatmap_exhibit(
    values: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    labels: tuple[str, str],
    unit: str,
    title: str,
    caption: str,
    limits: tuple[float, float] | None = None,
) -> Exhibit:
    """A table in colours; `labels` name what the rows and the columns are."""
    data = {
        "values": _rounded(torch.tensor(values, dtype=torch.float64), 5),
        "rows": list(rows),
        "columns": list(columns),
        "rowLabel": labels[0],
        "columnLabel": labels[1],
        "unit": unit,
        **({} if limits is None else {"range": list(limits)}),
    }
    return Exhibit(kind="heatmap", title=title, caption=caption, data=data)


def _tokens(tunnel: Tunnel, row: Tensor) -> list[str]:
    match tunnel:
        case Bijection(alphabet=size):
            return [f"k{t}" if t < size else f"v{t - size}" for t in map(int, row)]
        case HMM():
            spoken = map(int, row[:, -tunnel.symbols :].argmax(-1)[tunnel.prefix :])
            rows = [f"T{at}" for at in range(tunnel.states)]
            rows += [f"E{at}" for at in range(tunnel.states)]
            return [*rows, *map(str, spoken)]
        case _:
            return [str(at) for at in range(len(row))]


def _step(tunnel: Tunnel, tokens: Sequence[str], position: int) -> str:
    if isinstance(tunnel, Bijection):
        return f"After {position // 2} pairs: which value has {tokens[position]}?"
    return f"After symbol {position + 1 - tunnel.prefix}, which is {tokens[position]}."


def _rounded(x: Tensor, digits: int = 5) -> Any:
    return x.detach().double().round(decimals=digits).numpy().tolist()
