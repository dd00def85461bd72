"""Late drift in units of what separates two seeds, whatever the order of heads."""

import pytest
import torch

from bayesattn.linear import linear_cka
from bayesattn.probes.capture import capture
from bayesattn.probes.late import late_step, moved
from bayesattn.probes.measured import NotApplicableError, held_out
from bayesattn.training import TrainConfig, train_tunnel
from tests.probes.common import BIJECTION, TRANSFORMERS, model_of


@pytest.fixture
def batch():
    return held_out(BIJECTION, 16)


def test_the_end_has_not_moved_and_a_sibling_is_one_away(batch):
    end, sibling = (model_of("ggd", BIJECTION, seed) for seed in (0, 1))
    assert moved(end, end, sibling, batch) == pytest.approx({"attention": 0, "values": 0}, abs=1e-9)
    assert moved(sibling, end, sibling, batch) == pytest.approx({"attention": 1, "values": 1})


def test_drift_is_by_cka_over_layers(batch):
    late, end, sibling = (model_of("ggd", BIJECTION, seed) for seed in (0, 1, 2))
    found = moved(late, end, sibling, batch)

    def distance(one, other, name, positions):
        layers = []
        for layer in range(2):
            states = [
                capture(model, batch.inputs, [f"layers.{layer}.{name}"], positions)
                for model in (one, other)
            ]
            rows = [own[f"layers.{layer}.{name}"].flatten(0, 1).flatten(1) for own in states]
            layers.append(1 - linear_cka(*rows))
        return sum(layers) / 2

    for kind, name, positions in (
        ("attention", "attention", batch.scored),
        ("values", "v", None),
    ):
        ratio = distance(late, end, name, positions) / distance(sibling, end, name, positions)
        assert found[kind] == pytest.approx(ratio)


def test_the_order_of_heads_does_not_matter(batch):
    end, sibling = (model_of("uniform", BIJECTION, seed) for seed in (0, 1))
    swapped = model_of("uniform", BIJECTION, 0)
    width = swapped.body.layers[0].self_attn.q_proj.weight.shape[0] // 4
    order = torch.arange(4 * width).view(4, width)[[2, 0, 3, 1]].flatten()
    with torch.no_grad():
        for layer in swapped.body.layers:
            own = layer.self_attn
            for projection in (own.q_proj, own.k_proj, own.v_proj):
                projection.weight.copy_(projection.weight[order])
            own.o_proj.weight.copy_(own.o_proj.weight[:, order])
    assert moved(swapped, end, sibling, batch) == pytest.approx(
        {"attention": 0, "values": 0}, abs=1e-6
    )


def test_the_late_checkpoint_is_at_two_thirds(tmp_path):
    config = TrainConfig(steps=30, batch_size=4, dynamics=True, threads=1)
    run = train_tunnel(BIJECTION, TRANSFORMERS["ggd"], config, tmp_path / "a", progress=False)
    steps = run.steps()
    assert late_step(run) == min(steps, key=lambda step: abs(step - 20))
    config = TrainConfig(steps=3, batch_size=4, threads=1)
    run = train_tunnel(BIJECTION, TRANSFORMERS["ggd"], config, tmp_path / "b", progress=False)
    with pytest.raises(NotApplicableError, match="--dynamics"):
        late_step(run)
