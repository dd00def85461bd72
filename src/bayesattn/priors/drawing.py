"""How a prior draws itself. Nothing else imports matplotlib, and this only when it draws."""

# pyright: reportUnknownMemberType=false
# matplotlib's own annotations leave **kwargs untyped.

import sys
from typing import TYPE_CHECKING

from bayesattn.priors.base import Prior

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_density(prior: Prior, length: int, ax: "Axes | None") -> "Axes":
    """Draw `prior` normalised over distances 0 .. length-1, on `ax` or a new figure."""
    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.figure(layout="constrained").add_subplot()
    density = prior.table(length).detach().softmax(dim=-1).cpu().numpy()
    for head in range(prior.num_heads):
        ax.plot(density[head], label=f"head {head}")
    # Several decades, yet not the hundreds that a local head falls through.
    ax.set_yscale("log")
    ax.set_ylim(1e-5, 2)
    ax.set_xlabel("distance from query to key")
    ax.set_ylabel("prior probability")
    ax.set_title(repr(prior), fontsize="medium")
    ax.legend(fontsize="x-small", ncols=1 + (prior.num_heads - 1) // 8)
    return ax


def draw_to_file(prior: Prior) -> None:
    """`python -m bayesattn.priors.<file> [OUT.png]`: draw `prior` to a file."""
    from matplotlib.figure import Figure

    path = sys.argv[1] if len(sys.argv) > 1 else f"{prior.name}.png"
    figure = Figure(figsize=(7, 4), layout="constrained")
    prior.draw(ax=figure.add_subplot())
    figure.savefig(path, dpi=150)
    print(path)
