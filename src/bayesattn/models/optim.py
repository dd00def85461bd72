"""Optimiser groups: parameters of priors have no weight decay.

Weight decay pulls theta_beta to 0, which is the uniform prior, and SSMax's scale to 0, where
attention ignores the scores. So priors, sinks, SSMax, norms and biases have no weight decay.
Matrices have weight decay, also those of forget gates.
"""

from typing import TYPE_CHECKING, Any

from torch import nn

from bayesattn.attention import HeadTemperature, SSMax
from bayesattn.priors import Prior, Sink

if TYPE_CHECKING:
    from transformers import Trainer as _Base
else:
    _Base = object


def parameter_groups(
    model: nn.Module, weight_decay: float, lr: float, prior_lr: float | None = None
) -> list[dict[str, Any]]:
    """Groups for any torch optimiser, each with a "name"; also for retrofitted models.

    Args:
        model: a `BayesForCausalLM`, a retrofitted model, or any module with priors in it.
        weight_decay: for tensors of two or more dimensions, embeddings included.
        lr: learning rate of the groups "decay" and "no_decay".
        prior_lr: learning rate of prior, sink and SSMax parameters; `lr` if None.

    Returns:
        The groups "decay", "no_decay" and "prior" without frozen parameters; empty groups are left
        out.
    """
    prior_ids = _prior_parameters(model)
    groups: dict[str, dict[str, Any]] = {
        "decay": {"lr": lr, "weight_decay": weight_decay},
        "no_decay": {"lr": lr, "weight_decay": 0.0},
        "prior": {"lr": lr if prior_lr is None else prior_lr, "weight_decay": 0.0},
    }
    members: dict[str, list[nn.Parameter]] = {name: [] for name in groups}
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        if id(parameter) in prior_ids:
            members["prior"].append(parameter)
        else:
            members["decay" if parameter.dim() >= 2 else "no_decay"].append(parameter)
    return [
        {"name": name, "params": members[name], **settings}
        for name, settings in groups.items()
        if members[name]
    ]


class UndecayedPriors(_Base):
    """Mixin for Hugging Face's `Trainer`: no weight decay for the same parameters.

    class MyTrainer(UndecayedPriors, Trainer): ...
    """

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """The names of `Trainer`, without parameters of priors, sinks and SSMax."""
        kept, named = _prior_parameters(model), dict(model.named_parameters())
        names = super().get_decay_parameter_names(model)
        return [name for name in names if id(named.get(name)) not in kept]


def _prior_parameters(model: nn.Module) -> set[int]:
    """Identities of the parameters of priors, sinks and SSMax."""
    return {
        id(parameter)
        for module in model.modules()
        if isinstance(module, Prior | SSMax | HeadTemperature | Sink)
        for parameter in module.parameters()
    }
