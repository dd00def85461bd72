"""What is captured is what the model computes, by formulas written out here."""

import pytest
import torch

from bayesattn.attention import attend
from bayesattn.attention.kernels.dense import posterior
from bayesattn.models.architectures import build
from bayesattn.probes.anatomy import AttentionPart, anatomy
from bayesattn.probes.capture import available, capture, resolve, stream
from bayesattn.probes.measured import NotApplicableError
from bayesattn.probes.selfcheck import check_capture
from bayesattn.tunnels import HMM
from tests.probes.common import (
    BIJECTION,
    OTHERS,
    TRANSFORMERS,
    inputs_of,
    language_model,
    model_of,
)


@pytest.mark.parametrize("name", [*TRANSFORMERS, *OTHERS])
def test_capture_checks_itself(name):
    found = check_capture(model_of(name), inputs_of())
    assert found.differences.pop("rows times values", 0.0) < 1e-6
    assert found.good and not any(found.differences.values())
    found.require()


@pytest.mark.parametrize("name", ["uniform", "ggd", "exempt", "window"])
def test_other_kernels_are_checked_against_the_definition(name):
    """From 129 keys on attention is not computed the way it is captured."""
    long = HMM(3, 3, 130)
    found = check_capture(model_of(name, long), inputs_of(long, 2))
    assert found.good and found.differences["rows times values"] < 5e-6


@pytest.mark.parametrize("options", [{}, {"shared_prior": True}, {"num_key_value_heads": 2}])
def test_language_models_check_themselves(options):
    tokens = torch.randint(0, 13, (3, 9), generator=torch.Generator().manual_seed(0))
    model = language_model(**options)
    assert check_capture(model, tokens).good
    captured = capture(model, tokens, positions=torch.tensor([2, 5]))
    with torch.no_grad():
        torch.testing.assert_close(captured["logits"], model(tokens).logits[:, [2, 5]])
    states = model(tokens, output_hidden_states=True).hidden_states
    torch.testing.assert_close(captured["layers.0.residual_after"], states[1][:, [2, 5]])


@pytest.mark.parametrize("name", [*TRANSFORMERS])
def test_parts_of_a_layer_by_formulas(name):
    """Residuals add up, heads split in order, attention is what `attend` says it is."""
    model, inputs = model_of(name), inputs_of()
    captured = capture(model, inputs)
    hidden = model.hidden(inputs)
    assert torch.equal(captured["embedding"], hidden[0])
    for at, layer in enumerate(model.body.layers):
        at_layer = f"layers.{at}."
        before, mid, after, fed = (
            captured[at_layer + name]
            for name in ("residual_before", "residual_mid", "residual_after", "mlp")
        )
        assert torch.equal(before, hidden[at]) and torch.equal(after, hidden[at + 1])
        torch.testing.assert_close(mid + fed, after)
        if not layer.attends:
            assert f"{at_layer}q" not in captured.tensors
            assert torch.equal(mid, before)
            continue
        attention = layer.self_attn
        normed = layer.input_layernorm(before)
        heads = captured[f"{at_layer}head_outputs"]
        torch.testing.assert_close(before + attention.o_proj(heads.flatten(2)), mid)
        width = attention.config.head_dim
        for head in range(captured[f"{at_layer}v"].shape[2]):
            own = attention.v_proj.weight[head * width : (head + 1) * width]
            torch.testing.assert_close(captured[f"{at_layer}v"][:, :, head], normed @ own.T)
        parts = attend(
            *(captured[at_layer + name].transpose(1, 2) for name in "qkv"),
            attention.prior,
            ssmax=attention.ssmax,
            window=attention.config.sliding_window,
            exempt=attention.config.exempt,
            decompose=True,
        )
        rows = captured[f"{at_layer}attention"]
        torch.testing.assert_close(rows, parts.posterior.transpose(1, 2))
        torch.testing.assert_close(rows.sum(-1), torch.ones(rows.shape[:3]))


def test_rotated_queries_and_keys_are_those_that_meet():
    model, inputs = model_of("grouped"), inputs_of()
    captured = capture(model, inputs, ["layers.0.*", "embedding"])
    attention, norm = model.body.layers[0].self_attn, model.body.layers[0].input_layernorm
    q = attention.q_proj(norm(captured["embedding"])).unflatten(-1, (4, -1))
    width = q.shape[-1]
    half = width // 2
    angle = torch.arange(inputs.shape[1])[:, None] * 500_000.0 ** (-torch.arange(half) / half)
    left, right = q[..., :half], q[..., half:]
    cos, sin = angle.cos()[None, :, None], angle.sin()[None, :, None]
    turned = torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)
    torch.testing.assert_close(captured["layers.0.q"], turned)


