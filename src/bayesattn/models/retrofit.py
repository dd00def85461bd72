"""Give an existing Hugging Face causal LM learned priors over distance.

    model = AutoModelForCausalLM.from_pretrained("some/llama")
    retrofit(model, prior="ggd")           # initialised uniform: the logits do not change
    ...train...
    save_prior_state_dict(model, "priors.safetensors")

Every attention layer gets a `prior` (and `ssmax`) submodule with one row per query head. The
model's own position encoding stays. Loading: retrofit the original model in the same way, then
`load_prior_state_dict(model, "priors.safetensors")`. `AutoModelForCausalLM` loads a folder that
`model.save_pretrained` wrote, with its priors.
"""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils.output_capturing import OutputRecorder

from bayesattn.attention import KERNELS, HeadTemperature, LogTemperature, SSMax
from bayesattn.attention.posterior import Kernel
from bayesattn.models.far import GlobalLayers, far_layers, layer_options
from bayesattn.models.interface import NAME
from bayesattn.models.retrofitted import Saver
from bayesattn.priors import Prior, make_prior


def retrofit(
    model: PreTrainedModel,
    prior: str | Prior = "ggd",
    *,
    prior_options: Mapping[str, Any] | None = None,
    global_layers: GlobalLayers = "all",
    ssmax: bool | SSMax | LogTemperature = False,
    exempt: int = 0,
    kernel: Kernel = "auto",
) -> PreTrainedModel:
    """Add one prior per attention layer, in place, and return the model.

    Args:
        model: a decoder-only model that uses transformers' attention interface.
        prior: a name from `PRIORS`, or a prior to copy into every layer.
        prior_options: arguments of the named prior, for example `{"init": "mixed"}`.
        global_layers: layers that may look far, "all", "last" or a list of them. In other layers
            all heads of a named prior are initialised local, which changes the model at once.
        ssmax: True also scales the scores with `s · ln n`, which changes the model at once; or the
            `SSMax`, `LogTemperature` or `HeadTemperature` to copy.
        exempt: so many first keys of a sequence have log-prior 0, for example attention sinks; with
            a prior that is not 0 elsewhere, this changes the model at once.
        kernel: a name from `bayesattn.attention.KERNELS`.
    """
    made_with = {
        "prior": prior,
        "prior_options": None if prior_options is None else dict(prior_options),
        "global_layers": global_layers,
        "ssmax": ssmax,
        "exempt": exempt,
        "kernel": kernel,
    }
    layers = check_retrofit(model)
    heads: int = model.config.num_attention_heads
    far, local = far_layers(global_layers, len(layers)), None
    if isinstance(prior, str):
        options = dict(prior_options or {})
        name, prior = prior, make_prior(prior, heads, **options)
        local = make_prior(name, heads, **layer_options(name, heads, options, local=True))
    elif prior_options or len(far) < len(layers):
        raise ValueError(
            "prior_options and global_layers belong to a prior given by name, not to a ready one"
        )
    if ssmax is True:
        ssmax = SSMax(heads)
    for part in (prior, ssmax):
        if part and part.num_heads != heads:
            raise ValueError(
                f"the model has {heads} query heads but the prior or SSMax has "
                f"{part.num_heads}; they must be equal"
            )
    if kernel not in KERNELS:
        raise ValueError(f"unknown kernel {kernel!r}; choose one of {', '.join(KERNELS)}")
    if exempt < 0:
        raise ValueError(f"exempt must be 0 or more keys, not {exempt}")
    model.set_attn_implementation(NAME)
    for number, layer in enumerate(layers):
        device = next(layer.parameters()).device
        layer.prior = copy.deepcopy(prior if number in far else local or prior).to(device)
        if ssmax:
            layer.ssmax = copy.deepcopy(ssmax).to(device)
        layer.exempt, layer.kernel = exempt, kernel
        layer.register_forward_pre_hook(_keep_attention)
    anything: Any = model
    anything.save_pretrained = Saver(model, made_with)
    return model


