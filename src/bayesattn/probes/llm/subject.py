"""A language model that is ready to be probed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from bayesattn.models.plan import Plan, describe
from bayesattn.probes.llm.structure import Parts, find_parts


@dataclass(frozen=True)
class Subject:
    """A causal language model, taken apart; attention is computed eagerly, and nothing trains."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | None
    plan: Plan
    parts: Parts
    name: str

    @classmethod
    def of(
        cls,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None = None,
        name: str = "model",
    ) -> "Subject":
        """A model that is in memory already; its attention becomes eager."""
        model.config._attn_implementation = "eager"
        model.eval().requires_grad_(False)
        plan = describe(
            model.config,
            name,
            dtype=str(model.dtype).removeprefix("torch."),
            parameters=sum(parameter.numel() for parameter in model.parameters()),
        )
        return cls(model, tokenizer, plan, find_parts(model), name)

    def encode(self, text: str) -> list[int]:
        """Tokens of a prompt, with those that the tokenizer puts around every text."""
        if self.tokenizer is None:
            raise ValueError(f"{self.name} has no tokenizer: pass prompts as tokens")
        encoded: Any = self.tokenizer(text, verbose=False)
        tokens: list[int] = encoded["input_ids"]
        self.check([tokens], repr(text if len(text) <= 40 else f"{text[:37]}..."))
        return tokens

    def check(self, prompts: Sequence[Sequence[int]], which: str | None = None) -> None:
        """Refuse prompts that cannot be read: none, an empty one, one beyond the context."""
        if not len(prompts):
            raise ValueError("there are no prompts: give one at least")
        for number, prompt in enumerate(prompts):
            name = which or f"number {number}"
            if not len(prompt):
                raise ValueError(f"the prompt {name} has no tokens: leave it out")
            context, words = self.plan.context, self.plan.vocabulary
            if context is not None and len(prompt) > context:
                raise ValueError(
                    f"the prompt {name} has {len(prompt):,} tokens, and {self.name} reads no more "
                    f"than {context:,}: shorten it"
                )
            if min(prompt) < 0 or max(prompt) >= words:
                raise ValueError(
                    f"the prompt {name} has tokens that {self.name} does not know: they are "
                    f"numbered 0 to {words - 1:,}"
                )
