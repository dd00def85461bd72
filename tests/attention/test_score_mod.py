"""Any score function: ten of them against autograd through the definition, and what is refused."""

import math
import threading
import time

import pytest
import torch
from torch import nn

from bayesattn import attend
from bayesattn.attention.kernels import blocked
from bayesattn.attention.score_function import ScoreFunction
from bayesattn.priors import Bucketed
from tests.attention.scenes import Scene, assert_same, gates, ggd, ssmax
from tests.attention.test_strided import resident

HEADS, LENGTH = 4, 21


def drawn(*shape, seed=5):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=draw, dtype=torch.float64)


def alibi(dtype):
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625], dtype=dtype)
    return lambda score, b, h, q, k: score - slopes[h] * (q - k), []


def learned_slopes(dtype):
    slopes = nn.Parameter(drawn(HEADS).exp().to(dtype))
    return lambda score, b, h, q, k: score - slopes[h] * (q - k), [slopes]


def t5_buckets(dtype):
    prior = Bucketed(HEADS, num_buckets=8, max_distance=16).to(dtype)
    with torch.no_grad():
        prior.theta_bucket.copy_(drawn(HEADS, 8))
    buckets = prior.bucket(torch.arange(LENGTH))

    def mod(score, b, h, q, k):
        return score + prior.theta_bucket[h, buckets[(q - k).clamp(min=0)]]

    return mod, [prior.theta_bucket]


def soft_capping(dtype):
    cap = nn.Parameter(torch.tensor(2.0, dtype=dtype))  # no dimension, which breaks FlexAttention
    return lambda score, b, h, q, k: cap * torch.tanh(score / cap), [cap]


def soft_window(dtype):
    edge, width = (nn.Parameter(torch.full((HEADS,), x, dtype=dtype)) for x in (6.0, 2.0))

    def mod(score, b, h, q, k):
        return score + torch.nn.functional.logsigmoid((edge[h] - (q - k)) / width[h])

    return mod, [edge, width]


def by_document(dtype):
    documents = torch.arange(LENGTH) // torch.tensor([[7], [10]])
    within = nn.Parameter(drawn(2, HEADS).to(dtype))

    def mod(score, b, h, q, k):
        return score + torch.where(documents[b, q] == documents[b, k], within[b, h], 0.0)

    return mod, [within]


def scalar_per_head(dtype):
    scale = nn.Parameter(drawn(HEADS).to(dtype))
    scaled = scale.exp()  # computed outside, and read beside what it was computed from
    return lambda score, b, h, q, k: score * scaled[h] + scale[h] * (k % 3), [scale]


def relative_network(dtype):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, HEADS)).to(dtype)

    def mod(score, b, h, q, k):  # written for one score: the network sees a vector of one
        distance = (q - k).to(score.dtype) / 10
        return score + network(distance.unsqueeze(-1))[h]

    return mod, [*network.parameters()]


def generalized_gaussian(dtype):
    prior = ggd(HEADS, 0.5, dtype)
    table = prior.table(LENGTH)

    def mod(score, b, h, q, k):
        return score + table[h, (q - k).clamp(min=0)]

    return mod, [prior.theta_alpha, prior.theta_beta]


def mask(dtype):
    shift = nn.Parameter(drawn(HEADS).to(dtype))

    def mod(score, b, h, q, k):  # the first query that hides everything is number 4
        hidden = ((k + q) % 3 == 0) | (q == 4)
        return torch.where(hidden, -math.inf, score + shift[h] * (k % 2))

    return mod, [shift]


FUNCTIONS = [
    alibi,
    learned_slopes,
    t5_buckets,
    soft_capping,
    soft_window,
    by_document,
    scalar_per_head,
    relative_network,
    generalized_gaussian,
    mask,
]
BY_VMAP = (relative_network,)
CASES = {
    "causal": {},
    "window": {"window": 7},
    "padding": {"padding": torch.tensor([0, 6])},
    "documents": {"documents": torch.tensor([[0] * 9 + [1] * 12, [5] * 2 + [7] * 19])},
    "prior, temperature, exempt": {"exempt": 3, "prior": 0.7, "scope": "content+prior"},
    "gates and sink": {"forget": True, "sink": True},
    "cache": {"offset": 3},
}


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocked, "_ROWS", 5)
    monkeypatch.setattr(blocked, "_ELEMENTS", 1)
    step = blocked._Blocks.keys

    def narrow(self, q, rows):
        for wide in step(self, q, rows):
            for lo in range(wide.start, wide.stop, 4):
                yield slice(lo, min(lo + 4, wide.stop))

    monkeypatch.setattr(blocked._Blocks, "keys", narrow)


