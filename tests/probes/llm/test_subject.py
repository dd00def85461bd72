"""Parts are found by what they compute; here stands what an expert would have said."""

import dataclasses

import pytest
import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    BertConfig,
    MambaConfig,
    T5Config,
    T5ForConditionalGeneration,
)

from bayesattn.probes.examine_language import _notes, observe
from bayesattn.probes.llm.heads import Heads, layout_of
from bayesattn.probes.llm.selfcheck import check_prompts
from bayesattn.probes.llm.subject import Subject, find_parts
from bayesattn.probes.llm.tracing import distinct_heads, match_columns
from bayesattn.probes.measured import NotApplicableError
from tests.probes.llm.architectures import (
    GROUPED,
    MODELS,
    SMALL,
    WIDTH,
    WORDS,
    clipping,
    key_heads,
    model_of,
    prompts_of,
    subject_of,
)

FUSING = ("gpt", "mpt", "falcon", "bloom", "phi3", "codegen")
SEPARATE = [name for name in MODELS if not name.startswith(FUSING) or name == "gptj"]


def slabs(*starts, width=4):
    """Heads that begin at these columns."""
    return torch.tensor([list(range(start, start + width)) for start in starts])


THIRD = [range(start, start + WIDTH, 4) for start in (0, WIDTH, 2 * WIDTH)]
FUSED = {
    # [q | k | v], each with its heads side by side
    "gpt2": ("c_attn", *(slabs(*third) for third in THIRD)),
    "mpt": ("Wqkv", *(slabs(*third) for third in THIRD)),
    # [q k v] of the first head, then of the next
    "gpt-neox": ("query_key_value", *(slabs(*range(at, 72, 12)) for at in (0, 4, 8))),
    "falcon fused": ("query_key_value", *(slabs(*range(at, 72, 12)) for at in (0, 4, 8))),
    "bloom": ("query_key_value", *(slabs(*range(at, 72, 12)) for at in (0, 4, 8))),
    # all queries, then one key and one value
    "falcon single": ("query_key_value", slabs(*range(0, 24, 4)), slabs(24), slabs(28)),
    # three queries, their key and their value; then the next three
    "falcon grouped": (
        "query_key_value",
        slabs(0, 4, 8, 20, 24, 28),
        slabs(12, 32),
        slabs(16, 36),
    ),
    "phi3 fused": ("qkv_proj", slabs(*range(0, 24, 4)), slabs(24, 28), slabs(32, 36)),
    # four groups of two heads, each group [q v k]
    "codegen": (
        "qkv_proj",
        slabs(*(at for group in range(0, 96, 24) for at in (group, group + 4))),
        slabs(*(at + 16 for group in range(0, 96, 24) for at in (group, group + 4))),
        slabs(*(at + 8 for group in range(0, 96, 24) for at in (group, group + 4))),
    ),
}


@pytest.mark.parametrize("name", FUSED)
def test_layouts_of_fused_projections_are_read_off(name):
    projection, _, *expected = FUSED[name]
    for layer in subject_of(name).parts.layers:
        for found, columns in zip((layer.key, layer.value), expected, strict=True):
            assert found.module is getattr(layer.attention, projection)
            assert torch.equal(found.columns, columns)


@pytest.mark.parametrize("name", SEPARATE)
def test_separate_projections(name):
    for layer in subject_of(name).parts.layers:
        assert layer.value.module is layer.attention.v_proj
        assert layer.key_projection.module is layer.attention.k_proj
        for heads in (layer.value, layer.key_projection):
            assert torch.equal(heads.columns.flatten(), torch.arange(heads.columns.numel()))


@pytest.mark.parametrize("name", MODELS)
def test_every_architecture(name):
    subject = subject_of(name)
    parts = subject.parts
    assert parts.mode == "hooks" and parts.reason is None and not parts.asks_for_attention
    assert len(parts.layers) == 2
    for number, layer in enumerate(parts.layers):
        assert layer.value.count == layer.key.count == len(layer.cached_heads) == key_heads(name)
        assert layer.attention in layer.block.modules() and layer.attention is not layer.block
        assert layer.output in layer.attention.modules()
        assert parts.key_weight(number).shape[:2] == layer.key.columns.shape
    assert subject.plan.kv_heads == key_heads(name) and subject.plan.heads == layer.heads


@pytest.mark.parametrize(
    ("name", "norm"),
    [
        ("qwen3", "k_norm"),
        ("gemma3", "k_norm"),
        ("olmo2", "k_norm"),
        ("phi qk-norm", "k_layernorm"),
    ],
)
def test_keys_are_taken_after_their_norm(name, norm):
    for layer in subject_of(name).parts.layers:
        assert layer.key.module is getattr(layer.attention, norm)


def test_weights_of_keys():
    """[G, D, width] rows of W_K, transposed where GPT-2 keeps them transposed."""
    attention = model_of("gpt2").transformer.h[1].attn
    expected = attention.c_attn.weight[:, WIDTH : 2 * WIDTH].T.reshape(6, 4, WIDTH)
    assert torch.equal(subject_of("gpt2").parts.key_weight(-1), expected)
    neox = model_of("gpt-neox").gpt_neox.layers[0].attention.query_key_value.weight
    expected = neox.view(6, 3, 4, WIDTH)[:, 1]
    assert torch.equal(subject_of("gpt-neox").parts.key_weight(0), expected)