def _keep_attention(layer: Any, _: object) -> None:
    """Refuse transformers' own attention functions, which would leave out the prior silently."""
    chosen = str(layer.config._attn_implementation)
    if chosen == "eager" or any(name in chosen for name in ("sdpa", "flash", "flex")):
        raise ValueError(
            f"attention {chosen!r} would leave out the priors of this retrofitted model: call "
            f"model.set_attn_implementation({NAME!r})"
        )


def prior_state_dict(model: nn.Module) -> dict[str, Tensor]:
    """Prior and SSMax entries of `model.state_dict()`, under the same names."""
    ours = Prior | SSMax | HeadTemperature
    inside = tuple(f"{name}." for name, module in model.named_modules() if isinstance(module, ours))
    return {k: v.detach() for k, v in model.state_dict().items() if k.startswith(inside)}


def save_prior_state_dict(model: nn.Module, path: str | Path) -> None:
    """Write `prior_state_dict(model)`, a few kilobytes, to a safetensors file."""
    state = {name: value.contiguous().cpu() for name, value in prior_state_dict(model).items()}
    save_file(state, path, metadata={"format": "pt"})


@torch.no_grad()
def load_prior_state_dict(model: nn.Module, source: Mapping[str, Tensor] | str | Path) -> None:
    """Copy saved priors into a model that was retrofitted in the same way.

    `source` is a state dict, a safetensors file, or a directory written by `save_pretrained`.
    """
    own = prior_state_dict(model)
    state = source if isinstance(source, Mapping) else _read(Path(source), set(own))
    missing, unexpected = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
    if missing or unexpected:
        raise ValueError(
            f"the saved priors do not fit the model: missing {missing or 'none'}, "
            f"unexpected {unexpected or 'none'}; retrofit it with the prior and ssmax of the save"
        )
    for name, value in own.items():
        if value.shape != state[name].shape:
            raise ValueError(
                f"{name} has shape {tuple(state[name].shape)} in the save but "
                f"{tuple(value.shape)} in the model"
            )
        value.copy_(state[name])


def _read(path: Path, names: set[str]) -> dict[str, Tensor]:
    """All tensors of one file; of a directory of model shards only those called `names`."""
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    state: dict[str, Tensor] = {}
    for file in files:
        with safe_open(file, framework="pt") as tensors:
            chosen = names.intersection(tensors.keys()) if path.is_dir() else tensors.keys()
            state |= {name: tensors.get_tensor(name) for name in chosen}
    return state


def check_retrofit(model: PreTrainedModel) -> list[Any]:
    """The attention modules; refuses a model that cannot be retrofitted, with the reason."""
    name = type(model).__name__
    if not isinstance(model, PreTrainedModel):
        raise TypeError(f"retrofit takes a Hugging Face PreTrainedModel, not {name}")
    if any(isinstance(module, Prior) for module in model.modules()):
        raise ValueError(f"this {name} has priors already: choose a model without")
    if model.config.is_encoder_decoder or model.config.sub_configs:
        raise ValueError(f"{name} is not a plain decoder; retrofit a causal language model")
    if not (model._supports_attention_backend and model._can_set_attn_implementation()):
        raise ValueError(
            f"{name} does not use transformers' attention interface; choose a model "
            "that does, such as Llama, Mistral, Qwen2 or GPT-NeoX"
        )
    recorded = (getattr(model.base_model, "_can_record_outputs", None) or {}).get("attentions")
    kind = recorded.target_class if isinstance(recorded, OutputRecorder) else recorded
    layers = [m for m in model.modules() if isinstance(kind, type) and isinstance(m, kind)]
    if not layers or not all(getattr(layer, "is_causal", False) for layer in layers):
        raise ValueError(
            f"{name} has no causal self-attention layers that retrofit can find; "
            "choose a causal language model such as Llama, Mistral, Qwen2 or GPT-NeoX"
        )
    return layers
