"""Five tokens with random labels: a problem that one head learns by heart."""

import torch

from bayesattn.dynamics.em import Problem, Sizes

TOY = Sizes(3, 2, 2, 3)


def five_tokens(generator, dtype=torch.float64):
    """Gaussian tokens with labels of no meaning; everyone sees everyone."""
    x = torch.randn(5, TOY.x, generator=generator, dtype=dtype)
    return Problem(x, torch.randint(TOY.outcomes, (5,), generator=generator))
