"""Out of Hugging Face's hands and back: transformers, Trainer, PEFT and lm-eval, each as it is."""

import json
import os
import subprocess
import sys
import tempfile

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
)

from bayesattn.attention import LogTemperature, SSMax
from bayesattn.models import UndecayedPriors, retrofit
from bayesattn.models.open import open_language
from bayesattn.priors import Bucketed, GeneralizedGaussian, Laplace
from bayesattn.probes.llm.subject import Subject
from tests.evals.language import untrained
from tests.models.common import tiny_config, tiny_model, tokens
from tests.models.test_retrofit import HOSTS, host
from tests.models.test_trainer import train
from tests.robust.common import TORTURE


def moved(model):
    """The model with priors and temperatures off their start."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if (".prior." in name or ".ssmax." in name) and parameter.requires_grad:
                parameter.add_(torch.rand(parameter.shape, generator=generator) - 0.5)
    return model


def learns(model):
    return {name: parameter.requires_grad for name, parameter in model.named_parameters()}


def same(made, expected):
    ids = tokens(2, 12)
    assert learns(made) == learns(expected)
    with torch.no_grad():
        found, wanted = (model.eval()(ids).logits for model in (made, expected))
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)


RETROFITS = {
    "by name": {"ssmax": True},
    "options": {"prior_options": {"init": "mixed", "learn_mu": True, "positive": True}},
    "local": {"global_layers": "last", "exempt": 2, "kernel": "strided"},
    "laplace": {"prior": "laplace", "ssmax": SSMax(4, horizon=5, learned=False)},
    "ready": {"prior": GeneralizedGaussian(4, init="alibi", learn_mu=True)},
    "slopes": {"prior": Laplace(4, learned=True, slopes=[1, 2, 3, 4])},
    "bucketed": {"prior": Bucketed(4, 8, 20), "ssmax": LogTemperature(4, 0.3, 6)},
}


@pytest.mark.parametrize("settings", RETROFITS)
def test_a_retrofitted_model_comes_back_retrofitted(settings, tmp_path):
    model = moved(retrofit(host("llama"), **RETROFITS[settings]))
    model.save_pretrained(tmp_path / "saved")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    assert type(loaded) is LlamaForCausalLM and not loaded.training
    same(loaded, model)
    loaded.save_pretrained(tmp_path / "again")
    same(AutoModelForCausalLM.from_pretrained(tmp_path / "again"), model)


@pytest.mark.parametrize("name", HOSTS)
def test_every_host_comes_back(name, tmp_path):
    model = moved(retrofit(host(name), ssmax=True))
    model.save_pretrained(tmp_path)
    same(AutoModelForCausalLM.from_pretrained(tmp_path), model)
    ids = tokens(1, 9)
    body = AutoModel.from_pretrained(tmp_path)
    assert torch.equal(body(ids).last_hidden_state, model.base_model(ids).last_hidden_state)
    half = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert half.dtype == torch.bfloat16
    wide = {p.dtype for n, p in half.named_parameters() if ".prior." in n or ".ssmax." in n}
    assert wide == {torch.float32}
    fresh = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(tmp_path))
    assert learns(fresh) == learns(model)


ELSEWHERE = """
import os, sys
from transformers import AutoModelForCausalLM

def load(**settings):
    model = AutoModelForCausalLM.from_pretrained({folder!r}, **settings)
    print(">", type(model.model.layers[0].self_attn.prior).__name__)

def alone(attempt):
    sys.stdout.flush()
    if not os.fork():
        try:
            attempt()
        except BaseException as error:
            print(">", type(error).__name__, " ".join(str(error).split()))
        sys.stdout.flush()
        os._exit(0)
    os.wait()

class Missing:
    def find_spec(self, name, *_):
        if name.startswith("bayesattn"):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

def missing():
    sys.meta_path.insert(0, Missing())
    load(trust_remote_code=True)

def imported():
    import bayesattn
    open({folder!r} + "/bayesattn_model.py", "w").write("raise SystemExit('it ran')")
    for settings in ({{}}, {{"trust_remote_code": False}}, {{"trust_remote_code": True}}):
        load(**settings)

for attempt in (load, lambda: load(trust_remote_code=True), missing, imported):
    alone(attempt)