def test_layers_count_from_both_ends():
    parts = subject_of("llama").parts
    assert [parts.resolve(layer) for layer in (0, 1, -1, -2)] == [0, 1, 1, 0]
    for layer in (2, -3):
        with pytest.raises(
            ValueError, match=f"there is no layer {layer}: the model has layers 0 to 1"
        ):
            parts.resolve(layer)


def test_dead_columns():
    """Columns that are equal are told apart by their neighbours."""
    model = model_of("gpt2")
    with torch.no_grad():
        for block in model.transformer.h:
            for columns in (slice(30, 32), slice(53, 56)):
                block.attn.c_attn.weight[:, columns] = 0
                block.attn.c_attn.bias[columns] = 0
    layer = Subject.of(model).parts.layers[1]
    assert torch.equal(layer.key.columns, FUSED["gpt2"][2])
    assert torch.equal(layer.value.columns, FUSED["gpt2"][3])


def test_half_precision():
    for dtype in (torch.bfloat16, torch.float16):
        layer = Subject.of(model_of("gpt-neox").to(dtype)).parts.layers[0]
        assert torch.equal(layer.value.columns, FUSED["gpt-neox"][3])
        assert torch.equal(layer.key.columns, FUSED["gpt-neox"][2])


def test_packed_weights_are_refused():
    layer = subject_of("gpt-neox").parts.layers[0]
    packed = nn.Module()
    packed.weight = nn.Parameter(torch.zeros(9, 1, dtype=torch.uint8), requires_grad=False)
    with pytest.raises(NotApplicableError, match="packed: load it unpacked"):
        dataclasses.replace(layer.key, module=packed).weight()


def test_a_model_that_hides_its_keys_and_values():
    parts = clipping(0.5).parts
    assert parts.mode == "cache" and parts.missing == ["key projections", "value projections"]
    assert (
        "the key projections and value projections of this model cannot be hooked" in parts.reason
    )
    with pytest.raises(NotApplicableError, match="weights that make this model's keys"):
        parts.key_weight(0)
    assert clipping(1000.0).parts.mode == "hooks"


LINEAR = {f"linear_{name}": 4 for name in ("num_value_heads", "num_key_heads")}
LINEAR |= {"linear_key_head_dim": 8, "linear_value_head_dim": 8}
TWICE = ["sliding_attention", "full_attention"] * 2
SOME = {
    "lfm2": ([1], {"layer_types": ["conv", "full_attention", "conv"], "block_multiple_of": 4}),
    "olmo_hybrid": ([1], {"layer_types": ["linear_attention", "full_attention"], **LINEAR}),
    # its last layers attend to keys and values of those before
    "gemma4_text": (
        [0, 1],
        {
            **{"layer_types": TWICE, "num_kv_shared_layers": 2, "head_dim": 8},
            **{"global_head_dim": 8, "hidden_size_per_layer_input": 4},
            **{"vocab_size_per_layer_input": WORDS, "sliding_window": 4},
        },
    ),
}


def random_model(kind, **options):
    torch.manual_seed(0)
    count = len(options.get("layer_types", "12"))
    options = SMALL | GROUPED | {"num_hidden_layers": count} | options
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **options))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.2)
    return model


LATENT = {f"{name}_head_dim": 4 for name in ("qk_nope", "qk_rope", "v")}
LATENT |= {"q_lora_rank": 12, "kv_lora_rank": 4, "n_group": 1, "topk_group": 1}
LATENT |= {"moe_intermediate_size": 8, "n_routed_experts": 4, "num_experts_per_tok": 2}
HIDING = {
    "deepseek_v3": (
        "value projections",
        {"values", "turned_keys"},
        {"num_key_value_heads": 6},
        LATENT,
    ),
    "jetmoe": (
        "output projections",
        {"values", "turned_keys"},
        {"num_attention_heads": 4},
        {"kv_channels": 4, "num_local_experts": 2, "num_experts_per_tok": 2},
    ),
    "gemma3n_text": (
        "blocks",
        set(),
        {"intermediate_size": [24] * 4},
        {
            **{"layer_types": TWICE, "num_kv_shared_layers": 2, "laurel_rank": 4, "head_dim": 8},
            **{"hidden_size_per_layer_input": 4, "vocab_size_per_layer_input": WORDS},
            **{"activation_sparsity_pattern": [0.0] * 4, "sliding_window": 4},
        },
    ),
}