@pytest.mark.parametrize("name", ["ggd", "content", "grouped", "lstm"])
def test_only_chosen_positions_and_names_are_kept(name):
    model, inputs = model_of(name), inputs_of()
    positions = torch.tensor([1, 4, 7])
    everything, some = capture(model, inputs), capture(model, inputs, positions=positions)
    for key, tensor in everything.tensors.items():
        torch.testing.assert_close(some[key], tensor[:, positions], msg=key)
    few = capture(model, inputs, ["logits", "layers.*.residual_after"], positions)
    expected = ["layers.0.residual_after", "layers.1.residual_after", "logits"]
    assert list(few.tensors) == expected


def test_batches_make_no_difference_and_stream_one_at_a_time():
    model, inputs = model_of("ggd"), inputs_of(count=7)
    whole, parts = capture(model, inputs), capture(model, inputs, batch_size=3)
    for name, tensor in whole.tensors.items():
        torch.testing.assert_close(parts[name], tensor, msg=name)
    sizes = [len(captured["logits"]) for captured in stream(model, inputs, batch_size=3)]
    assert sizes == [3, 3, 1]
    given = capture(model, iter(inputs.split(2)), ["logits"])
    torch.testing.assert_close(given["logits"], whole["logits"])


def test_a_capture_leaves_no_trace():
    model, inputs = model_of("ggd"), inputs_of()
    model.train()
    before = model(inputs)
    capture(model, inputs)
    assert model.training
    assert torch.equal(model(inputs), before)
    hooks = [m._forward_hooks or m._forward_pre_hooks for m in model.modules()]
    assert not any(hooks)
    with pytest.raises(RuntimeError):
        capture(model, inputs[..., :-1])
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize("name", OTHERS)
def test_hidden_states_of_models_without_attention(name):
    model, inputs = model_of(name), inputs_of()
    captured = capture(model, inputs)
    with torch.no_grad():
        hidden = model.hidden(inputs)
    for at, state in enumerate(hidden[1:]):
        assert torch.equal(captured[f"layers.{at}.residual_after"], state)
        assert torch.equal(captured[f"layers.{at}.residual_before"], hidden[at])


def test_heads_in_another_order_are_noticed(monkeypatch):
    """The mistake of the authors' code: a split that is not the model's own."""

    def wrong(self, x):
        return x.unflatten(-1, (self.width, -1)).transpose(-1, -2).transpose(1, 2)

    monkeypatch.setattr(AttentionPart, "split", wrong)
    found = check_capture(model_of("ggd"), inputs_of())
    assert found.wrong["values"] > 0.01
    with pytest.raises(ValueError, match="is not what it computes"):
        found.require()


def test_a_posterior_without_its_prior_is_noticed(monkeypatch):
    def forgetful(q, k, terms, rows):
        return posterior(q, k, terms._replace(table=None), rows)

    monkeypatch.setattr("bayesattn.probes.anatomy.posterior", forgetful)
    found = check_capture(model_of("ggd"), inputs_of())
    assert {*found.wrong} == {"rows times values"}
    assert found.wrong["rows times values"] > 10 * found.allowed["rows times values"]


def test_names_that_are_not_there():
    transformer, lstm = anatomy(model_of("ggd")), anatomy(model_of("lstm"))
    with pytest.raises(NotApplicableError, match="lstm has no attention"):
        resolve(lstm, ["layers.*.q"])
    with pytest.raises(ValueError, match="has 2 layers"):
        resolve(transformer, ["layers.7.q"])
    with pytest.raises(ValueError, match="there are embedding, layers.0.residual_before"):
        resolve(transformer, ["layers.0.queries"])
    assert resolve(transformer, ["*"]) == available(transformer)
    with pytest.raises(ValueError, match="no inputs"):
        capture(model_of("ggd"), [])
    with pytest.raises(NotApplicableError, match="Linear cannot be looked into"):
        capture(torch.nn.Linear(2, 2), torch.zeros(1, 2))


def test_parts_out_of_range():
    parts = anatomy(model_of("late"))
    assert parts.attending == [0]
    parts.check_head(0, 3)
    with pytest.raises(ValueError, match="layers 0 to 2"):
        parts.check_layer(3)
    with pytest.raises(ValueError, match="heads 0 to 3"):
        parts.check_head(0, 4)
    with pytest.raises(NotApplicableError, match="layer 2 of this transformer has no attention"):
        parts.attention(2)
    with pytest.raises(NotApplicableError, match="an lstm has no attention"):
        anatomy(model_of("lstm")).require_attention()
    with pytest.raises(NotApplicableError, match="no separate feed-forward"):
        anatomy(model_of("mamba")).mlp(0)


def test_token_inputs_and_double_precision():
    model = build(TRANSFORMERS["ggd"], BIJECTION, 0).double()
    found = capture(model, inputs_of(BIJECTION))
    assert found["layers.0.attention"].dtype == torch.float64
    assert check_capture(model, inputs_of(BIJECTION)).differences["rows times values"] < 1e-14
