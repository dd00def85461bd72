"""Self-written chains, judged with models whose behaviour is known exactly."""

import math

import pytest
import torch
from torch import Generator

from bayesattn.bits import entropy
from bayesattn.evals.chains import (
    Bayes,
    knee,
    measure_hops,
    measure_overwriting,
    measure_tracking,
    overwrite,
    write_chains,
    write_most_probable,
)
from bayesattn.models.architectures import Transformer, build
from bayesattn.tunnels import GroupFilter, Hops

COT = Hops(6, 4, 4, "cot")


class Deaf(Bayes):
    """Writes as Bayes does and answers as if nothing had been written."""

    def __call__(self, inputs, scored):
        logits = super().__call__(inputs, scored)
        if int(scored[-1]) == self.tunnel.positions - 1:
            logits[:, -1] = self.tunnel.marginal(inputs).log()
        return logits


class Uniform(Bayes):
    def __call__(self, inputs, scored):
        return torch.zeros(len(inputs), len(scored), self.tunnel.outcomes)


@pytest.mark.parametrize("mode", ["direct", "cot", "filler", "shuffled", "short"])
def test_bayes_makes_no_error_but_that_of_finite_chains(mode):
    tunnel = Hops(6, 4, 4, mode)
    scores = measure_hops(Bayes(tunnel), tunnel, sequences=200, chains=400)
    assert len(scores) == 4
    for score in scores:
        assert score.conditional_mae < 1e-12 and score.conditional_kl < 1e-12
        assert all(error < 1e-12 for error in score.scratch_mae)
        sampled = mode in ("cot", "short")
        assert score.mae < (0.02 if sampled else 1e-12)
        assert score.kl < (0.01 if sampled else 1e-12)
    used = {"cot": [0, 1, 2, 3], "shuffled": [0, 1, 2, 3], "short": [0, 0, 1, 1]}
    assert [len(score.scratch_mae) for score in scores] == used.get(mode, [0] * 4)


def test_one_chain_is_compared_with_its_own_posterior_not_with_the_marginal():
    """A single chain has made up its mind: right given the chain, wrong as a marginal."""
    tunnel = Hops(6, 4, 3, "cot")
    last = measure_hops(Bayes(tunnel), tunnel, sequences=300, chains=1)[-1]
    assert last.conditional_mae < 1e-12
    assert last.mae > 0.2


def test_errors_of_the_uniform_predictor():
    """|log2 C - H|, chain by chain and as a mean: all chains say the same."""
    tunnel = Hops(6, 3, 4, "cot")
    for score in measure_hops(Uniform(tunnel), tunnel, sequences=90, chains=3):
        assert score.mae == pytest.approx(math.log2(7) - score.bayes, abs=1e-9)
        assert score.kl == pytest.approx(math.log2(7) - score.bayes, abs=1e-9)


def test_chains_are_distributed_as_the_model_says(generator):
    """All V symbols are unknown but one pair: the second hop is uniform over what is left."""
    tunnel = Hops(4, 3, 1, "cot")
    batch = tunnel.sample(400, generator)
    rows = batch.inputs[batch.metadata["hops"] == 3][:1]
    written = write_chains(Bayes(tunnel), tunnel, rows, 8000, generator)
    assert int(written.times.sum()) == 8000
    assert len(written.inputs.unique(dim=0)) == len(written.inputs)
    places = written.inputs[:, tunnel.written]
    assert (places < 4).all()
    first = places[0, 0]
    assert (places[:, 0] == first).all()  # revealed
    expected = tunnel.exact(rows)[0, 1]
    found = torch.zeros(5, dtype=torch.float64).index_add_(
        0, places[:, 1], written.times.double() / 8000
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=0.02)