def everything(make, case, kernel, dtype):
    """Output and all gradients, those of what the function reads included."""
    rule = dict(CASES[case])
    scene = Scene(groups=2, queries=16 if case == "cache" else LENGTH)
    *inputs, grad = scene.tensors(dtype)
    named = dict(zip("qkv", (x.requires_grad_() for x in inputs), strict=True))
    mod, learned = make(dtype)
    named |= {f"read {at}": x for at, x in enumerate(learned)}
    if "forget" in rule:
        rule["forget"] = named["forget"] = gates(scene).to(dtype).requires_grad_()
        rule["sink"] = named["sink"] = drawn(HEADS).to(dtype).requires_grad_()
    prior = ggd(HEADS, rule.pop("prior"), dtype) if "prior" in rule else None
    temper = ssmax(HEADS, rule.pop("scope", None), dtype)
    if prior is not None:
        named |= {"alpha": prior.theta_alpha, "ssmax": temper.scale}
    out = attend(*inputs, prior, ssmax=temper, score_mod=mod, kernel=kernel, **rule)
    found = torch.autograd.grad(out, [*named.values()], grad, allow_unused=True)
    return {"output": out.detach()} | {
        name: torch.zeros_like(x) if g is None else g
        for (name, x), g in zip(named.items(), found, strict=True)
    }


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("make", FUNCTIONS)
@pytest.mark.usefixtures("small_blocks")
def test_blocked_equals_autograd_through_the_definition(make, case):
    wanted = everything(make, case, "dense", torch.float64)
    assert_same(everything(make, case, "blocked", torch.float64), wanted, 1e-10)
    rounded = everything(make, case, "dense", torch.float32)
    assert_same(everything(make, case, "blocked", torch.float32), wanted, 2e-5, rounded)


