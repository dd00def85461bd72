"""Fidelity against sums written out, and on predictors whose fidelity is known."""

import json
import math

import pytest
import torch
from torch import nn

from bayesattn.evals.fidelity import EVAL_SEED, measure
from bayesattn.evals.prediction import METRICS
from bayesattn.training.schedule import WATCH_SEED, step_seed
from bayesattn.tunnels import HMM, Bijection, Recall, Revision, StickyChain
from tests.evals.toys import Bayes, Dice, Table, uniform

TUNNELS = [
    Bijection(6, 5),
    Bijection(6, 12, replacement=True),
    HMM(3, 4, 8),
    Recall(pairs=4, queries=2, filler=2, keys=8, values=8),
    Revision(),
    StickyChain(length=6),
]


def names(tunnel):
    return f"{tunnel.name}{tunnel.horizon}"


def model_row(fidelity, part="inside", predictor="model"):
    (row,) = [r for r in fidelity.rows() if (r["part"], r["predictor"]) == (part, predictor)]
    return row


@pytest.mark.parametrize("tunnel", TUNNELS, ids=names)
def test_the_exact_posterior_has_no_error_anywhere(tunnel):
    fidelity = measure(Bayes(tunnel), tunnel, sequences=40, horizon=1)
    for name, part in fidelity.parts.items():
        row = model_row(fidelity, name)
        for metric in ("kl", "tv", "mae_tok", "mae_pos"):
            assert row[metric] < 1e-12 and row[f"{metric}_high"] < 1e-12
        assert row["support"] == row["mode"] == 1
        assert row["recall"] in (None, 1)
        scores, bayes = part.scores["model"], part.scores["bayes"]
        assert (scores.confidence - bayes.bayes_confidence).abs().max() < 1e-12
        assert max(part.curves()["kl"]) < 1e-12


def by_hand(batch, q, steps):
    """Every metric, token by token in plain Python."""
    tokens = []
    for n in range(len(q)):
        for s in steps:
            p, r = batch.posterior[n, s].tolist(), q[n, s].tolist()
            guess = max(range(len(r)), key=r.__getitem__)
            tokens.append(
                {
                    "step": s,
                    "kl": sum(a * math.log2(a / b) for a, b in zip(p, r, strict=True) if a > 0),
                    "tv": sum(abs(a - b) for a, b in zip(p, r, strict=True)) / 2,
                    "error": bits(r) - bits(p),
                    "support": p[guess] > 0,
                    "mode": p[guess] == max(p),
                    "accuracy": guess == int(batch.labels[n, s]),
                    "confidence": r[guess],
                    "known": max(p) == 1,
                }
            )

    def mean(key, chosen=tokens):
        return sum(token[key] for token in chosen) / len(chosen)

    per_step = [[token for token in tokens if token["step"] == s] for s in steps]
    bins = [[t for t in tokens if int(t["confidence"] * 15) == b] for b in range(15)]
    gaps = [len(b) * abs(mean("accuracy", b) - mean("confidence", b)) for b in bins if b]
    known = [token for token in tokens if token["known"]]
    return {
        **{key: mean(key) for key in ("kl", "tv", "support", "mode", "accuracy")},
        "mae_tok": sum(abs(token["error"]) for token in tokens) / len(tokens),
        "mae_pos": sum(abs(mean("error", group)) for group in per_step) / len(per_step),
        "recall": mean("accuracy", known) if known else None,
        "ece": sum(gaps) / len(tokens),
    }


def bits(p):
    return -sum(a * math.log2(a) for a in p if a > 0)


@pytest.mark.parametrize("zeros", [0, 2, 4], ids="zeros{}".format)
def test_every_metric_against_sums_written_out(generator, zeros):
    tunnel = Dice(zeros=zeros)  # with four zeros of five outcomes the posterior is a delta
    batch = tunnel.sample(50, torch.Generator().manual_seed(EVAL_SEED))
    noise = torch.rand(batch.posterior.shape, generator=generator, dtype=torch.float64)
    q = batch.posterior + 0.4 * noise
    q = q / q.sum(-1, keepdim=True)
    fidelity = measure(Table(q), tunnel, sequences=50, horizon=4)
    for part, steps in (("inside", range(4)), ("beyond", range(4, 6))):
        row = model_row(fidelity, part)
        for metric, expected in by_hand(batch, q, steps).items():
            assert row[metric] == pytest.approx(expected, abs=1e-12), metric


def test_inside_and_beyond_do_not_mix():
    tunnel = Dice()
    batch = tunnel.sample(30, torch.Generator().manual_seed(EVAL_SEED))
    q = batch.posterior.clone()
    q[:, 4:] = 0.2  # exact up to step 4, uniform from step 5
    fidelity = measure(Table(q), tunnel, sequences=30, horizon=4)
    assert fidelity.parts["inside"].steps == range(1, 5)
    assert fidelity.parts["beyond"].steps == range(5, 7)
    inside, beyond = model_row(fidelity), model_row(fidelity, "beyond")
    null = model_row(fidelity, "beyond", "uniform")
    assert inside["kl"] < 1e-12 and inside["steps"] == "1-4"
    assert {k: v for k, v in beyond.items() if k != "predictor"} == {
        k: v for k, v in null.items() if k != "predictor"
    }
    assert fidelity.parts["beyond"].curves()["step"] == [5, 6]


@pytest.mark.parametrize(
    "horizon, parts", [(None, ["inside"]), (6, ["inside"]), (99, ["inside"]), (0, ["beyond"])]
)
def test_parts_without_steps_are_left_out(horizon, parts):
    fidelity = measure(uniform(Dice()), Dice(), sequences=10, horizon=horizon)
    assert list(fidelity.parts) == parts


