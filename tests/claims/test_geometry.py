"""The studies of geometry: tiny trainings for the plumbing, planted numbers for the verdicts."""

import dataclasses
from types import MappingProxyType

import numpy as np
import pytest
import torch

from bayesattn.claims import bank, geometry, tunnel_bijection, tunnel_hmm
from bayesattn.claims import dynamics_frame_precision as precision
from bayesattn.claims import geometry_ffn as ffn
from bayesattn.claims import geometry_focusing as focusing
from bayesattn.claims import geometry_frame_head as frame_head
from bayesattn.claims import geometry_keys as keys
from bayesattn.claims import geometry_values as values
from bayesattn.errors import UserError
from bayesattn.ledger.study import Tier
from bayesattn.models.open import open_tunnel
from bayesattn.verdicts import Outcome
from bayesattn.zoo import locate
from tests.claims.planted import SEEDS, effects, judged
from tests.ledger.toy import run_study

NEVER, AGAIN, FILTER = geometry.NEVER, geometry.AGAIN, geometry.FILTER
SMALL = {"steps": 12, "layers": 2, "width": 16, "batch_size": 4, "sequences": 16, "heads": 2}
STEEP = tunnel_hmm.SteepRecipe(states=2, length=3, layers=1, width=16, steps=2)
RECIPE = geometry.GeometryRecipe(seeds=1, sequences=64)
LEARNT = 0.001
"""Bits of a model that has learnt its task."""


def plant_keys(name, effect, kl=LEARNT):
    first, lookup = (effect if name == one else 0.5 for one in ("first-layer", "lookup-heads"))

    def frames(lookups):
        cosines = [0.1 * first * factor for factor in (0.5, 1.5)]
        heads = {"first_layer": cosines, "untrained": [0.1], "values": [0.1], "random": 0.1}
        sizes = {"symbols": 20, "width": 32, "centred_random": 0.2, "welch": 0.05}
        return keys.Frames(kl=kl, lookups=lookups, **heads, **sizes)

    head = {"layer": 1, "head": 0, "mass": 0.9}
    found = [keys.CentredFrame(**head, cosine=0.2 * lookup * factor) for factor in (0.5, 1.5)]
    return {NEVER: frames([]), AGAIN: frames(found)}


def plant_frame_head(name, effect, kl=LEARNT):
    def ablated(top, following, whole, random):
        costs = frame_head.Costs(chosen=[0.1, 9.0], measured=[following, top])
        both = dict.fromkeys(frame_head.WAYS, costs)
        errors = {"kl": kl, "mae": whole, "random_kl": random}
        return frame_head.Ablated(**errors, entropy_costs=both, kl_costs=both, table=[[1.0]])

    whole = 0.2 / (effect - 1) if name == "catastrophe" else 0.01
    following = 0.2 / (effect if name.startswith("alone") else 4)
    random = 0.2 / (effect if name == "beyond-random" else 4)
    return dict.fromkeys((NEVER, AGAIN), ablated(0.2, following, whole, random))


def plant_focusing(name, effect, kl=LEARNT):
    flat = [[0.5, 0.5]] * 4
    ratio = effect if name == "first-to-last" else 0.4
    entropy = effect if name == "sharpens" else -0.1
    lookup = effect if name == "onto-consistent" else 0.1

    def slope(change):
        return [[0.4 + change * layer, 0.6 + change * layer] for layer in range(4)]

    def focused(entropies):
        found = {"lookup": slope(lookup), "lookup_untrained": flat}
        return focusing.Focusing(
            kl=kl, entropy=entropies, untrained=flat, bits=[[1.0, 1.0]] * 4, **found
        )

    return {
        NEVER: focused([[0.4, 0.6], *flat[:2], [0.5 * ratio, 0.5 * ratio]]),
        AGAIN: focused(slope(entropy)),
    }


def plant_values(name, effect, kl=LEARNT):
    share = effect if name == "one-axis" else 0.9
    line, curve = (0.1 + (effect if name == one else 0.7) for one in ("ordered", "ordered-curve"))

    def along(share, line, curve):
        return {
            values.LINE: values.Along(share=share, order=line),
            values.CURVE: values.Along(share=0.99, order=curve),
        }

    read = effect if name == "as-read" else 0.9
    same = {"kl": kl, "untrained": along(0.2, 0.1, 0.1), "as_read": read, "as_read_untrained": 0.1}
    return {
        NEVER: values.Geometry(trained=along(share, None, None), **same),
        AGAIN: values.Geometry(trained=along(0.3, line, curve), **same),
    }


def plant_ffn(name, effect, kl=LEARNT):
    kind, _, part = name.partition("-")

    def sublayers(needed, written):
        return ffn.Sublayers(
            kl=kl,
            uniform_kl=1.0,
            without={ffn.FEED: kl + needed * (1 - kl), ffn.ATTENTION: 2.0},
            written={ffn.FEED: [written - 0.1, 0.1], ffn.ATTENTION: [0.1, 0.1]},
        )

    planted = {"needed": 0.8, "written": 0.8, kind: effect}
    parts = {NEVER: "", AGAIN: "returning", FILTER: "filter"}
    return {
        own: sublayers(**planted) if said == part else sublayers(0.3, 0.3)
        for own, said in parts.items()
    }


