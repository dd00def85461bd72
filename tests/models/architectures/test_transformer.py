from dataclasses import fields

import pytest
import torch

import bayesattn.models.layers as layers
from bayesattn.encodings import Learned
from bayesattn.models import BayesModel
from bayesattn.models.architectures import Transformer, build, make_architecture
from tests.models.architectures.common import FEATURES, TOKENS, Shape

VARIANTS = [
    {},
    {"prior": "ggd", "prior_options": {"init": "mixed"}, "exempt": "header"},
    {"encoding": "rope", "num_key_value_heads": 2, "sliding_window": 4},
    {"encoding": "learned", "ssmax": True, "ssmax_scope": "content", "intermediate_size": 20},
    {"layers": 3, "attention_layers": 1, "prior": "laplace"},
    {"num_experts": 3, "intermediate_size": 12},
]


@pytest.mark.parametrize("fields", VARIANTS)
@torch.no_grad()
def test_it_is_a_bayes_model(fields):
    architecture = Transformer(width=16, **fields)
    predictor = build(architecture, TOKENS, seed=0)
    model = BayesModel(architecture.config(TOKENS)).eval()
    state = {k.removeprefix("body."): v for k, v in predictor.state_dict().items()}
    missing, _ = model.load_state_dict(state, strict=False)
    assert missing == ["embed_tokens.weight"]
    inputs = TOKENS.inputs(2)
    states = model(inputs_embeds=predictor.embedding(inputs)).last_hidden_state
    torch.testing.assert_close(predictor.head(states), predictor(inputs), rtol=1e-5, atol=1e-6)


def test_every_field_reaches_the_config():
    architecture = Transformer(
        layers=3,
        width=24,
        heads=6,
        num_key_value_heads=2,
        intermediate_size=20,
        prior="laplace",
        prior_options={"learned": False},
        encoding="rope",
        ssmax=True,
        ssmax_scope="content",
        sliding_window=5,
        exempt="header",
        attention_layers=2,
        max_position_embeddings=99,
        num_experts=3,
    )
    config = architecture.config(TOKENS)
    assert (config.num_hidden_layers, config.hidden_size, config.intermediate_size) == (3, 24, 20)
    assert (config.num_attention_heads, config.num_key_value_heads) == (6, 2)
    assert (config.prior, config.prior_options) == ("laplace", {"learned": False})
    assert (config.encoding, config.ssmax, config.ssmax_scope) == ("rope", True, "content")
    assert (config.sliding_window, config.exempt, config.attention_layers) == (5, 3, 2)
    assert config.max_position_embeddings == 99
    assert (config.num_experts, config.num_experts_per_tok) == (3, 2)
    plain = Transformer().config(TOKENS)
    assert (plain.prior, plain.ssmax, plain.encoding) == ("uniform", False, "none")
    assert (plain.sliding_window, plain.exempt, plain.attention_layers) == (None, 0, None)
    assert plain.max_position_embeddings == 13 and plain.num_experts is None


@pytest.mark.parametrize(("exempt", "expected"), [("header", 3), (0, 0), (2, 2)])
def test_the_header_is_exempt_in_attend(exempt, expected, monkeypatch):
    seen = []

    def attend(*args, **kwargs):
        seen.append(kwargs["exempt"])
        return original(*args, **kwargs)

    original = layers.attend
    monkeypatch.setattr(layers, "attend", attend)
    architecture = Transformer(width=16, prior="ggd", exempt=exempt)
    build(architecture, FEATURES, seed=0)(FEATURES.inputs(2))
    assert seen == [expected, expected]


@torch.no_grad()
def test_an_exempt_header_does_not_fade_with_distance():
    # A prior so local that only exempt keys are seen from afar.
    options = {"slopes": [50.0] * 4, "learned": False}
    inputs = FEATURES.inputs(2)
    other = inputs.clone()
    other[:, 0] += 1
    moved = {}
    for exempt in ("header", 0):
        architecture = Transformer(
            width=16,
            layers=1,
            prior="laplace",
            prior_options=options,
            exempt=exempt,
        )
        predictor = build(architecture, FEATURES, seed=0)
        moved[exempt] = (predictor(inputs) - predictor(other))[:, -1].abs().max()
    assert moved["header"] > 1e-3
    assert moved[0] < 1e-6


