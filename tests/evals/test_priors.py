import math
import shutil
from collections import Counter

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from bayesattn.corpora import NeedleMaker, load_tokenizer
from bayesattn.evals.priors import REACH, decomposed, factors_on_passkey, look, measure_priors
from bayesattn.models import BayesConfig, BayesForCausalLM
from bayesattn.models.open import LanguageModel, open_language
from bayesattn.training import Run, train_language
from tests.training.language_toy import toy_language, toy_training, write_corpus

TOKENIZER = load_tokenizer("words")
LENGTH = 100
BETAS = [[1.0, -0.3], [-0.6, -0.61], [0.0, 2.0]]
ALPHAS = [[-1.0, 0.5], [0.2, 0.0], [3.0, -4.0]]


def made(**settings):
    """A small model with known priors, if it has those of BETAS."""
    torch.manual_seed(0)
    config = BayesConfig(
        **{
            "vocab_size": len(TOKENIZER),
            "hidden_size": 16,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            **settings,
        }
    )
    model = BayesForCausalLM(config).eval()
    with torch.no_grad():
        for number, layer in enumerate(model.model.layers):
            if layer.attends and config.prior == "ggd" and not config.shared_prior:
                layer.self_attn.prior.theta_beta.copy_(torch.tensor(BETAS[number]))
                layer.self_attn.prior.theta_alpha.copy_(torch.tensor(ALPHAS[number]))
            if layer.attends and config.ssmax:
                layer.self_attn.ssmax.scale.copy_(torch.tensor([0.5, 2.0]))
    return LanguageModel(model, TOKENIZER, LENGTH, "toy")


def slow_density(beta, alpha, temper):
    weights = [
        math.exp(-temper * math.exp(alpha) * (distance + 1e-5) ** beta)
        for distance in range(LENGTH)
    ]
    return [weight / sum(weights) for weight in weights]


def tempers(ssmax, scope):
    return [s * math.log(LENGTH) for s in (0.5, 2.0)] if ssmax and scope != "content" else [1, 1]


def test_heads_are_told_as_they_are():
    found = measure_priors(made())
    assert [(head.layer, head.head) for head in found.heads] == [
        (layer, head) for layer in range(3) for head in range(2)
    ]
    for head in found.heads:
        alpha, beta = ALPHAS[head.layer][head.head], BETAS[head.layer][head.head]
        assert (head.theta_alpha, head.theta_beta) == pytest.approx((alpha, beta))
        assert head.mu == 0
    kinds = [head.kind for head in found.heads]
    assert kinds == ["local", "retrieval", "retrieval", "aggressive", "local", "local"]
    assert found.counts() == dict(Counter(head.looks for head in found.heads))
    assert [head.temperature for head in found.heads] == [0.5, 2.0] * 3
    assert found.movement is None


@pytest.mark.parametrize(
    ("ssmax", "scope"), [(False, "content+prior"), (True, "content+prior"), (True, "content")]
)
def test_density_and_reach_are_what_attention_uses(ssmax, scope):
    found = measure_priors(made(ssmax=ssmax, ssmax_scope=scope))
    temper = tempers(ssmax, scope)
    for layer in range(3):
        for head in range(2):
            slow = slow_density(BETAS[layer][head], ALPHAS[layer][head], temper[head])
            assert found.density[layer, head].tolist() == pytest.approx(slow, rel=1e-4, abs=1e-12)
            reach = found.heads[2 * layer + head].reach
            if BETAS[layer][head] <= 0:
                assert reach == math.inf
            elif reach < LENGTH - 1:
                last = int(reach)
                assert slow[last] >= REACH * slow[0] > slow[last + 1]
            else:
                assert min(slow) >= REACH * slow[0]


def test_the_prior_of_the_factors_is_the_density():
    language_model = made()
    found = measure_priors(language_model)
    tokens = torch.randint(3, 1000, (1, LENGTH), generator=torch.Generator().manual_seed(1))
    for row, parts in decomposed(language_model.model, tokens).items():
        last = parts.prior[0, :, -1].flip(-1)
        torch.testing.assert_close(last, found.density[row].float(), rtol=1e-4, atol=1e-7)


def test_a_window_ends_the_prior():
    found = measure_priors(made(sliding_window=10, prior="uniform", ssmax=False))
    assert found.density[0, 0].tolist() == [0.1] * 10 + [0.0] * (LENGTH - 10)


def test_other_priors_have_no_thetas():
    found = measure_priors(made(prior="laplace", ssmax=False))
    for head in found.heads:
        assert (head.theta_alpha, head.theta_beta, head.mu, head.kind) == (None,) * 4
        slope = (1 / 16, 1 / 256)[head.head]
        assert head.reach == math.floor(-math.log(REACH) / slope)
        assert head.temperature is None
    assert found.counts() == {"local": 3, "near-uniform": 3}


def test_a_shared_prior_is_every_layer_s():
    found = measure_priors(made(shared_prior=True, prior_options={"init": "alibi"}))
    assert found.layers == [0, 1, 2]
    assert len({(head.theta_alpha, head.theta_beta) for head in found.heads}) == 2


def test_layers_that_do_not_attend_have_no_prior():
    assert measure_priors(made(attention_layers=2)).layers == [0, 1]


@pytest.mark.parametrize(("scale", "least"), [(0.0, math.inf), (-1.0, math.inf), (1e-9, 100)])
def test_hardly_any_temperature_reaches_far(scale, least):
    language_model = made()
    with torch.no_grad():
        for layer in language_model.model.model.layers:
            layer.self_attn.ssmax.scale.fill_(scale)
    assert all(head.reach >= least for head in measure_priors(language_model).heads)


