"""Where a belief lives: along which directions states carry it, and whether anything reads them.

    axis     u = Σ h x / ‖Σ h x‖, the least squares of states on the entropy h of the belief
    plane    the span of the least squares of states on the belief p itself

of states x and targets less their means at each step, from one half of the sequences. On the other
half, with m the mean state of a step and V an orthonormal basis [k, d],

    cut      x - V'V (x - m)              steer   x + σ u, σ the deviation of u·x

    extra    rise of mean KL(Bayes ‖ model) over mean KL(Bayes ‖ trivial)
    moved    mean KL(before ‖ after), bits

Random directions are mixtures of deviations of states, so they lie where states vary, and a cut of
them is scaled until it moves states as far as the cut that it stands beside.
N sequences, S steps, L layers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from bayesattn.bits import entropy, kl_divergence
from bayesattn.linear import correlation, principal_axes
from bayesattn.probes.bayes.readers import Reader, Reading, Site, Where
from bayesattn.probes.capture import hanging
from bayesattn.probes.measured import (
    Measured,
    NotApplicableError,
    mean_over_sequences,
    shuffled_columns,
)
from bayesattn.stats import mean_interval
from bayesattn.tunnels import Batch

DRAWS = 5
"""Random directions beside each one."""
PLANE = 8
"""Dimensions of the plane of the belief, at most."""
PERMUTATIONS = 199
VARIES = 1e-4
"""Bits, or probability: a target that varies less at every step is told by the step alone."""

Edit = Callable[[Tensor], Tensor]
"""From states [N, S, d] at the steps, or [N, T, d] everywhere, to such states."""


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What a change of states does, beside random ones that move states as far."""

    extra: Measured
    """With its interval over sequences, and the mean of random ones."""
    moved: float
    random_extra: list[float]
    random_moved: list[float]


@dataclass(frozen=True, kw_only=True)
class Steer:
    """Rise of the prediction's entropy, bits, when states are moved along the axis."""

    rise: Measured
    random: list[float]


@dataclass(frozen=True, kw_only=True)
class LayerBelief:
    """One layer."""

    layer: int
    order: Measured | None
    """Held-out |r| of the axis with the entropy given the step; None where the step tells it."""
    axis: Effect | None
    plane: Effect | None
    steer: Steer | None


def heard(
    reader: Reader,
    inputs: Tensor,
    scored: Tensor,
    layers: Sequence[int],
    where: Where,
    *,
    everywhere: bool = False,
) -> tuple[Reading, dict[int, Tensor]]:
    """What is predicted, and states [N, S, d] of some layers at the steps, or at all positions."""
    places, sites = reader.places(scored), reader.sites(where)
    kept: dict[int, list[Tensor]] = {layer: [] for layer in layers}

    def keep(layer: int) -> Callable[..., None]:
        def hook(_: object, __: object, output: object) -> None:
            states = sites[layer].get(output)
            kept[layer].append((states if everywhere else states[:, places]).float().cpu())

        return hook

    with hanging(sites[layer].module.register_forward_hook(keep(layer)) for layer in layers):
        reading = reader.read(inputs, scored)
    return reading, {layer: torch.cat(parts) for layer, parts in kept.items()}


def changed(
    reader: Reader, inputs: Tensor, scored: Tensor, site: Site, edit: Edit, *, everywhere: bool
) -> Reading:
    """What is predicted with edited states."""
    places = reader.places(scored)

    def hook(_: object, __: object, output: object) -> object:
        states = site.get(output)
        if everywhere:
            return site.put(output, edit(states))
        after = states.clone()
        after[:, places] = edit(states[:, places])
        return site.put(output, after)

    with hanging([site.module.register_forward_hook(hook)]):
        return reader.read(inputs, scored)


def cutting(basis: Tensor, mean: Tensor | float, size: float | Tensor = 1.0) -> Edit:
    """Take `size` times what states have along basis [k, d] beyond their mean [S, d]."""

    def edit(x: Tensor) -> Tensor:
        rows = basis.to(x)
        centre = mean.to(x) if isinstance(mean, Tensor) else mean
        return x - float(size) * ((x - centre) @ rows.T) @ rows

    return edit