@pytest.mark.parametrize("replacement, expected", [(False, 1.1073), (True, 1.8490)])
def test_uniform_predictor_on_the_bijections_of_twenty(replacement, expected):
    tunnel = Bijection(20, 19, replacement=replacement)
    row = model_row(measure(uniform(tunnel), tunnel))
    # without replacement the entropy at a step is no random number
    assert row["mae_tok"] == pytest.approx(expected, abs=0.03 if replacement else 5e-5)
    assert row["mae_tok_low"] - 1e-4 <= expected <= row["mae_tok_high"] + 1e-4
    assert row["kl"] == pytest.approx(row["mae_tok"])  # KL(p ‖ uniform) = log C - H(p)


def test_trivial_predictors_of_the_hmm():
    tunnel = HMM(5, 5, 20, grid=None)
    fidelity = measure(uniform(tunnel), tunnel)
    assert model_row(fidelity, predictor="uniform")["mae_tok"] == pytest.approx(0.425, abs=0.012)
    constant = model_row(fidelity, predictor="constant entropy")
    assert constant["mae_tok"] == pytest.approx(0.19, abs=0.012) and constant["kl"] is None
    instance = model_row(fidelity, predictor="instance entropy")
    assert instance["mae_tok"] == pytest.approx(0.16, abs=0.012)
    # of all constants the mean posterior has the least divergence, and per sequence still less
    kl = [model_row(fidelity, predictor=p)["kl"] for p in ("instance", "constant", "uniform")]
    assert kl[0] < kl[1] < kl[2]


def test_repeated_keys_are_counted_apart():
    tunnel = Bijection(6, 12, replacement=True)

    def forgetful(inputs, scored):
        """Knows what is eliminated, not which value belongs to which key."""
        p = tunnel.exact(inputs)
        return torch.where(p.amax(-1, keepdim=True) == 1, 1 / 6, p).log()

    row = model_row(measure(forgetful, tunnel, sequences=400))
    assert row["recall"] == pytest.approx(1 / 6, abs=0.05)
    assert model_row(measure(Bayes(tunnel), tunnel, sequences=400))["recall"] == 1
    only_new = measure(uniform(Bijection(6, 5)), Bijection(6, 5), sequences=10)
    assert model_row(only_new)["recall"] is None


def test_batches_change_nothing_but_memory():
    tunnel = Dice()
    q = torch.rand(50, 6, 5, dtype=torch.float64)
    whole, pieces = Table(q), Table(q)
    one = measure(whole, tunnel, sequences=50, batch_size=64)
    many = measure(pieces, tunnel, sequences=50, batch_size=16)
    assert (whole.batches, pieces.batches) == ([50], [16, 16, 16, 2])
    assert one.to_json() == many.to_json()


def test_the_same_seed_gives_the_same_answer_and_another_another():
    tunnel = HMM(3, 3, 4)
    first, again, other = (
        measure(uniform(tunnel), tunnel, sequences=20, seed=seed).to_json() for seed in (1, 1, 2)
    )
    assert first == again != other


def test_held_out_seed_is_none_that_training_uses():
    kept = EVAL_SEED % 2**32  # what torch keeps of a seed
    assert kept >= 2**31 and kept != WATCH_SEED % 2**32
    assert all(step_seed(seed, step) < 2**31 for seed in range(5) for step in range(500))


def test_json_holds_rows_curves_and_bins_as_plain_values():
    tunnel = HMM(3, 3, 4)
    found = measure(uniform(tunnel), tunnel, sequences=20, horizon=2).to_json()
    again = json.loads(json.dumps(found, allow_nan=False))
    assert again == found
    assert found["tunnel"] == tunnel.to_dict() and found["sequences"] == 20
    assert set(found["metrics"]) == set(METRICS) <= set(found["rows"][0])
    assert [len(found["curves"][part]["kl"]) for part in ("inside", "beyond")] == [2, 2]
    bins = found["reliability"]["inside"]["model"]
    assert bins["tokens"] == [40] and bins["confidence"] == [pytest.approx(1 / 3)]


def test_an_impossible_truth_is_infinitely_surprising():
    tunnel = Dice(zeros=0)

    def sure(inputs):
        return torch.tensor([0.0, *[-math.inf] * 4]).expand(*inputs.shape[:2], 5)

    row = model_row(measure(sure, tunnel, sequences=10))
    assert row["kl"] == row["kl_low"] == row["kl_high"] == math.inf
    assert 0 < row["tv"] < 1


class Dropped(nn.Module):
    """A module with dropout, which must be off."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(5))
        self.drop = nn.Dropout(0.5)

    def forward(self, inputs):
        assert not torch.is_grad_enabled()
        return self.drop(self.scale.expand(*inputs.shape, 5))


def test_modules_are_measured_without_dropout():
    model = Dropped().train()
    fidelity = measure(model, Dice(), sequences=10)
    assert model_row(fidelity)["kl"] == pytest.approx(
        model_row(fidelity, predictor="uniform")["kl"]
    )
    assert model.training


@pytest.mark.parametrize("wrong", [{"sequences": 1}, {"batch_size": 0}, {"horizon": -1}])
def test_impossible_numbers_are_refused(wrong):
    with pytest.raises(ValueError, match="sequences must be 2 or more"):
        measure(uniform(Dice()), Dice(), **wrong)


def test_nan_is_refused():
    with pytest.raises(ValueError, match="logits contain NaN"):
        measure(lambda inputs: torch.full((*inputs.shape, 5), math.nan), Dice(), sequences=10)
