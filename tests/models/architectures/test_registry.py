import json

import pytest

from bayesattn.models.architectures import ARCHITECTURES, LSTM, Transformer, make_architecture
from tests.models.architectures import common


def test_names():
    assert set(ARCHITECTURES) == {"transformer", "lstm", "mamba", "mlp"}
    for name, kind in ARCHITECTURES.items():
        assert make_architecture(name) == kind()


@pytest.mark.parametrize("name", common.ARCHITECTURES)
def test_json_round_trip(name):
    architecture = common.ARCHITECTURES[name]
    written = json.loads(json.dumps(architecture.to_dict()))
    assert make_architecture(**written) == architecture


def test_options_belong_to_one_architecture():
    first, second = Transformer(), Transformer()
    assert first.prior_options is not second.prior_options
    chosen = Transformer(prior="ggd", prior_options={"init": "mixed"})
    chosen.to_dict()["prior_options"]["init"] = "alibi"
    assert chosen.prior_options == {"init": "mixed"}


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("lsmt", {}, r"unknown architecture 'lsmt' \(did you mean 'lstm'\?\); choose one of trans"),
        ("lstm", {"prior": "ggd"}, "only the transformer has prior; lstm has layers, width"),
        (
            "mamba",
            {"exempt": "header"},
            "only the transformer has exempt; mamba has layers, width, st",
        ),
        ("mlp", {"encoding": "rope"}, "only the transformer has encoding; mlp has layers, width"),
        (
            "lstm",
            {"intermediate_size": 4},
            "only the transformer has intermediate_size",
        ),
        ("lstm", {"num_experts": 4}, "only the transformer has num_experts; lstm"),
        (
            "transformer",
            {"slidng_window": 4},
            "unknown field 'slidng_window': did you mean 'sliding_w",
        ),
    ],
)
def test_unknown_names_and_fields(name, fields, message):
    with pytest.raises(ValueError, match=message):
        make_architecture(name, **fields)


def test_fields_are_frozen():
    with pytest.raises(AttributeError):
        LSTM().width = 3
