import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from transformers.data.data_collator import DataCollatorWithFlattening

from bayesattn.models import BayesForCausalLM, parameter_groups
from tests.models.common import tiny_config, tokens


def train(tmp_path, model, **settings):
    data = [{"input_ids": ids, "labels": ids} for ids in tokens(8, 12).tolist()]
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=2,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        report_to="none",
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        **settings.pop("arguments", {}),
    )
    trainer = Trainer(model, arguments, train_dataset=data, **settings)
    return trainer, trainer.train()


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
