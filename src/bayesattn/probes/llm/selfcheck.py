"""Is what was captured of a language model what it computes? `probes.selfcheck` says what is asked.

    check_prompts(subject, prompts).refused

All is compared within one pass, in which hooks, a cache and the model's own attention are heard at
once: another pass may lay out memory otherwise, and what it rounds otherwise grows with each layer.
"""

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from inspect import unwrap
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bayesattn.attention.kernels.dense import repeat_heads
from bayesattn.evals.prediction import device_of, evaluating
from bayesattn.probes.capture import hanging
from bayesattn.probes.llm.capture import capture_prompts, last_only, reading, resolve
from bayesattn.probes.llm.subject import Subject
from bayesattn.probes.llm.tracing import LayerStructure
from bayesattn.probes.measured import NotApplicableError
from bayesattn.probes.rounding import (
    SUM,
    Gap,
    gap,
    least,
    mean_error,
    score_errors,
    unit,
    weight_bounds,
    weight_rounding,
)
from bayesattn.probes.selfcheck import SelfCheck

LONGEST = 128
"""Tokens of a prompt that are checked: rows of all tokens are, and they take the square of that."""
EAGER = "eager_attention_forward"
"""What transformers calls the attention of a model, in the file of that model."""
Gaps = Generator[tuple[str, Gap]]


def check_prompts(subject: Subject, prompts: Sequence[Sequence[int]]) -> SelfCheck:
    """The comparisons, on the first tokens of `prompts`, one at a time.

    Raises:
        ValueError: the model's logits are no numbers.
    """
    subject.check(prompts)
    slack = [0.0]
    gaps = (found for prompt in prompts for found in _gaps(subject, prompt[:LONGEST], slack))
    return SelfCheck.of(list(gaps), max(slack))


def _gaps(subject: Subject, prompt: Sequence[int], slack: list[float]) -> Gaps:
    """Of one prompt; `slack` is told how far rounding may move weights of attention."""
    model: Any = subject.model
    tokens = torch.tensor([list(prompt)], device=device_of(model))
    yield "logits", _of_logits(subject, tokens)
    wanted = resolve(subject.parts, None, subject.parts.mode)
    # at every position: what changes earlier ones may not reach the last
    with reading(subject, wanted, every=True) as read:
        hooked = read(tokens)["logits", 0]
    # models that give attention away only if asked may then compute it another way
    asked = ["logits", "attention"] if subject.parts.asks_for_attention else ["logits"]
    with reading(subject, asked, every=True, mode="cache") as read:
        yield "logits", _beside(hooked, lambda: read(tokens)["logits", 0])
    with (
        _hearing(subject) as calls,
        _surroundings(subject) as (entered, made),
        reading(subject, wanted, every=True, cached=True) as read,
    ):
        heard = read(tokens)
    for number, layer in enumerate(subject.parts.layers):
        own = {name: x for (name, n), x in heard.items() if n == number}
        call = calls.get(number)
        yield from _of_states(own, layer, call, model.dtype)
        if "residual" in own:
            inside = layer.block is not None and layer.attention in layer.block.modules()
            following = entered.get(number, own["residual"])
            yield "residual", gap(own["residual"], following if inside else following[:0])
        if number in made and "keys" in own:
            yield from _of_weights(layer, own["keys"], made[number], unit(model.dtype))
        if "attention" in own:
            yield from _of_rows(own, call, model.dtype, slack)


def _of_logits(subject: Subject, tokens: Tensor) -> Gap:
    model: Any = subject.model
    options = last_only(model)
    if subject.parts.asks_for_attention:  # and may compute it another way then
        options["output_attentions"] = True

    def plain() -> Tensor:
        with evaluating(model):
            return model(tokens, use_cache=False, **options).logits[:, -1].float().cpu()

    logits = plain()
    if not bool(logits.isfinite().all()):
        raise ValueError(
            f"{subject.name} does not put out numbers in {model.dtype}: take another --dtype, or "
            "look whether its weights are whole"
        )
    return _beside(capture_prompts(subject, tokens.tolist()).logits, plain, logits)


