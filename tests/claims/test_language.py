"""The studies of language models, with tiny trainings."""

import dataclasses
from types import MappingProxyType

import pytest
import torch

from bayesattn.claims import find_study, passkeys
from bayesattn.claims.bam_language import STATED, Finds, Reads, Smallest
from bayesattn.claims.language_models import (
    BEST,
    FAR_LOCAL,
    OTHERS_LOCAL,
    PUBLISHED,
    TUNING_SEED,
    VARIANTS,
    after,
    learned_priors,
    make_local,
    shapes,
)
from bayesattn.claims.passkeys import Answers, Question
from bayesattn.ledger.jobs import MeasurementJob
from bayesattn.ledger.study import Tier
from bayesattn.models import BayesForCausalLM
from bayesattn.models.open import open_language
from bayesattn.training.recipes import tiny
from bayesattn.verdicts import Count

FROZEN = f"{BEST}, frozen"
ASKED = (Question(length="1x", depths=2), Question(length="2x", depths=2, haystack="words"))


def small(name, **changes):
    study = find_study(name)
    settings = {"size": "nano", "steps": 1, "batch_size": 2, "questions": ASKED, "text": 4}
    recipe = dataclasses.replace(study.recipes[Tier.FULL], **settings | changes)
    study.recipes = MappingProxyType({Tier.QUICK: recipe})
    return study


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("BAYESATTN_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def answers(found=10, far=10, **more):
    by = {"1x": [Count(found, 10)], "64x": [Count(far, 10)]}
    return Answers(lr=1e-3, found=by, **more)


@pytest.mark.parametrize("name", STATED)
@pytest.mark.parametrize("tier", [Tier.QUICK, Tier.FULL])
def test_what_is_stated_is_trained_and_asked(name, tier):
    study = find_study(name)
    if tier not in study.recipes:
        return
    recipe = study.recipes[tier]
    names = {own.name for own in recipe.questions}
    assert not names or min(recipe.questions, key=lambda own: own.factor).length == "1x"
    for own in STATED[name].values():
        others = getattr(own, "against", ())
        arms = {own.variant, *((others,) if isinstance(others, str) else others)}
        if name != "league":
            assert arms <= {*recipe.variants}
        assert own.variant in recipe.variants
        if isinstance(own, Finds):
            assert own.question in names
        if isinstance(own, Reads):
            assert recipe.text


def test_a_study_trains_measures_and_draws(runs):
    study = small("ssmax-horizon")
    found = study.measure(Tier.QUICK, 0)
    assert set(found) == {BEST, f"{BEST}, no horizon"}
    assert len(list(runs.glob("language-*"))) == 1  # the horizon is a matter of reading
    assert found[BEST].perplexity == found[f"{BEST}, no horizon"].perplexity  # inside
    assert found[BEST].found["2x in words"] == [Count(0, 1)] * 2  # not learnt, so not asked
    pictures = study.draw(Tier.QUICK, {0: found})
    assert [own.name for own in pictures] == ["league", "shapes"]
    assert study.exhibits(Tier.QUICK, {0: found})


def test_the_best_recipe_is_the_one_of_the_command_line():
    language, training = tiny()
    recipe = find_study("million-tokens").recipes[Tier.FULL]
    own = recipe.training_of(BEST, 0)
    assert own.language == language
    same = ("steps", "lr", "prior_lr", "optimizer", "batch_size")
    assert all(getattr(own.config, name) == getattr(training, name) for name in same)


def test_claims_share_their_models():
    studies = map(find_study, ("million-tokens", "ssmax-horizon", "frozen-priors"))
    folders = {own.recipes[Tier.FULL].training_of(BEST, 3).folder for own in studies}
    assert len(folders) == 1


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_can_be_built_and_changed_later(variant):
    recipe = find_study("league").recipes[Tier.FULL]
    config = recipe.language(variant).model_config(
        **after(VARIANTS[variant].later, recipe.length, 10_000, 16)
    )
    assert config.ssmax == ("SSMax" in variant or variant.startswith(BEST))
    far = "last" in variant or "local RoPE" in variant
    assert (config.sliding_window is not None) == far


def test_only_models_that_learnt_are_asked_farther(runs, monkeypatch):
    asked = []

    def answered(model, own, *rest):
        asked.append(own.name)
        return [Count(own.length != "4x" and right[0], 1)] * own.depths

    monkeypatch.setattr(passkeys, "ask", answered)
    lengths = ("1x", "2x", "4x", "4.5x", "5x")
    asked_for = [Question(length=own, depths=1) for own in lengths]
    asked_for = (*asked_for, Question(length="6x", depths=1, distractors=2))
    recipe = small("million-tokens", questions=asked_for).recipes[Tier.QUICK]
    right = [0]
    found = recipe.answers(BEST, 0)
    assert asked == ["1x"] and found["6x among 2"] == [Count(0, 1)]
    right, asked[:] = [1], []
    recipe.answers(BEST, 0)
    assert asked == ["1x", "2x", "4x", "4.5x", "5x", "6x among 2"]


def test_two_lengths_without_an_answer_end_one_haystack_only(runs, monkeypatch):
    asked = []

    def answered(model, own, *rest):
        asked.append(own.name)
        return [Count(own.length == "1x" or own.haystack == "words", 1)]

    monkeypatch.setattr(passkeys, "ask", answered)
    some = [Question(length=own, depths=1) for own in ("1x", "2x", "3x", "4x")]
    some += [Question(length="5x", depths=1, haystack="words")]
    small("million-tokens", questions=tuple(some)).recipes[Tier.QUICK].answers(BEST, 0)
    assert asked == ["1x", "2x", "3x", "5x in words"]


def test_needles_are_never_next_to_the_question(monkeypatch):
    seen = {}
    monkeypatch.setattr(
        passkeys,
        "passkey",
        lambda model, length, **own: seen.update(own) or Answers(lr=1, found={}),
    )
    monkeypatch.setattr(Answers, "cells", [], raising=False)
    passkeys.ask(None, Question(length="2x", depths=4), None, 0, None)
    assert seen["depths"] == [0, 0.25, 0.5, 0.75]


def test_the_rate_is_that_of_the_lowest_loss_on_a_seed_of_its_own(runs):
    recipe = small("league", variants=(BEST, "RoPE"), rates=(1e-9, 0.05), tuning_steps=3).recipes[
        Tier.QUICK
    ]
    trained = recipe.trainings(7)
    assert {own.config.seed for own in trained.values()} == {TUNING_SEED}
    assert recipe.rate_of(BEST) == 0.05
    assert recipe.training_of(BEST, 7).config.lr == 0.05
    assert recipe.training_of(BEST, 7).config.prior_lr == 0.05 / 8


def test_a_statement_is_a_count_or_a_pair_of_counts():
    one = {"a": answers(), "b": answers(far=3), "c": answers(far=7), "d": answers(5, 9)}
    assert Finds("a", "64x").value(one).effect == Count(10, 10)
    pair = Finds("a", "64x", ("b", "c", "d")).value(one)  # d has not learnt it
    assert pair.effect == (Count(10, 10), Count(7, 10)) and pair.comparator == 0.7 and pair.learnt
    assert not Finds("a", "64x", "d").value(one).learnt
    assert not Finds("d", "64x").value(one).learnt
    assert Finds("d", "64x", "b", of="a").value(one).learnt  # ablations of a


def test_ratios_and_smallest_shapes():
    one = {"a": answers(perplexity=6.0, shapes=[1, -0.4]), "b": answers(perplexity=5.0)}
    assert Reads("a", "b").value(one).effect == pytest.approx(1.2)
    assert Smallest("a").value(one).effect == -0.4


@pytest.mark.parametrize(("variant", "moves"), [(BEST, True), (FROZEN, False)])
def test_frozen_priors_stay_and_slow_ones_move(runs, variant, moves):
    recipe = small("frozen-priors").recipes[Tier.QUICK]
    model = open_language(recipe.training_of(variant, 0).train())
    before = recipe.language(variant).build(model.tokenizer, 0)
    slow = [
        (a, b)
        for (name, a), b in zip(before.named_parameters(), model.model.parameters(), strict=True)
        if "theta_beta" in name or "ssmax" in name
    ]
    assert slow
    assert all(torch.equal(a, b) != moves for a, b in slow)


def test_heads_made_local_are_those_of_the_smallest_shape_or_the_next(runs):
    recipe = small("bam-far-heads").recipes[Tier.QUICK]
    for variant, expected in ((FAR_LOCAL, [1, 1, 2, 3]), (OTHERS_LOCAL, [0, 1, 1, 1])):
        model = recipe.model(PUBLISHED, 0, recipe.length)
        priors = learned_priors(model)
        priors[0].theta_beta.data = torch.tensor([0.0, 7.0, 2.0, 7.0])
        priors[1].theta_beta.data = torch.tensor([3.0, 7.0, 1.0, 7.0])
        make_local(model, VARIANTS[variant].made_local)
        kept = [beta for beta in shapes(model) if beta != 7]
        assert sorted(kept) == expected
    row = priors[0].log_prior(torch.arange(4))[2]  # its β was 2
    torch.testing.assert_close(row, -0.5 * torch.arange(4.0), atol=1e-4, rtol=0)


def test_scalings_of_rope_do_nothing_at_the_training_length():
    recipe = find_study("league").recipes[Tier.FULL]
    torch.manual_seed(0)
    tokens = torch.randint(60, (1, 32))
    logits = {}
    for name in ("RoPE", "RoPE, YaRN", "RoPE, NTK"):
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


def test_more_variants_and_seeds_leave_what_was_measured(runs, tmp_path):
    study = small("frozen-priors", text=0)
    job = MeasurementJob(study, Tier.QUICK, 0, tmp_path, BEST)
    job.run()
    recipe = study.recipes[Tier.QUICK]
    for changes, stands in [
        ({"seeds": 5, "variants": (BEST, FROZEN, "RoPE")}, True),
        ({"questions": ASKED[:1]}, False),
        ({"steps": 3}, False),
    ]:
        changed = dataclasses.replace(recipe, **changes)
        study.recipes = MappingProxyType({Tier.QUICK: changed})
        assert job.done() is stands
