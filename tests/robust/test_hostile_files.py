"""Files from strangers: models, ledgers and runs that lie, leave their folder or carry code."""

import json
import random
import shutil
import struct

import pytest
import torch
from safetensors import safe_open

from bayesattn.claims import Tier
from bayesattn.errors import DamagedCheckpointError, UserError
from bayesattn.files import parse
from bayesattn.ledger.ledger import NAME, add_record
from bayesattn.models.open import open_language
from bayesattn.report.page import write_page
from bayesattn.runs import Run
from bayesattn.runs.checkpoint import read_checkpoint, save_checkpoint
from bayesattn.source import INDEX
from tests.ledger.toy import run_study, toy
from tests.robust.common import count, run
from tests.robust.test_corruption import exhibits

SECRET = "root:x:0:0"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "model"
    return open_language("zoo:passkey").export(folder)


@pytest.fixture
def model(exported, tmp_path):
    return shutil.copytree(exported, tmp_path / "model")


def edit(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


HEADERS = (
    lambda own, chance: own | {"x": {"dtype": "F32", "shape": [10**9] * 3, "data_offsets": [0, 4]}},
    lambda own, chance: dict.fromkeys(own, "x"),
    lambda own, chance: [],
    lambda own, chance: {},
    lambda own, chance: changed(own, chance, shape=[-1, 2**70]),
    lambda own, chance: changed(own, chance, shape=[]),
    lambda own, chance: changed(own, chance, shape=[[1]]),
    lambda own, chance: changed(own, chance, dtype="F1"),
    lambda own, chance: changed(own, chance, dtype="F16"),
    lambda own, chance: changed(own, chance, dtype=None),
    lambda own, chance: changed(own, chance, data_offsets=[0, 2**62]),
    lambda own, chance: changed(own, chance, data_offsets=[8, 0]),
    lambda own, chance: changed(own, chance, data_offsets=["a", None]),
    lambda own, chance: {f"{name}\n": value for name, value in own.items()},
    lambda own, chance: own | {"__metadata__": {"format": "<script>"}},
    lambda own, chance: own | {"__metadata__": {"format": 3}},
)


def changed(own, chance, **fields):
    name = chance.choice([name for name in own if name != "__metadata__"])
    return own | {name: own[name] | fields}


def rewritten(data, chance):
    """A safetensors file with another header, of which the length may lie, too."""
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    text = json.dumps(chance.choice(HEADERS)(header, chance)).encode()
    told = chance.choice(
        (len(text), len(text), len(text), 0, 2**63, max(0, len(text) - 3), len(data) * 9)
    )
    found = bytearray(struct.pack("<Q", told) + text + data[8 + length :])
    if chance.random() < 0.3:
        found[chance.randrange(8 + len(text))] ^= 1 << chance.randrange(8)
    return bytes(found)


@pytest.mark.filterwarnings("ignore")
def test_headers_of_safetensors_that_lie_are_refused_in_a_sentence(model):
    path = model / "model.safetensors"
    data = path.read_bytes()
    loaded = 0
    for number in range(count(25, 500)):
        path.write_bytes(rewritten(data, random.Random(number)))
        try:
            open_language(model)
            loaded += 1
        except UserError as error:
            assert "\n" not in str(error) and len(str(error)) < 1000, number
    assert loaded < number / 3  # those whose metadata alone is other
    path.write_bytes(data)
    assert open_language(model)


SIZES = (
    *({name: 10**12} for name in ("hidden_size", "vocab_size", "intermediate_size")),
    *({"num_hidden_layers": layers} for layers in (900, 10**6, 10**30)),
    {"num_attention_heads": 10**12},
    {"hidden_size": "48"},
    {"hidden_size": -1},
    {"head_dim": 10**15},
    {"vocab_size": None},
    {"prior": "<script>"},
    {"num_hidden_layers": [2]},
)


@pytest.mark.parametrize("changes", SIZES, ids=str)
@pytest.mark.filterwarnings("ignore")
def test_a_config_with_impossible_sizes_is_refused_before_anything_is_allocated(model, changes):
    edit(model, **changes)
    for seed in (None, 0):
        with pytest.raises(UserError) as error:
            open_language(model, random_init=seed)
        assert "\n" not in str(error.value)


def test_sizes_of_other_architectures_are_checked_too(model):
    """A Llama whose files hold nearly nothing: transformers would draw the rest at random."""
    edit(model, model_type="llama", architectures=["LlamaForCausalLM"], num_hidden_layers=800)
    with pytest.raises(UserError, match="asks for .* weights or more"):
        open_language(model)


def test_code_beside_a_local_model_is_never_run(model, tmp_path):
    trace = tmp_path / "it-ran"
    code = f"open({str(trace)!r}, 'w').close()\nclass C: pass\n"
    (model / "own.py").write_text(code)
    (model / "pickled.bin").write_bytes(b"\x80\x04.")
    names = {"AutoConfig": "own.C", "AutoModelForCausalLM": "own.C", "AutoTokenizer": "own.C"}
    for kind in ("bayesattn", "stranger"):
        edit(model, auto_map=names, model_type=kind)
        settings = model / "tokenizer_config.json"
        told = json.loads(settings.read_text())
        settings.write_text(json.dumps({**told, "auto_map": {"AutoTokenizer": ["own.C", None]}}))
        try:
            open_language(model)
        except UserError as error:
            assert "its own code" in str(error) or "tokenizer" in str(error)
        assert not trace.exists()


@pytest.mark.parametrize("name", ["../secret.safetensors", "{parent}/secret.safetensors", 3])
def test_weights_outside_the_folder_of_a_model_are_not_read(model, name):
    weights = model / "model.safetensors"
    with safe_open(weights, "pt") as file:
        names = list(file.keys())
    shutil.copy(weights, model.parent / "secret.safetensors")
    weights.rename(model / "model-00001-of-00001.safetensors")
    named = str(name).format(parent=model.parent) if isinstance(name, str) else name
    for place in ("model-00001-of-00001.safetensors", named):
        index = {"metadata": {}, "weight_map": dict.fromkeys(names, place)}
        (model / INDEX).write_text(json.dumps(index))
        if place != named:
            open_language(model)
            continue
        with pytest.raises(UserError, match="which is no file beside it: get it once more"):
            open_language(model)


def strangers_ledger(folder, file):
    study = toy("toy", exhibits=exhibits)
    add_record(folder / NAME, run_study(study, Tier.FULL, folder))
    data = parse((folder / NAME).read_text())
    record = data["records"]["toy"]
    for own in (*record["figures"], *record["exhibits"]):
        own.update(file=file, sha256=None)
    (folder / NAME).write_text(json.dumps(data))


@pytest.mark.parametrize("way", ["absolute", "dots", "link"])
def test_a_ledger_from_a_stranger_shows_no_file_outside_its_folder(tmp_path, way):
    (tmp_path / "secret.svg").write_text(json.dumps({"password": SECRET}))
    folder = tmp_path / "report"
    folder.mkdir()
    (folder / "link.svg").symlink_to(tmp_path / "secret.svg")
    names = {"absolute": str(tmp_path / "secret.svg"), "dots": "../secret.svg", "link": "link.svg"}
    strangers_ledger(folder, names[way])
    page = write_page(folder, folder / "index.html").read_text()
    assert SECRET not in page and "data:image/svg+xml;base64,ey" not in page
    assert page.count("lies outside the folder of the ledger") == 2


@pytest.mark.parametrize("name", ["config.json", "finished.json", "metrics.jsonl"])
def test_a_link_out_of_a_run_is_neither_read_nor_written(tmp_path, name):
    secret = tmp_path / "secret"
    secret.write_text(json.dumps({"command": SECRET}))
    own = Run.create(tmp_path / "run", {"training": {}})
    (own.folder / name).unlink(missing_ok=True)
    (own.folder / name).symlink_to(secret)
    with pytest.raises(UserError, match="is a link to a file outside the run"):
        Run.open(own.folder)
    assert SECRET in secret.read_text()


def test_a_checkpoint_that_names_files_elsewhere_is_damaged(tmp_path):
    save_checkpoint(tmp_path / "checkpoints", 1, {"model": {"w": torch.ones(2)}}, {})
    folder = tmp_path / "checkpoints" / "step-000001"
    state = parse((folder / "state.json").read_text())
    shutil.copy(folder / "model.safetensors", tmp_path / "secret.safetensors")
    state["sha256"]["../../secret.safetensors"] = state["sha256"]["model.safetensors"]
    (folder / "state.json").write_text(json.dumps(state))
    with pytest.raises(DamagedCheckpointError, match="it is no state"):
        read_checkpoint(tmp_path / "checkpoints", 1)


@pytest.mark.slow
def test_no_connection_is_opened_for_what_is_local(exported):
    code, out, err = run("-m", "tests.robust.offline", exported, env={"HF_HUB_OFFLINE": None})
    assert code == 0, err
    assert out.endswith("2 {'huggingface.co'} once\n")  # the block itself works
    assert err.splitlines()[-1].startswith("bayesattn: no-such-owner/no-such-model is neither on")
    assert "Retrying" not in err


def test_the_exported_model_is_what_these_tests_damage(exported):
    with safe_open(exported / "model.safetensors", "pt") as file:
        assert len(list(file.keys())) > 5
