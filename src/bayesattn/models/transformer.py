"""The decoder as a Hugging Face model: `BayesModel` (hidden states) and `BayesForCausalLM`."""

from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import Cache, DynamicCache, GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.utils.generic import can_return_tuple
from transformers.utils.output_capturing import capture_outputs

import bayesattn
from bayesattn import plugins
from bayesattn.attention import SSMax
from bayesattn.checks import readable
from bayesattn.encodings import ENCODINGS, Learned
from bayesattn.models.config import BayesConfig
from bayesattn.models.folder import CODE, OnlyNamed, write_beside_weights
from bayesattn.models.layers import (
    KERNEL_OF,
    BayesAttention,
    BayesDecoderLayer,
    build_prior,
    full_precision,
    in_use,
    keep_frozen,
    shared_table,
)
from bayesattn.models.layout import lay_out
from bayesattn.priors import PRIORS, ForgetGate, Prior, Sink

# Keywords that Hugging Face code passes to any model and that cannot change the result here.
_HARMLESS = {"output_attentions", "output_hidden_states", "num_items_in_batch", "token_type_ids"}
# Other arguments for packed documents; position_ids and document_ids do the same.
_PACKING = {"cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "seq_idx"}

AUTO_MAP = {
    "AutoConfig": "BayesConfig",
    "AutoModel": "BayesModel",
    "AutoModelForCausalLM": "BayesForCausalLM",
}


class BayesPreTrainedModel(OnlyNamed, PreTrainedModel):
    """Loading, initialisation and supported back ends for Hugging Face."""

    config: BayesConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules: ClassVar = ["BayesDecoderLayer"]
    _skip_keys_device_placement: ClassVar = ["past_key_values"]
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    # A bfloat16 log-prior cannot tell distance 256 from 257.
    _keep_in_fp32_modules_strict: ClassVar = ["prior", "ssmax", "forget", "sink"]
    _can_record_outputs: ClassVar = {
        "hidden_states": BayesDecoderLayer,
        "attentions": BayesAttention,
    }

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """PyTorch's initialisation, as in the authors' code, and that of each prior.

        `init.copy_` and, through transformers' guard, `reset_parameters` of torch's layers skip
        parameters that a checkpoint has filled.
        """
        if isinstance(module, Prior):
            with full_precision():
                values = module.initial_values()
            for name, value in values.items():
                init.copy_(getattr(module, name), value)
        elif isinstance(module, SSMax):
            init.constant_(module.scale, module.init)
        elif isinstance(module, Learned) and module.init == "sinusoidal":
            init.copy_(module.table, module.sinusoids())
        elif isinstance(module, Sink):
            init.zeros_(module.logit)
        elif isinstance(module, ForgetGate):
            bound = module.weight.shape[1] ** -0.5
            init.uniform_(module.weight, -bound, bound)
            init.copy_(module.bias, module.initial_bias())
        elif isinstance(module, Learned):
            init.normal_(module.table, std=module.std)
        elif isinstance(module, nn.Linear | nn.Embedding | nn.RMSNorm):
            module.reset_parameters()

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """As in transformers, but frozen parameters are frozen again after loading."""
        loaded = super().from_pretrained(*args, **kwargs)
        keep_frozen(loaded[0] if isinstance(loaded, tuple) else loaded)
        return loaded

    def save_pretrained(self, save_directory: str | Path, *args: Any, **kwargs: Any) -> Any:
        """As in transformers, with further files that say which package the model needs."""
        folder = Path(save_directory)
        if kwargs.get("is_main_process", True) and not folder.is_file():
            write_beside_weights(folder)
        self.config.bayesattn_version = bayesattn.__version__
        if needed := plugins.needed_by(PRIORS[self.config.prior]):
            self.config.bayesattn_import = needed
        self.config.auto_map = {name: f"{CODE}.{kind}" for name, kind in AUTO_MAP.items()}
        return super().save_pretrained(save_directory, *args, **kwargs)

    @classmethod
    def _can_set_attn_implementation(cls) -> bool:
        # transformers guesses this by searching the source for its own attention call.
        return True

    def _check_and_adjust_attn_implementation(
        self, attn_implementation: str | None, *args: Any, **kwargs: Any
    ) -> str:
        if attn_implementation is None:
            return "sdpa"
        if attn_implementation not in KERNEL_OF:
            raise ValueError(
                f"attn_implementation {attn_implementation!r} cannot add a prior; "
                f"choose one of {', '.join(KERNEL_OF)}"
            )
        return attn_implementation


class BayesModel(BayesPreTrainedModel):
    """Token embeddings, decoder layers, final norm."""

    def __init__(self, config: BayesConfig) -> None:
        super().__init__(config)
        config.validate_architecture()  # the config may have been edited since it was made
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.encoding = ENCODINGS[config.encoding](config)
        self.prior = build_prior(config) if config.shared_prior else None
        self.layers = nn.ModuleList(
            BayesDecoderLayer(config, layer_idx) for layer_idx in range(config.num_hidden_layers)
        )
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.gradient_checkpointing = False
        self.post_init()

    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        document_ids: Tensor | None = None,
        start: int = 0,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        """Hidden states of the tokens.

        Args:
            input_ids: [B, T] tokens.
            attention_mask: [B, past + T], 0 for padding.
            position_ids: [B or 1, T] for the encodings; without a cache, a restart at 0 marks a
                new packed document.
            past_key_values: dynamic or static cache, updated in place.
            inputs_embeds: [B, T, hidden] instead of `input_ids`.
            use_cache: return a cache; by default as the config says, never in training.
            document_ids: [B, T] packed documents; they see only themselves and are not cached.
            start: only the tokens from here on need hidden states. Earlier tokens are keys of the
                last layer, but not queries.
            kwargs: output_attentions, output_hidden_states.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("pass exactly one of input_ids and inputs_embeds")
        _refuse_unknown(kwargs, packed=position_ids is not None or document_ids is not None)
        x: Tensor = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        if self.gradient_checkpointing and self.training:
            if past_key_values is not None and past_key_values.get_seq_length() > 0:
                raise ValueError(
                    "gradient checkpointing would drop past_key_values; pass the whole sequence"
                )
            past_key_values, use_cache = None, False
        shape, given = (x.shape[0], x.shape[1]), (attention_mask, position_ids, document_ids)
        layouts = lay_out(self.config, shape, x.device, past_key_values, *given)
        if use_cache is None:
            use_cache = self.config.use_cache and not self.training
        if use_cache and past_key_values is None and layouts[0].documents is None:
            past_key_values = DynamicCache(config=self.config)

        positions = layouts[0].positions
        x = self.encoding.embed(x, positions)
        rotation = self.encoding.rotation(positions, x.dtype)
        plain = self.config.rope_layers == "local"
        prior = in_use(self.prior)
        shared = prior  # in a decode step the prior itself: its table is prepared
        if x.shape[1] > 1 or torch.is_grad_enabled():
            shared = shared_table(prior, layouts[0].length)
        output_attentions = kwargs.get("output_attentions")
        if output_attentions is None:
            output_attentions = self.config.output_attentions
        last = self.config.num_attending - 1  # later layers read each token alone
        for index, (layer, layout) in enumerate(zip(self.layers, layouts, strict=True)):
            x = layer(
                x,
                shared,
                layout=layout,
                rotation=None if plain and self.config.looks_far(index) else rotation,
                past_key_values=past_key_values,
                output_attentions=bool(output_attentions),
                start=start if index == last else 0,
            )
        return BaseModelOutputWithPast(self.norm(x), past_key_values=past_key_values)


class BayesForCausalLM(BayesPreTrainedModel, GenerationMixin):
    """`BayesModel` with a language-modelling head."""

    _tied_weights_keys: ClassVar = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: BayesConfig) -> None:
        super().__init__(config)
        self.model = BayesModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    @staticmethod
    def create_masks_for_generate(attention_mask: Tensor | None = None, **_: Any) -> Tensor | None:
        """Keep the 2-D mask: `generate` would expand it to 4-D for a static cache."""
        return attention_mask

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        document_ids: Tensor | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Next-token logits, and the loss if `labels` are given; else as `BayesModel.forward`.

        Labels [B, T] are the tokens themselves (they are shifted here); -100 is ignored. Only the
        last `logits_to_keep` logits are computed, or those at given indices; 0 means all.
        """
        start = self._first_kept(logits_to_keep, input_ids, inputs_embeds, kwargs)
        seen = (input_ids, attention_mask, position_ids, past_key_values, inputs_embeds)
        more = {"use_cache": use_cache, "document_ids": document_ids, "start": start}
        outputs = self.model(*seen, **more, **kwargs)
        hidden = outputs.last_hidden_state
        if isinstance(logits_to_keep, int):
            hidden = hidden[:, -logits_to_keep:]
        else:
            hidden = hidden[:, logits_to_keep - start]
        logits = self.lm_head(hidden)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, vocab_size=self.config.vocab_size, **kwargs)
        return CausalLMOutputWithPast(
            loss, logits, outputs.past_key_values, outputs.hidden_states, outputs.attentions
        )

    def _first_kept(
        self,
        logits_to_keep: int | Tensor,
        input_ids: Tensor | None,
        inputs_embeds: Tensor | None,
        kwargs: dict[str, Any],
    ) -> int:
        """Index of the first token whose logits are kept; 0 where hidden states are recorded."""
        recorded = ("output_attentions", "output_hidden_states")
        if any(kwargs.get(name) or getattr(self.config, name) for name in recorded):
            return 0
        tokens = input_ids if inputs_embeds is None else inputs_embeds
        if tokens is None:
            return 0
        if isinstance(logits_to_keep, int):
            return max(0, tokens.shape[1] - logits_to_keep) if logits_to_keep else 0
        if not readable(logits_to_keep):
            return 0
        if not logits_to_keep.numel():
            return tokens.shape[1]
        return max(0, int(logits_to_keep.min()))  # negative indices count from the end


def _refuse_unknown(kwargs: dict[str, Any], packed: bool) -> None:
    for name, value in kwargs.items():
        if name in _HARMLESS or (name in _PACKING and packed) or value is None:
            continue
        if name == "is_causal" and value:
            continue
        raise TypeError(
            f"the model cannot honour {name}={value!r}; pad with attention_mask, pack with "
            "document_ids or position_ids"
        )
