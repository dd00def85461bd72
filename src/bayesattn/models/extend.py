"""A longer context for a language model that exists: ways to get it, saved in a few kilobytes.

    yarn, ntk           RoPE turned more slowly: as in transformers' YaRN, or by a larger base
    log-temperature     scores beyond the trained length n0 times 1 + a · ln(floor(n/n0) + 1)
    temperatures        one number for each head: 1 + a[h] · ln(n/n0)
    priors              as temperatures, and a learned prior over distance in each head
    yarn+temperatures   a way of the first line together with one of the others

A way is fitted elsewhere (`extend_fit.py`); here it is applied, saved and loaded:

    model = AutoModelForCausalLM.from_pretrained("the/original")
    load_extension(model, "FOLDER")
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (configs of transformers have no types)

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from torch import nn
from transformers import PreTrainedModel

from bayesattn import files
from bayesattn.attention import HeadTemperature, LogTemperature
from bayesattn.models.retrofit import (
    check_retrofit,
    load_prior_state_dict,
    prior_state_dict,
    retrofit,
    save_prior_state_dict,
)

AS_IS = "as-is"
BASES = ("yarn", "ntk")
FITS = ("log-temperature", "temperatures", "priors")
EXEMPT = 4
"""Number of first keys with log-prior 0: attention sinks, which are far from most queries."""
FLAT = -8.0
"""Initial theta_alpha: the log-prior -exp(-8) is nearly that of the exempt keys, 0."""
CONFIG, TENSORS = "extension.json", "extension.safetensors"
_SIZES = ("model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")


@dataclass(frozen=True)
class Extension:
    """One way to extend one model.

    Args:
        way: name of the way, such as yarn+priors.
        trained: training length of the model, in tokens.
        to: the new length, in tokens.
        scale: a of the log-temperature; 0 for other ways.
        model: sizes of the model that the extension belongs to.
    """

    way: str
    trained: int
    to: int
    scale: float = 0.0
    model: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        parse_way(self.way)
        if not 0 < self.trained < self.to:
            raise ValueError(f"the model reads {self.trained} tokens already, and {self.to} asked")

    @property
    def base(self) -> str | None:
        return parse_way(self.way)[0]

    @property
    def fit(self) -> str | None:
        return parse_way(self.way)[1]

    def apply(self, model: PreTrainedModel) -> PreTrainedModel:
        """Change the model in place; fitted numbers are initialised to change nothing."""
        sizes = _sizes_of(model)
        if self.model is not None and self.model != sizes:
            other = next(name for name in sizes if sizes[name] != self.model.get(name))
            raise ValueError(
                f"the extension belongs to a model with {other} {self.model.get(other)!r}, and "
                f"this one has {sizes[other]!r}: load the model that was extended"
            )
        if self.base is not None:
            turn_slower(model, self.base, self.to / self.trained, self.trained)
        if self.fit is not None:
            heads = _config(model).num_attention_heads
            temperature = (
                LogTemperature(heads, self.scale, self.trained)
                if self.fit == "log-temperature"
                else HeadTemperature(heads, self.trained)
            )
            prior = "ggd" if self.fit == "priors" else "uniform"
            retrofit(model, prior, ssmax=temperature, exempt=EXEMPT if prior == "ggd" else 0)
            for name, parameter in model.named_parameters():
                if name.endswith("prior.theta_alpha"):
                    nn.init.constant_(parameter, FLAT)
        return model

    def save(self, model: PreTrainedModel, folder: Path) -> None:
        """Write the files that `load_extension` reads, with the fitted numbers of the model."""
        with files.writing(str(folder), "choose another folder"):
            folder.mkdir(parents=True, exist_ok=True)
            if prior_state_dict(model):
                save_prior_state_dict(model, folder / TENSORS)
            whole = replace(self, model=_sizes_of(model))
            files.write_json(folder / CONFIG, asdict(whole), checked=True)

    @classmethod
    def read(cls, folder: Path) -> Self:
        try:
            return cls(**files.read_json(folder / CONFIG))
        except (OSError, TypeError, ValueError) as error:
            raise ValueError(
                f"{folder} holds no extension that can be read ({error}): name a folder that "
                "`bayesattn extend` wrote"
            ) from None


def load_extension(model: PreTrainedModel, folder: str | Path) -> PreTrainedModel:
    """Extend the original model in place with an extension that `bayesattn extend` saved."""
    extension = Extension.read(Path(folder))
    extension.apply(model)
    if prior_state_dict(model):
        load_prior_state_dict(model, Path(folder) / TENSORS)
    return model


def parse_way(name: str) -> tuple[str | None, str | None]:
    """Base and fit of a way; None for a missing part."""
    if name == AS_IS:
        return None, None
    base, _, fit = name.rpartition("+")
    if not base and fit in BASES:
        return fit, None
    if fit not in FITS or base not in ("", *BASES):
        raise ValueError(
            f"unknown way {name!r}: it is {AS_IS}, one of {', '.join(BASES)}, one of "
            f"{', '.join(FITS)}, or two of them such as yarn+temperatures"
        )
    return base or None, fit


def turn_slower(model: PreTrainedModel, base: str, factor: float, trained: int) -> None:
    """Change the model's RoPE in place: by transformers' YaRN, or with an NTK-aware base.

    theta' = theta · factor^(d / (d - 2))       d the width that is turned
    """
    config = _config(model)
    rope: dict[str, Any] | None = getattr(config, "rope_parameters", None)
    rotary = [m for m in model.modules() if hasattr(m, "compute_default_rope_parameters")]
    if not rope or not rotary:
        raise ValueError(f"{type(model).__name__} has no RoPE that could be turned more slowly")
    by_layer = isinstance(rope.get("full_attention"), dict)
    own: dict[str, Any] = rope["full_attention"] if by_layer else rope
    if own.get("rope_type", "default") != "default":
        raise ValueError(
            f"this model's RoPE is scaled already ({own['rope_type']}): leave out {base}"
        )
    if base == "yarn":
        changed = {"rope_type": "yarn", "factor": factor}
        changed["original_max_position_embeddings"] = trained
    else:
        width = getattr(config, "head_dim", None)
        width = width or config.hidden_size // config.num_attention_heads
        width *= own.get("partial_rotary_factor", 1.0)
        changed = {"rope_theta": own["rope_theta"] * factor ** (width / (width - 2))}
    changed = {**own, **changed}
    config.rope_parameters = {**rope, "full_attention": changed} if by_layer else changed
    config.max_position_embeddings = max(config.max_position_embeddings, round(trained * factor))
    for module in rotary:
        kind: Any = type(module)
        fresh: nn.Module = kind(config).to(model.device)
        module.__dict__.update(fresh.__dict__)


def check_extendable(model: PreTrainedModel) -> None:
    """Refuse a model that cannot be extended, with the reason."""
    check_retrofit(model)
    config = _config(model)
    softcap = getattr(config, "attn_logit_softcapping", None)
    if softcap is not None:
        raise ValueError(
            f"{type(model).__name__} caps its scores at {softcap}, which attention under a prior "
            "cannot honour: choose a model without soft-capped scores"
        )


def _config(model: PreTrainedModel) -> Any:
    return model.config.get_text_config(decoder=True)


def _sizes_of(model: PreTrainedModel) -> dict[str, Any]:
    return {name: getattr(_config(model), name) for name in _SIZES}
