"""Planted frames are recovered, noise is not mistaken for one.

Three meanings of orthogonal keys, by loops.
"""

import itertools
import math

import pytest
import torch
from scipy.stats import binom
from scipy.stats import t as student

from bayesattn.models.architectures import build
from bayesattn.probes import keys as measures
from bayesattn.probes.capture import capture
from bayesattn.probes.keys import (
    effective_rank,
    embedding_keys,
    hypothesis_tokens,
    key_frame,
    measure_keys,
    pair_cosine,
    token_keys,
    welch_bound,
)
from bayesattn.probes.measured import (
    NotApplicableError,
    held_out,
    plain,
    random_cosine,
    white_noise,
)
from bayesattn.tunnels import HMM, Bijection, Recall, StickyChain
from tests.probes.common import BIJECTION, FILTER, TRANSFORMERS, inputs_of, model_of


def with_cosine(count, cosine, generator, width=32):
    """Vectors of random lengths with the same cosine between any two."""
    gram = torch.full((count, count), cosine, dtype=torch.float64)
    gram.fill_diagonal_(1.0)
    rows = torch.linalg.cholesky(gram)
    turn = torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=rows.dtype)).Q
    lengths = 0.5 + torch.rand(count, 1, generator=generator, dtype=rows.dtype)
    return lengths * rows @ turn[:count]


@pytest.mark.parametrize("cosine", [0.0, 0.05, 0.3, 0.9])
def test_known_cosines_are_found(cosine, generator):
    keys = with_cosine(12, cosine, generator)
    frame = key_frame(keys, permutations=99)
    assert frame.cosine.value == pytest.approx(cosine, abs=1e-12)
    assert frame.cosine.interval == pytest.approx((cosine, cosine), abs=1e-9)
    # only what is more orthogonal than chance counts as a frame
    assert (frame.cosine.p <= 0.01) == (cosine <= 0.05)
    assert float(pair_cosine(-keys)) == pytest.approx(cosine, abs=1e-12)


def test_a_part_that_all_keys_share_is_taken_off(generator):
    keys = with_cosine(12, 0.0, generator)
    shared = keys + 10 * torch.randn(32, generator=generator, dtype=keys.dtype)
    assert float(pair_cosine(shared)) > 0.8
    same = float(pair_cosine(keys, centre=True))
    assert float(pair_cosine(shared, centre=True)) == pytest.approx(same, abs=1e-9)


def test_effective_rank(generator):
    directions = torch.linalg.qr(torch.randn(8, 8, generator=generator, dtype=torch.float64)).Q
    for rank in (1, 3, 8):
        assert float(effective_rank(directions[:rank])) == pytest.approx(rank)
    copies = directions[:3].repeat(4, 1)
    assert float(effective_rank(copies)) == pytest.approx(3)


@pytest.mark.parametrize(
    ("width", "mean"), [(32, 0.1422), (64, 0.1001), (96, 0.0816), (192, 0.0577)]
)
def test_random_directions(width, mean, generator):
    assert random_cosine(width) == pytest.approx(mean, abs=5e-5)
    assert random_cosine(width) == pytest.approx(math.sqrt(2 / (math.pi * width)), rel=0.01)
    drawn = torch.randn(300, width, generator=generator, dtype=torch.float64)
    assert float(pair_cosine(drawn)) == pytest.approx(mean, abs=0.01)


def test_noise_is_no_frame(generator):
    """At level 5%, 200 draws of pure noise are called a frame about ten times."""
    draws = torch.randn(200, 8, 6, generator=generator, dtype=torch.float64)
    called = sum(key_frame(keys, permutations=99).cosine.p <= 0.05 for keys in draws)
    assert binom.ppf(0.001, 200, 0.05) <= called <= binom.ppf(0.999, 200, 0.05)


def test_interval_over_tokens_holds_the_truth(generator):
    draws = torch.randn(200, 12, 16, generator=generator, dtype=torch.float64)
    truth = random_cosine(16)
    held = 0
    for keys in draws:
        low, high = key_frame(keys, permutations=9).cosine.interval
        held += low <= truth <= high
    assert held >= binom.ppf(0.001, 200, 0.9)


def test_interval_is_the_jackknife_over_tokens(generator):
    keys = torch.randn(9, 5, generator=generator, dtype=torch.float64)
    left = torch.stack([pair_cosine(torch.cat([keys[:i], keys[i + 1 :]])) for i in range(9)])
    error = float((8 / 9 * (left - left.mean()).square().sum()).sqrt())
    half, mean = float(student.ppf(0.975, 8)) * error, float(pair_cosine(keys))
    found = key_frame(keys, permutations=9).cosine.interval
    assert found == pytest.approx((mean - half, mean + half))


