"""The self-check passes every model that is captured rightly, and catches what is wrong."""

import dataclasses
import math
from inspect import signature

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, GPTNeoXConfig

from bayesattn.probes.llm.heads import Heads
from bayesattn.probes.llm.selfcheck import EAGER, check_prompts
from bayesattn.probes.llm.subject import Subject
from bayesattn.probes.llm.tracing import Listener
from tests.probes.llm.architectures import MODELS, SMALL, model_of, prompts_of, subject_of
from tests.probes.llm.corruptions import (
    PROMPTS,
    changed,
    corruptions,
    count,
    large,
    missed,
    spoiled_rows,
    subjects,
)
from tests.robust.common import TORTURE

OWN_ATTENTION = ("falcon", "mpt", "bloom", "codegen", "gptj")
"""Architectures that do not go through transformers' attention interface."""
EXACT = {"logits", "values", "turned keys", "keys at position 0", "keys of projections"}
EXACT |= {"residual", "weights of later tokens"}
QUICK = ("gpt2", "gemma2", "gpt-oss sinks", "falcon grouped")


@pytest.mark.parametrize("name", MODELS)
def test_every_architecture(name):
    found = check_prompts(subject_of(name), PROMPTS)
    assert found.good, found.wrong
    own = name.startswith(OWN_ATTENTION)
    expected = EXACT | {"lengths of keys", "key weights", "sums of rows", "rows times values"}
    assert {*found.differences} == expected | (set() if own else {"rows", "recomputed rows"})
    assert not found.allowed.keys() & EXACT and not found.refused and not found.doubts
    assert found.slack < 1e-3


@pytest.mark.parametrize("name", QUICK)
def test_large_scores_in_every_dtype(name):
    for size, dtype, subject in subjects(name):
        found = check_prompts(subject, PROMPTS)
        assert found.good, (size, dtype, found.wrong)
        loose = size == "large" and dtype != torch.float32 and not name.startswith(OWN_ATTENTION)
        assert {*found.doubts} == ({"attention"} if loose else set())


@pytest.mark.parametrize("name", QUICK)
def test_what_is_wrong_is_caught_however_large_the_scores(name):
    subject = Subject.of(large(name).bfloat16(), name=name)
    made = [*corruptions(subject)]
    assert len({kind for kind, *_ in made}) == 6
    for kind, refused, wrong, context in made:
        assert not missed(wrong, refused, context), (kind, refused)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_all_of_them():
    """Each in every dtype, with large scores and without; in quick tests in one way of six."""
    found = count(some=not TORTURE)
    wrong = {key: n for key, n in found.items() if key[-1] in ("refused", "missed") and n}
    models = sum(n for key, n in found.items() if key[-1] == "models")
    assert not wrong and models == (6 * len(MODELS) if TORTURE else len(MODELS))


class Sharded(nn.Module):
    """A linear layer cut into two, as tensor parallelism does."""

    def __init__(self, whole):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(24, 12, bias=False) for _ in range(2))
        for part, weight in zip(self.parts, whole.weight.chunk(2), strict=True):
            part.weight = nn.Parameter(weight.clone(), requires_grad=False)

    def forward(self, x):
        return torch.cat([part(x) for part in self.parts], -1)


def shard(model):
    for layer in model.model.layers:
        for name in ("q_proj", "k_proj", "v_proj"):
            setattr(layer.self_attn, name, Sharded(getattr(layer.self_attn, name)))


def slice_weights(model):
    """As `pretraining_tp` did: no module puts keys and values out."""
    for layer in model.model.layers:
        for name in ("q_proj", "k_proj", "v_proj"):
            weight = getattr(layer.self_attn, name).weight
            delattr(layer.self_attn, name)
            setattr(
                layer.self_attn,
                name,
                lambda x, weight=weight: torch.cat(
                    [x @ part.to(x).T for part in weight.chunk(2)], -1
                ),
            )


