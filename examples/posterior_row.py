"""Draw one attention row under three priors, as likelihood × prior ∝ posterior.

    python examples/posterior_row.py docs/images/posterior.png

The row belongs to the last of 64 queries. Two keys match its content equally well, one far and one
near; the prior decides between them.
"""

import sys

import torch
from matplotlib.figure import Figure

from bayesattn import attend
from bayesattn.priors import GeneralizedGaussian

LENGTH, WIDTH = 64, 16
MATCHES = (12, 56)
SHAPES = {"far\nβ = −0.6": -0.6, "uniform\nβ = 0": 0.0, "local\nβ = 1": 1.0}
COLOURS = ("#0072b2", "#999999", "#d55e00")


def priors() -> GeneralizedGaussian:
    prior = GeneralizedGaussian(len(SHAPES))
    with torch.no_grad():
        prior.theta_beta.copy_(torch.tensor(list(SHAPES.values())))
        prior.theta_alpha.copy_(torch.tensor([1.5, 0.0, -2.5]))
    return prior


def row() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Likelihood, prior and posterior [H, S] of the last query."""
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(1, 1, 1, WIDTH, generator=generator)
    k = 0.5 * torch.randn(1, 1, LENGTH, WIDTH, generator=generator)
    k[:, :, MATCHES] = q
    q, k = (x.expand(1, len(SHAPES), -1, -1) for x in (q, k))
    parts = attend(q, k, k, priors(), decompose=True)
    return parts.likelihood[0, :, -1], parts.prior[0, :, -1], parts.posterior[0, :, -1]


def draw() -> Figure:
    likelihood, prior, posterior = (part.detach().numpy() for part in row())
    figure = Figure(figsize=(9, 3.6), layout="constrained", facecolor="white")
    axes = figure.subplots(len(SHAPES), 3, sharex=True, sharey="col")
    for head, (label, colour) in enumerate(zip(SHAPES, COLOURS, strict=True)):
        for ax, values in zip(axes[head], (likelihood, prior, posterior), strict=True):
            ax.fill_between(range(LENGTH), values[head], step="mid", linewidth=0, color=colour)
            ax.spines[["top", "right"]].set_visible(False)
            ax.set_ylim(0, 1.05 * values.max())
            ax.set_yticks([])
        axes[head, 0].set_ylabel(label)
    for ax, title in zip(axes[0], ("likelihood", "×  prior", "∝  posterior"), strict=True):
        ax.set_title(title)
    for ax in axes[-1]:
        ax.set_xlabel("key (the query is at the right end)")
    return figure


if __name__ == "__main__":
    path = sys.argv[1] if len(sys.argv) > 1 else "posterior.png"
    draw().savefig(path, dpi=150)
    print(path)
