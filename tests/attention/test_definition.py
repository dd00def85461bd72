"""The dense kernel against formulas written out by hand, and the identities of the papers."""

import math

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from bayesattn import SSMax, attend
from bayesattn.priors import GeneralizedGaussian, Laplace, Uniform
from tests.attention.scenes import HORIZON, Scene, ggd, ssmax

KERNELS = ["dense", "strided", "auto"]


def entropy(log_densities):
    shares = [math.exp(x) / sum(math.exp(y) for y in log_densities) for x in log_densities]
    return -sum(share * math.log(share) for share in shares)


def by_hand(scene, table, scale, scope):
    """Attention one query at a time, in Python, from the sentences of the documentation."""
    q, k, v, _ = scene.tensors()
    rule = scene.visibility
    offset = rule.get("offset", scene.keys - scene.queries)
    out = torch.zeros_like(q)
    for b in range(scene.batch):
        for h in range(scene.heads):
            g = h // (scene.heads // scene.groups)
            for row in range(scene.queries):
                i = offset + row
                start = int(rule["padding"][b]) if "padding" in rule else 0
                if "documents" in rule:
                    ids = rule["documents"][b]
                    begin = i
                    while begin > 0 and ids[begin - 1] == ids[i]:
                        begin -= 1
                    start = max(start, begin)
                keys = [j for j in range(start, i + 1) if j > i - rule.get("window", 10**9)]
                if not keys:
                    continue
                exempt = start + rule.get("exempt", 0)
                priors = [0.0 if j < exempt else float(table[h, i - j]) for j in keys]
                log_n = math.log(len(keys))
                if scope == "horizon" and len(keys) > HORIZON:
                    sinks = sum(j < exempt for j in keys)
                    nearest = len(keys) - max(HORIZON - sinks, 0)
                    within = priors[:sinks] + priors[max(nearest, sinks) :]
                    log_n = math.log(len(within)) + entropy(priors) - entropy(within)
                factor = 1.0 if scope is None else float(scale[h]) * log_n
                scores = []
                for j, prior in zip(keys, priors, strict=True):
                    content = float(q[b, h, row] @ k[b, g, j]) / math.sqrt(scene.width)
                    scores.append(content * factor + prior * (factor if scope != "content" else 1))
                weights = torch.tensor(scores, dtype=torch.float64).softmax(0)
                out[b, h, row] = weights @ v[b, g, keys]
    return out


RULES = {
    "causal": {},
    "cache": {"offset": 4},
    "padding": {"padding": torch.tensor([3, 0])},
    "documents": {"documents": torch.tensor([[0] * 4 + [1] * 7, [0] * 1 + [3] * 10])},
    "window": {"window": 4},
    "exempt": {"exempt": 2, "window": 9, "padding": torch.tensor([3, 0])},
}