def test_merged_chains_give_what_single_ones_give(generator):
    """A trained-looking network: every chain on its own, drawn one at a time, has the same mean."""
    tunnel = Hops(4, 3, 2, "cot")
    model = build(Transformer(layers=1, width=16, heads=2, encoding="learned"), tunnel, 0)
    batch = tunnel.sample(3, generator)
    merged = write_chains(model, tunnel, batch.inputs, 3000, Generator().manual_seed(1))
    repeated = batch.inputs.repeat_interleave(3000, dim=0)
    single = write_chains(model, tunnel, repeated, 1, Generator().manual_seed(2))
    assert (single.times == 1).all() and len(single.inputs) == 9000
    at = tunnel.written
    for number in range(3):
        own = merged.sequence == number
        one = torch.zeros(tunnel.vocabulary).index_add_(
            0, merged.inputs[own][:, at[1]], merged.times[own].float() / 3000
        )
        rows = single.inputs[single.sequence // 3000 == number]
        other = torch.bincount(rows[:, at[1]], minlength=tunnel.vocabulary) / 3000
        torch.testing.assert_close(one, other, rtol=0, atol=0.05)
    assert torch.equal(merged.inputs[:, : at[0]], batch.inputs[merged.sequence][:, : at[0]])


def test_followers_and_deaf_ones_are_told_apart():
    follower = measure_overwriting(Bayes(COT), COT, sequences=300)
    deaf = measure_overwriting(Deaf(Hops(6, 4, 6, "cot")), Hops(6, 4, 6, "cot"), sequences=300)
    assert follower.kl_to_new < 1e-12 and follower.kl_to_old > 1
    assert deaf.kl_to_old < 1e-12 and deaf.kl_to_new > 1
    assert deaf.followed < -1 < 1 < follower.followed


def test_an_overwritten_scratch_goes_on_from_the_new_symbol(generator):
    batch = COT.sample(200, generator)
    place = (torch.rand(200, generator=generator) * (batch.metadata["hops"] - 1)).long()
    symbol = torch.randint(6, (200,), generator=generator)
    inputs = overwrite(COT, batch, place, symbol)
    for row in range(200):
        hops, permutation = int(batch.metadata["hops"][row]), batch.metadata["permutation"][row]
        expected = batch.inputs[row, COT.written].tolist()
        current = int(symbol[row])
        for number in range(int(place[row]), hops - 1):
            expected[number] = current
            current = int(permutation[current])
        assert inputs[row, COT.written].tolist() == expected
    outside = [at for at in range(COT.positions) if at not in COT.written.tolist()]
    assert torch.equal(inputs[:, outside], batch.inputs[:, outside])


def test_only_a_scratch_can_be_overwritten():
    with pytest.raises(ValueError, match="no scratch to overwrite"):
        measure_overwriting(Bayes(Hops(6, 4, 4, "direct")), Hops(6, 4, 4, "direct"))
    with pytest.raises(ValueError, match="only a scratch of mode cot can be overwritten"):
        measure_overwriting(Bayes(Hops(6, 4, 4, "short")), Hops(6, 4, 4, "short"))


@pytest.mark.parametrize("scratch", ["none", "product", "argmax", "filler"])
def test_tracking_with_self_written_scratch(scratch, generator):
    tunnel = GroupFilter("S3", 4, 0.8, scratch)
    errors = measure_tracking(Bayes(tunnel), tunnel, sequences=50)
    assert max(errors.mae + errors.kl) < 1e-12
    assert len(errors.mae) == len(errors.kl) == 4
    batch = tunnel.sample(20, generator)
    blank = batch.inputs.clone()
    blank[:, tunnel.written] = 0
    assert torch.equal(write_most_probable(Bayes(tunnel), tunnel, blank), batch.inputs)


def test_tracking_compares_beliefs_with_beliefs():
    tunnel = GroupFilter("Z5", 3, 0.8, "product")
    errors = measure_tracking(Uniform(tunnel), tunnel, sequences=400)
    batch = tunnel.sample(400, Generator().manual_seed(7_000_000_002))
    expected = (math.log2(5) - entropy(batch.posterior[:, 1::2])).mean(0).tolist()
    assert errors.kl == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    "errors, expected",
    [([0.0, 0.01, 0.2, 0.01], 2), ([0.3, 0.0], 0), ([0.01, 0.04], 2), ([0.05], 0), ([], 0),
     ([0.0, float("nan"), 0.0], 1)],
)  # fmt: skip
def test_the_knee_is_where_errors_first_reach_the_limit(errors, expected):
    assert knee(errors) == expected


def test_every_number_of_hops_must_be_asked_for():
    with pytest.raises(ValueError, match="2 sequences do not ask for every number of hops up to 4"):
        measure_hops(Bayes(COT), COT, sequences=2, chains=1)