def plant_precision(name, effect, kl=LEARNT):
    def way(values_after, error_after):
        settled = {"attention": 100.0, "values": 100 * values_after, "mae": 100 * error_after}
        return precision.Way(curves={kind: [1.0, 0.0] for kind in precision.DRAWN}, settled=settled)

    names = ("values-settle-later", "error-settles-later", "late-drift")
    later, error, late = (effect if name == one else 2.0 for one in names)
    return precision.Settling(
        kl=kl,
        steps=[0, 100],
        training=way(later, error),
        straight=way(1.2, 1.1),
        late_step=66,
        moved={"attention": 0.1, "values": 0.1 * late},
    )


PLANTS = {
    keys.GeometryKeys: plant_keys,
    frame_head.GeometryFrameHead: plant_frame_head,
    focusing.GeometryFocusing: plant_focusing,
    values.GeometryValues: plant_values,
    ffn.GeometryFFN: plant_ffn,
    precision.DynamicsFramePrecision: plant_precision,
}
STATEMENTS = [
    pytest.param(kind, own, id=f"{kind.claim.id}/{own.name}")
    for kind in PLANTS
    for own in kind.claim.statements
]


@pytest.mark.parametrize("outcome", Outcome)
@pytest.mark.parametrize(("kind", "own"), STATEMENTS)
def test_a_planted_effect_is_judged_as_it_is(kind, own, outcome):
    planted = effects(own, outcome)
    found = judged(kind(), own, [PLANTS[kind](own.name, effect) for effect in planted])
    assert found.outcome is outcome, found.reason
    assert found.seeds == (SEEDS if outcome is Outcome.UNDECIDED else found.seeds)


@pytest.mark.parametrize(("kind", "own"), STATEMENTS)
def test_models_that_have_not_learnt_their_task_decide_nothing(kind, own):
    planted = effects(own, Outcome.YES)
    results = [PLANTS[kind](own.name, effect, kl=0.021) for effect in planted]
    found = judged(kind(), own, results)
    assert found.outcome is Outcome.UNDECIDED
    assert found.reason.startswith("The premise fails: 0 of")
    assert f"{geometry.LEARNT:g} bits" in own.premise


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Tunnel studies of a few steps, in a folder of runs of their own."""
    monkeypatch.setenv("BAYESATTN_RUNS", str(tmp_path / "runs"))
    for study, changes in (
        (tunnel_bijection.TunnelBijection, {"alphabet": 5, "recall_steps": 3}),
        (tunnel_hmm.TunnelHMM, {"states": 3, "length": 4, "stretch": 2, "steep": STEEP}),
    ):
        recipe = dataclasses.replace(study.recipes[Tier.QUICK], **(SMALL | changes))
        monkeypatch.setattr(study, "recipes", MappingProxyType({Tier.QUICK: recipe}))
    for study in PLANTS:
        monkeypatch.setattr(study, "recipes", MappingProxyType({Tier.QUICK: RECIPE}))
    return tmp_path / "runs"


def test_studies_look_train_and_draw(runs, tmp_path):
    for kind in PLANTS:
        record = run_study(kind(), Tier.QUICK, tmp_path / "report")
        assert record.failure is None, record.failure
        assert record.figures
    # two bijections and a filter for all six, and a sibling for one
    assert len([*runs.iterdir()]) == 4


def test_models_are_those_of_the_tunnel_studies(runs, monkeypatch):
    tunnel_bijection.TunnelBijection().measure(Tier.QUICK, 1)
    tunnel_hmm.TunnelHMM().measure(Tier.QUICK, 1)
    monkeypatch.setattr("bayesattn.training.loop.train", lambda *_, **__: pytest.fail("trained"))
    study = ffn.GeometryFFN()
    assert study.parts(Tier.QUICK) == (NEVER, AGAIN, FILTER)
    found = {part: study.trained(Tier.QUICK, part, 1) for part in study.parts(Tier.QUICK)}
    assert not found[NEVER].tunnel.replacement and found[AGAIN].tunnel.replacement
    pairs = zip(found[AGAIN].initial.parameters(), found[AGAIN].model.parameters(), strict=True)
    assert any((a != b).any() for a, b in pairs)
    assert len(found[AGAIN].batch.inputs) == RECIPE.sequences


def test_a_model_that_comes_along_is_taken(monkeypatch, tmp_path):
    monkeypatch.setenv("BAYESATTN_RUNS", str(tmp_path / "runs"))
    for variant, seed, name in ((NEVER, 0, "bijection-10"), (AGAIN, 1, "bijection-10-returning")):
        model = values.GeometryValues().trained(Tier.QUICK, variant, seed).model
        expected = open_tunnel(locate(f"zoo:{name}"))[0]
        for own, other in zip(model.parameters(), expected.parameters(), strict=True):
            assert (own == other).all()
    assert not (tmp_path / "runs").exists()


BANK = """
[architectures]
small = { layers = 2, width = 16, heads = 2, encoding = "learned" }

