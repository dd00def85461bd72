"""Tables that all steps of decoding share: log-priors and temperatures of SSMax.

A table is made somewhat longer than needed, and made again when it no longer suffices.
Every step compares the values of the parameters, byte by byte, with the values that the table was
made from. So a table is never out of date: not after an optimiser step, `load_state_dict`, `.to()`,
or an edit of `.data`, which torch's version counters do not see.

Shapes: G key/value heads, R query heads of each.
"""

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from bayesattn.attention import check
from bayesattn.attention.ssmax import SSMax, temperatures
from bayesattn.attention.visibility import Visibility
from bayesattn.priors import Prior

_SPARE = 1024  # a table is longer than needed by so many distances, or by an eighth if that is more


class Watch:
    """A copy of a module's numbers and settings, to detect changes."""

    __slots__ = ("_settings", "_sizes", "_tensors")

    def __init__(self, module: nn.Module, settings: tuple[str, ...]) -> None:
        """Raise TypeError for a module whose memory cannot be read."""
        attributes = vars(module)
        self._settings = [(name, attributes.get(name)) for name in settings]
        self._sizes = len(attributes["_parameters"]), len(attributes["_buffers"])
        self._tensors: list[tuple[str, str, Tensor, int, Any, bytes]] = []
        for kind in ("_parameters", "_buffers"):
            for name, x in attributes[kind].items():
                plain = x is not None and x.is_cpu and x.is_contiguous() and x.dim()
                if attributes["_modules"] or not plain:
                    raise TypeError("parts, views and other devices cannot be watched")
                memory = x.detach().view(torch.uint8).numpy()
                self._tensors.append((kind, name, x, x.data_ptr(), memory, memory.tobytes()))

    def holds(self, module: nn.Module) -> bool:
        """Whether the module still has the same numbers, in the same memory."""
        attributes = vars(module)
        for name, value in self._settings:
            if attributes.get(name) != value:
                return False
        if (len(attributes["_parameters"]), len(attributes["_buffers"])) != self._sizes:
            return False
        for kind, name, x, place, memory, content in self._tensors:
            same = attributes[kind].get(name) is x and x.data_ptr() == place
            if not same or memory.tobytes() != content:
                return False
        return True


@dataclass(frozen=True, eq=False, slots=True)
class Table:
    """Log-priors of all distances."""

    watch: Watch
    kind: tuple[torch.dtype, int]
    """The dtype of the queries and the number of key heads."""
    length: int
    reversed: Tensor
    """[1, G, R, length], the farthest distance first."""
    flat: bool
    """Whether each head has one number everywhere, which drops out of the softmax."""

    def nearest(self, span: int) -> Tensor:
        """[1, G, R, span] of the distances span-1 .. 0: a view, by strides as that is quickest."""
        line, shape = self.reversed, self.reversed.shape
        return line.as_strided((*shape[:3], span), line.stride(), self.length - span)

    @classmethod
    def of(cls, prior: Prior, q: Tensor, groups: int, span: int) -> "Table | None":
        """A table of `span` distances or more; None if changes of the prior cannot be detected."""
        kept, kind = _tables.get(prior), (q.dtype, groups)
        if kept is None or kept.length < span or kept.kind != kind or not kept.watch.holds(prior):
            return cls._make(prior, q, groups, span)
        return kept

    @classmethod
    def _make(cls, prior: Prior, q: Tensor, groups: int, span: int) -> "Table | None":
        # a subclass may depend on more attributes than its base class
        settings: tuple[str, ...] | None = type(prior).__dict__.get("settings")
        watch = _watch(prior, settings)
        if watch is None or prior.num_heads != q.shape[1]:
            return None
        check.check_prior(q, prior, span)
        length = _room(span)
        with torch.inference_mode(False), torch.no_grad():
            line = prior.table(length).to(_wide(q)).flip(1)
            flat = bool((line == line[:, :1]).all())
        made = cls(watch, (q.dtype, groups), length, line.view(1, groups, -1, length), flat)
        if watch.holds(prior):  # no other thread has changed it meanwhile
            _tables[prior] = made
        return made


@dataclass(frozen=True, eq=False, slots=True)
class Temperatures:
    """Temperatures of queries, by the number of keys that they see."""

    watch: Watch
    table: Table | None
    """Copy of the prior, if SSMax counts keys by it; None if SSMax counts all keys."""
    kind: tuple[torch.dtype, int, int | None, int]
    """The dtype of the queries, and the numbers of key heads, window and exempt keys."""
    length: int
    factors: Tensor
    """[length, G, R, 1] for queries that see 1 .. length keys."""

    @classmethod
    def of(
        cls,
        ssmax: SSMax,
        prior: Prior | None,
        table: Table | None,
        kind: tuple[torch.dtype, int, int | None, int],
        q: Tensor,
        end: int,
    ) -> "Temperatures | None":
        """Temperatures for up to `end` keys or more; None if changes cannot be detected."""
        table = None if ssmax.horizon is None else table
        kept = _temperatures.get(ssmax)
        if kept is None or kept.table is not table or kept.kind != kind:
            return cls._make(ssmax, prior, table, kind, q, end)
        if kept.length < _most(end, *kind[2:]) or not kept.watch.holds(ssmax):
            return cls._make(ssmax, prior, table, kind, q, end)
        return kept

    @classmethod
    def _make(
        cls,
        ssmax: SSMax,
        prior: Prior | None,
        table: Table | None,
        kind: tuple[torch.dtype, int, int | None, int],
        q: Tensor,
        end: int,
    ) -> "Temperatures | None":
        watch = _watch(ssmax, ("scope", "horizon"))
        if watch is None or ssmax.num_heads != q.shape[1]:
            return None
        check.check_ssmax(q, ssmax)
        _, groups, window, exempt = kind
        rows = Visibility(_most(_room(end), window, exempt), 0, None, window, exempt)
        prior = None if table is None else prior
        with torch.inference_mode(False), torch.no_grad():
            log_prior = None if prior is None else prior.table(rows.span).to(_wide(q))
            factors, _ = temperatures(ssmax, log_prior, rows, _wide(q), q.device)
            assert factors is not None
            factors = factors[0].T.contiguous().view(rows.num_queries, groups, -1, 1)
        made = cls(watch, table, kind, rows.num_queries, factors)
        if watch.holds(ssmax) and (table is None or prior is None or table.watch.holds(prior)):
            _temperatures[ssmax] = made
        return made


_tables: WeakKeyDictionary[Prior, Table] = WeakKeyDictionary()
_temperatures: WeakKeyDictionary[SSMax, Temperatures] = WeakKeyDictionary()


def _watch(module: nn.Module, settings: tuple[str, ...] | None) -> Watch | None:
    try:
        return None if settings is None else Watch(module, settings)
    except (TypeError, RuntimeError):  # inside torch.func tensors have no memory
        return None


def _most(end: int, window: int | None, exempt: int) -> int:
    """Number of keys beyond which temperatures no longer change, since no exempt key is visible."""
    return end if window is None else min(end, window + exempt)


def _room(count: int) -> int:
    return count + max(_SPARE, count // 8)


def _wide(q: Tensor) -> torch.dtype:
    return torch.promote_types(q.dtype, torch.float32)
