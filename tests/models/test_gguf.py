"""Files of llama.cpp: read as transformers reads them, and refused in one sentence when damaged."""

import random
import resource
import struct
import sys

import gguf as ggml
import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GgufConfig

from bayesattn.errors import UserError
from bayesattn.gguf_header import HeaderError, read_header
from bayesattn.models import gguf, hugging_face
from bayesattn.models.open import find
from bayesattn.models.plan import plan
from bayesattn.probes.llm.selfcheck import check_prompts
from bayesattn.probes.llm.subject import load
from tests.probes.llm.files import save_gguf, tiny_model
from tests.robust.common import count

TEXT = "a small prompt"
OWN = ("_name_or_path", "dtype", "_attn_implementation", "quantization_config", "architectures")
"""Of a config: where it comes from and how it was loaded."""
MIB = 1 << 20
SEEDS = range(count(300, 500))


@pytest.mark.parametrize(
    ("architecture", "tied"), [("llama", False), *((name, True) for name in gguf.QUICK)]
)
def test_it_is_read_as_transformers_reads_it(tmp_path, architecture, tied):
    """The slow reader of transformers is the oracle: config, tokenizer and all weights."""
    path = save_gguf(tmp_path / "tiny.gguf", architecture, tied=tied)
    assert gguf.is_quick(read_header(path))
    subject = load(str(path))
    options = {"gguf_file": path.name, "local_files_only": True}
    model = AutoModelForCausalLM.from_pretrained(
        tmp_path, **options, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    )
    mine, theirs = subject.model.state_dict(), model.state_dict()
    assert mine.keys() == theirs.keys()
    assert [name for name in mine if not torch.equal(mine[name], theirs[name])] == []
    configs = [
        {key: value for key, value in config.to_dict().items() if key not in OWN}
        for config in (subject.model.config, AutoConfig.from_pretrained(tmp_path, **options))
    ]
    assert configs[0] == configs[1]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path, **options)
    for text in (TEXT, " ab\n\tä", "<bos>x"):
        assert subject.encode(text) == tokenizer(text)["input_ids"]
    assert subject.tokenizer.bos_token_id == tokenizer.bos_token_id == 256
    assert subject.plan.quantised == "Q4_1"
    assert check_prompts(subject, [subject.encode(TEXT)]).good


@pytest.mark.parametrize("kind", ["Q4_0", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "F16"])
def test_blocks_of_every_kind(tmp_path, kind):
    """Unpacked as the gguf package does it, which transformers asks for rare ones."""
    known = ggml.GGMLQuantizationType[kind]
    count, size = ggml.GGML_QUANT_SIZES[known]
    raw = np.random.default_rng(0).integers(0, 60, (3, 512 // count * size), np.uint8)
    writer = ggml.GGUFWriter(tmp_path / "one.gguf", "llama")
    writer.add_tensor("blk.0.x.weight", raw, raw_dtype=known)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = gguf.numbers(read_header(tmp_path / "one.gguf"), "blk.0.x.weight")
    expected = torch.from_numpy(ggml.quants.dequantize(raw, known)).float()
    assert found.shape == (3, 512) and torch.equal(found, expected)


def test_a_beginning_that_the_file_asks_for(tmp_path):
    """Models that were trained with a first token of their own are lost without it."""
    plain, asking = (
        load(str(save_gguf(tmp_path / f"{bos}.gguf", bos=bos))).encode(TEXT)
        for bos in (False, True)
    )
    assert asking == [256, *plain]


def test_a_rotation_that_the_file_slows_down(tmp_path):
    """Llama 3.1 and later: frequencies of transformers' own formula, as files have them."""
    rope = {
        "rope_type": "llama3",
        "rope_theta": 5000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    }
    expected = tiny_model("llama", rope_parameters=rope).model.rotary_emb.inv_freq
    plain = tiny_model("llama", rope_parameters={"rope_type": "default", "rope_theta": 5000.0})
    path = save_gguf(tmp_path / "slow.gguf", slowed=plain.model.rotary_emb.inv_freq / expected)
    found = load(str(path)).model.model.rotary_emb
    torch.testing.assert_close(found.inv_freq, expected)
    assert found.attention_scaling == 1.0
    assert not torch.allclose(found.inv_freq, plain.model.rotary_emb.inv_freq)


def test_what_is_left_to_transformers(tmp_path):
    """Scaled rotation, other names."""
    scaled = save_gguf(tmp_path / "scaled.gguf", llama__rope__scaling__type="linear")
    assert not gguf.is_quick(read_header(scaled))
    mistral = save_gguf(tmp_path / "mistral.gguf", general__name="Mistral small")
    assert not gguf.is_quick(read_header(mistral))
    assert load(str(mistral)).model.config.model_type in ("mistral", "llama")


def test_a_file_that_was_not_fetched_whole(tmp_path):
    whole = save_gguf(tmp_path / "whole.gguf").read_bytes()
    for end, reason in (
        (0, "it is no .gguf file"),
        (3, "it is no .gguf file"),
        (30, "its counts reach beyond its end"),
        (len(whole) // 20, "beyond its end|ends early"),
        (len(whole) - 99, "its tensors reach beyond its end: it was not downloaded completely"),
    ):
        (tmp_path / "cut.gguf").write_bytes(whole[:end])
        with pytest.raises(HeaderError, match=reason):
            read_header(tmp_path / "cut.gguf")


def values_of(header):
    """Where the values of a header stand that are no arrays, by their keys."""
    data, found = header.path.read_bytes(), {}
    for key, value in header.values.items():
        if isinstance(value, bool | int | float | str):
            found[key] = data.index(struct.pack("<Q", len(key)) + key.encode()) + 8 + len(key)
    return found


def corrupted(whole, places, seed):
    """A header with one mistake: a byte, a number, or the end is another one."""
    rng = random.Random(seed)
    data = bytearray(whole)
    kind, place = seed % 4, rng.choice(places)
    if kind == 0:  # a value or its type
        at = place + rng.randrange(12)
        data[at] = rng.randrange(256)
    elif kind == 1:  # a number that is far too large, or 0
        at = place + rng.choice([0, 4])
        data[at : at + 4] = rng.choice([b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\x7f"])
    elif kind == 2:  # any byte, counts at the beginning more often
        data[rng.randrange(rng.choice([24, len(data) // 3]))] = rng.randrange(256)
    else:
        del data[rng.randrange(len(data)) :]
    return bytes(data)


def test_damaged_headers_are_refused_in_one_sentence(tmp_path):
    """Whatever a header says: a sentence or a model, and never much memory."""
    path = save_gguf(tmp_path / "tiny.gguf")
    whole, places = path.read_bytes(), sorted(values_of(read_header(path)).values())
    source = find(str(path))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = 0
    for seed in SEEDS:
        path.write_bytes(corrupted(whole, places, seed))
        try:
            planned = plan(source)
            planned.require_room()
            config = hugging_face.read_config(source)
            hugging_face.read_tokenizer(source, config)
            hugging_face.read_model(source, config, {"dtype": torch.float32})
        except UserError as error:
            refused += 1
            assert "\n" not in str(error) and len(str(error)) < 400, (seed, error)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - most) << 10
    assert grown < 300 * MIB or sys.platform == "darwin"
    assert refused > len(SEEDS) / 2
