"""cot-extender: tiny trainings for the plumbing, made-up numbers for the verdict."""

import dataclasses
from types import MappingProxyType

import pytest
import torch

from bayesattn.claims import cot_extender
from bayesattn.claims.chain_language import STYLES, texts
from bayesattn.claims.cot_extender import Arm, Chains, CotExtender, arm_name
from bayesattn.evals.chains import Overwriting, Tracking
from bayesattn.ledger.study import Tier
from bayesattn.models.architectures import count_parameters
from bayesattn.probes.chain import Way
from bayesattn.probes.llm.sula import Evidence, Lexicon
from bayesattn.verdicts import Outcome

TINY = {
    "alphabet": 4,
    "hops": 3,
    "steps": 2,
    "track_steps": 2,
    "track_length": 3,
    "width": 16,
    "batch_size": 4,
    "sequences": 64,
    "chains": 3,
    "arms": (("direct", 1), ("direct", 2), ("cot", 1), ("filler", 1), ("short", 1)),
    "tracks": (("S3", "filler"), ("S3", "product"), ("Z3", "none")),
}


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.setenv("BAYESATTN_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(cot_extender, "measure_language", lambda prompts, seed: {"asked": prompts})
    study = CotExtender()
    recipe = dataclasses.replace(study.recipes[Tier.QUICK], **TINY)
    study.recipes = MappingProxyType({Tier.QUICK: recipe})
    return study


def test_the_study_trains_measures_judges_and_draws(study):
    numbers = {seed: study.measure(Tier.QUICK, seed) for seed in (0, 1)}
    found = numbers[0]
    assert found.language == {"asked": 2}
    cot, short, direct, filler = (
        found.arms[f"{mode}, 1 layers"] for mode in ("cot", "short", "direct", "filler")
    )
    assert len(cot.error) == 3
    assert [len(arm.scratch_error) for arm in (cot, short, direct)] == [2, 1, 0]
    assert filler.overwritten is None and direct.over_steps is None
    changed = cot.overwritten
    assert changed.followed == changed.kl_to_old - changed.kl_to_new
    assert len(found.tracks["S3, product"].mae) == len(found.tracks["Z3, none"].kl) == 3
    assert max(found.noise_of_chains) < 0.6
    assert {*study.said(Tier.QUICK, numbers)} == {"helps", "exact", "followed", "serial-group"}
    assert [picture.name for picture in study.draw(Tier.QUICK, numbers)] == ["hops", "groups"]


@pytest.mark.parametrize("tier", [Tier.QUICK, Tier.FULL])
def test_all_depths_have_as_many_parameters(tier):
    recipe = CotExtender.recipes[tier]
    every = recipe.trainings(0)
    for mode in {mode for mode, _ in recipe.arms}:
        trainings = [every[arm_name(*arm)] for arm in recipe.arms if arm[0] == mode]
        sizes = [count_parameters(t.architecture, t.tunnel) for t in trainings]
        assert sizes == pytest.approx([sizes[0]] * len(sizes), rel=0.03)
        assert len({t.config for t in trainings}) == 1


@pytest.mark.parametrize("tier", CotExtender.recipes)
def test_every_tier_has_what_is_judged(tier):
    recipe = CotExtender.recipes[tier]
    shallow = recipe.depth
    assert {("direct", shallow), ("cot", shallow), ("filler", shallow)} <= set(recipe.arms)
    group = recipe.tracks[0][0]
    assert {(group, "filler"), (group, "product")} <= set(recipe.tracks)
    assert recipe.track_steps > 0
    assert len(recipe.trainings(0)) == len(recipe.arms) + len(recipe.tracks)


def judged(direct, cot, filler, followed, saved=0.5):
    """The verdicts of four seeds that differ a little."""
    study = CotExtender()
    recipe = study.recipes[Tier.QUICK]
    numbers = {}
    for seed, factor in enumerate((0.95, 1.0, 1.05, 1.01)):
        changed = Overwriting(kl_to_new=1.0, kl_to_old=1.0 + followed * factor)
        arms = {
            arm_name(mode, recipe.depth): arm([error * factor for error in errors], changed)
            for mode, errors in (("direct", direct), ("cot", cot), ("filler", filler))
        }
        tracks = {
            "S3, filler": Tracking(mae=[saved * factor + 0.01], kl=[]),
            "S3, product": Tracking(mae=[0.01], kl=[]),
        }
        numbers[seed] = Chains(arms=arms, noise_of_chains=[0.0], tracks=tracks, language={})
    said = study.said(Tier.QUICK, numbers)
    found = {own.name: own.judge([*said[own.name].values()]) for own in study.claim.statements}
    return {name: one.outcome for name, one in found.items()}


def arm(error, overwritten):
    others = ("kl", "error_given_chain", "kl_given_chain", "accuracy", "scratch_error")
    return Arm(
        error=error,
        overwritten=overwritten,
        over_layers=Way(largest=0.0, path=0.0),
        over_steps=None,
        order_by_entropy=None,
        **{name: [] for name in others},
    )


GOOD = {
    "direct": [0.01, 0.8, 1.0],
    "cot": [0.01, 0.02, 0.03],
    "filler": [0.01, 0.8, 1.1],
    "followed": 9.0,
}


def test_each_statement_is_judged_by_itself():
    assert {*judged(**GOOD).values()} == {Outcome.YES}


@pytest.mark.parametrize(
    "change, name",
    [
        ({"filler": [0.01, 0.03, 0.03]}, "helps"),
        ({"filler": [3.0, 0.03, 0.04]}, "helps"),  # one hop needs no scratch
        ({"cot": [0.01, 0.3, 0.3]}, "exact"),
        ({"followed": -3.0}, "followed"),
        ({"saved": 0.01}, "serial-group"),
    ],
)
def test_what_fails_fails_alone(change, name):
    found = judged(**(GOOD | change))
    assert found.pop(name) is Outcome.NO
    assert {*found.values()} == {Outcome.YES}


def test_models_that_have_not_learnt_one_hop_are_not_judged():
    found = judged(**(GOOD | {"direct": [0.9, 0.9, 0.9]}))
    assert found.pop("serial-group") is Outcome.YES
    assert {*found.values()} == {Outcome.UNDECIDED}


def test_prompts_with_a_tally():
    lexicon = Lexicon(("happy", "cruel", "calm"), (0,))
    evidence = Evidence(
        torch.tensor([3]),
        torch.tensor([[0, 1, 1]]),
        torch.tensor([[0, 1, 0]]),
        torch.tensor([2]),
        0.7,
    )
    prompts = {style: texts(evidence, lexicon, ("lug", "dax"), style)[0] for style in STYLES}
    assert prompts == {
        "none": "happy: lug, cruel: dax, cruel: lug. calm:",
        "filler": "happy: lug (. . . .), cruel: dax (. . . .), cruel: lug (. . . .). calm:",
        "tally": "happy: lug (lug 1 dax 0), cruel: dax (lug 1 dax 1), "
        "cruel: lug (lug 2 dax 1). calm:",
    }
    assert prompts["none"] == evidence.texts(lexicon, ("lug", "dax"))[0]