def tie(model):
    first, second = model.model.layers
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        getattr(second.self_attn, name).weight = getattr(first.self_attn, name).weight
    second.mlp = first.mlp


@pytest.mark.parametrize(
    ("build", "mode", "unweighed"),
    [(shard, "hooks", True), (slice_weights, "cache", True), (tie, "hooks", False)],
)
def test_models_of_unusual_build(build, mode, unweighed):
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        model = large("llama")
        build(model)
        subject = Subject.of(model.to(dtype))
        found = check_prompts(subject, PROMPTS)
        assert subject.parts.mode == mode and found.good, found.wrong
        assert {"values", "turned keys", "rows"} <= found.differences.keys()
        assert ("key weights" not in found.differences) == unweighed
        if mode == "hooks":
            for kind, refused, wrong, context in corruptions(subject):
                assert not missed(wrong, refused, context), (kind, refused)


def sixteen_heads():
    torch.manual_seed(0)
    options = SMALL | {"hidden_size": 128, "num_attention_heads": 16}
    return Subject.of(AutoModelForCausalLM.from_config(GPTNeoXConfig(**options)))


def test_a_fused_projection_that_is_split_wrongly():
    """Read as [3, H, D] instead of [H, 3, D], "values" hold 6 heads' values, 5 queries, 5 keys."""
    subject = sixteen_heads()
    heads, width = 16, 8
    wrong = torch.arange(3 * heads * width).view(3, heads, width)
    right = wrong.view(heads, 3, width).unbind(1)
    truth = dict(
        zip("qkv", [{tuple(x.tolist()) for x in columns} for columns in right], strict=True)
    )

    def holds(slab):
        slabs = [tuple(columns.tolist()) for columns in slab]
        return {name: sum(slab in own for slab in slabs) for name, own in truth.items()}

    assert holds(wrong[2]) == {"v": 6, "q": 5, "k": 5}
    assert holds(wrong[1]) == {"k": 6, "v": 5, "q": 5}
    assert check_prompts(subject, PROMPTS).good
    for layer in subject.parts.layers:
        layer.key = dataclasses.replace(layer.key, columns=wrong[1])
        layer.value = dataclasses.replace(layer.value, columns=wrong[2])
    found = check_prompts(subject, PROMPTS)
    wrongs = {"values", "keys at position 0", "lengths of keys", "rows times values"}
    assert {*found.wrong} >= wrongs
    assert {*found.refused} == {"values", "keys", "key weights", "outputs"}


def test_only_what_is_wrong_is_refused():
    subject = subject_of("llama grouped")
    value, key = (subject.parts.layers[1].value, subject.parts.layers[1].key_projection)
    wrong = changed(subject, 1, value=dataclasses.replace(value, columns=value.columns.flip(0)))
    found = check_prompts(wrong, PROMPTS)
    assert {*found.wrong} == {"values", "rows times values"}
    assert {*found.refused} == {"values", "outputs"}
    flipped = dataclasses.replace(key, columns=key.columns.flip(0))
    found = check_prompts(changed(subject, 1, key_projection=flipped), PROMPTS)
    assert {*found.wrong} == {"keys of projections"}
    assert {*found.refused} == {"key weights"}


class Stretching(Heads):
    """All but the first of what it reads is longer by a hundredth."""

    def read(self, output):
        found = super().read(output).clone()
        found[:, 1:] *= 1.01
        return found


def test_keys_of_another_length_than_the_cached_ones():
    subject = subject_of("llama")
    key = Stretching(**vars(subject.parts.layers[1].key))
    found = check_prompts(changed(subject, 1, key=key), PROMPTS)
    assert "lengths of keys" in found.wrong and "keys at position 0" not in found.wrong
    assert "keys" in found.refused


def test_weights_that_do_not_make_the_keys():
    """As of an adapter, whose module puts out more than its weight does."""
    model = model_of("llama")
    k_proj = model.model.layers[1].self_attn.k_proj
    more = nn.Parameter(torch.randn(24, 24) * 0.01, requires_grad=False)
    k_proj.register_forward_hook(lambda _, given, output: output + given[0] @ more)
    found = check_prompts(Subject.of(model), PROMPTS)
    assert {*found.wrong} == {"key weights"} and {*found.refused} == {"key weights"}


