import pytest
import torch

from bayesattn.models.architectures import LSTM, Mamba, Transformer, build
from bayesattn.training import TrainConfig
from bayesattn.training.muon import Muon
from bayesattn.training.optimizers import (
    load_optimizer_tensors,
    make_optimizers,
    optimizer_tensors,
    set_learning_rate,
)
from bayesattn.tunnels import Bijection


def predictor(**fields):
    return build(Transformer(width=8, heads=2, prior="ggd", ssmax=True, **fields), Bijection(4), 0)


def named(model, optimizer):
    names = {id(p): name for name, p in model.named_parameters()}
    return {names[id(p)] for group in optimizer.param_groups for p in group["params"]}


def trained(model):
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def test_adamw_has_every_weight_once_and_priors_do_not_decay():
    model = predictor()
    (adamw,) = make_optimizers(model, TrainConfig(weight_decay=0.1, prior_lr=0.5))
    assert adamw.defaults["fused"]
    assert named(model, adamw) == trained(model)
    decay = {group["name"]: (group["weight_decay"], group["lr"]) for group in adamw.param_groups}
    assert decay == {"decay": (0.1, 3e-3), "no_decay": (0.0, 3e-3), "prior": (0.0, 0.5)}


def test_muon_has_hidden_matrices_only():
    model = predictor(encoding="learned")
    muon, adamw = make_optimizers(model, TrainConfig(optimizer="muon", lr=0.02))
    assert isinstance(muon, torch.optim.Muon)
    matrices = named(model, muon)
    assert len(matrices) == 2 * 7
    assert all("layers" in name and name.endswith("weight") for name in matrices)
    assert matrices.isdisjoint(named(model, adamw))
    assert {"embedding.weight", "head.weight"} <= named(model, adamw)
    assert matrices | named(model, adamw) == trained(model)


def test_learning_rates_scale_from_their_peaks():
    optimizers = make_optimizers(predictor(), TrainConfig(optimizer="muon", lr=0.2, prior_lr=0.6))
    for factor in (0.5, 0.25, 1.0):
        set_learning_rate(optimizers, factor)
        rates = {group["lr"] for optimizer in optimizers for group in optimizer.param_groups}
        assert sorted(rates) == pytest.approx([0.2 * factor, 0.6 * factor])


def test_muon_takes_recurrent_matrices_but_not_scales():
    lstm = build(LSTM(layers=1, width=8), Bijection(4), 0)
    muon, _ = make_optimizers(lstm, TrainConfig(optimizer="muon"))
    assert len(named(lstm, muon)) == 2
    mamba = build(Mamba(layers=1, width=8), Bijection(4), 0)
    muon, _ = make_optimizers(mamba, TrainConfig(optimizer="muon"))
    assert named(mamba, muon) and not any("A_log" in name for name in named(mamba, muon))


def test_radam_decays_matrices_by_themselves():
    """With no gradient only the decay is left: lr × decay of every matrix, nothing of the rest."""
    model = predictor()
    config = TrainConfig(optimizer="radam", betas=(0.9, 0.95), weight_decay=0.1, lr=0.5)
    (radam,) = make_optimizers(model, config)
    assert isinstance(radam, torch.optim.RAdam) and radam.defaults["betas"] == (0.9, 0.95)
    assert named(model, radam) == trained(model)
    decaying = named(model, type("", (), {"param_groups": radam.param_groups[:1]}))
    assert {"embedding.weight", "head.weight"} <= decaying
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    for _ in range(10):  # the first steps of RAdam could not tell a decay from a gradient
        radam.step()
    for name, parameter in model.named_parameters():
        factor = (1 - 0.5 * 0.1) ** 10 if name in decaying else 1.0
        torch.testing.assert_close(parameter.detach(), factor * before[name])


def test_muon_in_single_precision_is_the_definition(generator):
    """Against each matrix alone in double precision, and torch's Muon to bfloat16's digits."""
    shapes = [(6, 6), (6, 9), (9, 6), (6, 6), (4, 9), (9, 6)]
    weights = [torch.randn(shape, generator=generator) for shape in shapes]
    options = {"lr": 0.1, "weight_decay": 0.3, "adjust_lr_fn": "match_rms_adamw"}
    ours, theirs = ([torch.nn.Parameter(w.clone()) for w in weights] for _ in range(2))
    optimizers = Muon(ours, **options), torch.optim.Muon(theirs, **options)
    exact = [w.double() for w in weights]
    moments = [torch.zeros_like(w) for w in exact]
    for _ in range(3):
        grads = [torch.randn(shape, generator=generator) for shape in shapes]
        for params, optimizer in zip((ours, theirs), optimizers, strict=True):
            for p, g in zip(params, grads, strict=True):
                p.grad = g.clone()
            optimizer.step()
        for i, g in enumerate(grads):
            moments[i] = 0.95 * moments[i] + 0.05 * g.double()
            x = 0.05 * g.double() + 0.95 * moments[i]
            x = x / x.square().sum().sqrt()
            for _ in range(5):
                gram = x @ x.T
                x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
            exact[i] = (1 - 0.1 * 0.3) * exact[i] - 0.1 * 0.2 * max(x.shape) ** 0.5 * x
    for our, their, right in zip(ours, theirs, exact, strict=True):
        torch.testing.assert_close(our.detach().double(), right, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(their.detach().double(), right, rtol=0.0, atol=0.02)


@pytest.mark.parametrize("name", ["adamw", "muon", "muon-fp32", "radam"])
def test_the_state_survives_to_the_last_bit(name, generator):
    config = TrainConfig(optimizer=name)
    inputs = torch.randint(8, (5, 7), generator=generator)

    def step(model, optimizers):
        model(inputs).square().sum().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    model = predictor()
    optimizers = make_optimizers(model, config)
    step(model, optimizers)
    other = predictor()
    other.load_state_dict(model.state_dict())
    others = make_optimizers(other, config)
    saved = {key: value.clone() for key, value in optimizer_tensors(model, optimizers).items()}
    load_optimizer_tensors(other, others, saved)
    for _ in range(2):
        step(model, optimizers)
        step(other, others)
    for weight, same in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(weight, same)
