"""What every tunnel must do."""

import dataclasses
import json
import math

import pytest
import torch
from torch import Generator

from bayesattn.bits import entropy
from bayesattn.tunnels import (
    HMM,
    RRXOR,
    TUNNELS,
    Batch,
    Bijection,
    Dice,
    GroupFilter,
    Hops,
    Labels,
    LeakError,
    Markov,
    Mess3,
    Recall,
    Revision,
    StickyChain,
    make_tunnel,
)

TUNNEL_CASES = [
    Bijection(6),
    Bijection(5, 5),
    Bijection(4, 9, replacement=True),
    Bijection(2, 1),
    HMM(3, 4, 6),
    HMM(4, 3, 6, header="tokens"),
    HMM(3, 2, 5, alpha=0.5, min_prob=0.0, grid=None),
    HMM(2, 2, 1),
    Recall(pairs=5, queries=4, filler=3, keys=9, values=7),
    Recall(pairs=1, queries=1, filler=0, keys=1, values=2),
    Revision(hypotheses=4, evidence=6, symbols=3, filler=2),
    Revision(hypotheses=3, evidence=4, symbols=5, filler=0, min_prob=0.0, grid=None),
    StickyChain(symbols=5, length=12, width=3),
    StickyChain(symbols=4, length=7, width=6, noise=0.0),
    StickyChain(symbols=2, length=40, width=1, noise=2.0),
    Hops(6, 4, 4, "direct"),
    Hops(6, 5, 3, "cot"),
    Hops(5, 4, 5, "filler"),
    Hops(5, 4, 3, "shuffled"),
    Hops(5, 6, 2, "short"),
    Hops(2, 1, 1),
    GroupFilter("S3", 5),
    GroupFilter("Z5", 4, scratch="product"),
    GroupFilter("S3", 4, 0.6, "product", "generators"),
    GroupFilter("S4", 4, scratch="argmax"),
    GroupFilter("0 1; 1 0", 3, 1.0, "filler"),
    Mess3(),
    Mess3(4, 0.15, 0.6),
    RRXOR(),
    RRXOR(5, 0.3, 0.8),
    Dice(),
    Dice(9, 6, 0.3),
    Markov(),
    Markov(7, 2, 2.0),
    Labels(),
    Labels(5, 0.7),
]
every_tunnel = pytest.mark.parametrize("tunnel", TUNNEL_CASES, ids=repr)


@every_tunnel
def test_shapes_and_types(tunnel, generator):
    batch = tunnel.sample(8, generator)
    assert (tunnel.vocabulary is None) != (tunnel.features is None)
    if tunnel.features is None:
        assert batch.inputs.dtype == torch.int64
        assert batch.inputs.shape == (8, tunnel.positions)
        assert batch.inputs.min() >= 0 and batch.inputs.max() < tunnel.vocabulary
    else:
        assert batch.inputs.dtype == torch.float32
        assert batch.inputs.shape == (8, tunnel.positions, tunnel.features)
    assert batch.inputs.is_contiguous()
    assert batch.posterior.is_contiguous()
    assert batch.scored.dtype == batch.labels.dtype == torch.int64
    assert batch.posterior.dtype == torch.float64
    assert batch.posterior.shape == (8, tunnel.horizon, tunnel.outcomes)
    assert batch.labels.shape == (8, tunnel.horizon)
    assert torch.equal(batch.scored, tunnel.scored)
    assert len(batch.scored) == tunnel.horizon
    assert (batch.scored.diff() > 0).all()
    assert tunnel.prefix <= batch.scored[0] and batch.scored[-1] < tunnel.positions
    assert all(len(values) == 8 for values in batch.metadata.values())


