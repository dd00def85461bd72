"""Cuts judged by what they do: each number once more by whole passes, one edit at a time."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from scipy import stats

from bayesattn.probes.llm import causal
from bayesattn.probes.llm.capture import capture_prompts
from bayesattn.probes.llm.interventions import cut, edited, estimate_axis, random_axes
from bayesattn.probes.llm.sula import ALL_WORDS, fixed_conditions
from bayesattn.probes.llm.sula_answers import answer
from bayesattn.probes.measured import plain
from tests.probes.llm.sula_toys import LABELS, LAYERS, subject

EACH, AXES = 5, 6


def answered(kind="llama", layers=(1, 2)):
    shown, _ = fixed_conditions(ALL_WORDS, LABELS, each=EACH, shots=6)
    return answer(subject(kind), shown, layers)


def h2(p):
    return -(p * np.log2(p) + (1 - p) * np.log2(1 - p))


def by_whole_passes(model, answers, edits):
    """KL, errors, order by later layer, from the capture of an edited model."""
    tokens = [model.encode(text) for text in answers.condition.texts]
    base = capture_prompts(model, tokens, names=["logits"]).logits.double()
    with edited(model, edits):
        states = capture_prompts(model, tokens, names=["values", "logits"])
    after = states.logits.double()
    p, q = (torch.softmax(x, -1).numpy() for x in (base, after))
    pair = [model.encode(f" {label}")[0] for label in answers.condition.pair]
    bits = h2(torch.softmax(after[:, pair], -1)[:, 0].numpy())
    order = []
    for layer in range(min(edits) + 1, LAYERS):
        rows = states.values[layer].flatten(1).double().numpy()
        if layer in edits:
            continue
        rows = rows - rows.mean(0)
        first = rows @ np.linalg.svd(rows, full_matrices=False)[2][0]
        order.append(abs(stats.spearmanr(first, bits).statistic))
    return {
        "divergence": (p * np.log2(p / q)).sum(1).mean(),
        "error_predictive": np.abs(bits - answers.condition.predictive_bits.numpy()).mean(),
        "error_posterior": np.abs(bits - answers.condition.posterior_bits.numpy()).mean(),
        "order": order,
    }


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_effects_are_those_of_whole_passes(kind):
    model, answers = subject(kind), answered(kind)
    found = causal.intervene(model, answers, [1], axes=AXES)
    axis, _ = estimate_axis(answers.values[1], answers.bits, 1)
    for keep in (1.0, 0.5, 0.0, -1.0):
        own = by_whole_passes(model, answers, {1: cut(axis, keep)})
        row = found.doses[keep]
        for name, value in own.items():
            assert getattr(row, name) == pytest.approx(value, abs=1e-5), (keep, name)
    assert found.later == [2, 3] and found.prompts == 4 * EACH
    assert found.before.divergence == pytest.approx(0, abs=1e-12)


def test_random_cuts_are_those_of_whole_passes():
    model, answers = subject(), answered()
    found = causal.intervene(model, answers, [1], axes=AXES, seed=4)
    axis, _ = estimate_axis(answers.values[1], answers.bits, 1)
    generator = torch.Generator().manual_seed(4 + 1)
    others = random_axes(answers.values[1], axis, AXES, generator)
    each = [by_whole_passes(model, answers, {1: cut(u)}) for u in others]
    costs = np.array([one["divergence"] for one in each])
    own = by_whole_passes(model, answers, {1: cut(axis)})
    cost = found.against.divergence
    assert cost.value == pytest.approx(own["divergence"], abs=1e-6)
    assert (cost.random, cost.deviation) == pytest.approx(
        (costs.mean(), costs.std(ddof=1)), abs=1e-6
    )
    assert cost.z == pytest.approx((cost.value - costs.mean()) / costs.std(ddof=1), rel=1e-3)
    assert cost.p == (1 + (costs >= cost.value).sum()) / (1 + AXES)
    orders = np.array([one["order"] for one in each])
    assert found.random_order == pytest.approx(orders.mean(0), abs=1e-5)
    before = np.array(found.before.order)
    fall = found.against.fall_of_order
    assert fall.value == pytest.approx((before - own["order"]).mean(), abs=1e-5)
    assert fall.random == pytest.approx((before - orders).mean(), abs=1e-5)


def test_several_layers_are_cut_in_one_pass():
    model, answers = subject(), answered()
    found = causal.intervene(model, answers, [2, 1, -3], axes=2)
    assert found.layers == (1, 2) and found.later == [2, 3]
    axes = {at: estimate_axis(answers.values[at], answers.bits, at)[0] for at in (1, 2)}
    own = by_whole_passes(model, answers, {at: cut(u) for at, u in axes.items()})
    row = found.whole
    assert row.divergence == pytest.approx(own["divergence"], abs=1e-6)
    assert row.order[1] == pytest.approx(own["order"][0], abs=1e-5)
    # the second layer's values are looked at before they are cut: else they were without the axis
    with edited(model, {1: cut(axes[1])}):
        tokens = [model.encode(text) for text in answers.condition.texts]
        values = capture_prompts(model, tokens, names=["values"]).values[2].flatten(1).double()
    rows = values - values.mean(0)
    share = np.linalg.svd(rows.numpy())[2][0] @ axes[2].numpy()
    assert abs(share) > 0.5


def test_a_random_axis_that_is_the_axis_costs_as_much(monkeypatch):
    model, answers = subject(), answered()
    itself = lambda values, axis, count, generator: axis.expand(count, -1)  # noqa: E731
    monkeypatch.setattr(causal, "random_axes", itself)
    found = causal.intervene(model, answers, [1], axes=3)
    assert found.against.divergence.value == pytest.approx(found.against.divergence.random)
    assert found.relative_size == pytest.approx(1.0)


def test_sizes_are_those_of_all_positions():
    model, answers = subject(), answered()
    found = causal.intervene(model, answers, [1, 2], axes=AXES, seed=4)
    moved = {"axis": 0.0, "random": torch.zeros(AXES).double()}
    for layer in (1, 2):
        kept = []

        def keep(values, kept=kept):
            kept.append(values.flatten(2).double())
            return values

        with edited(model, {layer: keep}), torch.no_grad():
            model.model(torch.tensor([model.encode(text) for text in answers.condition.texts]))
        axis, _ = estimate_axis(answers.values[layer], answers.bits, layer)
        generator = torch.Generator().manual_seed(4 + layer)
        others = random_axes(answers.values[layer], axis, AXES, generator)
        moved["axis"] += float((kept[0] @ axis).square().mean())
        moved["random"] += (kept[0] @ others.T).square().mean((0, 1))
    expected = float((moved["random"] / moved["axis"]).sqrt().mean())
    assert found.relative_size == pytest.approx(expected, rel=1e-4)


def test_costs_are_compared_at_equal_size():
    whole = causal.intervene(subject(), answered(), [1], axes=2).whole

    def costing(bits):
        return dataclasses.replace(whole, divergence=bits)

    keeps = (1.0, 0.5, 0.0, -1.0)  # cost = size², with a whole cut of size 1
    doses = {keep: costing((1 - keep) ** 2) for keep in keeps}
    small = torch.tensor([0.3, 0.6, 0.9]).double().square()
    for factor, share in ((0.99, 0.0), (1.01, 1.0)):
        random = [costing(factor * float(size)) for size in small]
        assert causal._matched(doses, 1.0, random, small) == share


def test_a_cut_of_the_last_layer_has_no_later_layers():
    found = causal.intervene(subject(), answered(layers=(LAYERS - 1,)), [-1], axes=2)
    assert found.later == [] and found.against.fall_of_order is None
    assert found.against.divergence.value > 0 and found.random_order == []
    assert json.loads(json.dumps(plain(found)))["layers"] == [LAYERS - 1]


def test_decodability_in_the_cut_layer_is_that_without_the_axis():
    found = causal.intervene(subject(), answered(), [1], axes=2)
    before, after = found.local_decodability
    assert after != pytest.approx(before, abs=1e-6)
    assert set(found.edits) == {"only", "shift +1", "shift -1"} and {0, -1} <= set(found.doses)
    assert all(edit.divergence > 0 for edit in found.edits.values())


def test_too_little_is_refused():
    answers = answered()
    with pytest.raises(ValueError, match="at least one layer and two random axes"):
        causal.intervene(subject(), answers, [], axes=5)
    with pytest.raises(ValueError, match="at least one layer and two random axes"):
        causal.intervene(subject(), answers, [1], axes=1)
    shown, _ = fixed_conditions(ALL_WORDS, LABELS, each=3)
    few = answer(subject(), shown, (1,))
    with pytest.raises(ValueError, match="only 15 prompts have the same length and 16 are needed"):
        causal.intervene(subject(), few, [1], axes=5)
