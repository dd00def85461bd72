"""What edits do: to predictions, and to the order of values in later layers.

    divergence     KL(before ‖ after), bits, of the next token: all tokens, or the two labels alone
    error          mean |H_model - H|, H of Bayes, as in SULA
    order          |Spearman| of the first component of a later layer's values, found anew after the
                   edit, with the model's entropy after the edit: does the axis come back?
    decodability   held-out R² of that entropy from all of those values

An edit that cuts an axis makes v·u = 0 by construction; nothing here measures that. A edits, N
prompts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from bayesattn.bits import kl_divergence, log_probabilities
from bayesattn.probes.llm.editing import Edit
from bayesattn.probes.llm.ordering import correlation, order_of, readable
from bayesattn.probes.llm.replay import Replay
from bayesattn.probes.llm.sula import binary_entropy
from bayesattn.probes.llm.sula_answers import read_labels

TOKENS = 4096
"""Tokens in one pass."""
MakeEdits = Callable[[slice], Mapping[int, Edit]]
"""From some of A edits to functions by layer."""


@dataclass(frozen=True)
class Effects:
    """Of A edits. Lists go by later layer."""

    divergence: Tensor
    """[A] over all tokens."""
    label_divergence: Tensor
    """[A] over the two labels."""
    error_posterior: Tensor
    """[A]."""
    error_predictive: Tensor
    """[A]."""
    correlation: Tensor
    """[A] of H_model and H_pred (Pearson)."""
    order: Tensor
    """[A, later layers]."""
    decodability: Tensor
    """[A, later layers]."""

    def row(self, at: int) -> dict[str, float | list[float]]:
        """Plain numbers of one edit."""
        return {name: value[at].tolist() for name, value in vars(self).items()}


@dataclass(frozen=True)
class Stage:
    """Where edits are tried out."""

    replay: Replay
    pair: tuple[int, int]
    """Tokens of the two labels."""
    posterior_bits: Tensor
    """[N]."""
    predictive_bits: Tensor
    """[N]."""

    @property
    def later(self) -> list[int]:
        """Layers after the first edited one."""
        return list(range(self.replay.first + 1, len(self.replay.subject.parts.layers)))

    def effects(self, make: MakeEdits, count: int) -> Effects:
        """Of `count` edits, as many at once as fit a pass."""
        at_once = max(1, TOKENS // self.replay.tokens.numel())
        starts = [*range(0, count, at_once), count]
        parts = [self._some(make(slice(a, b)), b - a) for a, b in pairwise(starts)]
        names = vars(parts[0])
        return Effects(**{name: torch.cat([vars(part)[name] for part in parts]) for name in names})

    def _some(self, edits: Mapping[int, Edit], count: int) -> Effects:
        values: dict[int, Tensor] = {}
        listening = {layer: _keep(values, layer, edits.get(layer)) for layer in self.later}
        logits = self.replay.run({**edits, **listening}, repeats=count)
        logits = logits.cpu().unflatten(0, (count, -1))
        first, _ = read_labels(logits, self.pair)
        base, _ = read_labels(self.replay.logits.cpu(), self.pair)
        bits = binary_entropy(first)
        states = [values[layer].unflatten(0, (count, -1)) for layer in self.later]
        return Effects(
            divergence=_divergence(self.replay.logits.cpu(), logits),
            label_divergence=kl_divergence(_two(base), _two(first).log()).mean(-1),
            error_posterior=(bits - self.posterior_bits).abs().mean(-1),
            error_predictive=(bits - self.predictive_bits).abs().mean(-1),
            correlation=correlation(bits, self.predictive_bits),
            order=_stack([order_of(x, bits) for x in states], count),
            decodability=_stack([readable(x, bits) for x in states], count),
        )


def _keep(values: dict[int, Tensor], layer: int, edit: Edit | None) -> Edit:
    """Keep what a layer makes of its states, then do what was asked for."""

    def keep(x: Tensor) -> Tensor:
        values[layer] = x[:, -1].flatten(1).cpu()
        return x if edit is None else edit(x)

    return keep


def _divergence(before: Tensor, after: Tensor) -> Tensor:
    """[A] mean KL over prompts of logits [N, V] and [A, N, V]; one edit at a time, V is large."""
    known = log_probabilities(before).exp()
    each = [kl_divergence(known, log_probabilities(one)).mean() for one in after]
    return torch.stack(each)


def _two(first: Tensor) -> Tensor:
    return torch.stack([first, 1 - first], dim=-1)


def _stack(columns: Sequence[Tensor], count: int) -> Tensor:
    return torch.stack(list(columns), -1) if columns else torch.zeros(count, 0).double()
