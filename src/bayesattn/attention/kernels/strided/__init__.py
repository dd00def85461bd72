"""The CPU kernel: exact attention under any prior over distance, O(H·T + block) extra memory.

Two custom operators, so that torch.compile and gradient checkpointing pass through: what has to be
computed depends on data (padding, documents, keys that cannot matter), which inside an operator is
ordinary Python.
"""

# pyright: reportUnknownMemberType=false
# (torch leaves what registers an operator untyped)

from typing import Any

import torch
from torch import Tensor

from bayesattn.attention.kernels.strided.runs import attend_runs, differentiate_runs
from bayesattn.attention.terms import Terms
from bayesattn.attention.visibility import Visibility

_TERMS = (
    "Tensor table, Tensor? content, Tensor? temper, Tensor? first, "
    "SymInt offset, SymInt? window, SymInt exempt, float scale, bool skip"
)
"""`Terms` as an operator takes them, tensors and numbers, and whether to skip."""


def strided(q: Tensor, k: Tensor, v: Tensor, terms: Terms, *, skip: bool = True) -> Tensor:
    """Same arguments and result as the dense kernel, on CPU tensors and with a table.

    With `skip`, keys that together hold less of a row than its rounding are left out: see `plan`.
    """
    seen = terms.seen
    rest = (seen.first, seen.offset, seen.window, seen.exempt, terms.scale, skip)
    k, v = k[:, :, : seen.end], v[:, :, : seen.end]
    return _strided(q, k, v, terms.table, terms.content, terms.temper, *rest)[0]


def _terms(q: Tensor, flat: tuple[Any, ...]) -> Terms:
    table, content, temper, first, offset, window, exempt, scale = flat
    seen = Visibility(q.shape[2], offset, first, window, exempt)
    return Terms(table, content, temper, seen, scale)


@torch.library.custom_op(
    "bayesattn::strided",
    mutates_args=(),
    device_types="cpu",
    schema=f"(Tensor q, Tensor k, Tensor v, {_TERMS}) -> (Tensor, Tensor)",
)
def _strided(q: Tensor, k: Tensor, v: Tensor, *flat: Any) -> tuple[Tensor, Tensor]:
    """Posterior mean and log-evidence."""
    return attend_runs(q, k, v, _terms(q, flat[:-1]), skip=flat[-1])


@torch.library.custom_op(
    "bayesattn::strided_backward",
    mutates_args=(),
    device_types="cpu",
    schema=(
        f"(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor evidence, {_TERMS}, "
        "bool of_table, bool of_temper) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
    ),
)
def _strided_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, evidence: Tensor, *flat: Any
) -> tuple[Tensor, ...]:
    """Gradients of q, k, v, table, content and temper; empty for factors that are None."""
    terms, (skip, *wanted) = _terms(q, flat[:-3]), flat[-3:]
    return differentiate_runs(
        grad, q, k, v, out, evidence, terms, skip=skip, wanted=(wanted[0], wanted[1])
    )


@_strided.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, table: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), q.new_empty(q.shape[:3], dtype=table.dtype)


@_strided_backward.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *flat: Any) -> tuple[Tensor, ...]:
    table, content, temper = flat[2:5]
    wide = (table.new_empty(0 if x is None else x.shape) for x in (table, content, temper))
    return *(x.new_empty(x.shape) for x in (q, k, v)), *wide


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, table, content, temper, first, *ctx.rest = inputs
    ctx.save_for_backward(q, k, v, *output, table, content, temper, first)


def _differentiate(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors  # gradient checkpointing lets us read it once
    wanted = (ctx.needs_input_grad[3], ctx.needs_input_grad[5])
    *grads, dcontent, dtemper = _strided_backward(grad, *saved, *ctx.rest, *wanted)
    content, temper = saved[6:8]
    grads += [None if content is None else dcontent, None if temper is None else dtemper]
    return *grads, None, None, None, None, None, None


_strided.register_autograd(_differentiate, setup_context=_save)