@torch.no_grad()
def test_learned_positions():
    predictor = build(Transformer(width=16, encoding="learned"), TOKENS, seed=0)
    encoding = predictor.body.encoding
    assert isinstance(encoding, Learned)
    assert encoding.table.shape == (13, 16)
    same = torch.zeros(1, 13, dtype=torch.long)
    (first, *_) = predictor.hidden(same)
    torch.testing.assert_close(first[0], predictor.embedding.weight[0] + encoding.table)
    with pytest.raises(ValueError, match="positions 0 to 12 only.*max_position_embeddings"):
        predictor(torch.zeros(1, 14, dtype=torch.long))
    longer = build(
        Transformer(width=16, encoding="learned", max_position_embeddings=40), TOKENS, seed=0
    )
    assert longer(Shape(positions=40).inputs(1)).shape == (1, 40, 5)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"layers": 0}, "layers must be a positive integer, not 0"),
        ({"width": -4}, "width must be a positive integer, not -4"),
        ({"heads": 0}, "heads must be a positive integer, not 0"),
        ({"sliding_window": 0}, "window must be a positive integer, not 0"),
        ({"width": 66}, "width 66 is not a multiple of heads 4"),
        ({"num_key_value_heads": 3}, "heads 4 is not a multiple of num_key_value_heads 3"),
        ({"encoding": "alibi"}, "unknown encoding 'alibi'; choose one of none, rope, sin"),
        ({"encoding": "rope", "width": 20}, "encoding 'rope' needs an even head_dim, not 5"),
        ({"ssmax_scope": "prior"}, "unknown ssmax_scope 'prior'; choose one of content"),
        ({"num_experts": 1}, "num_experts_per_tok 2 is more than num_experts 1; leave num_exp"),
        ({"attention_layers": 3}, "attention_layers 3 is more than layers 2; leave it out"),
        ({"prior": "gauss"}, "unknown prior 'gauss'"),
        ({"prior": "ggd", "prior_options": {"init": "best"}}, "init"),
        ({"prior": "ggd", "prior_options": {"slope": 1}}, "has no option 'slope'"),
    ],
)
def test_bad_fields_are_refused_in_one_sentence(fields, message):
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        Transformer(**fields)
    assert "\n" not in str(caught.value)


def test_a_run_keeps_every_field():
    stored = Transformer(num_experts=4).to_dict()
    assert stored.keys() == {"name", *(field.name for field in fields(Transformer))}
    assert make_architecture(**stored) == Transformer(num_experts=4)


def test_an_older_run_is_read_under_its_old_names():
    old = {"kv_heads": 2, "inner": 20, "window": 5, "experts": None, "max_positions": 9}
    new = {"num_key_value_heads": 2, "intermediate_size": 20, "sliding_window": 5}
    expected = Transformer(**new, max_position_embeddings=9, exempt="header")
    assert make_architecture("transformer", **old, exempt_header=True) == expected
    plain = make_architecture("transformer", exempt_header=False, ssmax_scope="content+prior")
    assert plain == Transformer()


def test_a_shared_prior_is_one_prior_and_acts():
    local = {
        "prior": "laplace",
        "prior_options": {"slopes": [50.0] * 4, "learned": True},
        "shared_prior": True,
    }
    predictor = build(Transformer(width=16, layers=2, **local), FEATURES, seed=0)
    names = [name for name, _ in predictor.named_parameters() if "prior" in name]
    assert len(names) == 1 and names[0].startswith("body.prior.")
    inputs = FEATURES.inputs(2)
    other = inputs.clone()
    other[:, 0] += 1
    assert (predictor(inputs) - predictor(other))[:, -1].abs().max() < 1e-6
