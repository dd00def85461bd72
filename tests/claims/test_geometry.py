"""The studies of geometry: tiny trainings for the plumbing, made-up numbers for the verdicts."""

import dataclasses
from types import MappingProxyType

import pytest

from bayesattn.claims import dynamics_frame_precision as precision
from bayesattn.claims import geometry, tunnel_bijection, tunnel_hmm
from bayesattn.claims import geometry_ffn as ffn
from bayesattn.claims import geometry_focusing as focusing
from bayesattn.claims import geometry_frame_head as frame_head
from bayesattn.claims import geometry_keys as keys
from bayesattn.claims import geometry_values as values
from bayesattn.ledger.study import Tier
from bayesattn.models.open import open_tunnel
from bayesattn.stats import Outcome
from bayesattn.zoo import locate

STUDIES = [
    keys.GeometryKeys,
    frame_head.GeometryFrameHead,
    focusing.GeometryFocusing,
    values.GeometryValues,
    ffn.GeometryFFN,
    precision.DynamicsFramePrecision,
]
SMALL = {"steps": 3, "layers": 2, "width": 16, "batch_size": 4, "sequences": 16, "heads": 2}
RECIPE = geometry.GeometryRecipe(seeds=1, sequences=64)
NEVER, AGAIN = geometry.VARIANTS


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Tunnel studies of a few steps, in a folder of runs of their own."""
    monkeypatch.setenv("BAYESATTN_RUNS", str(tmp_path / "runs"))
    for study, changes in (
        (tunnel_bijection.TunnelBijection, {"alphabet": 5, "recall_steps": 3}),
        (tunnel_hmm.TunnelHMM, {"states": 3, "length": 4, "stretch": 2.0}),
    ):
        recipe = dataclasses.replace(study.recipes[Tier.QUICK], **(SMALL | changes))
        monkeypatch.setattr(study, "recipes", MappingProxyType({Tier.QUICK: recipe}))
    for study in STUDIES:
        monkeypatch.setattr(study, "recipes", MappingProxyType({Tier.QUICK: RECIPE}))
    return tmp_path / "runs"


def test_studies_look_train_judge_and_draw(runs, monkeypatch):
    monkeypatch.setattr(keys, "PERMUTATIONS", 9)
    for kind in STUDIES:
        study = kind()
        found = {0: study.measure(Tier.QUICK, 0)}
        assert study.draw(Tier.QUICK, found)
        assert study.verdict(Tier.QUICK, found).null is not None
    assert len([*runs.iterdir()]) == 3  # two bijections and a filter, for all six


def test_models_are_those_of_the_tunnel_studies(runs, monkeypatch):
    tunnel_bijection.TunnelBijection().measure(Tier.QUICK, 1)
    tunnel_hmm.TunnelHMM().measure(Tier.QUICK, 1)
    monkeypatch.setattr("bayesattn.training.loop.train", lambda *_, **__: pytest.fail("trained"))
    parts = ffn.GeometryFFN().parts(Tier.QUICK)
    assert parts == (NEVER, AGAIN, "filter")
    found = {part: geometry.trained_model(Tier.QUICK, part, 1) for part in parts}
    assert not found[NEVER].tunnel.replacement and found[AGAIN].tunnel.replacement
    initial, model = found[AGAIN].initial, found[AGAIN].model
    pairs = zip(initial.parameters(), model.parameters(), strict=True)
    assert any((a != b).any() for a, b in pairs)


def test_a_model_that_comes_along_is_taken(monkeypatch, tmp_path):
    monkeypatch.setenv("BAYESATTN_RUNS", str(tmp_path / "runs"))
    for variant, seed, name in ((NEVER, 0, "bijection-10"), (AGAIN, 1, "bijection-10-returning")):
        model = geometry.trained_model(Tier.QUICK, variant, seed).model
        expected = open_tunnel(locate(f"zoo:{name}"))[0]
        for own, other in zip(model.parameters(), expected.parameters(), strict=True):
            assert (own == other).all()
    assert not (tmp_path / "runs").exists()


def verdict(kind, results):
    """From one result per seed; of both kinds of bijections if it is a claim about models."""
    if kind is not precision.DynamicsFramePrecision:
        results = [dict.fromkeys((NEVER, AGAIN), one) for one in results]
    return kind().verdict(Tier.QUICK, dict(enumerate(results)))


@pytest.mark.parametrize(
    ("again", "untrained", "outcome"),
    [
        ([0.10, 0.11, 0.12], 0.25, Outcome.SUPPORTED),
        ([0.10, 0.11, 0.12], 0.05, Outcome.REFUTED),  # as orthogonal as before training
        ([0.40, 0.42, 0.41], 0.25, Outcome.REFUTED),
        ([0.10, 0.40, 0.20], 0.25, Outcome.INCONCLUSIVE),
    ],
)
def test_keys_must_be_more_orthogonal_than_chance_and_than_before(again, untrained, outcome):
    def frame(cosine):
        nothing = {"shuffled": [], "p": [], "centred": [], "rank": []}
        heads = {"cosine": [cosine - 0.05, cosine + 0.05], "untrained": [untrained]}
        return {"keys": keys.Frame(**heads, **nothing, random=0.2, best_random=0.18)}

    results = [
        {NEVER: frame(never), AGAIN: frame(own)}
        for never, own in zip([0.10, 0.12, 0.11], again, strict=True)
    ]
    found = keys.GeometryKeys().verdict(Tier.QUICK, dict(enumerate(results)))
    assert found.outcome is outcome and found.null == pytest.approx(0.2)
    assert "The most orthogonal head has 0.06 if" in found.reason


@pytest.mark.parametrize(
    ("next_head", "whole", "outcome", "unit"),
    [
        ([5, 6, 5.5], [50, 60, 55], Outcome.SUPPORTED, "next head"),
        ([1.1, 1.2, 1.0], [50, 60, 55], Outcome.REFUTED, "next head"),
        ([5, 6, 5.5], [2, 3, 2.5], Outcome.REFUTED, "whole model"),
        ([1, 9, 2], [50, 60, 55], Outcome.INCONCLUSIVE, "next head"),
    ],
)
def test_one_head_must_be_catastrophic_and_alone(next_head, whole, outcome, unit):
    results = [
        frame_head.Ablated(
            head=0,
            times_next=times_next,
            times_whole=times_whole,
            whole=frame_head.Errors(mae=0.1, kl=0.1),
            random_mae=0.3,
            bypass_mae=[],
            costs={},
        )
        for times_next, times_whole in zip(next_head, whole, strict=True)
    ]
    found = verdict(frame_head.GeometryFrameHead, results)
    assert found.outcome is outcome and unit in found.unit
    assert found.null == pytest.approx(1.0 if "next" in unit else 4.0)


@pytest.mark.parametrize(
    ("rise", "fall", "beyond", "outcome"),
    [
        ([0.3, 0.31, 0.3], [0.2, 0.21, 0.2], [0.5, 0.5, 0.51], Outcome.SUPPORTED),
        ([0.01, 0.012, 0.011], [0.2, 0.21, 0.2], [0.5, 0.5, 0.51], Outcome.REFUTED),  # as before
        ([0.3, 0.31, 0.3], [-0.2, -0.21, -0.2], [0.5, 0.5, 0.51], Outcome.REFUTED),
        ([0.3, 0.31, 0.3], [0.2, 0.21, 0.2], [-0.1, -0.1, -0.11], Outcome.REFUTED),
        ([0.0, 0.3, 0.1], [0.2, 0.21, 0.2], [0.5, 0.5, 0.51], Outcome.INCONCLUSIVE),
    ],
)
def test_attention_must_sharpen_onto_what_is_consistent(rise, fall, beyond, outcome):
    def focused(up, down, more):
        mass = focusing.Mass(
            trained=[0.2, 0.2 + up],
            untrained=[0.1, 0.15],
            even=[0.1, 0.1],
            other_sequences=[0.1, 0.2 + up - more],
        )
        entropy = geometry.Layers(trained=[0.6, 0.6 - down], untrained=[0.9, 0.89])
        return focusing.Focusing(entropy=entropy, mass={"consistent": mass}, alignment=None, own=[])

    found = verdict(focusing.GeometryFocusing, map(focused, rise, fall, beyond))
    assert found.outcome is outcome and found.null == pytest.approx(0.05)
    assert found.measured == pytest.approx(sum(rise) / 3)


@pytest.mark.parametrize(
    ("share", "order", "outcome", "unit"),
    [
        ([0.8, 0.82, 0.81], [0.9, 0.91, 0.9], Outcome.SUPPORTED, "variance"),
        ([0.2, 0.22, 0.21], [0.9, 0.91, 0.9], Outcome.REFUTED, "variance"),
        ([0.8, 0.82, 0.81], [0.55, 0.56, 0.55], Outcome.REFUTED, "entropy"),  # 0.1 before training
    ],
)
def test_one_axis_must_hold_the_variance_and_the_order(share, order, outcome, unit):
    def state(layer, share, order):
        return values.State(
            layer=layer,
            kind=values.JUDGED,
            share=geometry.Pair(trained=share, untrained=0.2),
            participation=geometry.Pair(trained=3.0, untrained=9.0),
            order=geometry.Pair(trained=order, untrained=0.1),
            order_p=0.01,
            given_step=True,
            decodability=geometry.Pair(trained=0.9, untrained=0.0),
            decodability_of_step=0.3,
        )

    results = [
        values.Geometry(states=[state(1, *last), state(0, 0.0, 0.0)], clusters={})
        for last in zip(share, order, strict=True)
    ]
    found = verdict(values.GeometryValues, results)
    assert found.outcome is outcome and unit in found.unit
    assert found.null == pytest.approx(0.2 if unit == "variance" else 0.1)


@pytest.mark.parametrize(
    ("gains", "outcome"),
    [
        ([0.5, 0.52, 0.51], Outcome.SUPPORTED),
        ([-0.5, -0.52, -0.51], Outcome.REFUTED),
        ([-0.5, 0.5, 0.1], Outcome.INCONCLUSIVE),
    ],
)
def test_feed_forward_parts_must_gain_more_than_attention(gains, outcome):
    def sublayers(gain):
        entropy = ffn.Gains(by_layer={}, difference=gain, difference_untrained=-0.3)
        costs = {"without_attention": 1.0, "without_feed": 0.1}
        return ffn.Sublayers(gains={"entropy": entropy}, **costs)

    found = verdict(ffn.GeometryFFN, map(sublayers, gains))
    assert found.outcome is outcome and found.null == pytest.approx(-0.3)


@pytest.mark.parametrize(
    ("content", "error", "outcome"),
    [
        ([1.0, 1.1, 1.2], [0.5, 0.6, 0.55], Outcome.SUPPORTED),
        ([-0.7, -0.6, -0.65], [0.5, 0.6, 0.55], Outcome.REFUTED),
        ([1.0, 1.1, 1.2], [-0.5, -0.6, -0.55], Outcome.REFUTED),
        ([1.0, -1.1, 0.2], [0.5, 0.6, 0.55], Outcome.INCONCLUSIVE),
    ],
)
def test_values_and_error_must_settle_after_attention(content, error, outcome):
    def settling(values, wrong):
        way = precision.Way(curve=[], half_life=10.0, settled=100.0)
        beyond = {"values": values, "precision": wrong}
        return precision.Settling(
            steps=[],
            training=dict.fromkeys(precision.DRAWN, way),
            straight={},
            after_attention={
                name: precision.Doublings(training=0.3 + value, straight=0.3)
                for name, value in beyond.items()
            },
            twice_the_end=300.0,
        )

    found = verdict(precision.DynamicsFramePrecision, map(settling, content, error))
    assert found.outcome is outcome and found.null == 0
