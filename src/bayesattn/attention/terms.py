"""The parts of a score besides queries and keys: the arguments that all kernels share.

score_ij = scale · content_i · q_i·k_j + temper_i · (table[i - j] + decay_i - decay_j)

for the keys j that query i sees. A sink, if any, is one more key with score `sink` and value 0. A
score_mod changes these scores last.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from bayesattn.attention.ssmax import AnyTemperature, temperatures
from bayesattn.attention.visibility import Group, Run, Visibility
from bayesattn.priors import Prior, Uniform
from bayesattn.priors.forget_gate import accumulate
from bayesattn.priors.sink import Sink

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
"""FlexAttention's signature: a score, its sequence, head, query and key give the new score."""


class Terms(NamedTuple):
    """Prior, temperatures, visibility and scale of one call of attention."""

    table: Tensor | None
    """[H, >= span] log-prior by distance, never narrower than float32; None if it is uniform."""
    content: Tensor | None
    """[B or 1, H, T] factor of the content in each row; None without SSMax."""
    temper: Tensor | None
    """[B or 1, H, T] factor of the prior in each row; None if SSMax leaves it alone."""
    seen: Visibility
    scale: float
    decay: Tensor | None = None
    """[B, H, end] sums of log forget gates up to each key, in float64; None without gates."""
    sink: Tensor | None = None
    """[H] score of a key that all queries see and whose value is 0; None without one."""
    score_mod: ScoreMod | None = None
    """Changes scores, for queries counted like keys."""

    @staticmethod
    def of(
        q: Tensor,
        prior: Prior | Tensor | None,
        ssmax: AnyTemperature,
        seen: Visibility,
        scale: float | None = None,
        *,
        forget: Tensor | None = None,
        sink: Sink | Tensor | None = None,
        score_mod: ScoreMod | None = None,
    ) -> "Terms":
        """The terms for queries of this width, dtype and device; see `attend` for the arguments."""
        wide = torch.promote_types(q.dtype, torch.float32)
        table = table_of(prior, seen.span, wide)
        content, temper = temperatures(ssmax, table, seen, wide, q.device)
        scale = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
        decay = None if forget is None else accumulate(forget[:, :, : seen.end])
        sink = sink.logit if isinstance(sink, Sink) else sink
        sink = None if sink is None else sink.to(wide)
        return Terms(table, content, temper, seen, scale, decay, sink, score_mod)

    @property
    def by_distance(self) -> bool:
        """Whether the scores depend on nothing but content, temperature and distance."""
        return self.decay is None and self.sink is None and self.score_mod is None

    def heat(self, q: Tensor, rows: Tensor | None = None) -> Tensor:
        """Queries, or only some `rows` of them, times the temperature of the content."""
        if self.content is None:
            return q
        content = self.content if rows is None else self.content.index_select(2, rows)
        return (q * content[..., None]).to(q.dtype)

    def at(self, group: Group, run: Run) -> "Terms":
        """The terms of one run of queries: a causal band whose first key has index 0.

        Its factors are [H, T], because the sequences of a group share them.
        """
        rows = slice(run.start, run.stop)
        content, temper = (
            None if x is None else x[0 if x.shape[0] == 1 else group.one, :, rows]
            for x in (self.content, self.temper)
        )
        offset = self.seen.offset + run.start - run.first
        seen = Visibility(run.stop - run.start, offset, None, self.seen.window, self.seen.exempt)
        return Terms(self.table, content, temper, seen, self.scale)

    def heads(self, some: slice | Tensor) -> "Terms":
        """The terms of some heads of a run."""
        table, content, temper = (None if x is None else x[some] for x in self[:3])
        return Terms(table, content, temper, self.seen, self.scale)


def table_of(prior: Prior | Tensor | None, span: int, wide: torch.dtype) -> Tensor | None:
    """Log-prior by distance; None if it is uniform."""
    if prior is None or isinstance(prior, Uniform):
        return None
    return (prior if isinstance(prior, Tensor) else prior.table(span)).to(wide)