@every_tunnel
def test_posteriors_are_distributions_that_the_inputs_alone_give(tunnel, generator):
    batch = tunnel.sample(200, generator)
    assert (batch.posterior >= 0).all()
    torch.testing.assert_close(
        batch.posterior.sum(-1), torch.ones(200, tunnel.horizon).double(), rtol=0, atol=1e-12
    )
    torch.testing.assert_close(tunnel.exact(batch.inputs), batch.posterior, rtol=0, atol=1e-14)


@every_tunnel
def test_the_same_generator_state_gives_the_same_batch(tunnel):
    one, same, other = (tunnel.sample(50, Generator().manual_seed(s)) for s in (7, 7, 8))
    assert torch.equal(one.inputs, same.inputs)
    assert torch.equal(one.posterior, same.posterior)
    assert torch.equal(one.labels, same.labels)
    assert not torch.equal(one.inputs, other.inputs)


@every_tunnel
def test_sampling_leaves_the_global_generator_alone(tunnel, generator):
    before = torch.get_rng_state()
    tunnel.sample(4, generator)
    assert torch.equal(torch.get_rng_state(), before)


@every_tunnel
def test_nothing_leaks(tunnel, generator):
    tunnel.check_leaks(tunnel.sample(64, generator), generator)


@every_tunnel
def test_labels_are_distributed_as_the_posterior_says(tunnel, generator):
    """Calibration per step and outcome, and the log score equals the entropy on average."""
    batch = tunnel.sample(20_000, generator)
    hits = torch.nn.functional.one_hot(batch.labels, tunnel.outcomes).double()
    excess = hits - batch.posterior
    error = excess.mean(0) / (excess.std(0) / math.sqrt(20_000)).clamp(min=1e-4)
    assert error.abs().max() < 5
    # Weighted by the posterior itself, so that over- or under-confidence cannot cancel.
    confidence = (excess * batch.posterior).sum(-1)
    spread = (confidence.std(0) / math.sqrt(20_000)).clamp(min=1e-5)
    assert (confidence.mean(0) / spread).abs().max() < 5
    surprise = -batch.posterior.gather(-1, batch.labels[..., None])[..., 0].log2()
    gap = surprise - entropy(batch.posterior)
    assert abs(gap.mean()) <= 5 * gap.mean(1).std() / math.sqrt(20_000) + 1e-12


@every_tunnel
def test_beliefs_are_distributions_or_refused(tunnel, generator):
    batch = tunnel.sample(20, generator)
    if tunnel.name not in ("hmm", "sticky", "mess3", "rrxor"):
        with pytest.raises(
            ValueError, match=f"{tunnel.name} tunnel: take one of hmm, sticky, mess3, rrxor"
        ):
            tunnel.beliefs(batch.inputs)
        return
    beliefs = tunnel.beliefs(batch.inputs)
    assert beliefs.dtype == torch.float64
    assert beliefs.shape[:2] == (20, tunnel.horizon)
    assert (beliefs >= 0).all()
    torch.testing.assert_close(
        beliefs.sum(-1), torch.ones(20, tunnel.horizon).double(), rtol=0, atol=1e-12
    )


@every_tunnel
def test_round_trip_through_json(tunnel):
    assert make_tunnel(**json.loads(json.dumps(tunnel.to_dict()))) == tunnel


@every_tunnel
def test_stretched_is_the_same_task_over_a_longer_horizon(tunnel, generator):
    if isinstance(tunnel, Bijection) and not tunnel.replacement:
        with pytest.raises(ValueError, match="replacement=True"):
            tunnel.stretched(3)
        return
    if isinstance(tunnel, Hops):
        with pytest.raises(ValueError, match="no tokens for more"):
            tunnel.stretched(3)
        return
    if isinstance(tunnel, Recall) and tunnel.filler == 0:
        with pytest.raises(ValueError, match="no gap to stretch"):
            tunnel.stretched(3)
        return
    longer = tunnel.stretched(3)
    assert type(longer) is type(tunnel)
    assert (longer.outcomes, longer.vocabulary, longer.features, longer.prefix) == (
        tunnel.outcomes, tunnel.vocabulary, tunnel.features, tunnel.prefix
    )  # fmt: skip
    if isinstance(tunnel, Recall):
        assert longer.filler == 3 * tunnel.filler
        assert longer.horizon == tunnel.horizon
    else:
        assert longer.horizon == 3 * tunnel.horizon
    longer.check_leaks(longer.sample(16, generator), generator)
    with pytest.raises(ValueError, match="factor must be positive and finite, not 0"):
        tunnel.stretched(0)