def test_marchenko_pastur(generator):
    rows = torch.randn(400, 100, generator=generator, dtype=torch.float64)
    values = torch.linalg.svdvals(rows - rows.mean(0)).square()
    share, effective = white_noise(400, 100)
    assert float(values[0] / values.sum()) == pytest.approx(share, rel=0.05)
    participation = float(values.sum() ** 2 / values.square().sum())
    assert participation == pytest.approx(effective, rel=0.02)


@pytest.mark.parametrize("name", ["uniform", "ggd"])
def test_keys_of_the_first_layer_follow_from_the_embedding(name):
    model = model_of(name, BIJECTION)
    inputs = inputs_of(BIJECTION, 200)
    keys = token_keys(model, inputs, hypothesis_tokens(BIJECTION, inputs))
    layer = model.body.layers[0]
    for offset, tokens in ((0, "keys"), (5, "values")):
        embedded = model.embedding.weight[offset : offset + 5]
        expected = layer.self_attn.k_proj(layer.input_layernorm(embedded)).unflatten(-1, (4, -1))
        torch.testing.assert_close(keys[tokens, 0].float(), expected)
    assert keys["keys", 1].shape == (5, 4, 4)


def test_mean_keys_by_a_loop():
    model, inputs = model_of("grouped"), inputs_of(FILTER, 300)
    tokens = hypothesis_tokens(FILTER, inputs)
    found = token_keys(model, inputs, tokens)
    k = capture(model, inputs, ["layers.1.k"])["layers.1.k"]
    for name, ids in tokens.items():
        for token in range(3):
            torch.testing.assert_close(found[name, 1][token].float(), k[ids == token].mean(0))


def test_which_tokens_are_hypotheses(generator):
    recall = Recall(pairs=3, keys=5, values=6, filler=2)
    inputs = recall.sample(4, generator).inputs
    tokens = hypothesis_tokens(recall, inputs)
    assert torch.equal((tokens["keys"] >= 0).sum(1), torch.full((4,), 6))
    assert torch.equal((tokens["values"] >= 0).sum(1), torch.full((4,), 3))
    spelt = HMM(3, 4, 5, header="tokens")
    batch = spelt.sample(4, generator)
    assert torch.equal(
        hypothesis_tokens(spelt, batch.inputs)["symbols"][:, spelt.scored],
        batch.metadata["observations"],
    )
    batch = FILTER.sample(4, generator)
    tokens = hypothesis_tokens(FILTER, batch.inputs)
    assert torch.equal(tokens["symbols"][:, 6:], batch.metadata["observations"])
    assert tokens["transition rows"][0].tolist() == [0, 1, 2] + [-1] * 9
    assert tokens["emission rows"][0].tolist() == [-1] * 3 + [0, 1, 2] + [-1] * 6
    with pytest.raises(NotApplicableError, match="names a hypothesis"):
        hypothesis_tokens(StickyChain(), torch.zeros(1, 100, 20))


def test_every_head_beside_its_nulls():
    model = model_of("grouped", BIJECTION)
    initial = build(TRANSFORMERS["grouped"], BIJECTION, 0)
    frames = measure_keys(
        model, BIJECTION, held_out(BIJECTION, 64), initial=initial, permutations=9
    )
    assert len(frames) == 2 * 2 * 2  # token sets, layers, key heads
    assert {(f.layer, f.head, f.tokens) for f in frames} == {
        (layer, head, tokens)
        for layer in (0, 1)
        for head in (0, 1)
        for tokens in ("keys", "values")
    }
    for frame in frames:
        assert {"random", "shuffled", "untrained"} <= frame.cosine.nulls.keys()
        assert plain(frame)["cosine"]["nulls"] == frame.cosine.nulls
    itself = measure_keys(model, BIJECTION, held_out(BIJECTION, 64), initial=model, permutations=9)[
        0
    ]
    assert itself.cosine.nulls["untrained"] == pytest.approx(itself.cosine.value)


def test_what_has_no_keys():
    with pytest.raises(NotApplicableError, match="an lstm has no attention"):
        measure_keys(model_of("lstm", BIJECTION), BIJECTION, held_out(BIJECTION, 16))
    with pytest.raises(ValueError, match="too few to tell from chance, take 4 or more"):
        measure_keys(model_of("ggd", Bijection(3)), Bijection(3), held_out(Bijection(3), 16))
    with pytest.raises(ValueError, match="some keys never occurred"):
        measure_keys(
            model_of("ggd", Bijection(20, 5)), Bijection(20, 5), held_out(Bijection(20, 5), 1)
        )


# E|cos| of random directions; derived, not reported
COSINES = {
    16: 0.2026,
    64: 0.1001,
    80: 0.0895,
    128: 0.0707,
    576: 0.0333,
    1024: 0.0249,
    2048: 0.0176,
    2560: 0.0158,
    4096: 0.0125,
}


