"""Forget gates and a sink on every kernel: the definition, by hand, in parts and in long texts."""

import math

import pytest
import torch
from torch.nn.functional import logsigmoid, scaled_dot_product_attention

from bayesattn import Laplace, attend
from bayesattn.attention.kernels.gated import parts, reach
from tests.attention.scenes import Scene, assert_same, everything, gates, ggd, half, ssmax
from tests.attention.test_contract import SCOPES, VISIBILITIES, small_blocks  # noqa: F401

SINK = torch.tensor([0.7, -1.0, 2.0, 0.0], dtype=torch.float64)
EXTRAS = {"gates": ("forget",), "sink": ("sink",), "both": ("forget", "sink")}


@pytest.fixture
def small_parts(monkeypatch, small_blocks):  # noqa: F811
    """Squares of a few rows, so that short sequences have many parts, all of them judged."""
    monkeypatch.setattr(parts, "_SQUARE", 6)
    monkeypatch.setattr(parts, "_LEAST", 2)
    monkeypatch.setattr(parts, "_RANGE", 3.0)
    monkeypatch.setattr(reach, "_WORTH", 2)


def extras(names, scene, shift=0.0):
    given = {"forget": gates(scene, shift), "sink": SINK[: scene.heads]}
    return {name: given[name] for name in EXTRAS[names]}


@pytest.mark.parametrize(
    ("names", "beta", "scope", "visibility"), half(EXTRAS, [None, 0.5], SCOPES, VISIBILITIES)
)
@pytest.mark.usefixtures("small_parts")
def test_kernels_equal_the_definition(names, beta, scope, visibility):
    queries = 14 if visibility == "static cache" else 21
    scene = Scene(groups=2, queries=queries, visibility=VISIBILITIES[visibility])
    more = extras(names, scene)

    def run(kernel, dtype):
        prior = None if beta is None else ggd(4, beta, dtype)
        return everything(scene, prior, ssmax(4, scope, dtype), kernel, dtype, **more)

    wanted = run("dense", torch.float64)
    for kernel in ("strided", "blocked"):
        assert_same(run(kernel, torch.float64), wanted, 1e-10)
        assert_same(run(kernel, torch.float32), wanted, 2e-5, run("dense", torch.float32))


@pytest.mark.parametrize("kernel", ["strided", "blocked"])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("queries, keys", [(1, 1), (1, 19), (13, 13), (6, 33)])
@pytest.mark.parametrize("scope", [None, "content+prior"])
@pytest.mark.usefixtures("small_parts")
def test_shapes(scope, queries, keys, batch, groups, kernel):
    scene = Scene(batch=batch, groups=groups, queries=queries, keys=keys)
    for prior in (None, ggd(4, 0.5)):
        more = extras("both", scene)
        wanted = everything(scene, prior, ssmax(4, scope), "dense", torch.float64, **more)
        found = everything(scene, prior, ssmax(4, scope), kernel, torch.float64, **more)
        assert_same(found, wanted, 1e-11)


@pytest.mark.parametrize(
    ("beta", "scope", "visibility"),
    [
        (None, None, "causal"),
        (0.5, "content+prior", "window"),
        (0.5, None, "exempt, padding"),
        (None, "content+prior", "static cache"),
    ],
)
@pytest.mark.parametrize("names", EXTRAS)
@torch.no_grad()
def test_flex_equals_the_definition(names, beta, scope, visibility):
    queries = 14 if visibility == "static cache" else 21
    scene = Scene(groups=2, queries=queries, visibility=VISIBILITIES[visibility])
    q, k, v, _ = scene.tensors(torch.float32)
    more = extras(names, scene)
    options = {"ssmax": ssmax(4, scope), "kernel": "dense"} | more | scene.visibility
    prior = None if beta is None else ggd(4, beta)
    wanted = attend(q.double(), k.double(), v.double(), prior, **options)
    options |= {"ssmax": ssmax(4, scope, torch.float32), "kernel": "flex"}
    options |= {name: x.float() for name, x in more.items()}
    prior = None if beta is None else ggd(4, beta, torch.float32)
    assert (attend(q, k, v, prior, **options) - wanted).abs().max() < 2e-5


