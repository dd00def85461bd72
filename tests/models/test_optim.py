import pytest
import torch

from bayesattn.models import parameter_groups
from tests.models.common import tiny_model, tokens


def names(model, group):
    ids = {id(p) for p in group["params"]}
    return {n for n, p in model.named_parameters() if id(p) in ids}


@pytest.mark.parametrize("shared", [False, True])
def test_groups(shared):
    model = tiny_model(shared_prior=shared)
    groups = {g["name"]: g for g in parameter_groups(model, 0.1, lr=1e-3, prior_lr=1e-2)}
    assert set(groups) == {"decay", "no_decay", "prior"}
    assert {n: (g["lr"], g["weight_decay"]) for n, g in groups.items()} == {
        "decay": (1e-3, 0.1),
        "no_decay": (1e-3, 0.0),
        "prior": (1e-2, 0.0),
    }
    decay, plain, prior = (names(model, groups[n]) for n in ("decay", "no_decay", "prior"))
    assert all(".prior." in n or ".ssmax." in n for n in prior)
    assert all("norm" in n for n in plain)
    assert "model.embed_tokens.weight" in decay
    trained = {n for n, p in model.named_parameters() if p.requires_grad}
    assert decay | plain | prior == trained
    assert len(decay) + len(plain) + len(prior) == len(trained)
    assert len(prior) == (2 + 2 if shared else 2 * 3)


def test_matrices_of_a_prior_do_not_decay():
    model = tiny_model(prior="bucketed")
    groups = {g["name"]: g for g in parameter_groups(model, 0.1, lr=1e-3)}
    assert any(p.dim() == 2 for p in groups["prior"]["params"])
    assert groups["prior"]["lr"] == 1e-3


def test_empty_groups_are_left_out():
    groups = parameter_groups(torch.nn.Linear(2, 2, bias=False), 0.1, lr=1e-3)
    assert [g["name"] for g in groups] == ["decay"]


def test_a_step_moves_every_trained_parameter_and_no_other():
    model = tiny_model().train()
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.1, lr=1e-2))
    ids = tokens(4, 9)
    model(ids, labels=ids).loss.backward()
    optimizer.step()
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]) == ("theta_mu" in name), name
