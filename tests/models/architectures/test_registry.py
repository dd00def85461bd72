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
    first.to_dict()["prior_options"]["init"] = "mixed"
    assert first.prior_options == {}


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("lsmt", {}, r"unknown architecture 'lsmt' \(did you mean 'lstm'\?\); choose one of trans"),
        ("lstm", {"prior": "ggd"}, "lstm has no attention, so it takes no prior; its fields are l"),
        ("mamba", {"exempt_header": True}, "mamba has no attention, so it takes no exempt_header"),
        ("mlp", {"encoding": "rope"}, "mlp has no attention, so it takes no encoding; its fields"),
        ("lstm", {"inner": 4}, "lstm has no field 'inner'; its fields are layers, width"),
        ("lstm", {"experts": 4}, "lstm has no field 'experts'; its fields are layers, width"),
        ("transformer", {"depth": 4}, "transformer has no field 'depth'; its fields are layers, w"),
    ],
)
def test_unknown_names_and_fields(name, fields, message):
    with pytest.raises(ValueError, match=message):
        make_architecture(name, **fields)


def test_fields_are_frozen():
    with pytest.raises(AttributeError):
        LSTM().width = 3
