"""A score_mod prepared for blocks of scores, forward and backward.

A score_mod is written for one score. A trial on a few scores shows whether it gives the same result
on whole tensors. If so, it is called with tensors, else under vmap, as in FlexAttention. A listener
finds the tensors with gradients that the function reads. In the backward pass stand-ins replace
these tensors and stop the gradients: the graph behind them must not be differentiated per block.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from bayesattn.attention.score_mod import vmapped
from bayesattn.attention.terms import ScoreMod

_PROBED = 4  # batches, heads, queries and keys of the trial


class ScoreFunction:
    """A score function tried on a few scores, ready for blocks of them."""

    def __init__(self, mod: ScoreMod, shape: tuple[int, int, int, int], like: Tensor) -> None:
        """For scores [B, H, T, S] in `shape`, with dtype and device of `like`."""
        self.mod, self.whole = mod, False
        places = [torch.linspace(0, n - 1, min(n, _PROBED)).long() for n in shape]
        size = tuple(len(place) for place in places)
        some = torch.arange(math.prod(size), dtype=torch.float64).sin().view(size)
        probe = (some.to(like).requires_grad_(), *(place.to(like.device) for place in places))
        listener = _Listener()
        with listener:
            result = self._call(*probe)
        _check_result(result, size)
        again = self._call(*probe)
        if not _same(result, again, exactly=True):
            raise ValueError(
                "score_mod gave other scores when it was called again; it must depend on its "
                "arguments and on fixed tensors only"
            )
        self.captured = [x for x in listener.found.values() if x is not probe[0]]
        self.whole = self._works_on_whole_tensors(probe, result)
        if torch.is_grad_enabled():
            self._check_graph(probe)

    def __call__(self, scores: Tensor, rows: slice, keys: slice) -> Tensor:
        """Changed scores [B, H, R, C] of queries `rows` and keys `keys`."""
        batch, heads, *_ = scores.shape
        device = scores.device
        b, h = torch.arange(batch, device=device), torch.arange(heads, device=device)
        i = torch.arange(rows.start, rows.stop, device=device)
        j = torch.arange(keys.start, keys.stop, device=device)
        return self._call(scores, b, h, i, j).to(scores.dtype)

    def differentiable(
        self, scores: Tensor, rows: slice, keys: slice
    ) -> tuple[Tensor, list[Tensor]]:
        """The same with gradients, and stand-ins for `captured` to which they lead."""
        stand_ins = [x.detach().requires_grad_() for x in self.captured]
        with torch.enable_grad(), _Replacing(self.captured, stand_ins):
            return self(scores, rows, keys), stand_ins

    def _call(self, scores: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        try:
            evaluate = _on_whole_tensors if self.whole else vmapped
            return evaluate(self.mod, scores, b, h, i, j)
        except (IndexError, RuntimeError, ValueError, TypeError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ValueError(
                f"score_mod failed at queries {int(i[0])} to {int(i[-1])} and keys {int(j[0])} to "
                f"{int(j[-1])} ({reason}); it must turn one score into one, without randomness, "
                "and its tables must reach that far"
            ) from error

    def _works_on_whole_tensors(self, probe: tuple[Tensor, ...], wanted: Tensor) -> bool:
        try:
            found = _on_whole_tensors(self.mod, *probe)
        except Exception:  # a function for one score may raise anything
            return False
        return _same(found, wanted, exactly=False)

    def _check_graph(self, probe: tuple[Tensor, ...]) -> None:
        """Check that gradients lead only to the scores and to the captured tensors."""
        stand_ins = [x.detach().requires_grad_() for x in self.captured]
        with _Replacing(self.captured, stand_ins):
            result = self._call(*probe)
        known = {id(x) for x in (probe[0], *stand_ins)}
        pending, done = [result.grad_fn], set[Any]()
        while pending:
            node: Any = pending.pop()
            if node is None or node in done:
                continue
            done.add(node)
            if hasattr(node, "variable") and id(node.variable) not in known:
                raise ValueError(
                    "score_mod reads a tensor with gradients out of sight of torch, inside an "
                    "autograd.Function; compute there with torch's own functions"
                )
            pending += [before for before, _ in node.next_functions]


def _on_whole_tensors(
    mod: ScoreMod, scores: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor
) -> Tensor:
    return mod(scores, b[:, None, None, None], h[:, None, None], i[:, None], j).expand_as(scores)


def _same(x: Tensor, y: Tensor, *, exactly: bool) -> bool:
    tolerance = (0.0, 0.0) if exactly else (1e-4, 1e-5)
    return torch.allclose(x, y, *tolerance, equal_nan=True)


def _check_result(result: Any, size: tuple[int, ...]) -> None:
    if result.shape != size:
        raise ValueError(
            "score_mod must return one score for each that it is given, not a tensor of shape "
            f"{tuple(result.shape[4:])}"
        )
    if not result.is_floating_point():
        raise ValueError(
            f"score_mod must return scores, not {result.dtype}; to hide keys return "
            "torch.where(mask, score, -float('inf'))"
        )


class _Listener(TorchFunctionMode):
    """Notes tensors with gradients that the function reads but did not make."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[int, Tensor] = {}
        self._made: dict[int, Tensor] = {}  # kept, so that no other tensor gets their id

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        for x in tree_leaves((args, kwargs)):
            if isinstance(x, Tensor) and x.requires_grad and id(x) not in self._made:
                self.found[id(x)] = x
        result = func(*args, **(kwargs or {}))
        self._made |= {id(x): x for x in tree_leaves(result) if isinstance(x, Tensor)}
        return result


class _Replacing(TorchFunctionMode):
    """Replaces some tensors by stand-ins, at which gradients stop."""

    def __init__(self, originals: list[Tensor], stand_ins: list[Tensor]) -> None:
        super().__init__()
        self._of = {id(x): y for x, y in zip(originals, stand_ins, strict=True)}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        def other(x: Any) -> Any:
            return self._of.get(id(x), x)

        args, kwargs = tree_map(other, (args, kwargs or {}))
        return func(*args, **kwargs)
