"""The studies of language models, with tiny trainings."""

import dataclasses
from types import MappingProxyType

import numpy as np
import pytest
import torch

from bayesattn.claims import bam_far_heads as heads
from bayesattn.claims import bam_passkeys as passkeys
from bayesattn.claims import bam_perplexity as perplexity
from bayesattn.claims.language_models import FROZEN, SOONER, VARIANTS, after
from bayesattn.evals.passkey import passkey
from bayesattn.ledger.jobs import MeasurementJob
from bayesattn.ledger.study import Tier
from bayesattn.models import BayesConfig, BayesForCausalLM
from bayesattn.models.open import open_language

SMALL = {
    "seeds": 1,
    "size": "nano",
    "steps": 1,
    "batch_size": 2,
    "lengths": ("1x", "2x"),
    "depths": 2,
    "samples": 1,
}
STUDIES = {
    passkeys.BamRetrieval: {"variants": ("RoPE", "RoPE, YaRN", SOONER)},
    perplexity.BamPerplexity: {"variants": ("RoPE", SOONER), "stretch": 2, "sequences": 2},
    heads.BamFarHeads: {"draws": 2},
}


def small(kind):
    study = kind()
    recipe = dataclasses.replace(study.recipes[Tier.QUICK], **(SMALL | STUDIES[kind]))
    study.recipes = MappingProxyType({Tier.QUICK: recipe})
    return study


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("BAYESATTN_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


@pytest.mark.parametrize("kind", STUDIES)
def test_a_study_trains_measures_and_draws(kind, runs):
    study = small(kind)
    found = {0: study.measure(Tier.QUICK, 0)}
    assert study.draw(Tier.QUICK, found)


@pytest.mark.parametrize("kind", STUDIES)
def test_what_is_judged_is_trained(kind):
    assert all(recipe.judged in recipe.variants for recipe in kind.recipes.values())


def test_the_three_studies_share_their_models(runs, monkeypatch):
    small(passkeys.BamRetrieval).measure(Tier.QUICK, 0)
    known = set(runs.glob("language-*"))
    assert len(known) == 2  # YaRN is RoPE until it reads
    for kind in (perplexity.BamPerplexity, heads.BamFarHeads):
        small(kind).measure(Tier.QUICK, 0)
    assert set(runs.glob("language-*")) == known


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("tier", Tier)
def test_every_variant_is_a_model_that_can_be_built_and_changed_later(variant, tier):
    recipe = passkeys.BamRetrieval.recipes[tier]
    language = recipe.language(variant)
    config = language.model_config(**after(VARIANTS[variant].later, recipe.length, 10_000, 16))
    assert isinstance(config, BayesConfig)
    assert config.ssmax == ("SSMax" in variant)
    local = variant.startswith("local")
    assert (config.sliding_window == recipe.length) if local else config.sliding_window is None


@pytest.mark.parametrize(("variant", "moves"), [(SOONER, True), (FROZEN, False)])
def test_frozen_priors_stay_and_slow_ones_move(runs, variant, moves):
    recipe = small(passkeys.BamRetrieval).recipes[Tier.QUICK]
    model = open_language(recipe.training_of(variant, 0).train())
    before = recipe.language(variant).build(model.tokenizer, 0)
    slow = [
        (a, b)
        for (name, a), b in zip(before.named_parameters(), model.model.parameters(), strict=True)
        if "theta_beta" in name or "ssmax" in name
    ]
    assert slow
    assert all(torch.equal(a, b) != moves for a, b in slow)
    assert recipe.training_of("RoPE", 0).config.prior_lr is None


def test_keys_are_left_out_only_where_a_prior_can_prove_it(runs, monkeypatch):
    asked = []

    def noted(*args, tolerance, **settings):
        asked.append(tolerance)
        return passkey(*args, tolerance=tolerance, **settings)

    monkeypatch.setattr(passkeys, "passkey", noted)
    recipe = small(passkeys.BamRetrieval).recipes[Tier.QUICK]
    loose = dataclasses.replace(recipe, tolerance=1e-6)
    for name in ("RoPE", SOONER):
        loose.accuracy(name, 0)
    assert asked == [None, None, 1e-6, 1e-6]


def test_scalings_of_rope_do_nothing_at_the_training_length():
    plain = VARIANTS["RoPE"].trained
    recipe = passkeys.BamRetrieval.recipes[Tier.QUICK]
    torch.manual_seed(0)
    tokens = torch.randint(60, (1, 32))
    logits = {}
    for name in ("RoPE", "RoPE, YaRN", "RoPE, NTK"):
        assert VARIANTS[name].trained == plain | {"ssmax": False}
        language = dataclasses.replace(recipe.language(name), size="nano", length=32)
        for factor in (1, 8):
            changes = after(VARIANTS[name].later, 32, 32 * factor, 12)
            torch.manual_seed(0)
            model = BayesForCausalLM(language.model_config(vocab_size=64, **changes)).eval()
            with torch.no_grad():
                logits[name, factor] = model(tokens).logits
    for name in ("RoPE, YaRN", "RoPE, NTK"):
        torch.testing.assert_close(logits[name, 1], logits["RoPE", 1])
        assert not torch.allclose(logits[name, 8], logits["RoPE", 8], atol=1e-4)


def test_heads_made_local_are_those_and_no_others(runs):
    recipe = small(heads.BamFarHeads).recipes[Tier.QUICK]
    model = open_language(recipe.training_of(SOONER, 0).train())
    before = heads.betas(model)
    heads.make_local(model, [(0, 1), (1, 3)])
    after_ = heads.betas(model)
    changed = {head for head in before if before[head] != after_[head]}
    assert changed == {(0, 1), (1, 3)}
    row = heads.priors(model)[1].log_prior(torch.arange(4))[3]
    torch.testing.assert_close(row, -0.5 * torch.arange(4.0), atol=1e-4, rtol=0)


def test_ablations_of_the_prior_begin_like_what_is_judged_but_for_one_thing():
    full = passkeys.BamInit.recipes[Tier.FULL]
    own = vars(full.language(SOONER)) | vars(full.training_of(SOONER, 0).config)
    for name in (*passkeys.INITIALISATIONS, *passkeys.ABLATIONS):
        other = vars(full.language(name)) | vars(full.training_of(name, 0).config)
        changed = {key for key in own if own[key] != other[key]}
        assert len(changed) == (2 if name == passkeys.PUBLISHED else 0 if name == SOONER else 1), (
            name
        )


def test_what_far_heads_cost_is_beyond_what_others_cost():
    found = heads.FarHeads(
        beta=[-1.0, 1.0], as_trained=[1, 0.9], without_far=[1, 0.1], without_others=[1, 0.7]
    )
    assert found.effect == pytest.approx(0.6)


def test_frequency_is_the_perplexity_without_context():
    assert perplexity._by_frequency(np.array([0, 1, 2, 3])) == pytest.approx(4.0)
    assert perplexity._by_frequency(np.array([5, 5, 5])) == pytest.approx(1.0)


def test_long_prompts_are_few():
    recipe = passkeys.BamRetrieval.recipes[Tier.FULL]
    factors = (1, 32, 64, 128, 256, 512)
    others = [recipe.prompts("NoPE", 128 * factor) for factor in factors]
    assert others == [(10, 2), (10, 2), (5, 1), (5, 1), (3, 1), (3, 1)]
    judged = [recipe.prompts(recipe.judged, 128 * factor) for factor in factors]
    assert judged == [(10, 2), (10, 2), *[(10, 1)] * 4]


def test_more_variants_and_seeds_leave_what_was_measured(runs, tmp_path):
    study = small(passkeys.BamRetrieval)
    job = MeasurementJob(study, Tier.QUICK, 0, tmp_path, "RoPE")
    job.run()
    recipe = study.recipes[Tier.QUICK]
    for changes, stands in [
        ({"seeds": 5, "variants": ("RoPE", SOONER, FROZEN)}, True),
        ({"lengths": ("1x", "3x")}, False),
        ({"steps": 3}, False),
    ]:
        changed = dataclasses.replace(recipe, **changes)
        study.recipes = MappingProxyType({Tier.QUICK: changed})
        assert job.done() is stands
