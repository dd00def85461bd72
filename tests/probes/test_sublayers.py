"""The sublayer that was given the answer is the one that gains."""

import pytest
import torch

from bayesattn.bits import entropy
from bayesattn.probes.measured import NotApplicableError, held_out
from bayesattn.probes.sublayers import compare, measure_sublayers
from tests.probes.common import FILTER, model_of


def states(generator, count=100):
    bits = torch.rand(count, 5, 1, generator=generator, dtype=torch.float64)
    noise = torch.randn(count, 5, 8, generator=generator, dtype=torch.float64)
    direction = torch.randn(8, generator=generator, dtype=torch.float64)
    return bits, noise, direction


def test_an_answer_that_is_written_is_a_gain(generator):
    bits, noise, direction = states(generator)
    found = compare(noise, noise + 50 * bits * direction, bits)
    first, second, gain, carried = found.before, found.after, found.gain, found.carried
    assert first < 0.05 and second > 0.9
    assert gain.value == pytest.approx(second - first)
    assert gain.interval.low > 0.8
    assert carried < 0.5  # the probe fitted before knows nothing of the new direction


def test_a_turned_code_is_no_loss(generator):
    """The frozen probe fails, the refitted one does not: only the latter compares fairly."""
    bits, noise, direction = states(generator)
    x = noise + 50 * bits * direction
    turn = torch.linalg.qr(torch.randn(8, 8, generator=generator, dtype=torch.float64)).Q
    found = compare(x, x @ turn, bits)
    first, second, gain, carried = found.before, found.after, found.gain, found.carried
    assert gain.value == pytest.approx(0, abs=1e-3) and first == pytest.approx(second, abs=1e-3)
    assert carried < 0


def test_nothing_changes_nothing_gained(generator):
    bits, noise, _ = states(generator)
    found = compare(noise, noise, bits)
    first, second, gain, carried = found.before, found.after, found.gain, found.carried
    assert first == second == carried
    assert gain.value == 0 and gain.interval == (0, 0)


def test_interval_of_a_gain_of_noise_holds_zero(generator):
    held = 0
    for _ in range(50):
        bits, noise, _ = states(generator, 60)
        low, high = compare(noise, torch.randn_like(noise), bits).gain.interval
        held += low <= 0 <= high
    assert held >= 40


def test_every_sublayer_of_every_layer():
    model, initial = model_of("late"), model_of("late", seed=1)
    found = measure_sublayers(model, held_out(FILTER, 32), initial=initial)
    places = [(s.layer, s.sublayer) for s in found if s.target == "entropy"]
    assert places == [
        (0, "attention"),
        (0, "feed-forward"),
        (1, "feed-forward"),
        (2, "feed-forward"),
    ]
    by_place = {(s.layer, s.sublayer): s for s in found if s.target == "entropy"}
    first, second = by_place[0, "attention"], by_place[0, "feed-forward"]
    assert first.after == pytest.approx(second.before)
    for s in found:
        assert s.gain.value == pytest.approx(s.after - s.before) and "untrained" in s.gain.nulls
    ends = first.before + sum(s.gain.value for s in by_place.values())
    assert ends == pytest.approx(by_place[2, "feed-forward"].after)


def test_the_target_is_the_entropy_at_the_same_place():
    """States that hold the entropy itself, put where a probe looks, are read off."""
    batch = FILTER.sample(40, torch.Generator().manual_seed(0))
    bits = entropy(batch.posterior)[..., None]
    x = torch.cat([bits, torch.randn(40, 6, 3)], dim=-1)
    assert compare(torch.zeros_like(x), x, bits).after > 0.999


def test_models_without_sublayers():
    with pytest.raises(NotApplicableError, match="lstm has no sublayers"):
        measure_sublayers(model_of("lstm"), held_out(FILTER, 16))
    with pytest.raises(ValueError, match="too few"):
        measure_sublayers(model_of("ggd"), held_out(FILTER, 4))