def axis_of(states: Tensor, target: Tensor) -> Tensor | None:
    """[1, d] the direction along which states [N, S, d] move with a target [N, S]."""
    own = target.double() - target.double().mean(0)
    if float(own.abs().max()) < VARIES:
        return None
    x = states.double() - states.double().mean(0)
    u = torch.einsum("ns,nsd->d", own, x)
    return (u / u.norm().clamp(min=1e-30))[None]


def plane_of(states: Tensor, belief: Tensor) -> Tensor | None:
    """[k, d] the span in which states [N, S, d] move with beliefs [N, S, C]."""
    p = (belief.double() - belief.double().mean(0)).flatten(0, 1)
    if float(p.abs().max()) < VARIES:
        return None
    x = (states.double() - states.double().mean(0)).flatten(0, 1)
    _, sizes, directions = torch.linalg.svd(p, full_matrices=False)
    chosen = directions[sizes > 1e-6 * sizes[0]][:PLANE]
    slopes = torch.linalg.lstsq(p @ chosen.T, x).solution
    return torch.linalg.qr(slopes.T).Q.T


def first_of(states: Tensor) -> Tensor:
    """[1, d] the first principal component of states [N, S, d] at the last step."""
    return principal_axes(states[:, -1])[1][:1]


def random_basis(states: Tensor, count: int, generator: Generator) -> Tensor:
    """[count, d] mixtures of deviations of states [N, S, d]."""
    x = (states.double() - states.double().mean(0)).flatten(0, 1)
    mixed = torch.randn(count, len(x), generator=generator, dtype=torch.float64) @ x
    return torch.linalg.qr(mixed.T).Q.T


class Bench:
    """Held-out sequences on which changes of one layer are tried out.

    Of states [N, S, d] at the steps; or, `everywhere`, [N, T, d], whose mean then goes as well.
    """

    def __init__(
        self,
        reader: Reader,
        batch: Batch,
        trivial: Tensor,
        before: Reading,
        states: Tensor,
        site: Site,
        *,
        draws: int = DRAWS,
        everywhere: bool = False,
        seed: int = 0,
    ) -> None:
        self.reader, self.batch, self.site, self.before = reader, batch, site, before
        self.states, self.draws, self.everywhere = states.double(), draws, everywhere
        self.mean = self.states.mean(0)
        self.seed = seed
        self.base = kl_divergence(batch.posterior, before.log_probs).mean(1)
        self.evidence = float(kl_divergence(batch.posterior, trivial.log()).mean())

    def read(self, edit: Edit) -> Reading:
        inputs, scored = self.batch.inputs, self.batch.scored
        return changed(self.reader, inputs, scored, self.site, edit, everywhere=self.everywhere)

    def cut(self, basis: Tensor) -> Effect:
        """Cuts of a basis [k, d], and of random ones that move states as far."""
        mean = 0.0 if self.everywhere else self.mean
        length = self._length(basis)
        found = self._cost(cutting(basis, mean))
        generator = Generator().manual_seed(self.seed)
        random: list[tuple[Tensor, float]] = []
        for _ in range(self.draws):
            other = random_basis(self.states, len(basis), generator)
            size = length / self._length(other).clamp(min=1e-30)
            random.append(self._cost(cutting(other, mean, size)))
        extras = [float(extra.mean()) for extra, _ in random]
        extra = mean_over_sequences(found[0][:, None])
        return Effect(
            extra=extra.beside(random_directions=sum(extras) / len(extras)),
            moved=found[1],
            random_extra=extras,
            random_moved=[moved for _, moved in random],
        )

    def steer(self, axis: Tensor) -> Steer:
        """One deviation along axis [1, d], and as far along random ones."""
        length = self._length(axis)
        generator = Generator().manual_seed(self.seed)
        others = [random_basis(self.states, 1, generator) for _ in range(self.draws)]
        rises = [self._rise(length * direction[0]) for direction in (axis, *others)]
        random = [float(rise.mean()) for rise in rises[1:]]
        rise = mean_over_sequences(rises[0][:, None])
        return Steer(
            rise=rise.beside(random_directions=sum(map(abs, random)) / len(random)), random=random
        )

    def _length(self, basis: Tensor) -> Tensor:
        """How far a cut moves states, root mean square."""
        centre = 0.0 if self.everywhere else self.mean
        return ((self.states - centre) @ basis.T).square().sum(-1).mean().sqrt()

    def _cost(self, edit: Edit) -> tuple[Tensor, float]:
        """[N] extra of each sequence, and what predictions moved by."""
        after = self.read(edit).log_probs
        extra = (kl_divergence(self.batch.posterior, after).mean(1) - self.base) / self.evidence
        return extra, self.moved(Reading(after, self.before.mass))

    def moved(self, after: Reading) -> float:
        """KL(before ‖ after), bits."""
        return float(kl_divergence(self.before.log_probs.exp(), after.log_probs).mean())

    def _rise(self, step: Tensor) -> Tensor:
        """[N] of the entropy, bits."""
        after = self.read(lambda x: x + step.to(x)).log_probs
        return (entropy(after.exp()) - entropy(self.before.log_probs.exp())).mean(1)