def test_a_hook_that_changes_something():
    subject = Subject.of(model_of("llama"))
    plain = subject.model.forward

    def forward(*args, past_key_values=None, **options):
        out = plain(*args, past_key_values=past_key_values, **options)
        if past_key_values is not None:
            out.logits = out.logits + 1e-6
        return out

    forward.__signature__ = signature(plain)
    subject.model.forward = forward
    found = check_prompts(subject, PROMPTS)
    assert {*found.wrong} == {"logits"}
    with pytest.raises(ValueError, match="logits by"):
        found.require("logits")


def test_a_machine_that_never_computes_the_same_twice():
    """What two plain passes differ by is no fault of the hooks."""
    subject = Subject.of(model_of("llama"))
    subject.model.lm_head.register_forward_hook(
        lambda _, __, out: out + 1e-6 * torch.randint(1, 3, out.shape)
    )
    torch.manual_seed(0)
    found = check_prompts(subject, PROMPTS)
    assert 0 < found.allowed["logits"] < 1e-4


@pytest.mark.parametrize(
    ("spoil", "names"),
    [
        (lambda rows: rows * 1.01, {"rows", "sums of rows", "recomputed rows"}),
        (lambda rows: rows.flip(1), {"rows", "recomputed rows", "rows times values"}),
        (lambda rows: rows.mT, {"rows", "weights of later tokens"}),
        (lambda rows: rows * math.nan, {"rows", "sums of rows", "weights of later tokens"}),
    ],
)
def test_rows_that_are_wrong(spoil, names):
    subject = Subject.of(model_of("llama"))
    with spoiled_rows(subject.parts.layers[1], spoil):
        found = check_prompts(subject, PROMPTS)
    assert names <= {*found.wrong} and "attention" in found.refused


def test_rows_are_recomputed_and_not_only_repeated(monkeypatch):
    """Attention that does not do what it says in float64 is caught, though it repeats itself."""
    subject = subject_of("llama")
    home = type(subject.parts.layers[0].attention).forward.__globals__
    plain = home[EAGER]

    def attend(module, q, k, *given, **options):
        return plain(module, q * (1.01 if q.dtype == torch.float64 else 1), k, *given, **options)

    monkeypatch.setitem(home, EAGER, attend)
    assert {*check_prompts(subject, PROMPTS).wrong} >= {"recomputed rows"}
    assert home[EAGER] is attend


@pytest.mark.parametrize(("name", "sizes"), [("turned_keys", (2, 1)), ("values", (1, 2))])
def test_what_attention_changes_is_not_what_it_attends_with(monkeypatch, name, sizes):
    plain = Listener.update

    def update(self, *given, **options):
        return tuple(a * x for a, x in zip(sizes, plain(self, *given, **options), strict=True))

    monkeypatch.setattr(Listener, "update", update)
    assert name in check_prompts(subject_of("llama"), PROMPTS).refused


def test_models_that_put_out_no_numbers():
    model = model_of("llama")
    with torch.no_grad():
        model.lm_head.weight.fill_(math.inf)
    subject = subject_of("llama")
    broken = dataclasses.replace(subject, model=model)
    with pytest.raises(ValueError, match="does not put out numbers in torch.float32: take another"):
        check_prompts(broken, PROMPTS)


def test_long_prompts_are_checked_by_their_beginning(monkeypatch):
    lengths, subject = [], subject_of("llama")
    monkeypatch.setattr("bayesattn.probes.llm.selfcheck.LONGEST", 9)
    hook = subject.model.register_forward_pre_hook(
        lambda _, given: lengths.append(given[0].shape[1])
    )
    assert check_prompts(subject, prompts_of(30)).good
    hook.remove()
    assert {*lengths} == {9}