"""
"""A process that has not imported bayesattn, and forks of it."""


def elsewhere(folder):
    environment = os.environ | {"HF_MODULES_CACHE": tempfile.mkdtemp(), "HF_HUB_OFFLINE": "1"}
    words = [sys.executable, "-c", ELSEWHERE.format(folder=str(folder))]
    pipes = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
    done = subprocess.run(words, env=environment, check=False, **pipes)
    assert done.returncode == 0, done.stderr
    # others ask on the terminal
    return [line.partition("> ")[2] for line in done.stdout.splitlines() if "> " in line]


@pytest.mark.parametrize("kind", ["ours", "retrofitted"])
def test_elsewhere_a_model_is_loaded_with_its_priors_or_not_at_all(kind, tmp_path):
    model = moved(retrofit(host("llama"))) if kind == "retrofitted" else tiny_model()
    model.save_pretrained(tmp_path)
    plain, trusted, missing, *imported = elsewhere(tmp_path)
    assert plain.startswith("ValueError") and "trust_remote_code=True" in plain
    assert trusted == "GeneralizedGaussian"
    assert missing.startswith("ImportError") and "pip install bayesattn" in missing
    assert imported == ["GeneralizedGaussian"] * 3  # nothing of the folder was run


def test_the_own_class_of_a_host_is_the_host(tmp_path, caplog):
    moved(retrofit(host("llama"))).save_pretrained(tmp_path)
    LlamaForCausalLM.from_pretrained(tmp_path)
    assert "prior.theta_beta" in caplog.text and "UNEXPECTED" in caplog.text


def test_what_cannot_come_back_is_not_saved(tmp_path):
    class Mine(GeneralizedGaussian):
        name = "mine"

    model = retrofit(host("llama"), Mine(4))
    with pytest.raises(ValueError, match="call save_prior_state_dict"):
        model.save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
    model = retrofit(host("llama"))
    with pytest.raises(ValueError, match="call model.push_to_hub"):
        model.save_pretrained(tmp_path / "saved", push_to_hub=True)
    model.save_pretrained(tmp_path / "saved")
    weights = tmp_path / "saved" / "model.safetensors"
    kept = {name: x for name, x in load_file(weights).items() if "theta_beta" not in name}
    save_file(kept, weights, metadata={"format": "pt"})
    with pytest.raises(ValueError, match="lack 2 of the priors that config.json names"):
        AutoModelForCausalLM.from_pretrained(tmp_path / "saved")


def test_attention_that_would_leave_the_priors_out_is_refused():
    model = retrofit(host("llama"))
    for name in ("eager", "sdpa"):
        model.set_attn_implementation(name)
        with pytest.raises(ValueError, match="would leave out the priors"):
            model(tokens(1, 5))
    model.set_attn_implementation("bayes")
    model(tokens(1, 5))


def test_evaluations_open_a_retrofitted_model_with_its_priors(tmp_path):
    text = untrained()
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    size |= {"num_attention_heads": 4, "vocab_size": len(text.tokenizer)}
    plain = LlamaForCausalLM(LlamaConfig(**size)).eval()
    folder = tmp_path / "model"
    model = moved(retrofit(plain, prior_options={"init": "mixed"}, ssmax=True))
    model.save_pretrained(folder)
    text.tokenizer.save_pretrained(folder)
    ids = tokens(1, 20)
    wanted = model(ids).logits
    for options in ({}, {"eager": True}, {"dtype": "float32"}, {"max_position_embeddings": 99}):
        opened = open_language(folder, **options)
        torch.testing.assert_close(opened.model(ids).logits, wanted, rtol=0, atol=0)
    assert opened.length == 99
    assert open_language(folder / "model.safetensors").model(ids).logits.equal(wanted)
    fresh = open_language(folder, random_init=1)
    assert any(".prior." in name for name, _ in fresh.model.named_parameters())
    subject = Subject.of(open_language(folder, eager=True).model, text.tokenizer)
    torch.testing.assert_close(subject.model(ids).logits, wanted, rtol=0, atol=0)
    with pytest.raises(ValueError, match="no setting 'rotation'"):
        open_language(folder, rotation=3)


def test_trainer_resumes_a_retrofitted_model(tmp_path):
    arguments = {"save_steps": 1, "save_strategy": "steps"}
    torch.manual_seed(0)
    whole = moved(retrofit(host("llama"), ssmax=SSMax(4, learned=False)))
    train(tmp_path, whole, arguments=arguments)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoint-1")
    train(tmp_path, loaded, arguments=arguments, resume=tmp_path / "checkpoint-1")
    same(loaded, whole)


class PriorTrainer(UndecayedPriors, Trainer):
    pass


@pytest.mark.parametrize("kind", ["ours", "retrofitted"])
def test_weight_decay_leaves_priors_alone(kind, tmp_path):
    model = tiny_model() if kind == "ours" else moved(retrofit(host("llama"), ssmax=True))
    settings = {"output_dir": str(tmp_path), "weight_decay": 0.1, "use_cpu": True}
    decayed = {}
    for trainer in (Trainer, PriorTrainer):
        arguments = TrainingArguments(**settings, report_to="none")
        groups = trainer(model, arguments).create_optimizer().param_groups
        ids = {id(p) for group in groups if group["weight_decay"] for p in group["params"]}
        decayed[trainer] = {n for n, p in model.named_parameters() if id(p) in ids}
        assert sum(len(group["params"]) for group in groups) == sum(learns(model).values())
    lost = decayed[Trainer] - decayed[PriorTrainer]
    assert lost == {n for n in decayed[Trainer] if ".prior." in n or ".ssmax." in n} != set()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", ["ours", "shared", "retrofitted"])
def test_peft_trains_and_saves_priors(kind, tmp_path):
    peft = pytest.importorskip("peft")

    def base():
        if kind == "retrofitted":
            return retrofit(host("llama"), ssmax=True)
        return tiny_model(shared_prior=kind == "shared", sink=True)

    config = peft.LoraConfig(target_modules=["q_proj"], modules_to_save=["prior", "ssmax", "sink"])
    model = peft.get_peft_model(base(), config)
    ids = tokens(2, 12)
    before = base()(ids).logits
    torch.testing.assert_close(model(ids).logits, before, rtol=0, atol=0)
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    _, result = train(tmp_path / "run", model, arguments={"learning_rate": 0.1, "max_steps": 3})
    assert result.global_step == 3
    changed = {n for n, p in model.named_parameters() if not torch.equal(p, start[n])}
    assert any("prior.modules_to_save.default.theta_beta" in name for name in changed)
    assert any("ssmax.modules_to_save.default.scale" in name for name in changed)
    assert not any("theta_mu" in name or "original_module" in name for name in changed)
    trained = model.eval()(ids).logits
    assert (trained - before).abs().max() > 1e-3
    with model.disable_adapter():
        torch.testing.assert_close(model(ids).logits, before, rtol=0, atol=0)
    model.save_pretrained(tmp_path / "adapter")
    again = peft.PeftModel.from_pretrained(base(), tmp_path / "adapter").eval()
    torch.testing.assert_close(again(ids).logits, trained, rtol=0, atol=0)
    merged = again.merge_and_unload()
    torch.testing.assert_close(merged(ids).logits, trained, rtol=1e-4, atol=1e-4)
    merged.save_pretrained(tmp_path / "merged")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(loaded(ids).logits, merged(ids).logits, rtol=0, atol=0)


def test_settings_that_would_have_no_effect_are_refused(tmp_path):
    tiny_config(encoding="rope").save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    written = json.loads(file.read_text())
    for load in (AutoConfig.from_pretrained, AutoModelForCausalLM.from_pretrained):
        with pytest.raises(ValueError, match="'slidng_window': did you mean 'sliding_window'"):
            load(tmp_path, slidng_window=4)
    with pytest.raises(ValueError, match="rope parameter 'rope_thta': did you mean 'rope_theta'"):
        tiny_config(encoding="rope", rope_parameters={"rope_thta": 1e4})
    with pytest.raises(TypeError, match="no option 'innit'; its options are: init"):
        tiny_config(prior_options={"innit": "mixed"})
    with pytest.raises(TypeError, match="no option 'innit'; its options are: init"):
        retrofit(host("llama"), prior_options={"innit": "mixed"})
    file.write_text(json.dumps(written | {"rope_parameters": {"rope_thta": 1e4}}))
    with pytest.raises(ValueError, match="rope parameter 'rope_thta'"):
        AutoConfig.from_pretrained(tmp_path)
    newer = written | {"bayesattn_version": "99.1", "wormholes": 3}
    file.write_text(json.dumps(newer))
    with pytest.raises(ValueError, match=r"bayesattn 99.1 and has the setting 'wormholes', which"):
        AutoConfig.from_pretrained(tmp_path)
    file.write_text(json.dumps(newer | {"bayesattn_version": "0.0.1"}))
    assert AutoConfig.from_pretrained(tmp_path).wormholes == 3  # a note of another program


TASK = """
task: capitals
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "The capital of {{{{country}}}} is"
doc_to_choice: ["Paris", "Rome"]
doc_to_target: answer
metric_list: [{{metric: acc}}]
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ours", *(["retrofitted"] if TORTURE else [])])
def test_the_command_line_of_lm_eval_loads_an_export(kind, tmp_path):
    pytest.importorskip("lm_eval")
    text = untrained()
    folder = tmp_path / "model"
    if kind == "ours":
        text.export(folder)
    else:
        size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
        config = LlamaConfig(**size, intermediate_size=48, vocab_size=len(text.tokenizer))
        retrofit(LlamaForCausalLM(config)).save_pretrained(folder)
        text.tokenizer.save_pretrained(folder)
    rows = [{"country": "France", "answer": 0}, {"country": "Italy", "answer": 1}] * 2
    data = tmp_path / "capitals.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "capitals.yaml").write_text(TASK.format(data=data))
    command = [sys.executable, "-m", "lm_eval", "run", "--model", "hf", "--model_args"]
    command += [f"pretrained={folder},trust_remote_code=True,dtype=float32,max_length=64"]
    command += ["--tasks", "capitals", "--include_path", str(tmp_path / "tasks")]
    command += ["--device", "cpu", "--output_path", str(tmp_path / "scores")]
    places = {"HF_HOME": str(tmp_path / "cache"), "HF_MODULES_CACHE": str(tmp_path / "code")}
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | places, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (scores,) = (tmp_path / "scores").rglob("results_*.json")
    found = json.loads(scores.read_text())["results"]["capitals"]
    assert 0 <= found["acc,none"] <= 1
