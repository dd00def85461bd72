"""A retrofitted model as one folder: saved by `save_pretrained`, loaded by `AutoModel`.

config.json holds the host's config and the arguments of `retrofit`, under its own model type. So
without bayesattn loading fails, instead of giving the host without its priors.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from huggingface_hub.dataclasses import strict
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
)

from bayesattn.attention import HeadTemperature, LogTemperature, SSMax
from bayesattn.models.folder import CODE, OnlyNamed, write_beside_weights
from bayesattn.models.layers import full_precision, keep_frozen
from bayesattn.priors import PRIORS, Prior

ADDED = ("prior", "ssmax")
"""Names of the modules that each attention layer gets."""


@strict
class RetrofitConfig(OnlyNamed, PreTrainedConfig):
    """Config of a retrofitted model in a folder; the model itself keeps the config of its host.

    All other fields are read from the host's config, and `from_pretrained(folder,
    sliding_window=…)` writes them there.
    """

    model_type: ClassVar[str] = "bayesattn_retrofit"

    text_config: dict | PreTrainedConfig | None = None
    """Config of the host."""
    retrofit: dict | None = None
    """Arguments of `retrofit`."""

    def __post_init__(self, **kwargs: Any) -> None:
        """Turn the dict of the host's config into a config."""
        host = self.__dict__.pop("text_config")  # transformers adds fields that are not the host's
        super().__post_init__(**kwargs)
        self.text_config = _host_config(host) if isinstance(host, dict) else host

    def __getattr__(self, name: str) -> Any:
        """An attribute of the host's config, such as hidden_size."""
        host = self.__dict__.get("text_config")
        if name.startswith("__") or not isinstance(host, PreTrainedConfig):
            raise AttributeError(name)
        return getattr(host, name)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """The config of a file; given settings of the host replace stored ones."""
        host = _host_config(config_dict.get("text_config") or {})
        given = {name: value for name, value in kwargs.items() if _is_of(host, name)}
        for name, value in given.items():
            setattr(host, name, value)
        rest = {name: value for name, value in kwargs.items() if name not in given}
        return super().from_dict({**config_dict, "text_config": host}, **rest)


def _host_config(stored: Mapping[str, Any]) -> PreTrainedConfig:
    if "model_type" not in stored:
        raise ValueError("config.json of the retrofitted model has lost the config of its host")
    return AutoConfig.for_model(**stored)


def _is_of(host: PreTrainedConfig, name: str) -> bool:
    """Whether a keyword of `from_pretrained` is a setting of the host alone."""
    return hasattr(host, name) and not hasattr(PreTrainedConfig(), name)


class Saver:
    """`save_pretrained` of a retrofitted model."""

    def __init__(self, model: PreTrainedModel, made_with: Mapping[str, Any]) -> None:
        self.model = model
        self.made_with = dict(made_with)

    def __call__(self, save_directory: str | Path, *args: Any, **kwargs: Any) -> Any:
        """As in transformers, but config.json also holds the arguments of `retrofit`."""
        if kwargs.get("push_to_hub"):
            raise ValueError(
                "save_pretrained would push the config before it names the priors: call "
                "model.push_to_hub(name) instead"
            )
        # refuses priors that cannot be loaded again, before anything is written
        options = {name: _as_json(name, value) for name, value in self.made_with.items()}
        done = type(self.model).save_pretrained(self.model, save_directory, *args, **kwargs)
        if kwargs.get("is_main_process", True):
            folder = Path(save_directory)
            config = RetrofitConfig(
                text_config=self.model.config,
                retrofit=options,
                architectures=self.model.config.architectures,
            )
            config.auto_map = {
                "AutoConfig": f"{CODE}.RetrofitConfig",
                "AutoModel": f"{CODE}.RetrofittedModel",
                "AutoModelForCausalLM": f"{CODE}.RetrofittedForCausalLM",
            }
            write_beside_weights(folder)
            config.save_pretrained(folder)
        return done


def _as_json(name: str, value: Any) -> Any:
    """An argument of `retrofit` for config.json; `_of_json` reads it."""
    if isinstance(value, Prior):
        if type(value) is not PRIORS.get(value.name):
            raise ValueError(
                f"a {type(value).__name__} is no prior that bayesattn knows by name, so a saved "
                "model could not be loaded: call save_prior_state_dict(model, file), and retrofit "
                "the original model before load_prior_state_dict"
            )
        return {"name": value.name, **value.options()}
    if isinstance(value, SSMax):
        learned = not value.frozen
        return {"scope": value.scope, "horizon": value.horizon, "learned": learned}
    if isinstance(value, HeadTemperature):
        return {"head_temperature": value.start}
    if isinstance(value, LogTemperature):
        return {"log_temperature": value.scale, "start": value.start}
    try:
        return json.loads(json.dumps(value))
    except TypeError:
        raise ValueError(
            f"{name}={value!r} does not fit into config.json: call save_prior_state_dict(model, "
            "file) instead"
        ) from None


def _of_json(options: Mapping[str, Any], heads: int) -> dict[str, Any]:
    given = dict(options)
    if isinstance(prior := given.get("prior"), dict):
        kind = PRIORS[prior["name"]]
        given["prior"] = kind(heads, **{k: v for k, v in prior.items() if k != "name"})
    if isinstance(ssmax := given.get("ssmax"), dict):
        if "head_temperature" in ssmax:
            given["ssmax"] = HeadTemperature(heads, ssmax["head_temperature"])
        elif "log_temperature" in ssmax:
            given["ssmax"] = LogTemperature(heads, ssmax["log_temperature"], ssmax["start"])
        else:
            given["ssmax"] = SSMax(heads, **ssmax)
    return given


class _Retrofitted(OnlyNamed):
    """A model class for `AutoModel`, which makes the host and retrofits it."""

    config_class = RetrofitConfig
    auto: ClassVar[Any]

    @classmethod
    def from_pretrained(cls, *args: Any, config: Any = None, **kwargs: Any) -> Any:
        """The host with its priors as saved; arguments as in transformers."""
        if config is None:
            place: Any = kwargs.get("pretrained_model_name_or_path", args[0] if args else None)
            config = RetrofitConfig.from_pretrained(place)
        host = cls.host(config)
        wants_report = kwargs.pop("output_loading_info", False)
        kwargs.pop("attn_implementation", None)  # any other would leave the priors out
        model, report = _with_priors(host, config).from_pretrained(
            *args, config=config.text_config, output_loading_info=True, **kwargs
        )
        model.__class__ = host
        lost = [name for name in report["missing_keys"] if set(name.split(".")) & {*ADDED}]
        if lost:
            raise ValueError(
                f"the saved weights lack {len(lost)} of the priors that config.json names, such as "
                f"{sorted(lost)[0]}: they do not belong together"
            )
        keep_frozen(model)
        return (model, report) if wants_report else model

    @classmethod
    def _from_config(cls, config: RetrofitConfig, **kwargs: Any) -> Any:
        kwargs.pop("attn_implementation", None)
        host = cls.host(config)
        model = _with_priors(host, config)._from_config(config.text_config, **kwargs)
        model.__class__ = host
        return model

    @classmethod
    def host(cls, config: RetrofitConfig) -> type[PreTrainedModel]:
        kind = type(config.text_config)
        try:
            return cls.auto._model_mapping[kind]
        except KeyError:
            raise ValueError(f"{kind.__name__} is the config of no causal language model") from None


class RetrofittedModel(_Retrofitted):
    """Hidden states of a retrofitted model."""

    auto = AutoModel


class RetrofittedForCausalLM(_Retrofitted):
    """A retrofitted language model."""

    auto = AutoModelForCausalLM


def _with_priors(host: type[PreTrainedModel], config: RetrofitConfig) -> Any:
    """The host's class with retrofitted models, so that loading also fills their priors."""
    from bayesattn.models.retrofit import retrofit

    wide = getattr(host, "_keep_in_fp32_modules_strict", None) or ()

    class Loading(host):
        _keep_in_fp32_modules_strict: ClassVar = {*wide, *ADDED}

        def __init__(self, host_config: PreTrainedConfig, *args: Any, **kwargs: Any) -> None:
            super().__init__(host_config, *args, **kwargs)
            with full_precision():
                heads: int = host_config.num_attention_heads
                retrofit(self, **_of_json(config.retrofit or {}, heads))

        @torch.no_grad()
        def _init_weights(self, module: nn.Module) -> None:
            if not isinstance(module, Prior | SSMax | LogTemperature):  # keep their initial values
                super()._init_weights(module)

    # transformers keeps what it learns of a class under its name
    Loading.__module__, Loading.__qualname__ = host.__module__, host.__qualname__
    Loading.__name__ = host.__name__
    return Loading