[models.T-never]
about = "a toy"
architecture = "small"
tunnel = { name = "bijection", alphabet = 4 }
training = { steps = 12, batch_size = 4, dynamics = true }
aim = 2.0
seeds = 2
"""


@pytest.fixture
def toy_bank(tmp_path, monkeypatch):
    """A bank of one model, and claims that look into it."""
    (tmp_path / "toys.toml").write_text(BANK)
    monkeypatch.setattr(bank, "FILE", tmp_path / "toys.toml")
    monkeypatch.setattr(bank, "SEQUENCES", 16)
    monkeypatch.setenv("BAYESATTN_RUNS", str(tmp_path / "runs"))

    def look(study, digest=None):
        names = {NEVER: ("T-never", digest or bank.digest("T-never"))}
        recipe = geometry.GeometryRecipe(sequences=64, bank=names)
        monkeypatch.setattr(study, "recipes", MappingProxyType({Tier.FULL: recipe}))
        return study()

    return look


def test_models_of_the_bank_are_looked_into_and_never_trained_in_passing(toy_bank):
    study = toy_bank(frame_head.GeometryFrameHead)
    assert study.trainings(Tier.FULL, 0) == {}
    with pytest.raises(UserError, match="claims bank --train T-never --seeds 1"):
        study.measure_part(Tier.FULL, 0, NEVER)
    bank.training("T-never", 0).train()
    found = study.measure_part(Tier.FULL, 0, NEVER)
    assert [len(layer) for layer in found.table] == [2, 2]
    sibling = toy_bank(precision.DynamicsFramePrecision)
    assert sibling.trainings(Tier.FULL, 0) == {}
    with pytest.raises(UserError, match="no T-never with seed 1"):
        sibling.measure(Tier.FULL, 0)
    bank.training("T-never", 1).train()
    assert sibling.measure(Tier.FULL, 0).moved.keys() == {"attention", "values"}


def test_a_bank_that_changed_since_the_registration_is_refused(toy_bank):
    study = toy_bank(keys.GeometryKeys, digest="0123456789ab")
    with pytest.raises(UserError, match="0123456789ab was registered: register a new version"):
        study.measure_part(Tier.FULL, 0, NEVER)


@pytest.mark.parametrize("kind", PLANTS)
def test_registrations_name_models_that_the_bank_has(kind):
    recipe = kind.recipes[Tier.FULL]
    wanted = kind.models if issubclass(kind, geometry.GeometryStudy) else (NEVER,)
    assert [*recipe.bank] == [*wanted]
    for part, (name, digest) in recipe.bank.items():
        assert bank.digest(name) == digest
        tunnel = bank.training(name, 0).tunnel
        assert (tunnel.name == "hmm") is (part == FILTER)
        assert getattr(tunnel, "replacement", False) is (part == AGAIN)
    if kind is precision.DynamicsFramePrecision:
        config = bank.training(recipe.bank[NEVER][0], 0).config
        assert config.dynamics and config.decay == 0 and config.schedule == "wsd"


def test_a_slope_counts_heads_by_their_bits():
    rng = np.random.default_rng(0)
    heads, weights = rng.random((4, 3)), rng.random((4, 3))
    expected = np.polyfit(np.repeat(range(4), 3), heads.ravel(), 1, w=np.sqrt(weights.ravel()))[0]
    assert focusing.slope(heads.tolist(), weights.tolist()) == pytest.approx(expected)
    places = [[0.5 - 0.1 * layer, 0.9 * layer] for layer in range(4)]
    assert focusing.slope(places, [[1.0, 0.0]] * 4) == pytest.approx(-0.1)


def test_the_most_costly_head_is_chosen_on_other_sequences():
    costs = frame_head.Costs(chosen=[0.3, 0.1, 0.2], measured=[0.2, 0.4, 0.1])
    assert (costs.top, costs.next) == (0.2, 0.4)
    assert costs.over_next == pytest.approx(0.5)
    nothing = frame_head.Costs(chosen=[1e-9, 0.0], measured=[1e-9, -1e-9])
    assert nothing.over_next == 1


def test_seeds_are_siblings_of_each_other():
    assert [precision.sibling(seed) for seed in range(4)] == [1, 0, 3, 2]


def test_length_alone_makes_an_axis_that_the_norm_takes_off(generator):
    """States of one direction and many lengths, with a little of everything."""
    model = open_tunnel(locate("zoo:bijection-10"))[0]
    width = model.head.weight.shape[1]
    common = torch.randn(width, generator=generator)
    lengths = 10 + 50 * torch.rand(64, 9, 1, generator=generator)
    states = lengths * common + lengths * torch.randn(64, 9, width, generator=generator)
    raw = values.first_share(values.components(states))
    read = values.first_share(values.components(values.as_read(model, states)))
    assert raw > 0.1 > 0.05 > read
    line = values.ways(states, torch.rand(64, 9, generator=generator))[values.LINE]
    assert line.share == pytest.approx(raw)