def by_hand(scene, forget, sink, table, scale):
    """One query at a time, in Python: gates of all tokens after the key, up to the query."""
    q, k, v, _ = scene.tensors()
    out = torch.zeros_like(q)
    for b in range(scene.batch):
        for h in range(scene.heads):
            g = h // (scene.heads // scene.groups)
            for i in range(scene.queries):
                factor = float(scale[h]) * math.log(i + 1)
                scores = [float(sink[h])]
                for j in range(i + 1):
                    prior = float(table[h, i - j])
                    for between in range(j + 1, i + 1):
                        prior += float(forget[b, h, between])
                    content = float(q[b, h, i] @ k[b, g, j]) / math.sqrt(scene.width)
                    scores.append((content + prior) * factor)
                weights = torch.tensor(scores, dtype=torch.float64).softmax(0)[1:]
                out[b, h, i] = weights @ v[b, g, : i + 1]
    return out


@pytest.mark.parametrize("kernel", ["dense", "strided", "blocked"])
@torch.no_grad()
def test_matches_the_sentences(kernel):
    scene = Scene(groups=2, queries=11, keys=11)
    q, k, v, _ = scene.tensors()
    forget, prior, temper = gates(scene), ggd(4, 0.5), ssmax(4, "content+prior")
    found = attend(q, k, v, prior, ssmax=temper, forget=forget, sink=SINK, kernel=kernel)
    wanted = by_hand(scene, forget, SINK, prior.table(11), temper.scale)
    assert torch.allclose(found, wanted, atol=1e-12)


@pytest.mark.parametrize("kernel", ["dense", "strided", "blocked"])
def test_equal_gates_are_alibi(kernel):
    scene = Scene()
    q, k, v, _ = scene.tensors(torch.float32)
    prior = Laplace(4)
    forget = -prior.slopes[None, :, None].expand(2, 4, 21)
    found = attend(q, k, v, forget=forget, kernel=kernel)
    assert (found - attend(q, k, v, prior, kernel="dense")).abs().max() < 1e-6


@pytest.mark.parametrize("kernel", ["dense", "strided", "blocked"])
def test_a_sink_is_a_key_of_value_0(kernel):
    q, k, v, _ = Scene().tensors()
    first = torch.zeros(2, 4, 1, 8, dtype=torch.float64)
    bias = torch.zeros(1, 4, 21, 22, dtype=torch.float64)
    bias[..., 0] = SINK[:, None]
    bias[..., 1:] = torch.full((21, 21), -math.inf).triu(1)
    keys, values = torch.cat([first, k], 2), torch.cat([first, v], 2)
    wanted = scaled_dot_product_attention(q, keys, values, attn_mask=bias)
    assert torch.allclose(attend(q, k, v, sink=SINK, kernel=kernel), wanted, atol=1e-12)


@pytest.mark.parametrize("kernel", ["dense", "strided", "blocked"])
@pytest.mark.parametrize("scope", [None, "content+prior"])
@pytest.mark.parametrize("chunk", [1, 7, 64])
@pytest.mark.usefixtures("small_parts")
@torch.no_grad()
def test_chunks_against_a_cache_equal_one_pass(chunk, scope, kernel):
    """The unwritten rows of a static cache hold NaN, also those of the gates."""
    scene = Scene(groups=2, queries=70, keys=70)
    q, k, v, _ = scene.tensors()
    forget, temper = gates(scene, 1.0), ssmax(4, scope)
    rule = {"exempt": 3, "sink": SINK, "ssmax": temper}
    whole = attend(q, k, v, forget=forget, kernel="dense", **rule)
    cache = [torch.full((2, 2, 90, 8), math.nan).double() for _ in "kv"]
    kept = torch.full((2, 4, 90), math.nan).double()
    for start in range(0, 70, chunk):
        part = slice(start, min(start + chunk, 70))
        cache[0][:, :, part], cache[1][:, :, part] = k[:, :, part], v[:, :, part]
        kept[:, :, part] = forget[:, :, part]
        made = attend(q[:, :, part], *cache, forget=kept, offset=start, kernel=kernel, **rule)
        assert torch.allclose(made, whole[:, :, part], atol=1e-11)


@pytest.mark.parametrize("kernel", ["dense", "strided", "blocked"])
@torch.no_grad()
def test_documents_begin_anew(kernel):
    scene = Scene()
    q, k, v, _ = scene.tensors()
    forget = gates(scene)
    documents = torch.tensor([[0] * 9 + [1] * 12] * 2)
    packed = attend(q, k, v, forget=forget, documents=documents, kernel=kernel)
    for part in (slice(0, 9), slice(9, 21)):
        alone = attend(*(x[:, :, part] for x in (q, k, v)), forget=forget[:, :, part])
        assert torch.allclose(packed[:, :, part], alone, atol=1e-12)


