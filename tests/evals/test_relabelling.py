"""Renaming hidden states, on models whose answer is known."""

import json
import math

import pytest
import torch
from torch import nn

from bayesattn.evals.fidelity import EVAL_SEED, quick_fidelity
from bayesattn.evals.relabelling import (
    measure_relabelling,
    random_names,
    relative_distance,
)
from bayesattn.linear import linear_cka
from bayesattn.models.architectures import Transformer, build
from bayesattn.tunnels import HMM
from tests.evals.toys import Bayes

TUNNEL = HMM(3, 3, 6)


def test_the_exact_filter_moves_along():
    found = measure_relabelling(Bayes(TUNNEL), TUNNEL, sequences=60)
    assert found.before == pytest.approx({"mae_tok": 0, "mae_pos": 0, "kl": 0}, abs=1e-12)
    assert found.after == pytest.approx(found.before, abs=1e-12)
    assert found.tv < 1e-12 and found.entropy < 1e-12
    assert found.tv_null > 0.2
    assert found.layers == []


def test_a_model_that_prefers_a_name_does_not():
    def partial(inputs, scored):
        return TUNNEL.exact(inputs).log() + torch.tensor([1.0, 0.0, 0.0])

    found = measure_relabelling(partial, TUNNEL, sequences=60)
    generator = torch.Generator().manual_seed(EVAL_SEED)
    batch = TUNNEL.sample(60, generator)
    renamed = TUNNEL.relabel(batch, random_names(60, 3, generator))
    assert found.before == quick_fidelity(partial, batch)
    assert found.after == quick_fidelity(partial, renamed) != found.before
    assert found.before["kl"] > 0.01
    assert found.tv > 0.1 and found.entropy > 0.01


class Shown(nn.Module):
    """Exact, with hidden states that ignore names, follow them, or are noise."""

    def forward(self, inputs, scored=None):
        return TUNNEL.exact(inputs).log()

    def hidden(self, inputs):
        belief = TUNNEL.exact(inputs)
        states = torch.zeros(len(inputs), TUNNEL.positions, 3, dtype=torch.float64)
        nameless, named = states.clone(), states.clone()
        nameless[:, TUNNEL.scored] = belief.sort(dim=-1).values
        named[:, TUNNEL.scored] = belief
        return nameless, named, torch.randn(states.shape, generator=self.noise)

    noise = torch.Generator().manual_seed(0)


def test_hidden_states_are_compared_with_those_of_other_sequences():
    nameless, named, noise = measure_relabelling(Shown(), TUNNEL, sequences=300).layers
    assert (nameless.layer, named.layer) == (0, 1)
    assert nameless.distance < 1e-6 and nameless.cka == pytest.approx(1)
    assert nameless.distance_null > 1 and nameless.cka_null < 0.5
    assert named.distance > 0.5 and named.cka < 0.9
    assert noise.distance == pytest.approx(math.sqrt(2), abs=0.05)
    assert noise.distance == pytest.approx(noise.distance_null, abs=0.05)


def test_a_predictor_shows_every_layer():
    model = build(Transformer(layers=2, width=16, heads=2), TUNNEL, seed=0)
    found = measure_relabelling(model, TUNNEL, sequences=20)
    assert [change.layer for change in found.layers] == [0, 1, 2]
    assert json.loads(json.dumps(found.to_json())) == found.to_json()


def test_names_are_permutations_that_change_something(generator):
    names = random_names(500, 3, generator)
    assert torch.equal(names.sort(dim=1).values, torch.arange(3).expand(500, 3))
    assert not (names == torch.arange(3)).all(dim=1).any()
    assert len(names.unique(dim=0)) == 5


def test_alignment_ignores_rotations_and_distance_does_not(generator):
    x = torch.randn(400, 6, generator=generator, dtype=torch.float64)
    turn = torch.linalg.qr(torch.randn(6, 6, generator=generator, dtype=torch.float64)).Q
    assert linear_cka(x, 3 * x @ turn + 1) == pytest.approx(1)
    assert linear_cka(x, torch.randn(400, 6, generator=generator)) < 0.1
    assert relative_distance(x, x) == 0
    assert relative_distance(x + 5, x + 5 + 0.1) == pytest.approx(0.1, rel=0.1)


def test_one_sequence_has_no_other():
    with pytest.raises(ValueError, match="sequences must be 2 or more"):
        measure_relabelling(Bayes(TUNNEL), TUNNEL, sequences=1)
