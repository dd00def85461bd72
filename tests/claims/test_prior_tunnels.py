"""ours-prior-tunnel: tiny trainings for the plumbing, made-up numbers for the verdict."""

import dataclasses
from types import MappingProxyType

import pytest
import torch

from bayesattn.claims import tunnel_hmm
from bayesattn.claims.ours_prior_tunnel import (
    ENCODINGS,
    EXEMPT,
    GGD,
    INGREDIENTS,
    LEARNED,
    LENGTHS,
    ROPE,
    STEEP,
    OursPriorTunnel,
    PriorRecipe,
)
from bayesattn.claims.tunnels import Errors, Extrapolation
from bayesattn.evals.fidelity import measure
from bayesattn.ledger.study import Tier
from bayesattn.models.architectures.matching import count_parameters
from bayesattn.stats import Outcome
from bayesattn.tunnels import HMM, Bijection, Recall

TINY = PriorRecipe(
    seeds=2, steps=2, bijection_steps=2, recall_steps=2, longer=2, states=2, length=3, layers=1,
    width=16, alphabet=5, pairs=2, batch_size=4, stretch=4, sequences=8,
    encodings=(LEARNED, ROPE, GGD, EXEMPT), ssmax=False, ingredients=("mixed lengths", "long"),
)  # fmt: skip


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.setenv("BAYESATTN_RUNS", str(tmp_path / "runs"))
    study = OursPriorTunnel()
    study.recipes = MappingProxyType({Tier.QUICK: TINY})
    return study


def test_the_study_trains_measures_judges_and_draws(study):
    numbers = {seed: study.measure(Tier.QUICK, seed) for seed in (0, 1)}
    found = numbers[0]
    # inside is what was trained on: 3 observations, or 6 with mixed lengths, of 12
    assert len(found["hmm: RoPE"].inside.by_step) == 3
    assert len(found["hmm: RoPE"].beyond.by_step) == 9
    assert len(found["hmm: mixed lengths"].inside.by_step) == 6
    assert len(found["hmm: mixed lengths"].beyond.by_step) == 6
    for tunnel in ("bijection", "recall"):
        assert f"{tunnel}: {EXEMPT}" not in found
        for name in (LEARNED, ROPE, GGD):
            assert found[f"{tunnel}: {name}"].beyond.kl > 0
    verdict = study.verdict(Tier.QUICK, numbers)
    assert verdict.outcome is not Outcome.SUPPORTED
    assert "On the hmm, best beyond the horizon" in verdict.reason
    assert [picture.name for picture in study.draw(Tier.QUICK, numbers)] == ["matrix"]


def test_how_each_tunnel_is_stretched():
    assert TINY.beyond("hmm") == HMM(2, 2, 12)
    assert TINY.beyond("bijection") == Bijection(5, 12, replacement=True)
    inside, beyond = TINY.tunnel("recall"), TINY.beyond("recall")
    assert inside == Recall(2, 3, 2, 16, 16)
    assert beyond == Recall(8, 3, 8, 16, 16)
    for tier in Tier:
        recipe = OursPriorTunnel.recipes[tier]
        for name in recipe.tunnels:
            inside, beyond = recipe.tunnel(name), recipe.beyond(name)
            assert inside.vocabulary == beyond.vocabulary and inside.outcomes == beyond.outcomes
            assert beyond.positions > 4 * inside.positions
        # a trained sequence cannot show all keys
        assert recipe.length < recipe.alphabet


def test_learned_positions_reach_as_far_as_is_asked(tmp_path, monkeypatch):
    """And their rows beyond the horizon are as they were drawn."""
    monkeypatch.setenv("BAYESATTN_RUNS", str(tmp_path))
    training = TINY.training("hmm", LEARNED, 0)
    table = training.model().body.encoding.table.detach()
    assert len(table) == TINY.beyond("hmm").positions
    from bayesattn.models.architectures import build

    drawn = build(training.architecture, training.tunnel, 0).body.encoding.table.detach()
    inside = training.tunnel.positions
    # weight decay shrinks unused rows a little; no gradient ever reaches them
    assert (table[inside:] / drawn[inside:]).std() < 1e-4
    assert (table[:inside] / drawn[:inside]).std() > 1e-3


def test_ssmax_and_priors_are_what_they_are_called():
    recipe = OursPriorTunnel.recipes[Tier.FULL]
    assert recipe.names("hmm")[:10] == list(ENCODINGS)
    assert len(recipe.names("hmm")) == 20 and len(recipe.names("recall")) == 18
    plain = recipe.training("hmm", GGD, 0).architecture
    scaled = recipe.training("hmm", f"{GGD} + SSMax", 0).architecture
    assert scaled == dataclasses.replace(plain, ssmax=True)
    assert scaled.ssmax_scope == "content+prior"
    rope = recipe.training("hmm", f"{ROPE} + SSMax", 0).architecture
    assert rope.ssmax and rope.ssmax_scope == "content" and rope.encoding == "rope"
    every = [recipe.training("hmm", name, 0).architecture for name in recipe.names("hmm")]
    assert len({str(one) for one in every}) == 20