@pytest.mark.parametrize("kind", HIDING)
def test_what_a_model_hides_costs_no_more_than_that(kind):
    """Latent attention; experts that attend; several residual streams at once, and shared keys."""
    hidden, refused, sizes, options = HIDING[kind]
    subject = Subject.of(random_model(kind, **{**options, **sizes}))
    assert subject.parts.missing == [hidden]
    prompts = prompts_of(7, 3, 7, 8)
    found = check_prompts(subject, prompts[:2])
    assert {*found.refused} == refused
    with pytest.raises(NotApplicableError, match="weights that make this model's keys"):
        subject.parts.key_weight(0)
    observed = observe(subject, prompts, [0], found.refused)
    assert observed.rows is not None and len(observed.bits) == 4
    assert observed.skipped.keys() >= refused | {"outputs", "residual", "key weights"}


def test_what_is_no_causal_model_with_a_cache():
    encoder = AutoModelForCausalLM.from_config(BertConfig(**SMALL, initializer_range=0.3))
    with pytest.raises(NotApplicableError, match="looks at later tokens, as encoders do"):
        find_parts(encoder)
    small = {"vocab_size": 20, "d_model": 8, "d_ff": 8, "d_kv": 4, "num_layers": 1, "num_heads": 2}
    with pytest.raises(NotApplicableError, match="reads with an encoder"):
        find_parts(T5ForConditionalGeneration(T5Config(**small)))
    mamba = MambaConfig(vocab_size=30, hidden_size=8, num_hidden_layers=1, state_size=4)
    with pytest.raises(NotApplicableError, match="name a model with attention and a KV cache"):
        find_parts(AutoModelForCausalLM.from_config(mamba))


@pytest.mark.parametrize("kind", SOME)
def test_models_that_attend_in_some_layers(kind):
    expected, options = SOME[kind]
    subject = Subject.of(random_model(kind, **options))
    assert [layer.index for layer in subject.parts.layers] == expected
    assert subject.parts.mode == "hooks" and check_prompts(subject, prompts_of(7, 3)).good
    wrong = dataclasses.replace(subject.parts.layers[0], following=subject.parts.layers[0].block)
    layers = (wrong, *subject.parts.layers[1:])
    broken = dataclasses.replace(subject, parts=dataclasses.replace(subject.parts, layers=layers))
    assert {*check_prompts(broken, prompts_of(7)).refused} == {"residual"}
    (note,) = _notes(subject)
    assert note.startswith(f"Of its {len(options['layer_types'])} layers only {expected[0]}")


@pytest.mark.parametrize("kind", ["bitnet", "beam"])
def test_gates_and_norms_before_the_output_projection(kind):
    """What heads put out is not known then, and all else is; gates are projections of their own."""
    subject = Subject.of(random_model(kind, head_dim=4))
    for layer in subject.parts.layers:
        assert layer.output is layer.attention.o_proj
    found = check_prompts(subject, prompts_of(7, 3))
    assert {*found.wrong} == {"rows times values"} and {*found.refused} == {"outputs"}


def test_layers_that_share_their_attention():
    model = random_model("llama")
    model.model.layers[1].self_attn = model.model.layers[0].self_attn
    with pytest.raises(NotApplicableError, match="share one attention module"):
        Subject.of(model)


def test_nothing_is_left_on_the_model():
    model = model_of("gpt-neox")
    find_parts(model)
    for module in model.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks


def test_matching():
    among = torch.tensor([[1.0, 2.0, 0.0, 3.0, -0.0], [4.0, 5.0, 0.0, 6.0, 0.0]])
    wanted = among[:, [3, 0]].unsqueeze(-1)
    assert match_columns(wanted, among).tolist() == [[3], [0]]
    assert match_columns(among[:, [1, 4]].unsqueeze(-1), among).tolist() == [[1], [2]]
    assert match_columns(torch.full((2, 1, 1), 7.0), among) is None
    assert match_columns(among[:, [0, 0]].unsqueeze(-1), among) is None
    heads = torch.randn(3, 2, 4)[:, [0, 0, 1, 1, 0]]
    assert distinct_heads(heads) == [0, 2]


@pytest.mark.parametrize("layout", ["flat", "split", "heads first"])
def test_heads_are_read_and_written(layout, generator):
    columns = torch.tensor([[5, 1], [0, 3], [2, 7]])
    flat = torch.randn(2, 5, 8, generator=generator)
    output = flat
    if layout != "flat":
        output = flat.view(2, 5, 4, 2)
    if layout == "heads first":
        output = output.transpose(1, 2)
    assert layout_of(output, 2, 5) == layout
    heads = Heads(nn.Identity(), layout, columns)
    assert torch.equal(heads.read(output), flat[..., columns])
    assert torch.equal(heads.read_last(output), flat[:, -1:][..., columns])
    other = torch.randn(2, 5, 3, 2, generator=generator)
    before = output.clone()
    written = heads.write(output, other)
    assert torch.equal(output, before) and written.shape == output.shape
    assert torch.equal(heads.read(written), other)
    untouched = torch.tensor([4, 6])
    kept = written.transpose(1, 2) if layout == "heads first" else written
    assert torch.equal(kept.reshape(2, 5, 8)[..., untouched], flat[..., untouched])


def test_prompts_reach_the_model_as_they_are():
    assert prompts_of(3, 5)[0] != prompts_of(3, 5)[1][:3]
