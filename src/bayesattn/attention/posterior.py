"""`attend`: attention as a posterior mean, one entry point for every prior, temperature and kernel.

    posterior_ij ∝ exp(q_i·k_j/√d) · prior(i - j)        output_i = Σ_j posterior_ij v_j

Shapes: B batch, H query heads, G key/value heads, T queries, S keys, D head width.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypedDict, Unpack, get_args, overload

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from bayesattn.attention import check, extremes
from bayesattn.attention.decoding import attend_one
from bayesattn.attention.kernels.blocked import blocked
from bayesattn.attention.kernels.dense import Decomposed, dense
from bayesattn.attention.kernels.dense import decompose as _decompose
from bayesattn.attention.kernels.flex import flex
from bayesattn.attention.kernels.gated import gated, rounding
from bayesattn.attention.kernels.skipping import certified
from bayesattn.attention.kernels.strided import strided
from bayesattn.attention.rows import Stretch, stretches
from bayesattn.attention.ssmax import AnyTemperature
from bayesattn.attention.terms import ScoreMod, Terms, table_of
from bayesattn.attention.visibility import Visibility, first_visible
from bayesattn.checks import readable, under_transforms
from bayesattn.priors import Prior, Sink

logger = logging.getLogger(__name__)

Kernel = Literal["auto", "dense", "strided", "flex", "blocked"]
KERNELS: tuple[Kernel, ...] = get_args(Kernel)
AnyPrior = Prior | Tensor | None
_FEW = 1 << 24  # scores that may be written out in float64
SMALL = 128
"""Keys up to which writing out every score is the quickest way on a CPU."""


class Certified(NamedTuple):
    """Output of attention with skipped keys, and how far it can be from the exact one."""

    output: Tensor
    bound: Tensor
    """[B, H] largest possible absolute error of any output entry of that head."""


_Result = Tensor | Certified | Decomposed


class _Scores(TypedDict):
    forget: Tensor | None
    sink: Sink | Tensor | None
    score_mod: ScoreMod | None


class _More(TypedDict, total=False):
    ssmax: AnyTemperature
    documents: Tensor | None
    padding: Tensor | None
    offset: int | None
    rows: Sequence[int] | Tensor | None
    window: int | None
    exempt: int
    scale: float | None
    forget: Tensor | None
    sink: Sink | Tensor | None
    score_mod: ScoreMod | None
    kernel: Kernel
    skip: bool


@overload
def attend(
    q: Tensor, k: Tensor, v: Tensor, prior: AnyPrior = None, **_: Unpack[_More]
) -> Tensor: ...
@overload
def attend(
    q: Tensor, k: Tensor, v: Tensor, prior: AnyPrior = None, *, tolerance: float, **_: Unpack[_More]
) -> Certified: ...
@overload
def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    prior: AnyPrior = None,
    *,
    decompose: Literal[True],
    **_: Unpack[_More],
) -> Decomposed: ...
def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    prior: AnyPrior = None,
    *,
    ssmax: AnyTemperature = None,
    documents: Tensor | None = None,
    padding: Tensor | None = None,
    offset: int | None = None,
    rows: Sequence[int] | Tensor | None = None,
    window: int | None = None,
    exempt: int = 0,
    scale: float | None = None,
    forget: Tensor | None = None,
    sink: Sink | Tensor | None = None,
    score_mod: ScoreMod | None = None,
    kernel: Kernel = "auto",
    skip: bool = True,
    tolerance: float | None = None,
    decompose: bool = False,
) -> Tensor | Certified | Decomposed:
    """Causal attention [B, H, T, D] under a positional prior.

    Args:
        q: [B, H, T, D].
        k: [B, G, S, D], H a multiple of G.
        v: [B, G, S, D].
        prior: a `Prior`, its table [H, distances], or None for the uniform prior.
        ssmax: temperatures [H] of Scalable Softmax. An `SSMax` module says what they scale; a bare
            tensor scales content and prior. Or a `LogTemperature`, which is not learned.
        documents: [B, S] integer id of the document of each key, in contiguous runs. A query sees
            its own document only, and n of SSMax restarts with it.
        padding: [B] number of left-padding keys. Rows of padding give 0.
        offset: index of the first query among the keys; S - T by default. With a static cache the
            number of tokens already in it: rows beyond the last query are never read.
        rows: [T] index of each query among the keys, increasing, if they do not follow each other.
            Other rows are not computed.
        window: number of most recent keys a query sees, itself included.
        exempt: number of leading keys (of each sequence or document) whose log-prior is 0 whatever
            their distance: headers, sinks and instructions are not far away.
        scale: factor of q·k, 1/√D by default.
        forget: [B, H, S] logarithms of forget gates of all keys, as a `ForgetGate` gives them: the
            log-prior of key j gets the sum of those after j, up to and including the query's.
        sink: a `Sink`, or scores [H], of one more key that every query sees and whose value is 0.
        score_mod: a function `(score, b, h, q_idx, kv_idx) -> score` as FlexAttention takes it,
            applied after everything else. Both indices count keys, so that with a cache q_idx -
            kv_idx is still the distance. It may read tensors; they get their gradients.
        kernel: one of `KERNELS`; "auto" picks by device and logs its choice at debug level.
        skip: leave out keys that together hold less of a row than its rounding in float32, forward
            and backward, where a kernel can (strided); False computes everything.
        tolerance: skip keys that provably hold less than this share of the posterior, and return
            `Certified`. CPU, inference only.
        decompose: return `Decomposed`, the factors of Theorem 1. Quadratic memory.
    """
    # before everything else: in a decode step, checks would take as long as attention
    one = forget is None and sink is None and score_mod is None and documents is None
    one = one and rows is None and tolerance is None and kernel in ("auto", "strided")
    if one and not decompose:
        place = (offset, padding, window, exempt)
        if (out := attend_one(q, k, v, prior, ssmax, place, scale)) is not None:
            return out
    check.check_tensors(q, k, v)
    if rows is None:
        parts = [Stretch(slice(None), k.shape[2] - q.shape[2] if offset is None else offset)]
    elif offset is None:
        parts = stretches(rows, q.shape[2], k.shape[2])
    else:
        raise ValueError("rows says where each query is; leave offset out")
    if decompose and tolerance is not None:
        raise ValueError("decompose=True is exact; leave tolerance out")
    last = q[:, :, parts[-1].queries]
    check.check_place(last, k, parts[-1].offset, window, exempt)
    check.check_scale(scale)
    if scale is not None and scale <= 0:  # torch scales what it has masked: -inf times -1 is inf
        q, scale = (-q, -scale) if scale else (0 * q, 1.0)
    end = parts[-1].offset + last.shape[2]
    check.check_first(q, end, documents, padding)
    span = end if window is None else min(end, window)
    check.check_prior(q, prior, span)
    check.check_ssmax(q, ssmax)
    check.check_forget(q, forget, end)
    check.check_sink(q, sink)
    if decompose and score_mod is not None:
        raise ValueError("a score_mod has no factors; leave out decompose or score_mod")

    seen: list[Visibility] = []
    for part in parts:
        length = q[:, :, part.queries].shape[2]
        first = first_visible(length, part.offset, documents, padding)
        seen.append(Visibility(length, part.offset, first, window, exempt))
    more: _Scores = {"forget": forget, "sink": sink, "score_mod": score_mod}

    def compute(q: Tensor, k: Tensor, v: Tensor, kernel: Kernel) -> _Result:
        table = table_of(prior, span, torch.promote_types(q.dtype, torch.float32))
        results: list[_Result] = []
        for part, visible in zip(parts, seen, strict=True):
            some = q[:, :, part.queries]
            terms = Terms.of(some, table, ssmax, visible, scale, **more)
            if decompose:
                results.append(_decompose(some, k, v, terms))
            else:
                results.append(_attend(some, k, v, terms, kernel, skip, tolerance))
        return results[0] if len(results) == 1 else _joined(results)

    found = compute(q, k, v, kernel)
    if not readable(q):
        return found
    read = k[:, :, :end], v[:, :, :end]
    output = found if isinstance(found, Tensor) else found.output
    # NaN in a value shows in the output, unless its key is skipped
    others = (output, read[1]) if isinstance(found, Certified) else (output,)
    if extremes.ordinary(q, read[0], 1.0 if scale is None else scale, *others):
        return found
    return _again(compute, q, k, v, found, seen, kernel)


def _again(
    compute: Callable[[Tensor, Tensor, Tensor, Kernel], _Result],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    found: _Result,
    seen: list[Visibility],
    kernel: Kernel,
) -> _Result:
    """The result in float64, NaN where an input is NaN or infinite; see `extremes`."""
    read = k[:, :, : seen[-1].end], v[:, :, : seen[-1].end]
    sound, certified = extremes.finite(q, *read), isinstance(found, Certified)
    if not certified and (kernel == "flex" or q[..., 0].numel() * k.shape[2] <= _FEW):
        kernel = "dense"
    q_clean, k_clean, v_clean = extremes.cleaned(q, k, v)
    made = compute(q_clean, k_clean, v_clean, kernel)
    if not extremes.finite(made if isinstance(made, Tensor) else made.output):
        raise ValueError(
            "scores are infinite even in float64: scale q and k down, or check the score_mod"
        )
    lost = q.new_zeros(()) if sound else extremes.spoilt(q, *read, seen)
    if isinstance(made, Tensor):
        return made.to(q.dtype) + lost[..., None]
    if isinstance(made, Certified):
        output, wide = made.output.to(q.dtype) + lost[..., None], found[1].dtype
        rounding = torch.finfo(q.dtype).eps * made.output.abs().amax((2, 3))
        return Certified(output, (made.bound + rounding).to(wide))
    assert isinstance(found, Decomposed)
    cast = zip(made, found, strict=True)
    return Decomposed(*(x.to(old.dtype) + lost[..., None] for x, old in cast))


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    terms: Terms,
    kernel: Kernel,
    skip: bool,
    tolerance: float | None,
) -> Tensor | Certified:
    """Attention of one stretch of queries, by the requested kernel or the best one."""
    inputs = (q, k, v, terms.table, terms.content, terms.decay, terms.sink)
    grad = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)
    kernel = _choose(kernel, q, terms, grad, tolerance)
    if kernel == "dense" or not grad or torch.compiler.is_compiling():
        return _computed(q, k, v, terms, kernel, skip, tolerance)
    output = _computed(q, k, v, terms, kernel, skip, tolerance)
    assert isinstance(output, Tensor)  # bounds have no gradients
    if output.requires_grad:
        output.register_hook(extremes.refuse_second(kernel))  # pyright: ignore[reportUnknownMemberType]
    return output


def _computed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    terms: Terms,
    kernel: Kernel,
    skip: bool,
    tolerance: float | None,
) -> Tensor | Certified:
    """Attention of one stretch of queries by this kernel."""
    seen = terms.seen
    if kernel != "strided" and tolerance is None:
        return _KERNELS[kernel](q, k, v, terms)
    if not terms.by_distance:
        output = gated(q, k, v, terms)
        if tolerance is None:
            return output
        read = k[:, :, : seen.end], v[:, :, : seen.end]
        return Certified(output, rounding(q, *read, terms))
    if terms.table is None:
        if _is_plain(terms) and tolerance is None:
            return _plain(terms.heat(q), k[:, :, : seen.end], v[:, :, : seen.end], terms.scale)
        wide = torch.promote_types(q.dtype, torch.float32)
        terms = terms._replace(table=q.new_zeros(q.shape[1], seen.span, dtype=wide))
    if tolerance is None:
        return strided(q, k, v, terms, skip=skip)
    return Certified(*certified(q, k, v, terms, tolerance))


def _joined(parts: list[Tensor | Certified | Decomposed]) -> Tensor | Certified | Decomposed:
    """Results of several stretches as one, row after row."""
    certified = [part for part in parts if isinstance(part, Certified)]
    if certified:
        bounds = torch.stack([part.bound for part in certified])
        return Certified(torch.cat([part.output for part in certified], dim=2), bounds.amax(0))
    factors = [part for part in parts if isinstance(part, Decomposed)]
    if factors:
        return Decomposed(*(torch.cat(same, dim=2) for same in zip(*factors, strict=True)))
    return torch.cat([part for part in parts if isinstance(part, Tensor)], dim=2)


_KERNELS = {"dense": dense, "flex": flex, "blocked": blocked}


def _choose(kernel: Kernel, q: Tensor, terms: Terms, grad: bool, tolerance: float | None) -> Kernel:
    """The kernel to use; refuses impossible requests."""
    if kernel not in KERNELS:
        raise ValueError(f"unknown kernel {kernel!r}; choose one of {', '.join(KERNELS)}")
    device, seen, modified = q.device.type, terms.seen, terms.score_mod is not None
    if tolerance is not None and not 0 < tolerance < 1:
        raise ValueError(f"tolerance is a share of the posterior, between 0 and 1, not {tolerance}")
    if tolerance is not None and (device != "cpu" or kernel not in ("auto", "strided") or grad):
        raise ValueError(
            "tolerance= works on CPU with kernel 'auto' or 'strided' and without gradients "
            "(use torch.no_grad()); leave it out for exact attention"
        )
    transformed = under_transforms()
    if transformed and kernel not in ("auto", "dense"):
        raise ValueError(f"under torch.func there is no kernel {kernel!r}; use 'auto' or 'dense'")
    if transformed and tolerance is None:
        return "dense"
    if kernel == "strided" and device != "cpu":
        raise ValueError(
            f"kernel 'strided' runs on CPU, q is on {device}; use 'auto', 'dense', or 'flex' (CUDA)"
        )
    if modified and (kernel == "strided" or tolerance is not None):
        raise ValueError(
            "a score_mod is computed by kernel 'blocked', 'dense' or 'flex' (CUDA), and exactly; "
            "use 'auto', and leave tolerance out"
        )
    if kernel == "flex" and grad and device != "cuda":
        raise ValueError(
            "kernel 'flex' has gradients on CUDA only; use 'strided' on CPU ('blocked' with a "
            "score_mod), 'dense', or 'auto'"
        )
    if kernel != "auto":
        return kernel
    chosen: Kernel = "dense"
    if modified and device != "cuda" and seen.end > SMALL:
        chosen = "blocked"
    elif device == "cpu" and not modified and (seen.end > SMALL or _is_plain(terms)):
        chosen = "strided"
    elif device == "cuda" and seen.num_queries > 1:  # one query needs no T × T matrix
        chosen = "flex"
    if not torch.compiler.is_compiling():
        logger.debug("kernel %s for %d queries on %s", chosen, seen.num_queries, device)
    return chosen


def _is_plain(terms: Terms) -> bool:
    """Whether the prior is uniform over all past keys and no key is hidden."""
    seen = terms.seen
    if terms.table is not None or not terms.by_distance:
        return False
    whole = seen.offset == 0 or seen.num_queries == 1
    return whole and seen.first is None and seen.window is None


def _plain(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """The uniform prior over all past keys, computed by torch's causal attention."""
    grouped = q.shape[1] != k.shape[1]
    causal = q.shape[2] > 1
    return scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=grouped)
