import pytest
import torch

import bayesattn.models.layers as layers
from bayesattn.encodings import Learned
from bayesattn.models import BayesModel
from bayesattn.models.architectures import Transformer, build
from tests.models.architectures.common import FEATURES, TOKENS, Shape

VARIANTS = [
    {},
    {"prior": "ggd", "prior_options": {"init": "mixed"}, "exempt_header": True},
    {"encoding": "rope", "kv_heads": 2, "window": 4},
    {"encoding": "learned", "ssmax": True, "ssmax_scope": "content", "inner": 20},
    {"layers": 3, "attention_layers": 1, "prior": "laplace"},
    {"experts": 3, "inner": 12},
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
        kv_heads=2,
        inner=20,
        prior="laplace",
        prior_options={"learned": False},
        encoding="rope",
        ssmax=True,
        ssmax_scope="content",
        window=5,
        exempt_header=True,
        attention_layers=2,
        max_positions=99,
        experts=3,
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


@pytest.mark.parametrize(("exempt_header", "expected"), [(True, 3), (False, 0)])
def test_the_header_is_exempt_in_attend(exempt_header, expected, monkeypatch):
    seen = []

    def attend(*args, **kwargs):
        seen.append(kwargs["exempt"])
        return original(*args, **kwargs)

    original = layers.attend
    monkeypatch.setattr(layers, "attend", attend)
    architecture = Transformer(width=16, prior="ggd", exempt_header=exempt_header)
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
    for exempt in (True, False):
        architecture = Transformer(
            width=16, layers=1, prior="laplace", prior_options=options, exempt_header=exempt
        )
        predictor = build(architecture, FEATURES, seed=0)
        moved[exempt] = (predictor(inputs) - predictor(other))[:, -1].abs().max()
    assert moved[True] > 1e-3
    assert moved[False] < 1e-6


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
    longer = build(Transformer(width=16, encoding="learned", max_positions=40), TOKENS, seed=0)
    assert longer(Shape(positions=40).inputs(1)).shape == (1, 40, 5)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"layers": 0}, "layers must be a positive integer, not 0"),
        ({"width": -4}, "width must be a positive integer, not -4"),
        ({"heads": 0}, "heads must be a positive integer, not 0"),
        ({"window": 0}, "window must be a positive integer, not 0"),
        ({"width": 66}, "width 66 is not a multiple of heads 4"),
        ({"kv_heads": 3}, "heads 4 is not a multiple of kv_heads 3"),
        ({"encoding": "alibi"}, "unknown encoding 'alibi'; choose one of none, rope, sin"),
        ({"encoding": "rope", "width": 20}, "make width a multiple of 8"),
        ({"ssmax_scope": "prior"}, "unknown ssmax_scope 'prior'; choose one of content"),
        ({"experts": 1}, "experts 1 leaves no choice of two; leave it out, or take 2 or more"),
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


def test_an_older_run_without_experts_is_the_same_run():
    assert "experts" not in Transformer().to_dict()
    assert Transformer(experts=4).to_dict()["experts"] == 4