@pytest.mark.parametrize("make", FUNCTIONS)
def test_the_definition_is_one_score_at_a_time(make):
    """No vmap here: every score by itself, in Python."""
    scene = Scene(groups=2)
    q, k, v, _ = scene.tensors()
    mod, _ = make(torch.float64)
    with torch.no_grad():
        found = attend(q, k, v, score_mod=mod, kernel="dense")
        b, h, i = 1, 2, 9
        scores = []
        for j in range(i + 1):
            score = (q[b, h, i] @ k[b, h // 2, j]) / math.sqrt(scene.width)
            scores.append(mod(score, *(torch.tensor(n) for n in (b, h, i, j))))
        wanted = torch.stack(scores).softmax(0) @ v[b, h // 2, : i + 1]
    assert torch.allclose(found[b, h, i], wanted, atol=1e-12)


@pytest.mark.parametrize("make", FUNCTIONS)
def test_whole_tensors_where_that_is_the_same(make):
    mod, learned = make(torch.float64)
    function = ScoreFunction(mod, (2, HEADS, LENGTH, LENGTH), torch.zeros((), dtype=torch.float64))
    assert function.whole == (make not in BY_VMAP)
    if make not in (scalar_per_head, generalized_gaussian):  # which read what they computed
        assert {id(x) for x in function.captured} == {id(x) for x in learned}


@pytest.mark.parametrize("make", [f for f in FUNCTIONS if f not in (soft_capping,)])
@torch.no_grad()
def test_flex_equals_the_definition(make):
    scene = Scene(groups=2)
    q, k, v, _ = scene.tensors()
    wanted = attend(q, k, v, score_mod=make(torch.float64)[0], kernel="dense")
    narrow = (x.float() for x in (q, k, v))
    try:
        found = attend(*narrow, score_mod=make(torch.float32)[0], kernel="flex")
    except RuntimeError:
        pytest.skip("this FlexAttention cannot trace it on a CPU")
    assert (found - wanted).abs().max() < 2e-5


@pytest.mark.parametrize(("length", "many"), [(128, False), (129, True)])
def test_auto_takes_it_where_scores_are_many(length, many):
    q, k, v = torch.randn(3, 1, 2, length, 8)
    shift = torch.ones(2, requires_grad=True)
    out = attend(q, k, v, score_mod=lambda s, b, h, i, j: s + shift[h] * (i - j))
    out.sum().backward()
    assert shift.grad is not None
    assert type(out.grad_fn).__name__.startswith("_Blocked") == many


@pytest.mark.parametrize("beta", [-0.6, 0.5, 2.0])
def test_blocked_without_a_function_is_attention(beta):
    q, k, v, _ = Scene().tensors()
    prior, temper = ggd(4, beta), ssmax(4, "horizon")
    found = attend(q, k, v, prior, ssmax=temper, kernel="blocked")
    assert torch.allclose(found, attend(q, k, v, prior, ssmax=temper, kernel="dense"), atol=1e-12)


def test_memory_grows_with_the_length_only():
    """Scores and what autograd keeps of them would take more than 2 GiB here."""
    heads, length = 2, 8192
    q, k, v = (torch.randn(1, heads, length, 16, requires_grad=True) for _ in range(3))
    slopes = torch.rand(heads, requires_grad=True)
    peak, running = 0, True

    def watch():
        nonlocal peak
        while running:
            peak = max(peak, resident())
            time.sleep(0.001)

    before = resident()
    watcher = threading.Thread(target=watch)
    watcher.start()
    out = attend(
        q, k, v, score_mod=lambda s, b, h, i, j: s - slopes[h] * (i - j).sqrt().nan_to_num()
    )
    out.sum().backward()
    running = False
    watcher.join()
    assert peak - before < 256 * 2**20


def tensors(**changes):
    return Scene(**changes).tensors(torch.float32)[:3]


def refused(mod, message, **options):
    with pytest.raises(ValueError, match=message) as caught:
        attend(*tensors(), score_mod=mod, kernel="blocked", **options)
    assert "\n" not in str(caught.value)


def test_a_function_that_changes_the_shape():
    refused(lambda s, b, h, i, j: torch.stack([s, s]), r"one score for each .* of shape \(2,\)")
    refused(lambda s, b, h, i, j: 1.0, "score_mod failed at queries 0 to 20")


def test_a_function_that_is_a_mask():
    refused(lambda s, b, h, i, j: i >= j, r"not torch.bool; to hide keys return torch.where")


def test_a_function_that_is_not_deterministic():
    calls = []

    def counting(s, b, h, i, j):
        calls.append(None)
        return s + len(calls)

    refused(counting, "other scores when it was called again")
    refused(lambda s, b, h, i, j: s + torch.rand(()), "score_mod failed.*without randomness")


def test_a_function_that_changes_between_the_passes():
    q, k, v = (x.requires_grad_() for x in tensors())
    shifts = {"now": torch.zeros(21)}
    out = attend(q, k, v, score_mod=lambda s, b, h, i, j: s + shifts["now"][j], kernel="blocked")
    shifts["now"] = torch.arange(21.0)
    with pytest.raises(ValueError, match="other scores in the backward pass"):
        out.sum().backward()


def test_a_parameter_that_changes_between_the_passes():
    q, k, v = (x.requires_grad_() for x in tensors())
    shift = torch.zeros(4, requires_grad=True)
    out = attend(q, k, v, score_mod=lambda s, b, h, i, j: s + shift[h] * j, kernel="blocked")
    with torch.no_grad():
        shift.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_scores_that_are_no_numbers():
    def bad(s, b, h, i, j):
        return torch.where((h == 1) & (i == 9) & (j == 7), math.nan, s)

    refused(bad, "returned nan in head 1 for query 9 and key 7; scores are numbers, or -inf")
    refused(lambda s, b, h, i, j: s + math.inf, "returned inf in head 0 for query 0 and key 0")
    # where a key is not visible, anything may stand
    q, k, v = tensors()
    hidden = attend(q, k, v, score_mod=lambda s, b, h, i, j: s + (i - j).sqrt(), kernel="blocked")
    assert hidden.isfinite().all()


def test_inputs_that_are_no_numbers_are_not_the_functions_fault():
    q, k, v = tensors()
    q[0, 0, 3] = math.nan
    out = attend(q, k, v, score_mod=lambda s, b, h, i, j: s + 1, kernel="blocked")
    assert out[0, 0, 3].isnan().all() and out[1].isfinite().all()


def test_gradients_that_are_no_numbers():
    q, k, v = (x.requires_grad_() for x in tensors())
    power = torch.full((4,), 0.5, requires_grad=True)
    out = attend(
        q, k, v, score_mod=lambda s, b, h, i, j: s - (i - j).float() ** power[h], kernel="blocked"
    )
    with pytest.raises(ValueError, match="clamp q_idx - kv_idx at 0"):
        out.sum().backward()


def test_a_table_that_is_too_short():
    table = torch.zeros(4, 10)
    refused(lambda s, b, h, i, j: s + table[h, (i - j).clamp(min=0)], "tables must reach that far")


class _Hidden(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return grad * y, grad * x


def test_a_tensor_out_of_sight():
    weight = torch.tensor(2.0, requires_grad=True)
    refused(lambda s, b, h, i, j: _Hidden.apply(s, weight), "out of sight of torch")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"kernel": "strided"}, "computed by kernel 'blocked', 'dense' or 'flex'"),
        ({"tolerance": 1e-3}, "leave tolerance out"),
        ({"decompose": True}, "a score_mod has no factors"),
    ],
)
@torch.no_grad()
def test_what_cannot_be_done(options, message):
    with pytest.raises(ValueError, match=message):
        attend(*tensors(), score_mod=lambda s, b, h, i, j: s, **options)
