import math

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from bayesattn.encodings import ENCODINGS, Learned, Rope, Rotation, Sinusoidal
from bayesattn.models import BayesConfig, BayesModel

SCALINGS = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
}


def llama(head_dim=8, **rope):
    return LlamaConfig(
        hidden_size=4 * head_dim,
        num_attention_heads=4,
        head_dim=head_dim,
        max_position_embeddings=32 if rope.get("rope_type") != "yarn" else 128,
        rope_parameters={"rope_theta": 500_000.0, **rope},
    )


@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.parametrize("length", [5, 32, 100])
def test_rotation_is_llamas(name, length, generator):
    config = llama(**SCALINGS[name])
    q = torch.randn(2, 4, length, 8, generator=generator)
    k = torch.randn(2, 2, length, 8, generator=generator)
    positions = torch.arange(length)[None] + torch.tensor([[0], [3]])
    cos, sin = LlamaRotaryEmbedding(config)(q, positions)
    expected_q, expected_k = apply_rotary_pos_emb(q, k, cos, sin)
    rotation = Rope(config).rotation(positions, q.dtype)
    torch.testing.assert_close(rotation(q), expected_q, rtol=0, atol=0)
    torch.testing.assert_close(rotation(k), expected_k, rtol=0, atol=0)


def test_scores_depend_on_the_difference_only(generator):
    rope = Rope(llama())
    q, k = torch.randn(2, 1, 1, 1, 8, generator=generator, dtype=torch.float64)

    def score(i, j):
        turn = [rope.rotation(torch.tensor([[p]]), torch.float64) for p in (i, j)]
        return (turn[0](q) * turn[1](k)).sum()

    torch.testing.assert_close(score(7, 3), score(1007, 1003))
    assert (score(7, 3) - score(7, 4)).abs() > 1e-3


def test_dynamic_scaling_remembers_nothing():
    rope = Rope(llama(**SCALINGS["dynamic"]))
    short = torch.arange(8)[None]
    before = rope.rotation(short, torch.float32)
    rope.rotation(torch.arange(1000)[None], torch.float32)
    after = rope.rotation(short, torch.float32)
    torch.testing.assert_close(after.cos, before.cos, rtol=0, atol=0)


def test_rope_survives_the_meta_device():
    with torch.device("meta"):
        rope = Rope(llama(**SCALINGS["yarn"]))
    reference = Rope(llama(**SCALINGS["yarn"]))
    positions = torch.arange(9)[None]
    made, expected = (r.rotation(positions, torch.float32) for r in (rope, reference))
    torch.testing.assert_close(made.sin, expected.sin, rtol=0, atol=0)


@pytest.mark.parametrize("encoding", [Rope, Sinusoidal])
def test_half_precision_rounds_the_result_not_the_position(encoding):
    positions = torch.tensor([[256, 257, 100_001]])
    made = encoding(llama())
    if encoding is Rope:
        exact, half = (made.rotation(positions, d).cos for d in (torch.float32, torch.bfloat16))
    else:
        exact, half = (
            made.embed(torch.zeros(1, 3, 16, dtype=d), positions)
            for d in (torch.float32, torch.bfloat16)
        )
    torch.testing.assert_close(half, exact.to(torch.bfloat16), rtol=0, atol=0)


@pytest.mark.parametrize("hidden_size", [6, 7])
def test_sinusoidal_formula(hidden_size):
    x = torch.ones(1, 4, hidden_size, dtype=torch.float64)
    positions = torch.tensor([[0, 1, 2, 5000]])
    made = Sinusoidal(llama()).embed(x, positions)
    for t, position in enumerate(positions[0].tolist()):
        for m in range(hidden_size):
            angle = position / 10_000 ** ((m - m % 2) / hidden_size)
            wave = math.cos(angle) if m % 2 else math.sin(angle)
            assert made[0, t, m].item() == pytest.approx(1 + wave, abs=1e-12)


def test_none_changes_nothing(generator):
    none = ENCODINGS["none"](llama())
    x = torch.randn(1, 3, 8, generator=generator)
    assert none.embed(x, torch.arange(3)[None]) is x
    assert none.rotation(torch.arange(3)[None], x.dtype) is None


def test_learned_adds_the_row_of_each_position(generator):
    learned = Learned(llama())
    x = torch.randn(2, 3, 32, generator=generator)
    positions = torch.tensor([[0, 1, 2], [29, 30, 31]])
    made = learned.embed(x, positions)
    for b, t in torch.cartesian_prod(torch.arange(2), torch.arange(3)).tolist():
        expected = x[b, t] + learned.table[positions[b, t]]
        torch.testing.assert_close(made[b, t], expected, rtol=0, atol=0)
    assert learned.rotation(positions, x.dtype) is None
    made.sum().backward()
    moved = learned.table.grad.abs().sum(dim=1).nonzero()[:, 0].tolist()
    assert moved == [0, 1, 2, 29, 30, 31]


def test_learned_starts_small():
    torch.manual_seed(0)
    table = Learned(llama(head_dim=64)).table
    assert table.shape == (32, 256)
    assert table.std().item() == pytest.approx(0.02, rel=0.05)
    assert table.mean().item() == pytest.approx(0, abs=1e-3)


def test_learned_may_start_as_the_sinusoids():
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "max_position_embeddings": 20}
    config = BayesConfig(encoding="learned", position_init="sinusoidal", vocab_size=5, **sizes)
    positions = torch.arange(20)[None]
    waves = Sinusoidal(config).embed(torch.zeros(1, 20, 32), positions)[0]
    torch.testing.assert_close(Learned(config).table.data, waves, rtol=0, atol=0)
    encoding = BayesModel(config).encoding  # transformers initialises it again
    assert isinstance(encoding.table, torch.nn.Parameter) and encoding.table.requires_grad
    torch.testing.assert_close(encoding.table.data, waves, rtol=0, atol=0)
    with pytest.raises(ValueError, match="unknown position_init 'waves'; choose one of normal, s"):
        BayesConfig(encoding="learned", position_init="waves")


@pytest.mark.parametrize("positions", [torch.arange(33)[None], torch.tensor([[32]])])
def test_learned_has_no_row_beyond_its_table(positions):
    message = "row for positions 0 to 31 only; build the model with a larger max_position_embed"
    with pytest.raises(ValueError, match=message):
        Learned(llama()).embed(torch.zeros(1, positions.shape[1], 32), positions)


def test_names():
    assert set(ENCODINGS) == {"none", "rope", "sinusoidal", "learned"}
    assert isinstance(Rope(llama()).rotation(torch.arange(2)[None], torch.float32), Rotation)
