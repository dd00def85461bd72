"""Belief revision: from which of several sources does the evidence come?

    P(z | e_1 .. e_k) ∝ Π_k E[z, e_k],    z uniform

Every sequence has its own emission matrix E, shown in a header with one position per hypothesis,
because a model could memorise the answers of a fixed matrix. After a gap of blank positions follows
one position per piece of evidence, and each is scored. Features that do not apply are zero:

    [log E row (symbols) | hypothesis, one-hot | evidence, one-hot (symbols)]
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from bayesattn.checks import fields_at_least
from bayesattn.tunnels.base import Batch, Shape, Tunnel
from bayesattn.tunnels.sampling import Rows, integers, sample_observations


@dataclass(frozen=True)
class Revision(Tunnel, name="revision", stretches="evidence"):
    """A fresh emission matrix and a hidden source per sequence.

    Args:
        hypotheses: Number of possible sources.
        evidence: Number of symbols emitted by the source.
        symbols: Number of different symbols.
        filler: Blank positions between the matrix and the evidence.
        alpha: Concentration of the Dirichlet distribution of matrix rows.
        min_prob: Smallest probability.
        grid: Probabilities are multiples of this; None leaves them continuous.
    """

    hypotheses: int = 16
    evidence: int = 5
    symbols: int = 8
    filler: int = 4
    alpha: float = 1.0
    min_prob: float = 0.01
    grid: float | None = 0.01

    def __post_init__(self) -> None:
        fields_at_least(self, hypotheses=2, evidence=1, symbols=2, filler=0)
        self._rows.check(self.symbols)

    @property
    def shape(self) -> Shape:
        prefix = self.hypotheses + self.filler
        positions = prefix + self.evidence
        features = 2 * self.symbols + self.hypotheses
        scored = range(prefix, positions)
        return Shape(self.hypotheses, positions, scored, features=features, prefix=prefix)

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        device, rows = generator.device, self.hypotheses
        emission = self._rows.sample((batch_size, rows, self.symbols), generator)
        features = 2 * self.symbols + rows
        inputs = torch.zeros(batch_size, self.positions, features, device=device)
        inputs[:, :rows, : self.symbols] = emission.log()
        inputs[:, :rows, self.symbols : -self.symbols] = torch.eye(rows, device=device)
        if self.grid is None:  # the shown matrix is rounded; the evidence is drawn from it
            emission = self._emission(inputs)
        source = integers(rows, (batch_size, 1), generator).repeat(1, self.evidence)
        evidence = sample_observations(source, emission, generator)
        inputs[:, self.prefix :, -self.symbols :].scatter_(2, evidence[..., None], 1.0)
        return self._batch(inputs, source, emission=emission, evidence=evidence)

    def exact(self, inputs: Tensor) -> Tensor:
        self._check_inputs(inputs)
        emission, evidence = self._emission(inputs), inputs[:, self.prefix :, -self.symbols :]
        index = evidence.argmax(-1)[:, None].expand(-1, self.hypotheses, -1)
        return emission.gather(2, index).log().cumsum(2).softmax(1).transpose(1, 2).contiguous()

    @property
    def _rows(self) -> Rows:
        return Rows(self.alpha, self.min_prob, self.grid)

    def _emission(self, inputs: Tensor) -> Tensor:
        return self._rows.read(inputs[:, : self.hypotheses, : self.symbols])
