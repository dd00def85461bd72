"""Is the belief about a hidden state an affine image of the residual stream?

    b̂ = x W + c     of the states x after each layer, and of all layers side by side
    R²              1 - Σ‖b - b̂‖² / Σ‖b - b̄‖², b̄ the mean of all beliefs
    error           mean of ‖b - b̂‖²

A word is the tokens up to a position. A fixed process repeats short words, so held-out sequences
contain words of the fit. Therefore words are held out: the map that reads a word was fitted to
other words. If there are fewer than `FEWEST_WORDS` words of one length, they are used for fitting
only and never scored: without one of three words of length 1, a map would be fitted to the code of
the position on the other two. Every number stands beside

    other words             beliefs exchanged between words of the same length
    next token              the same map from the exact posterior, which is the target of the loss
    function of next token  the best R² of any function of the exact posterior; it is 1 and says
                            nothing if no two words have the same posterior
    own logits              the same map from the network's prediction
    untrained               the same network before training

If the next token's posterior determines the belief, every good predictor contains the belief.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from bayesattn.linear import read_folds
from bayesattn.probes.anatomy import anatomy
from bayesattn.probes.capture import capture
from bayesattn.probes.measured import (
    Measured,
    Untrained,
    beside_each,
    mean_over_sequences,
    measure_each,
    plain,
    require_samples,
    shuffled_inside,
)
from bayesattn.probes.readout import FEWEST_SEQUENCES, explained, within
from bayesattn.tunnels import Batch, Tunnel

FOLDS = 8
PERMUTATIONS = 99
FEWEST_WORDS = 16
AT_ONCE = 2**22
"""Number of exchanged beliefs that are fitted at once."""
ALIKE = 1e9
"""Posteriors that agree to this many parts are the same."""
ALL_LAYERS, OTHERS = "all layers", "other words"


@dataclass(frozen=True, kw_only=True)
class BeliefReadout:
    """Readout of the belief from the states of one place."""

    states: str
    """embedding, layer 0 and so on, or all layers."""
    width: int
    r_squared: Measured
    error: Measured


@dataclass(frozen=True, kw_only=True)
class BeliefGeometry:
    """Beliefs [N, S, states], exact and read from all layers, and the fits of all places."""

    readouts: list[BeliefReadout]
    steps: list[int]
    """The S steps whose words are scored, from 0 on."""
    words: int
    """Number of distinct words among the N · S."""
    exact: Tensor
    trained: Tensor
    untrained: Tensor | None

    @property
    def whole(self) -> BeliefReadout:
        """All layers side by side."""
        return self.readouts[-1]

    def to_json(self) -> dict[str, Any]:
        sequences, _, states = self.exact.shape
        sizes = {"sequences": sequences, "words": self.words, "hidden_states": states}
        return {**sizes, "steps": self.steps, "readouts": plain(self.readouts)}


def measure_beliefs(
    model: nn.Module,
    tunnel: Tunnel,
    batch: Batch,
    initial: Untrained = None,
    permutations: int = PERMUTATIONS,
) -> BeliefGeometry:
    """Readouts of the exact beliefs of a tunnel from the states after every layer."""
    beliefs = tunnel.beliefs(batch.inputs)
    require_samples("sequences", len(beliefs), FEWEST_SEQUENCES)
    words = number_words(batch.inputs, batch.scored)
    folds = fold_words(words)
    kept = folds[0] >= 0
    trained, logits = states_of(model, batch)
    before = None if initial is None else states_of(initial, batch)[0]
    forced = {
        "next_token": belief_readout(batch.posterior, beliefs, words),
        "function_of_next_token": best_function(batch.posterior[:, kept], beliefs[:, kept]),
        "own_logits": belief_readout(logits, beliefs, words),
    }

    def measure(name: str, states: Tensor, permutations: int) -> BeliefReadout:
        found = belief_readout(states, beliefs, words, states=name, permutations=permutations)
        return beside_each(found, **forced)

    return BeliefGeometry(
        readouts=measure_each(measure, trained.items(), before, permutations),
        steps=[step for step, one in enumerate(kept) if one],
        words=len(words[:, kept].unique()),
        exact=beliefs[:, kept],
        trained=read(trained[ALL_LAYERS], beliefs, folds),
        untrained=None if before is None else read(before[ALL_LAYERS], beliefs, folds),
    )


def number_words(inputs: Tensor, scored: Tensor) -> Tensor:
    """[N, S] numbers from 0 on, the same where the inputs up to a scored position are."""
    word = torch.zeros(len(inputs), dtype=torch.long)
    numbers: list[Tensor] = []
    positions, count = set(map(int, scored)), 0
    for at, shown in enumerate(inputs.flatten(2).unbind(1) if inputs.dim() > 2 else inputs.T):
        token = shown.view(len(inputs), -1).unique(dim=0, return_inverse=True)[1]
        word = (word * len(inputs) + token).unique(return_inverse=True)[1]
        if at in positions:
            numbers.append(word + count)
            count += int(word.max()) + 1
    return torch.stack(numbers, dim=1)


def fold_words(words: Tensor) -> Tensor:
    """[N, S] the part of `FOLDS` that each word is in; -1 at steps that have too few words."""
    counts = torch.tensor([len(words[:, step].unique()) for step in range(words.shape[1])])
    require_samples("words of one length", int(counts.max()), FEWEST_WORDS)
    order = torch.randperm(int(counts.sum()), generator=Generator().manual_seed(0))
    return torch.where(counts < FEWEST_WORDS, -1, order[words] % FOLDS)


def states_of(model: nn.Module, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
    """States [N, S, d] by place, all layers side by side at the end; and the logits."""
    layers = range(len(anatomy(model).layers))
    names = {"embedding": "embedding"}
    names |= {f"layer {at}": f"layers.{at}.residual_after" for at in layers}
    captured = capture(model, batch.inputs, [*names.values(), "logits"], batch.scored)
    states = {name: captured[one] for name, one in names.items()}
    return states | {ALL_LAYERS: torch.cat([*states.values()], dim=-1)}, captured["logits"]


def read(x: Tensor, beliefs: Tensor, folds: Tensor) -> Tensor:
    """Beliefs [N, S, …, c] as x [N, S, d] tells them, each fold by a map fitted to the others.

    Only steps that have folds are left.
    """
    rows = beliefs.flatten(0, 1).flatten(1)
    told = read_folds(x.flatten(0, 1), rows, folds.flatten()).view_as(beliefs)
    return told[:, folds[0] >= 0]


def belief_readout(
    x: Tensor, beliefs: Tensor, words: Tensor, *, states: str = "", permutations: int = 0
) -> BeliefReadout:
    """Fit of `beliefs` [N, S, c] of words [N, S] to x [N, S, d], beside beliefs of other words."""
    folds = fold_words(words)
    errors, spread = _squares(x, beliefs, folds)
    r_squared, error = explained(errors.sum(1), spread.sum(1)), mean_over_sequences(errors)
    if permutations:
        others = exchanged(beliefs, words, permutations)
        nulls = [[z.sum((0, 1)) for z in _squares(x, other, folds)] for other in others]
        null, null_spread = (torch.cat(parts) for parts in zip(*nulls, strict=True))
        r_squared = r_squared.against(1 - null / null_spread, OTHERS)
        error = error.against(null / errors.numel(), OTHERS, less=True)
    return BeliefReadout(states=states, width=x.shape[-1], r_squared=r_squared, error=error)


def _squares(x: Tensor, beliefs: Tensor, folds: Tensor) -> tuple[Tensor, Tensor]:
    """Squared errors of what x tells of beliefs [N, S, …, c], and deviations from their mean."""
    kept = beliefs[:, folds[0] >= 0]
    told, mean = read(x, beliefs, folds), kept.mean((0, 1))
    return (kept - told).square().sum(-1), (kept - mean).square().sum(-1)


def exchanged(beliefs: Tensor, words: Tensor, permutations: int) -> Iterator[Tensor]:
    """[N, S, m, c] beliefs of words [N, S], m times exchanged between words of one length."""
    generator, count = Generator().manual_seed(0), int(words.max()) + 1
    own = torch.zeros(count, beliefs.shape[-1], dtype=beliefs.dtype)
    own[words] = beliefs
    length = torch.zeros(count, dtype=torch.long)
    length[words] = torch.arange(words.shape[1]).expand_as(words)
    most = max(1, AT_ONCE // beliefs.numel())
    for start in range(0, permutations, most):
        orders = shuffled_inside(length, min(most, permutations - start), generator)
        yield own[orders.T][words]


def best_function(posterior: Tensor, beliefs: Tensor) -> BeliefReadout:
    """Fit of the mean belief of all words with the same posterior."""
    rows = beliefs.flatten(0, 1)
    same = (posterior.flatten(0, 1) * ALIKE).round().unique(dim=0, return_inverse=True)[1]
    left, spread = within(rows, same).square().sum(), (rows - rows.mean(0)).square().sum()
    return BeliefReadout(
        states="",
        width=posterior.shape[-1],
        r_squared=Measured(value=float(1 - left / spread)),
        error=Measured(value=float(left / len(rows))),
    )