@every_tunnel
def test_inputs_of_another_shape_are_refused(tunnel, generator):
    inputs = tunnel.sample(2, generator).inputs
    longer = torch.cat([inputs, inputs], dim=1)
    with pytest.raises(ValueError, match=f"inputs of this {tunnel.name} tunnel have the shape"):
        tunnel.exact(longer)


def test_a_batch_moves_to_a_device_whole(generator):
    batch = HMM().sample(2, generator).to("meta")
    tensors = [batch.inputs, batch.scored, batch.posterior, batch.labels, *batch.metadata.values()]
    assert isinstance(batch, Batch)
    assert {tensor.device.type for tensor in tensors} == {"meta"}


def test_a_tunnel_is_found_by_its_name():
    assert list(TUNNELS) == [
        *("bijection", "hmm", "recall", "revision", "sticky", "hops", "group"),
        *("mess3", "rrxor", "dice", "markov", "labels"),
    ]
    for name, kind in TUNNELS.items():
        assert type(make_tunnel(name)) is kind


def test_unknown_names_and_fields_list_the_known():
    with pytest.raises(ValueError, match=r"'hm' \(did you mean 'hmm'\?\).*bijection, hmm, recall"):
        make_tunnel("hm")
    with pytest.raises(ValueError, match=r"bijection tunnel has no field 'states'.*alphabet, len"):
        make_tunnel("bijection", states=3)


def _leaking(batch, **changes):
    return dataclasses.replace(batch, **changes)


def test_a_posterior_that_knows_the_label_is_a_leak(generator):
    tunnel = HMM(3, 3, 5)
    batch = tunnel.sample(16, generator)
    oracle = torch.nn.functional.one_hot(batch.labels, 3).double()
    with pytest.raises(LeakError, match="does not follow from its inputs alone"):
        tunnel.check_leaks(_leaking(batch, posterior=oracle), generator)


def test_a_label_at_its_own_position_is_a_leak(generator):
    """The published bijection builder put the answer at the scored position."""

    class Copying(Bijection):
        def exact(self, inputs):
            return torch.full(
                (len(inputs), self.horizon, self.outcomes), 1 / self.outcomes
            ).double()

    tunnel = Copying(6)
    batch = tunnel.sample(16, generator)
    inputs = batch.inputs.clone()
    inputs[:, batch.scored] = tunnel.label_tokens(batch.labels)
    cheat = _leaking(batch, inputs=inputs, posterior=tunnel.exact(inputs))
    with pytest.raises(LeakError, match="is the label of that position"):
        tunnel.check_leaks(cheat, generator)


@pytest.mark.parametrize("length", [5, 100])
def test_a_posterior_that_sees_the_future_is_a_leak(length, generator):
    class Smoothing(HMM):
        def exact(self, inputs):
            return super().exact(inputs).flip(1)

    tunnel = Smoothing(3, 3, length)
    batch = tunnel.sample(16, generator)
    with pytest.raises(LeakError, match="depends on inputs after it"):
        tunnel.check_leaks(_leaking(batch, posterior=tunnel.exact(batch.inputs)), generator)


def test_an_impossible_label_is_a_leak(generator):
    tunnel = Bijection(6)
    batch = tunnel.sample(16, generator)
    with pytest.raises(LeakError, match="impossible under its own posterior"):
        tunnel.check_leaks(_leaking(batch, labels=batch.labels.flip(0)), generator)