def _beside(captured: Tensor, plain: Callable[[], Tensor], logits: Tensor | None = None) -> Gap:
    """Of what hooks `captured` from the `logits` of a `plain` pass, made here if not given.

    A machine on which one pass differs from the next is told from hooks that change something: what
    two plain passes differ by is allowed.
    """
    logits = plain() if logits is None else logits
    found = gap(captured, logits)
    if found.found == 0:
        return found
    # a third pass may differ by more than the second did
    return gap(captured, logits, 2 * float((plain().double() - logits.double()).abs().max()))


class Call(NamedTuple):
    """A call of a model's own attention."""

    attend: Callable[..., Any]
    given: tuple[Any, ...]
    """Queries, keys and values [B, heads, T, D], the mask and whatever else."""
    options: dict[str, Any]
    rows: Tensor | None

    def in_float64(self) -> Tensor | None:
        """[B, H, T, T + 1] its rows, and what a sink takes; None if it computes no such thing."""

        def wide(x: Any) -> Any:
            return x.double() if isinstance(x, Tensor) and x.is_floating_point() else x

        options = {name: wide(x) for name, x in self.options.items()}
        try:
            with torch.no_grad():
                rows = self.attend(*map(wide, self.given), **options)[1].double()
        except (RuntimeError, TypeError, ValueError):  # it takes only its own dtype
            return None
        return torch.cat([rows, (1 - rows.sum(-1, keepdim=True)).clamp(min=0)], -1)

    def score_errors(self, u: float) -> Tensor:
        """[B, H, T, T + 1] of its scores, and of a sink."""
        q, k, *_ = self.given
        scale = self.options.get("scaling")
        scale = q.shape[-1] ** -0.5 if scale is None else float(scale)
        errors = score_errors(q, repeat_heads(k, q.shape[1]), scale, u)
        return torch.cat([errors, errors.amax(-1, keepdim=True)], -1)


@contextmanager
def _hearing(subject: Subject) -> Generator[dict[int, Call]]:
    """While inside, calls of attention are kept by layer, for models that name it as all do.

    Models look the name up where their code is, each time: a function of that name that listens
    leaves everything else as it is, which another implementation of attention would not.
    """
    heard: dict[int, Call] = {}
    numbers = {layer.index: number for number, layer in enumerate(subject.parts.layers)}

    def listening(attend: Callable[..., Any]) -> Callable[..., Any]:
        def attend_and_tell(module: nn.Module, *given: Any, **options: Any) -> Any:
            output = attend(module, *given, **options)
            # as transformers numbers layers in caches
            number = numbers.get(getattr(module, "layer_idx", -1))
            if number is not None and len(given) > 2 and len(output) > 1:
                heard[number] = Call(partial(attend, module), given, options, output[1])
            return output

        return attend_and_tell

    codes = [unwrap(type(module).forward) for module in subject.model.modules()]
    homes = {id(home): home for code in codes if EAGER in (home := code.__globals__)}
    with ExitStack() as stack:
        for home in homes.values():
            stack.callback(home.__setitem__, EAGER, home[EAGER])
            home[EAGER] = listening(home[EAGER])
        yield heard