@torch.no_grad()
def test_theorem_1():
    scene = Scene(visibility={"padding": torch.tensor([0, 6]), "exempt": 2})
    q, k, v, _ = scene.tensors()
    options = {"ssmax": ssmax(4, "content+prior"), "forget": gates(scene), "sink": SINK}
    found = attend(q, k, v, ggd(4, 0.5), decompose=True, **options, **scene.visibility)
    product = found.likelihood * found.prior * found.evidence
    assert (product - found.posterior).abs().max() < 1e-12
    assert (found.posterior.sum(-1) < 1).all()  # the rest went to the sink
    exact = attend(q, k, v, ggd(4, 0.5), kernel="dense", **options, **scene.visibility)
    assert torch.allclose(found.output, exact, atol=1e-12)


STEEPNESS = {"all kept": 9.0, "published": 0.0, "steep": -3.0, "shut": -30.0, "mixed": None}


@pytest.mark.parametrize("scope", [None, "content+prior"])
@pytest.mark.parametrize("steepness", STEEPNESS)
@torch.no_grad()
def test_float32_holds_in_long_texts(steepness, scope):
    """At c = -50,000 a float32 is off by 2e-3; what is computed is not."""
    heads, length = 3, 16_400
    scene = Scene(batch=1, heads=heads, groups=heads, queries=length, keys=length, width=16)
    q, k, v, _ = scene.tensors(torch.float32)
    shift = STEEPNESS[steepness]
    levels = torch.tensor([8.0, 1.0, -3.0])[:, None] if shift is None else shift
    forget = gates(scene, levels).float()
    temper = ssmax(heads, scope, torch.float32)
    found = attend(q, k, v, ssmax=temper, forget=forget)
    rows = [0, 1, 127, 128, 129, 4100, 8199, 8200, 8201, 12_345, 16_399]
    for row in rows:
        exact = attend(
            *(x.double() for x in (q[:, :, row : row + 1], k, v)),
            ssmax=None if temper is None else ssmax(heads, scope),
            forget=forget.double(),
            offset=row,
            kernel="dense",
        )
        assert (found[:, :, row : row + 1] - exact).abs().max() < 2e-5, row


@pytest.mark.parametrize("steepness", ["published", "mixed"])
def test_gradients_hold_in_long_texts(steepness):
    _check_gradients(16_400, STEEPNESS[steepness], [1, 128, 5000, 8200, 16_399])


def test_gradients_hold_where_all_is_forgotten_within_a_few_tokens():
    """Across 64 queries c changes by 640, of which a float32 keeps 4e-5."""
    _check_gradients(400, torch.tensor([-10.0, -8.0, 1.0])[:, None], list(range(400)))


def _check_gradients(length, shift, rows):
    heads = 3
    scene = Scene(batch=1, heads=heads, groups=heads, queries=length, keys=length, width=16)
    *inputs, grad = scene.tensors(torch.float32)
    levels = torch.tensor([8.0, 1.0, -3.0])[:, None] if shift is None else shift
    forget = gates(scene, levels).float()
    leaves = [x.requires_grad_() for x in (*inputs, forget)]
    looked = torch.zeros_like(grad)
    looked[:, :, rows] = grad[:, :, rows]
    q, k, v, gate = leaves
    found = torch.autograd.grad(attend(q, k, v, forget=gate), leaves, looked)
    exact = [
        attend(
            q[:, :, row : row + 1].double(),
            *(k.double(), v.double()),
            forget=gate.double(),
            offset=row,
            kernel="dense",
        )
        for row in rows
    ]
    wanted = torch.autograd.grad(torch.cat(exact, 2), leaves, grad[:, :, rows].double())
    for ours, definition in zip(found, wanted, strict=True):
        assert (ours - definition).abs().max() < 2e-5 * definition.abs().max().clamp(min=1)


def test_gradcheck():
    scene = Scene(batch=1, heads=2, groups=1, queries=5, keys=6, width=3)
    q, k, v, _ = scene.tensors()
    scale = torch.tensor([0.8, 1.3], dtype=torch.float64)
    inputs = [q, k, v, gates(scene), SINK[:2].clone(), scale]

    def run(q, k, v, forget, sink, scale):
        return attend(q, k, v, forget=forget, sink=sink, ssmax=scale, kernel="strided")

    def under(logits):
        return run(q, k, v, logsigmoid(logits), SINK[:2], scale)

    assert torch.autograd.gradcheck(under, torch.randn(1, 2, 6).double().requires_grad_())
    inputs[3] = inputs[3] - 1e-3  # steps of the check must not leave the gates' range
    assert torch.autograd.gradcheck(run, [x.requires_grad_() for x in inputs])
