"""Belief revision: which of several sources does the evidence come from?

    P(z | e_1 .. e_k) ∝ Π_k E[z, e_k],    z uniform

Every sequence has its own emission matrix E, shown in a header of one position per hypothesis:
with a fixed matrix the answer could be memorised. One position per piece of evidence follows,
after a gap of blank positions, and each is scored. Features, zero where they do not apply:

    [log E row (symbols) | hypothesis, one-hot | evidence, one-hot (symbols)]
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from bayesattn.checks import at_least
from bayesattn.tunnels.base import Batch, Tunnel, stretched_length
from bayesattn.tunnels.chains import sample_observations
from bayesattn.tunnels.matrices import check_grid, grid_rows, read_logs, sample_rows, units_of


@dataclass(frozen=True)
class Revision(Tunnel):
    """A fresh emission matrix and a hidden source per sequence."""

    name: ClassVar[str] = "revision"

    hypotheses: int = 16
    """Number of possible sources."""
    evidence: int = 5
    """Number of symbols emitted by the source."""
    symbols: int = 8
    """Number of different symbols."""
    filler: int = 4
    """Blank positions between the matrix and the evidence."""
    alpha: float = 1.0
    """Concentration of the Dirichlet distribution of matrix rows."""
    min_prob: float = 0.01
    """Smallest probability."""
    grid: float | None = 0.01
    """Probabilities are multiples of this; None leaves them continuous."""

    def __post_init__(self) -> None:
        at_least("hypotheses", self.hypotheses, 2)
        at_least("evidence", self.evidence, 1)
        at_least("symbols", self.symbols, 2)
        at_least("filler", self.filler, 0)
        check_grid(self.symbols, self.alpha, self.min_prob, self.grid)

    @property
    def outcomes(self) -> int:
        """Hypotheses."""
        return self.hypotheses

    @property
    def features(self) -> int:
        """Row, hypothesis, evidence."""
        return 2 * self.symbols + self.hypotheses

    @property
    def prefix(self) -> int:
        """The matrix and the gap."""
        return self.hypotheses + self.filler

    @property
    def positions(self) -> int:
        """Matrix, gap, evidence."""
        return self.prefix + self.evidence

    @property
    def horizon(self) -> int:
        """Pieces of evidence."""
        return self.evidence

    @property
    def scored(self) -> Tensor:
        """Every piece of evidence."""
        return torch.arange(self.prefix, self.positions)

    @property
    def hypothesis_bits(self) -> float:
        """log2 of the number of matrices on the grid."""
        return self.hypotheses * grid_rows(self.symbols, self.min_prob, self.grid)

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Matrix, source, evidence."""
        inputs = torch.zeros(batch_size, self.positions, self.features, device=generator.device)
        emission = sample_rows(
            (batch_size, self.hypotheses, self.symbols),
            generator,
            alpha=self.alpha,
            min_prob=self.min_prob,
            units=units_of(self.grid),
        )
        inputs[:, : self.hypotheses, : self.symbols] = emission.log()
        inputs[:, : self.hypotheses, self.symbols : -self.symbols] = torch.eye(
            self.hypotheses, device=generator.device
        )
        if self.grid is None:  # what is shown is rounded, and what is shown counts
            emission = self._emission(inputs)
        source = torch.randint(
            self.hypotheses, (batch_size, 1), generator=generator, device=generator.device
        ).expand(-1, self.evidence)
        evidence = sample_observations(source, emission, generator)
        inputs[:, self.prefix :, -self.symbols :].scatter_(2, evidence[..., None], 1.0)
        metadata = {"emission": emission, "evidence": evidence}
        return Batch(
            inputs,
            self.scored.to(generator.device),
            _product_rule(emission, evidence),
            source.contiguous(),
            metadata,
        )

    def exact(self, inputs: Tensor) -> Tensor:
        """[B, evidence, hypotheses] belief after each piece of evidence."""
        self._check_inputs(inputs)
        evidence = inputs[:, self.prefix :, -self.symbols :].argmax(-1)
        return _product_rule(self._emission(inputs), evidence)

    def stretched(self, factor: float) -> Self:
        """More evidence."""
        return replace(self, evidence=stretched_length(self.evidence, factor))

    def _emission(self, inputs: Tensor) -> Tensor:
        return read_logs(inputs[:, : self.hypotheses, : self.symbols], units_of(self.grid))


def _product_rule(emission: Tensor, evidence: Tensor) -> Tensor:
    """[B, K, Z] from [B, Z, symbols] and [B, K], in log space, with sequences last until the end.

    Every operation then runs over long contiguous vectors.
    """
    entries = emission.permute(2, 1, 0).contiguous()
    index = evidence.T[:, None].expand(-1, emission.shape[1], -1)
    return entries.gather(0, index).log_().cumsum_(0).softmax(1).permute(2, 0, 1).contiguous()