@contextmanager
def _surroundings(subject: Subject) -> Generator[tuple[dict[int, Tensor], dict[int, list[Tensor]]]]:
    """While inside, what the next block is given, and what keys are made of, as copies by layer.

    Of keys: what the projection is given, what it puts out, and what a norm of keys is given.
    """
    entered: dict[int, Tensor] = {}
    made: dict[int, list[Tensor]] = {}

    def enter(number: int, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        states = args[0] if args else kwargs.get("hidden_states")
        if isinstance(states, Tensor):
            entered[number] = states.clone()

    def project(number: int, _: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        if given:
            made[number] = [given[0].clone(), output.clone()]

    def norm(number: int, _: nn.Module, given: tuple[Tensor, ...]) -> None:
        if given and number in made:
            made[number].append(given[0].clone())

    def hooks() -> Generator[Any]:
        for number, layer in enumerate(subject.parts.layers):
            if layer.following is not None:
                hook = partial(enter, number)
                yield layer.following.register_forward_pre_hook(hook, with_kwargs=True)
            if layer.key is None or layer.key_projection is None:
                continue
            yield layer.key_projection.module.register_forward_hook(partial(project, number))
            if layer.key.module is not layer.key_projection.module:
                yield layer.key.module.register_forward_pre_hook(partial(norm, number))

    with hanging(hooks()):
        yield entered, made


def _of_states(
    heard: dict[str, Tensor], layer: LayerStructure, call: Call | None, dtype: torch.dtype
) -> Gaps:
    """Of keys and values [B, T, G, D], against those of the cache and those attention is given."""
    turned, values = heard["turned_keys"], heard["values"]
    # with a window a cache has forgotten the first tokens
    last = slice(-heard["cached_keys"].shape[1], None)
    yield "values", gap(values[:, last], heard["cached_values"])
    yield "turned keys", gap(turned[:, last], heard["cached_keys"])
    for at, (name, x) in enumerate({"turned keys": turned, "values": values}.items()):
        if call is not None:
            given = call.given[at + 1]
            yield name, gap(repeat_heads(x.transpose(1, 2), given.shape[1]), given)
    if "keys" in heard:
        keys = heard["keys"]
        # multiplied in the model's dtype, as rotation does
        first = keys[:, 0].to(dtype) * keys.new_tensor(layer.key_scale, dtype=dtype)
        yield "keys at position 0", gap(first, turned[:, 0])
        lengths = keys.double().norm(dim=-1) * layer.key_scale
        yield (
            "lengths of keys",
            gap(turned.double().norm(dim=-1), lengths, 8 * unit(dtype) * lengths),
        )


def _of_weights(layer: LayerStructure, keys: Tensor, made: list[Tensor], u: float) -> Gaps:
    """Of the weights that make `keys` [B, T, G, D]."""
    part = layer.key_projection
    assert part is not None and layer.key is not None
    x, output, *normed = made
    found = part.read(output)
    try:
        yield "keys of projections", gap(layer.key.read(normed[0]) if normed else keys, found)
    except (IndexError, RuntimeError):  # no such columns
        yield "keys of projections", Gap(math.inf)
    try:
        weight = part.weight().double()
    except NotApplicableError:  # packed weights are not measured
        return
    columns = part.columns.to(weight.device)
    bias = getattr(part.module, "bias", None)
    bias = weight.new_zeros(columns.shape) if bias is None else bias[columns].double()
    expected, size = (
        torch.einsum("btw,gdw->btgd", a, b) + c
        for a, b, c in ((x.double(), weight, bias), (x.double().abs(), weight.abs(), bias.abs()))
    )
    yield "key weights", gap(found, expected, ((x.shape[-1] + 2) * SUM + 2 * u) * size)


def _of_rows(
    heard: dict[str, Tensor], call: Call | None, dtype: torch.dtype, slack: list[float]
) -> Gaps:
    """Of attention rows [B, H, T, T]."""
    rows = heard["attention"].double()
    n, u = rows.shape[-1], unit(dtype)
    sums, moved = torch.ones_like(rows[..., 0]), torch.zeros_like(rows[..., 0])
    yield "weights of later tokens", gap(rows.triu(1), torch.zeros_like(rows))
    if call is not None and call.rows is not None:
        yield "rows", gap(rows, call.rows)
        if (exact := call.in_float64()) is not None:
            low, high = weight_bounds(exact, call.score_errors(u))
            slack.append(float((high - low).max()))
            moved = (high - low)[..., n]
            exact, low, high = (x[..., :n] for x in (exact, low, high))
            sums = exact.sum(-1)
            allowed = torch.where(rows > exact, high - exact, exact - low)
            allowed = allowed + weight_rounding(n, u) * high + least(dtype)
            yield "recomputed rows", gap(rows, exact, allowed)
    allowed = moved + weight_rounding(n, u) + n * least(dtype)
    yield "sums of rows", gap(rows.sum(-1), sums, allowed)
    if "outputs" in heard:
        values = repeat_heads(heard["values"].transpose(1, 2), rows.shape[1]).double()
        allowed = mean_error(rows, values, u) + least(dtype)
        outputs = heard["outputs"].transpose(1, 2)
        yield "rows times values", gap(outputs, rows @ values, allowed)