def locate(
    reader: Reader,
    batch: Batch,
    trivial: Callable[[Batch], Tensor],
    layers: Sequence[int],
    tell: Callable[[str], None] = lambda _: None,
) -> list[LayerBelief]:
    """Of some layers, by the exact posteriors of a batch; half of it finds, half of it judges.

    `trivial` predicts [N, S, C] without collecting evidence.
    """
    half = len(batch.inputs) // 2
    first, second = batch.rows(slice(0, half)), batch.rows(slice(half, None))
    _, learnt = heard(reader, first.inputs, first.scored, layers, "residual")
    before, states = heard(reader, second.inputs, second.scored, layers, "residual")
    bits, held_out = entropy(first.posterior), entropy(second.posterior)
    sites, flat = reader.sites(), trivial(second)
    found: list[LayerBelief] = []
    for layer in layers:
        tell(f"layer {layer}")
        axis, plane = axis_of(learnt[layer], bits), plane_of(learnt[layer], first.posterior)
        if axis is None and plane is None:
            raise NotApplicableError("the belief depends on the step alone, so no state carries it")
        bench = Bench(reader, second, flat, before, states[layer], sites[layer])
        found.append(
            LayerBelief(
                layer=layer,
                order=None if axis is None else order_given_step(states[layer], axis, held_out),
                axis=None if axis is None else bench.cut(axis),
                plane=None if plane is None else bench.cut(plane),
                steer=None if axis is None else bench.steer(axis),
            )
        )
    return found


def order_given_step(states: Tensor, axis: Tensor, bits: Tensor) -> Measured:
    """|r| of states [N, S, d] along axis [1, d] and bits [N, S], each less its mean at the step.

    Beside it bits of other sequences.
    """
    scores = states.double() @ axis[0].double()
    x, y = ((z - z.mean(0)).double() for z in (scores, bits))
    others = shuffled_columns(y, PERMUTATIONS, Generator().manual_seed(0))
    value = float(correlation(x.flatten(), y.flatten()).abs())
    null = correlation(x.flatten(), others.flatten(1)).abs()
    return Measured(value=value).against(null)


def spread(values: Sequence[float]) -> tuple[float, float]:
    """95% interval of the mean over random draws."""
    interval = mean_interval(list(values))
    return (values[0], values[0]) if interval is None else (interval.low, interval.high)


def depths(count: int, number: int = 6) -> list[int]:
    """About `number` layers of `count`, evenly spaced, the first and the last among them."""
    return sorted({round(at * (count - 1) / max(1, number - 1)) for at in range(number)})