@pytest.mark.parametrize("kernel", ["dense", "strided"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("scope", [None, "content", "content+prior", "horizon"])
def test_matches_the_sentences(scope, rule, kernel):
    queries = 5 if rule == "cache" else 11
    scene = Scene(groups=2, queries=queries, keys=11, visibility=RULES[rule])
    prior, temper = ggd(4, 0.5), ssmax(4, scope)
    q, k, v, _ = scene.tensors()
    found = attend(q, k, v, prior, ssmax=temper, kernel=kernel, **scene.visibility)
    scale = None if temper is None else temper.scale
    with torch.no_grad():
        wanted = by_hand(scene, prior.table(11), scale, scope)
    assert torch.allclose(found, wanted, atol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
def test_no_encoding_is_the_uniform_prior(kernel):
    q, k, v, _ = Scene().tensors(torch.float32)
    plain = scaled_dot_product_attention(q, k, v, is_causal=True)
    for prior in (None, Uniform(4), torch.zeros(4, 21), ggd(4, 0.0, torch.float32)):
        assert (attend(q, k, v, prior, kernel=kernel) - plain).abs().max() < 1e-6


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("heads", [4, 6])
def test_alibi_is_the_laplace_prior(kernel, heads):
    q, k, v, _ = Scene(heads=heads, groups=heads).tensors(torch.float32)
    slopes = Laplace(heads).slopes
    distance = (torch.arange(21)[:, None] - torch.arange(21)[None, :]).float()
    bias = (-slopes[:, None, None] * distance).masked_fill(distance < 0, -math.inf)
    alibi = scaled_dot_product_attention(q, k, v, attn_mask=bias)
    for prior in (Laplace(heads), GeneralizedGaussian(heads, init="alibi")):
        assert (attend(q, k, v, prior, kernel=kernel) - alibi).abs().max() < 1e-6


@pytest.mark.parametrize("beta", [-0.6, 0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("scope", [None, "content", "content+prior", "horizon"])
def test_theorem_1(beta, scope):
    scene = Scene(visibility={"padding": torch.tensor([0, 6]), "window": 9})
    q, k, v, _ = scene.tensors()
    args = {"ssmax": ssmax(4, scope), **scene.visibility}
    parts = attend(q, k, v, ggd(4, beta), decompose=True, **args)
    product = parts.likelihood * parts.prior * parts.evidence
    assert (product - parts.posterior).abs().max() < 1e-12
    seen = torch.ones(2, 4, 21)
    seen[1, :, :6] = 0  # rows of padding
    for factor in (parts.likelihood, parts.prior, parts.posterior):
        assert torch.allclose(factor.sum(-1), seen.double())
    exact = attend(q, k, v, ggd(4, beta), kernel="dense", **args)
    assert torch.allclose(parts.output, exact, atol=1e-12)


def test_ssmax_content_is_a_scale_of_the_query():
    q, k, v, _ = Scene().tensors()
    factor = 1.7 * torch.arange(1, 22).double().log()
    wanted = attend(q * factor[:, None], k, v, ggd(4, 0.5), kernel="dense")
    scaled = SSMax(4, init=1.7, scope="content").double()
    for kernel in ("dense", "strided"):
        found = attend(q, k, v, ggd(4, 0.5), ssmax=scaled, kernel=kernel)
        assert torch.allclose(found, wanted, atol=1e-11)


def test_bare_temperatures_scale_the_prior_too():
    q, k, v, _ = Scene().tensors()
    module = ssmax(4, "content+prior")
    found = attend(q, k, v, ggd(4, 0.5), ssmax=module.scale)
    assert torch.equal(found, attend(q, k, v, ggd(4, 0.5), ssmax=module))


@pytest.mark.parametrize("kernel", ["dense", "strided"])
def test_packed_documents_are_separate_sequences(kernel):
    q, k, v, _ = Scene().tensors()
    documents = torch.tensor([[0] * 9 + [1] * 12] * 2)
    args = {"ssmax": ssmax(4, "content+prior"), "kernel": kernel, "exempt": 2}
    packed = attend(q, k, v, ggd(4, 0.5), documents=documents, **args)
    for part in (slice(0, 9), slice(9, 21)):
        alone = attend(q[:, :, part], k[:, :, part], v[:, :, part], ggd(4, 0.5), **args)
        assert torch.allclose(packed[:, :, part], alone, atol=1e-12)


@pytest.mark.parametrize("kernel", ["dense", "strided"])
@pytest.mark.parametrize("scope", [None, "content+prior", "horizon"])
@pytest.mark.parametrize("beta", [-0.6, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_chunks_against_a_cache_equal_one_pass(chunk, beta, scope, kernel):
    """Also with a cache longer than the text, whose unwritten rows hold NaN."""
    q, k, v, _ = Scene(queries=70, keys=70).tensors()
    prior, temper = ggd(4, beta), ssmax(4, scope)
    whole = attend(q, k, v, prior, ssmax=temper, kernel="dense", window=50, exempt=3)
    cache = [torch.full((2, 4, 90, 8), math.nan).double() for _ in "kv"]
    for start in range(0, 70, chunk):
        part = slice(start, min(start + chunk, 70))
        cache[0][:, :, part], cache[1][:, :, part] = k[:, :, part], v[:, :, part]
        args = {"offset": start, "window": 50, "exempt": 3, "kernel": kernel}
        found = attend(q[:, :, part], *cache, prior, ssmax=temper, **args)
        assert torch.allclose(found, whole[:, :, part], atol=1e-11)


@pytest.mark.parametrize("beta", [-0.6, -2.0])
def test_a_negative_shape_removes_the_own_token(beta):
    q, k, v, _ = Scene().tensors()
    weights = attend(q, k, v, ggd(4, beta), decompose=True).posterior
    own = weights.diagonal(dim1=-2, dim2=-1)
    assert (own[..., 1:] < 1e-6).all()
    assert torch.allclose(own[..., 0], torch.ones(()).double())


def test_the_first_gradient_of_a_uniform_start_is_in_the_shape():
    q, k, v, grad = Scene().tensors()
    prior = GeneralizedGaussian(4).double()
    for kernel in ("dense", "strided"):
        prior.zero_grad()
        attend(q, k, v, prior, kernel=kernel).backward(grad)
        assert prior.theta_alpha.grad.abs().max() < 1e-12
        assert (prior.theta_beta.grad.abs() > 1e-3).all()
