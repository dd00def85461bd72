import pytest
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from transformers.data.data_collator import DataCollatorWithFlattening

from bayesattn.models import BayesForCausalLM, parameter_groups
from tests.models.common import tiny_config, tokens


def train(tmp_path, model, resume=None, **settings):
    data = [{"input_ids": ids, "labels": ids} for ids in tokens(8, 12).tolist()]
    chosen = {
        "output_dir": str(tmp_path),
        "max_steps": 2,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "report_to": "none",
        "use_cpu": True,
        "save_strategy": "no",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }
    arguments = TrainingArguments(**chosen | settings.pop("arguments", {}))
    trainer = Trainer(model, arguments, train_dataset=data, **settings)
    return trainer, trainer.train(resume_from_checkpoint=None if resume is None else str(resume))


def test_trainer(tmp_path):
    torch.manual_seed(0)
    model = BayesForCausalLM(tiny_config())
    start = model.model.layers[0].self_attn.prior.theta_beta.detach().clone()
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.1, lr=1e-2))
    trainer, result = train(tmp_path, model, optimizers=(optimizer, None))
    assert result.global_step == 2
    assert result.training_loss < 5
    assert not torch.equal(model.model.layers[0].self_attn.prior.theta_beta, start)
    trainer.save_model(tmp_path / "final")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "final")
    ids = tokens(1, 9)
    torch.testing.assert_close(loaded(ids).logits, model.eval()(ids).logits, rtol=0, atol=0)


def test_trainer_with_packed_sequences_and_checkpointing(tmp_path):
    torch.manual_seed(0)
    model = BayesForCausalLM(tiny_config(encoding="rope"))
    _, result = train(
        tmp_path,
        model,
        data_collator=DataCollatorWithFlattening(return_flash_attn_kwargs=True),
        arguments={"gradient_checkpointing": True},
    )
    assert result.global_step == 2


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"ssmax_learned": False, "shared_prior": True},
        {"prior_options": {"learn_mu": True}},
        {"prior": "laplace"},
        {"prior": "laplace", "prior_options": {"learned": True}, "ssmax_learned": False},
        {"prior": "student"},
        {"prior": "bucketed", "ssmax": False},
    ],
)
def test_what_is_frozen_stays_frozen_after_loading(tmp_path, settings):
    model = BayesForCausalLM(tiny_config(**settings))
    model.save_pretrained(tmp_path / "saved")
    learns = {name: p.requires_grad for name, p in model.named_parameters()}
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    assert {name: p.requires_grad for name, p in loaded.named_parameters()} == learns
    again, _ = BayesForCausalLM.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert {name: p.requires_grad for name, p in again.named_parameters()} == learns
    before = {name: p.detach().clone() for name, p in loaded.named_parameters()}
    fixed = {name: b.clone() for name, b in loaded.named_buffers()}
    train(tmp_path, loaded, arguments={"learning_rate": 0.1, "weight_decay": 0.1})
    for name, parameter in loaded.named_parameters():
        assert torch.equal(parameter, before[name]) != learns[name], name
    for name, buffer in loaded.named_buffers():
        assert torch.equal(buffer, fixed[name]), name


def test_trainer_resumes_a_model_with_frozen_parameters(tmp_path):
    config = tiny_config(ssmax_learned=False)
    arguments = {"save_steps": 1, "save_strategy": "steps"}
    torch.manual_seed(0)
    whole = BayesForCausalLM(config)
    train(tmp_path, whole, arguments=arguments)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoint-1")
    train(tmp_path, loaded, arguments=arguments, resume=tmp_path / "checkpoint-1")
    for name, parameter in whole.named_parameters():
        assert torch.equal(loaded.get_parameter(name), parameter), name
