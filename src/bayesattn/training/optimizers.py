"""AdamW, RAdam, or Muon for hidden matrices and AdamW; and their state as flat tensors."""

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from bayesattn.models import parameter_groups
from bayesattn.runs.checkpoint import Tensors
from bayesattn.training.config import TrainConfig
from bayesattn.training.muon import Muon

NOT_HIDDEN = frozenset({"embedding", "head", "lm_head"})
"""First and last layers, which Muon does not train."""


def make_optimizers(model: nn.Module, config: TrainConfig) -> list[Optimizer]:
    """One or two optimisers; each group stores its highest learning rate as "peak"."""
    groups = parameter_groups(model, config.weight_decay, config.lr, config.prior_lr)
    optimizers: list[Optimizer] = []
    kind = {"muon": torch.optim.Muon, "muon-fp32": Muon}.get(config.optimizer)
    if kind and (matrices := _take_hidden(model, groups)):
        muon = kind(
            matrices,
            lr=config.lr,
            weight_decay=config.weight_decay,
            adjust_lr_fn="match_rms_adamw",  # so that lr and decay mean the same for both
        )
        optimizers.append(muon)
    groups = [group for group in groups if group["params"]]
    if groups and config.optimizer == "radam":
        radam = torch.optim.RAdam(groups, betas=config.betas, decoupled_weight_decay=True)
        optimizers.append(radam)
    elif groups:
        optimizers.append(torch.optim.AdamW(groups, betas=config.betas, fused=True))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return optimizers


def set_learning_rate(optimizers: list[Optimizer], factor: float) -> None:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = factor * group["peak"]


def optimizer_tensors(model: nn.Module, optimizers: list[Optimizer]) -> Tensors:
    """The whole state as `parameter/moment` tensors; hyper-parameters come from the config."""
    return {
        f"{name}/{key}": value.contiguous()
        for name, parameter in model.named_parameters()
        for optimizer in optimizers
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer_tensors(model: nn.Module, optimizers: list[Optimizer], tensors: Tensors) -> None:
    parameters = dict(model.named_parameters())
    owner = {
        parameter: optimizer
        for optimizer in optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    for path, value in tensors.items():
        name, _, key = path.rpartition("/")
        parameter = parameters[name]
        # Counters stay on the optimiser's device: a fused step needs them beside the weights.
        owner[parameter].state[parameter][key] = value.to(parameter.device)


def _take_hidden(model: nn.Module, groups: list[dict[str, Any]]) -> list[nn.Parameter]:
    hidden = {
        id(parameter)
        for name, module in model.named_modules()
        # Not every matrix maps vectors to vectors: tables and per-channel scales do not.
        if isinstance(module, nn.Linear | nn.RNNBase) and NOT_HIDDEN.isdisjoint(name.split("."))
        for parameter in module.parameters(recurse=False)
        if parameter.dim() == 2
    }
    taken: list[nn.Parameter] = []
    for group in groups:
        if group["name"] == "decay":
            taken = [p for p in group["params"] if id(p) in hidden]
            group["params"] = [p for p in group["params"] if id(p) not in hidden]
    return taken