def test_json_is_plain():
    plain = measure_priors(made()).to_json()
    assert plain["heads"][1]["reach"] is None
    assert plain["heads"][0] == {
        "layer": 0,
        "head": 0,
        "looks": "local",
        "half": 0,
        "moved": None,
        "theta_alpha": -1.0,
        "theta_beta": 1.0,
        "mu": 0.0,
        "kind": "local",
        "reach": 8.0,
        "temperature": 0.5,
    }


def test_models_of_others_have_no_priors():
    config = LlamaConfig(
        vocab_size=32,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
    )
    model = LanguageModel(LlamaForCausalLM(config), TOKENIZER, 16, "llama")
    with pytest.raises(ValueError, match="llama is a LlamaForCausalLM, which has no prior"):
        measure_priors(model)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"encoding": "rope", "prior": "uniform"},
        {"shared_prior": True, "prior_options": {"init": "alibi"}},
        {"sliding_window": 7, "exempt": 3},
        {"num_key_value_heads": 1, "attention_layers": 2, "ssmax_scope": "content"},
    ],
    ids=str,
)
def test_factors_are_those_of_the_model(settings):
    model = made(**settings).model
    tokens = torch.randint(3, 1000, (2, 40), generator=torch.Generator().manual_seed(1))
    found = decomposed(model, tokens)
    with torch.no_grad():
        attentions = model(tokens, output_attentions=True).attentions
    assert list(found) == list(range(len(attentions)))
    for parts, attention in zip(found.values(), attentions, strict=True):
        torch.testing.assert_close(parts.posterior, attention)
        product = parts.likelihood * parts.prior * parts.evidence
        torch.testing.assert_close(product, attention, rtol=1e-3, atol=1e-5)
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_mass_is_on_the_hidden_value():
    factors = factors_on_passkey(made())
    maker = NeedleMaker(TOKENIZER)
    assert LENGTH - maker.unit < len(factors.tokens) <= LENGTH
    text = TOKENIZER.batch_decode([[token] for token in factors.tokens.tolist()])
    key = "".join(text[place] for place in factors.value[:5].tolist())
    assert len(key) == 5 and key.isdigit()
    assert "".join(text[place] for place in factors.value.tolist()) == 2 * key
    assert "".join(text[place + 1] for place in factors.asked.tolist()) == key
    assert factors.asked.tolist() == list(range(len(text) - 6, len(text) - 1))
    slow = [
        [
            sum(
                float(parts.posterior[0, head, query, place])
                for query in factors.asked
                for place in factors.value
            )
            / 5
            for head in range(2)
        ]
        for parts in factors.layers.values()
    ]
    assert factors.mass().tolist() == [pytest.approx(row) for row in slow]
    layer, head = factors.strongest()
    assert factors.mass()[layer, head] == factors.mass().max()


def test_factors_of_a_model_whose_first_layers_do_not_count():
    """The strongest head is named by its layer, whichever layers attend."""
    factors = factors_on_passkey(made(attention_layers=1))
    assert factors.strongest()[0] == 0
    assert factors.mass().shape == (1, 2)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("priors")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BAYESATTN_RUNS", str(folder))
        corpus = write_corpus(folder / "text.jsonl")
        language = toy_language(corpus, layers=2)
        return train_language(language, toy_training(dynamics=True), folder / "run", progress=False)


def test_movement_is_read_from_the_checkpoints(run):
    found = measure_priors(open_language(run), run)
    moved = found.movement
    assert moved.steps == run.steps() and moved.steps[0] == 0 and len(moved.steps) > 3
    for index, step in enumerate(moved.steps):
        at = measure_priors(open_language(run, step))
        for name in ("theta_alpha", "theta_beta"):
            values = [getattr(head, name) for head in at.heads]
            assert getattr(moved, name)[index].flatten().tolist() == values
    assert not torch.equal(moved.theta_beta[0], moved.theta_beta[-1])
    assert found.to_json()["movement"]["steps"] == moved.steps
    began = measure_priors(open_language(run, 0))
    assert torch.equal(found.initial, began.density)
    for head, now, then in zip(
        found.heads, found.density.flatten(0, 1), began.density.flatten(0, 1), strict=True
    ):
        assert head.moved == pytest.approx(float((now - then).abs().sum() / 2)) and head.moved > 0


def test_the_initialisation_needs_no_checkpoint(run, tmp_path):
    """A run that keeps the last checkpoint only, as most do."""
    shutil.copytree(run.folder, tmp_path / "run")
    for step in run.steps()[:-1]:
        shutil.rmtree(tmp_path / "run" / "checkpoints" / f"step-{step:06d}")
    kept = Run.open(tmp_path / "run")
    found, whole = (measure_priors(open_language(one), one) for one in (kept, run))
    assert found.movement.steps == [0, run.steps()[-1]]
    for end in (0, -1):
        assert torch.equal(found.movement.theta_beta[end], whole.movement.theta_beta[end])


def test_classes_by_how_far_a_prior_looks():
    """Against averages that are written out."""
    uniform = torch.full((50,), 1 / 50, dtype=torch.float64)
    tilt = torch.linspace(1, -1, 50, dtype=torch.float64) / 50
    wanted = {0.0: "near-uniform", 0.38: "near-uniform", -0.38: "near-uniform"}
    wanted |= {0.45: "local", 1.0: "local", -0.45: "far", -1.0: "far"}
    for share, name in wanted.items():
        density = uniform + share * tilt
        away = sum(abs(float(p) - 1 / 50) for p in density) / 2
        mean = sum(distance * float(p) for distance, p in enumerate(density))
        slow = "near-uniform" if away <= 0.1 else "local" if mean < 24.5 else "far"
        assert look(density) == slow == name
