"""`python -m bayesattn.priors NAME [OUT.png]`: draw a prior before training."""

import sys
from typing import Any

import torch
from matplotlib.figure import Figure

from bayesattn.priors import Bucketed, make_prior

name = sys.argv[1] if len(sys.argv) > 1 else "ggd"
path = sys.argv[2] if len(sys.argv) > 2 else f"{name}.png"
prior = make_prior(name, 8, **({"init": "linear"} if name == "ggd" else {}))
if isinstance(prior, Bucketed):  # before training it is flat; show its steps under a slope of 1/8
    with torch.no_grad():
        prior.theta_bucket.copy_(-torch.arange(32.0) / 8)
figure: Any = Figure(figsize=(7, 4), layout="constrained")
prior.draw(ax=figure.add_subplot())
figure.savefig(path, dpi=150)
print(path)