def cosine(a, b):
    return float(abs(a @ b) / (a.norm() * b.norm()))


def mean_pair(vectors):
    pairs = list(itertools.combinations(vectors, 2))
    return sum(cosine(a, b) for a, b in pairs) / len(pairs)


@pytest.mark.parametrize(("width", "expected"), COSINES.items())
def test_random_directions_are_the_table(width, expected):
    assert random_cosine(width) == pytest.approx(expected, abs=1e-4)


def of_layer(name, own, width, fresh=None):
    control = {} if fresh is None else {name: fresh}
    return measures.measure_layer_keys({name: own}, control, width)[name]


def test_gaussian_weights_are_as_random_directions_of_the_models_width(generator):
    weight = torch.randn(40, 16, 512, generator=generator)
    found = measures.weight_cosines(weight)
    error = float(found.std()) / math.sqrt(len(found))
    measured = of_layer(measures.WEIGHTS, found, 512)
    assert measured.value == pytest.approx(measured.nulls[measures.RANDOM], abs=3 * error)
    # the width of a head would be the wrong baseline
    assert abs(measured.value - random_cosine(16)) > 100 * error


def test_weights_by_a_loop(generator):
    weight = torch.randn(2, 5, 9, generator=generator).double()
    expected = [mean_pair(head) for head in weight]
    assert measures.weight_cosines(weight).tolist() == pytest.approx(expected)
    found = of_layer(measures.WEIGHTS, measures.weight_cosines(weight), 9, torch.tensor([0.2, 0.4]))
    assert found.value == pytest.approx(sum(expected) / 2)
    assert found.nulls == pytest.approx({measures.RANDOM: random_cosine(9), "random init": 0.3})


def test_tokens_by_a_loop(generator):
    own, fresh = torch.randn(2, 6, 3, 8, generator=generator).double()
    found = of_layer(measures.AS_ATTENDED, own, 40, fresh)
    assert found.value == pytest.approx(sum(mean_pair(own[:, h]) for h in range(3)) / 3)
    expected = sum(mean_pair(fresh[:, h]) for h in range(3)) / 3
    assert found.nulls["random init"] == pytest.approx(expected)
    assert found.nulls[measures.RANDOM] == random_cosine(8)
    assert found.interval.low < found.value < found.interval.high


def test_heads_by_a_loop(generator):
    own, fresh = torch.randn(2, 7, 3, 8, generator=generator).double()
    found = of_layer(measures.HEADS, own, 40, fresh)
    assert found.value == pytest.approx(sum(map(mean_pair, own)) / 7)
    assert found.nulls["random init"] == pytest.approx(sum(map(mean_pair, fresh)) / 7)
    assert found.nulls[measures.RANDOM] == random_cosine(8)


def test_one_head_has_no_other(generator):
    own = {measures.HEADS: torch.randn(5, 1, 8, generator=generator)}
    assert measures.measure_layer_keys(own, {}, 8) == {}


def test_different_tokens_are_first_occurrences_after_the_first_position(monkeypatch):
    prompts = [[4, 7, 4, 7], [9, 9, 4]]
    assert measures.different_tokens(prompts) == [1, 2, 5]
    monkeypatch.setattr(measures, "TOKENS", 2)
    assert measures.different_tokens(prompts) == [1, 2]


def test_welch_bound_is_reached_by_simplex_and_cross_and_by_nothing_below(generator):
    simplex = torch.eye(20, dtype=torch.float64) - 1 / 20
    assert welch_bound(20, 32, centre=True) == pytest.approx(1 / 19)
    assert float(pair_cosine(simplex)) == pytest.approx(1 / 19)
    assert welch_bound(20, 32) == welch_bound(32, 32) == 0
    angles = torch.arange(3, dtype=torch.float64) * 2 * math.pi / 3
    three = torch.stack([angles.cos(), angles.sin()], 1)
    assert welch_bound(3, 2) == pytest.approx(0.5) == float(pair_cosine(three))
    drawn = torch.randn(50, 20, 16, generator=generator, dtype=torch.float64)
    rms = (measures.cosines(drawn).square().sum((1, 2)) / (20 * 19)).sqrt()
    assert float(rms.min()) > welch_bound(20, 16) > 0


def test_embedding_keys_are_those_of_attention_where_no_position_is_added():
    model = model_of("ggd", BIJECTION)
    inputs = inputs_of(BIJECTION)
    tokens = inputs.unique()
    found = embedding_keys(model, tokens)
    keys = capture(model, inputs, ["layers.0.k"])["layers.0.k"]
    for at, token in enumerate(tokens):
        assert torch.allclose(keys[inputs == token], found[at].expand(1, -1, -1), atol=1e-5)