def test_an_ingredient_is_one_change_or_two():
    recipe = OursPriorTunnel.recipes[Tier.FULL]
    base = recipe.training("hmm", EXEMPT, 1)
    changes = {}
    for name in INGREDIENTS.keys() - {"Mamba-2"}:
        other = recipe.ingredient(name, 1)
        changes[name] = {
            field.name
            for part in ("config", "architecture")
            for field in dataclasses.fields(getattr(base, part))
            if getattr(getattr(base, part), field.name) != getattr(getattr(other, part), field.name)
        }
        assert other.tunnel == base.tunnel
    slopes, muon = {"prior", "prior_options"}, {"optimizer", "lr"}
    assert changes == {
        "mixed lengths": {"lengths"},
        "averaged weights": {"ema"},
        "positive shape": {"prior_options"},
        "fixed slopes": slopes,
        "long": {"steps"},
        "long, mixed lengths": {"steps", "lengths"},
        "steep slopes": slopes,
        "steep slopes, nothing exempt": slopes | {"exempt"},
        "steep slopes, Muon": slopes | muon,
        "steep slopes, Muon, thrice as long": slopes | muon | {"steps"},
    }
    assert max(LENGTHS) * recipe.length < recipe.stretch * recipe.length


def test_the_recurrent_alternative_is_as_large_and_trained_alike():
    recipe = OursPriorTunnel.recipes[Tier.FULL]
    base, other = recipe.training("hmm", EXEMPT, 1), recipe.ingredient("Mamba-2", 1)
    assert other.architecture.name == "mamba"
    assert (other.tunnel, other.config) == (base.tunnel, base.config)
    sizes = [count_parameters(one.architecture, one.tunnel) for one in (base, other)]
    assert sizes[1] == pytest.approx(sizes[0], rel=0.02)


def test_steep_slopes_leave_next_to_nothing_from_beyond_the_horizon():
    """Else a head would see more there than it ever did in training."""
    recipe = OursPriorTunnel.recipes[Tier.FULL]
    far = torch.arange(recipe.length, 10_000)
    slopes = STEEP["prior_options"]["slopes"]
    assert len(slopes) == recipe.heads
    for slope in slopes:
        assert torch.exp(-slope * far).sum() < 0.02


def test_the_quick_tier_shares_models_with_tunnel_hmm():
    recipe = OursPriorTunnel.recipes[Tier.QUICK]
    other = tunnel_hmm.TunnelHMM.recipes[Tier.QUICK]
    for own, variant in ((LEARNED, tunnel_hmm.POSITIONS), (EXEMPT, tunnel_hmm.EXEMPT)):
        shared = other.training(variant, 0)
        assert recipe.training("hmm", own, 0).folder == shared.folder


def test_fidelity_of_recall_is_beyond_as_a_whole(tmp_path, monkeypatch):
    monkeypatch.setenv("BAYESATTN_RUNS", str(tmp_path))
    training = TINY.training("recall", ROPE, 0)
    parts = TINY.fidelity("recall", training).parts
    direct = measure(training.model(), TINY.beyond("recall"), sequences=8, horizon=0)
    assert parts["beyond"].scores["model"].kl.shape == (8, 3)
    found, expected = (part.estimates["model"]["kl"].value for part in
                       (parts["beyond"], direct.parts["beyond"]))  # fmt: skip
    assert found == pytest.approx(expected)


def errors(error, uniform):
    others = dict.fromkeys(("mae_pos", "tv", "mode", "constant_entropy", "uniform_mae"), 0.0)
    return Errors(kl=error, mae_tok=error, uniform_kl=uniform, by_step=[], **others)


def judged(prior, learned, rope, uniform=1.0):
    """(inside, beyond) of each; three seeds that differ a little."""
    numbers = {}
    for seed, factor in enumerate((0.95, 1.0, 1.05)):
        numbers[seed] = {
            f"hmm: {name}": Extrapolation(
                inside=errors(inside, uniform), beyond=errors(beyond * factor, uniform)
            )
            for name, (inside, beyond) in {EXEMPT: prior, LEARNED: learned, ROPE: rope}.items()
        }
    return OursPriorTunnel().verdict(Tier.QUICK, numbers)


GOOD = {"prior": (0.01, 0.012), "learned": (0.01, 0.2), "rope": (0.01, 0.1)}


def test_kept_and_better_support_the_claim():
    found = judged(**GOOD)
    assert found.outcome is Outcome.SUPPORTED
    assert "0.012 bits, which does not reach 0.004" in found.reason


@pytest.mark.parametrize(
    "change, part",
    [
        ({"prior": (0.01, 0.04)}, "kept on hmm"),
        ({"learned": (0.01, 0.013)}, "better than learned positions on hmm"),
        ({"rope": (0.01, 0.013)}, "better than RoPE on hmm"),
    ],
)
def test_any_part_refutes_it(change, part):
    found = judged(**(GOOD | change))
    assert found.outcome is Outcome.REFUTED
    assert found.reason.startswith(f"{part}: ")
    assert found.unit == ("doublings of KL" if "better" in part else found.unit)


def test_a_prior_that_has_not_learnt_the_task_is_not_judged():
    found = judged(prior=(0.5, 0.5), learned=(0.5, 0.9), rope=(0.5, 0.9))
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.reason.startswith("Nothing to judge by. The task is learnt: hmm inside")
