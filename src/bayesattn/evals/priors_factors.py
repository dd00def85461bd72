"""Attention on a passkey prompt, taken apart: likelihood, prior and posterior of every head.

n tokens, L layers that attend, H heads.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bayesattn.attention import attend
from bayesattn.attention.theorem import Decomposed
from bayesattn.corpora import NeedleMaker
from bayesattn.encodings import Rotation
from bayesattn.evals.prediction import device_of, evaluating
from bayesattn.evals.priors import attending, our_model, prior_of
from bayesattn.models import BayesForCausalLM
from bayesattn.models.layers import BayesAttention
from bayesattn.models.layout import Layout
from bayesattn.models.open import LanguageModel
from bayesattn.priors import Prior

LONGEST = 512
"""Tokens of a prompt that one can look at."""


@dataclass(frozen=True)
class Factors:
    """What every head makes of one prompt and its answer."""

    tokens: Tensor
    """[n] prompt and answer."""
    value: Tensor
    """Positions of the hidden value in the prompt."""
    asked: Tensor
    """Positions at which the value is to be predicted."""
    layers: dict[int, Decomposed]
    """By number of the layer; every factor [1, H, n, n]."""

    def mass(self) -> Tensor:
        """[L, H] share of the posterior that the hidden value gets when it is asked for."""
        rows = [
            parts.posterior[0][:, self.asked][:, :, self.value] for parts in self.layers.values()
        ]
        return torch.stack([row.sum(-1).mean(-1) for row in rows])

    def strongest(self) -> tuple[int, int]:
        """Layer and head that look at the hidden value most."""
        mass = self.mass()
        at = int(mass.argmax())
        return list(self.layers)[at // mass.shape[1]], at % mass.shape[1]


def factors_on_passkey(language_model: LanguageModel, depth: float = 0.5, seed: int = 0) -> Factors:
    """Factors on a passkey prompt that fills a training sequence, or as much of it as can be seen.

    Args:
        language_model: one of ours.
        depth: of the needle, 0 to 1.
        seed: of the hidden value.
    """
    model = our_model(language_model)
    maker = NeedleMaker(language_model.tokenizer)
    room = min(language_model.length, LONGEST) - maker.answer_length
    prompts = maker.prompts(max(room, maker.shortest), [depth], 1, seed)
    tokens = torch.cat([prompts.tokens[0], prompts.answers[0]])
    scored = prompts.answers[0][prompts.scored]
    found = (prompts.tokens[0].unfold(0, len(scored), 1) == scored).all(-1).nonzero()[:, 0]
    value = (found[:, None] + torch.arange(len(scored))).flatten()
    asked = prompts.length + prompts.scored.nonzero()[:, 0] - 1
    return Factors(tokens, value, asked, decomposed(model, tokens[None]))


def decomposed(model: BayesForCausalLM, tokens: Tensor) -> dict[int, Decomposed]:
    """Factors of every layer that attends, on whole sequences [B, n]."""
    found: dict[int, Decomposed] = {}
    with evaluating(model), ExitStack() as hooks:
        for number, attention in attending(model):

            def hear(module: nn.Module, arguments: tuple[Any, ...], number: int = number) -> None:
                assert isinstance(module, BayesAttention)
                x, _, layout, turn, *_ = arguments
                found[number] = _take_apart(x, module, prior_of(model, module), layout, turn)

            handle: Any = attention.register_forward_pre_hook(hear)
            hooks.callback(handle.remove)
        model(tokens.to(device_of(model)), use_cache=False)
    return found


def _take_apart(
    x: Tensor, attention: BayesAttention, prior: Prior, layout: Layout, turn: Rotation | None
) -> Decomposed:
    """What `BayesAttention.forward` computes from the same arguments, in factors."""
    q, k, v = (
        project(x).unflatten(-1, (-1, attention.config.head_dim)).transpose(1, 2)
        for project in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    if turn is not None:
        q, k = turn(q), turn(k)
    parts = attend(
        q,
        k,
        v,
        prior,
        decompose=True,
        ssmax=attention.ssmax,
        window=attention.config.sliding_window,
        exempt=layout.exempt,
    )
    return Decomposed(*(part.cpu() for part in parts))
