"""Entropy of attention rows: even, sharp, windowed and with a sink."""

import math

import pytest
import torch
from scipy.stats import spearmanr

from bayesattn.probes import attention
from bayesattn.probes.measured import NotApplicableError


def random_rows(generator, prompts=6, heads=3, longest=7, layers=4):
    lengths = torch.tensor([longest, 5, longest, 6, 4, 3])[:prompts]
    rows = torch.rand(layers, prompts, heads, longest, generator=generator).double()
    rows[(torch.arange(longest) >= lengths[:, None])[None, :, None].expand_as(rows)] = 0
    rows = rows / rows.sum(-1, keepdim=True)
    return list(rows), [lengths] * layers, lengths


def bits(row):
    return -sum(float(x) * math.log2(x) for x in row if x > 0)


def test_rows_by_a_loop(generator):
    rows, visible, lengths = random_rows(generator)
    found = attention.summarise(rows, visible, lengths)
    for layer, prompt in ((0, 0), (2, 1), (3, 5)):
        seen = int(lengths[prompt])
        heads = [row[:seen] for row in rows[layer][prompt]]
        entropy = sum(map(bits, heads)) / 3
        assert float(found[attention.ENTROPY][prompt, layer]) == pytest.approx(entropy)
        assert float(found[attention.EVENNESS][prompt, layer]) == pytest.approx(
            entropy / math.log2(seen)
        )
        rest = sum(bits(row[1:] / row[1:].sum()) for row in heads) / 3
        expected = rest / math.log2(seen - 1)
        assert float(found[attention.WITHOUT_SINK][prompt, layer]) == pytest.approx(expected)
        sink = sum(float(row[0]) for row in heads) / 3
        assert float(found[attention.SINK][prompt, layer]) == pytest.approx(sink)


def test_even_attention_is_one_and_a_window_counts():
    lengths = torch.tensor([8])
    wide, narrow = torch.zeros(2, 1, 2, 8).double()
    wide[:] = 1 / 8
    narrow[..., 4:] = 1 / 4
    found = attention.summarise([wide, narrow], [lengths, torch.tensor([4])], lengths)
    assert found[attention.EVENNESS][0].tolist() == pytest.approx([1, 1])
    assert found[attention.ENTROPY][0].tolist() == pytest.approx([3, 2])
    # the window hides the first key: nothing is taken away, and four keys are left
    assert found[attention.WITHOUT_SINK][0].tolist() == pytest.approx([1, 1])
    assert found[attention.SINK][0].tolist() == pytest.approx([1 / 8, 0])


def test_a_sink_hides_how_even_the_rest_is():
    rows = torch.full((1, 1, 5), 0.025).double()
    rows[..., 0] = 0.9
    lengths = torch.tensor([5])
    found = attention.summarise([rows], [lengths], lengths)
    assert float(found[attention.EVENNESS]) < 0.3 and float(
        found[attention.WITHOUT_SINK]
    ) == pytest.approx(1)


def test_prompts_of_one_token_are_left_out(generator):
    rows, _, lengths = random_rows(generator, prompts=2)
    lone = torch.zeros(1, 3, 7).double()
    lone[..., 0] = 1
    more = [torch.cat([layer, lone]) for layer in rows]
    lengths_more = torch.cat([lengths, torch.tensor([1])])
    found, all_of_them = (
        attention.measure_depth(attention.summarise(x, [n] * 4, n), draws=20)
        for x, n in ((rows, lengths), (more, lengths_more))
    )
    assert all_of_them.layers[1][attention.EVENNESS].value == pytest.approx(
        found.layers[1][attention.EVENNESS].value
    )
    alone = attention.summarise([lone], [torch.tensor([1])], torch.tensor([1]))
    with pytest.raises(NotApplicableError, match="no query sees two keys"):
        attention.measure_depth(alone, draws=5)


def test_curves_and_what_becomes_of_them(generator):
    rows, visible, lengths = random_rows(generator)
    fresh, _, _ = random_rows(generator)
    own, other = (attention.summarise(x, visible, lengths) for x in (rows, fresh))
    found = attention.measure_depth(own, other, draws=50)
    curve, even = own[attention.ENTROPY].mean(0), own[attention.EVENNESS].mean(0)
    assert [layer[attention.ENTROPY].value for layer in found.layers] == pytest.approx(
        curve.tolist()
    )
    assert found[attention.REDUCTION].value == pytest.approx(float(1 - curve[-1] / curve[0]))
    assert found[attention.REDUCTION_EVENNESS].value == pytest.approx(float(1 - even[-1] / even[0]))
    assert found[attention.DEPTH].value == pytest.approx(spearmanr(range(4), even).statistic)
    falls = sum(float(even[n + 1]) < float(even[n]) for n in range(3)) / 3
    assert found[attention.FALLING].value == pytest.approx(falls)
    theirs = other[attention.ENTROPY].mean(0)
    expected = float(1 - theirs[-1] / theirs[0])
    assert found[attention.REDUCTION].nulls["random init"] == pytest.approx(expected)
    assert found.layers[2][attention.EVENNESS].nulls["even attention"] == 1
    low, high = found[attention.REDUCTION].interval
    assert low < found[attention.REDUCTION].value < high


def test_sharpening_layer_by_layer_is_found():
    lengths = torch.tensor([6, 6, 6])
    scores = torch.tensor([0.0, 0.5, 0.1, 0.7, 0.3, 0.2]).double()
    rows = [(n * scores).softmax(0).expand(3, 2, 6) for n in range(12)]
    found = attention.measure_depth(attention.summarise(rows, [lengths] * 12, lengths), draws=10)
    assert found[attention.DEPTH].value == pytest.approx(-1) and found[attention.DEPTH].p == 0.005
    assert found[attention.FALLING].value == 1 and found[attention.REDUCTION].value > 0.3
