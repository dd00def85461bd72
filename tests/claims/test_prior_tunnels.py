"""ours-prior-tunnel: tiny trainings for the plumbing, made-up numbers for the verdict."""

import dataclasses
from types import MappingProxyType

import pytest

from bayesattn.claims import tunnel_hmm
from bayesattn.claims.ours_prior_tunnel import (
    ENCODINGS,
    EXEMPT,
    GGD,
    LEARNED,
    ROPE,
    SHARP,
    OursPriorTunnel,
    PriorRecipe,
)
from bayesattn.claims.tunnels import Errors, Extrapolation
from bayesattn.evals.fidelity import measure
from bayesattn.ledger.study import Tier
from bayesattn.tunnels import HMM, Bijection, Recall
from bayesattn.verdicts import Outcome

TINY = PriorRecipe(
    seeds=2, steps=2, bijection_steps=2, recall_steps=2, states=2, length=3, layers=1,
    width=16, alphabet=5, pairs=2, batch_size=4, stretch=4, sequences=8,
    encodings=(LEARNED, ROPE, GGD, EXEMPT, SHARP), ssmax=False,
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
    # inside is what was trained on: 3 observations of 12
    assert len(found["hmm: RoPE"].inside.by_step) == 3
    assert len(found["hmm: RoPE"].beyond.by_step) == 9
    for tunnel in ("bijection", "recall"):
        assert f"{tunnel}: {EXEMPT}" not in found
        for name in (LEARNED, ROPE, GGD):
            assert found[f"{tunnel}: {name}"].beyond.kl > 0
    assert {*study.said(Tier.QUICK, numbers)} == {"filter", "bijection", "recall"}
    assert [picture.name for picture in study.draw(Tier.QUICK, numbers)] == ["matrix"]


def test_how_each_tunnel_is_stretched():
    assert TINY.beyond("hmm") == HMM(2, 2, 12)
    assert TINY.beyond("bijection") == Bijection(5, 12, replacement=True)
    inside, beyond = TINY.tunnel("recall"), TINY.beyond("recall")
    assert inside == Recall(2, 3, 2, 16, 16)
    assert beyond == Recall(8, 3, 8, 16, 16)
    for recipe in OursPriorTunnel.recipes.values():
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
    recipe = PriorRecipe(steps=1)
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


def test_the_quick_tier_shares_models_with_tunnel_hmm():
    recipe = OursPriorTunnel.recipes[Tier.QUICK]
    shared = tunnel_hmm.TunnelHMM.recipes[Tier.QUICK].training(tunnel_hmm.EXEMPT, 0)
    assert recipe.training("hmm", EXEMPT, 0).folder == shared.folder


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


def judged(recall=(0.05, 0.1), **changes):
    """The outcomes of four seeds that differ a little; (inside, beyond) of each arm."""
    arms = {"prior": (0.01, 0.012), "learned": (0.01, 0.2), "rope": (0.01, 0.1), **changes}
    study = OursPriorTunnel()
    numbers = {}
    for seed, factor in enumerate((0.95, 1.0, 1.05, 1.02)):

        def made(arm, factor=factor):
            inside, beyond = arm
            return Extrapolation(inside=errors(inside, 1.0), beyond=errors(beyond * factor, 1.0))

        numbers[seed] = {f"recall: {SHARP}": made(recall)}
        for tunnel, prior in (("hmm", EXEMPT), ("bijection", GGD)):
            numbers[seed] |= {
                f"{tunnel}: {prior}": made(arms["prior"]),
                f"{tunnel}: {LEARNED}": made(arms["learned"], 1.0),
                f"{tunnel}: {ROPE}": made(arms["rope"], 1.0),
            }
    said = study.said(Tier.QUICK, numbers)
    found = {own.name: own.judge([*said[own.name].values()]) for own in study.claim.statements}
    return {name: one.outcome for name, one in found.items()}


def test_each_tunnel_is_judged_by_itself():
    assert {*judged().values()} == {Outcome.YES}
    found = judged(recall=(0.05, 0.9))
    assert found.pop("recall") is Outcome.NO and {*found.values()} == {Outcome.YES}


@pytest.mark.parametrize("rival", ["learned", "rope"])
def test_the_better_rival_counts(rival):
    found = judged(**{rival: (0.01, 0.013)})
    assert found["filter"] is found["bijection"] is Outcome.NO


@pytest.mark.parametrize("arm", ["prior", "learned", "rope"])
def test_an_arm_that_has_not_learnt_the_task_is_not_compared(arm):
    found = judged(**{arm: (0.5, 0.9)})
    assert found["filter"] is found["bijection"] is Outcome.UNDECIDED
    assert judged(recall=(0.5, 0.1))["recall"] is Outcome.UNDECIDED
