import json
from dataclasses import asdict, fields

import pytest

from bayesattn.checks import changed_fields
from bayesattn.training import TrainConfig
from bayesattn.zoo import MODELS, names


def test_a_config_survives_json():
    config = TrainConfig(betas=(0.8, 0.9), ema=0.99, prior_lr=0.1)
    assert TrainConfig(**json.loads(json.dumps(asdict(config)))) == config


def test_a_run_keeps_every_field():
    """A default that changes later must not change a run; only names leave defaults out."""
    config = TrainConfig(batch_size=8, track="trackio", schedule="cosine")
    assert config.to_dict().keys() == {field.name for field in fields(config)}
    assert TrainConfig(**json.loads(json.dumps(config.to_dict()))) == config
    assert changed_fields(config) == {"batch_size": 8, "track": "trackio", "schedule": "cosine"}


def test_configs_of_older_runs_are_still_the_same():
    for name in names():
        kept = json.loads((MODELS / name / "config.json").read_text())["training"]
        read = TrainConfig(**kept)
        assert TrainConfig(**read.to_dict()) == read
        assert json.loads(json.dumps(asdict(read))).items() >= kept.items()


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("steps", 0, "steps must be 1 or more, not 0"),
        ("batch_size", -1, "batch_size must be 1 or more"),
        ("log_every", 0, "log_every must be 1 or more"),
        ("evaluate_every", 0, "evaluate_every must be 1 or more"),
        ("checkpoint_every", 0, "checkpoint_every must be 1 or more"),
        ("threads", 0, "threads must be 1 or more"),
        ("lr", 0.0, "lr must be positive"),
        ("lr", float("nan"), "lr must be positive, not nan"),
        ("lr", float("inf"), "lr must be positive"),
        ("prior_lr", -1.0, "prior_lr must be 0 or more"),
        ("clip", 0.0, "clip must be positive"),
        ("weight_decay", -0.1, "weight_decay must be 0 or more"),
        ("target", -0.1, "target must be 0 or more"),
        ("ema", 1.0, "ema must be between 0 and 1"),
        ("seed", -1, "seed must be between 0 and"),
        ("betas", (0.9, 1.0), "betas must be two numbers"),
        ("betas", (0.9,), "betas must be two numbers"),
        ("warmup", -0.1, "warmup must be a share"),
        ("decay", -0.1, "decay must be a share"),
        ("decay", 0.99, "may not exceed 1 together, but 0.05 \\+ 0.99 does"),
        ("warmup", 1.1, "warmup must be a share"),
        ("floor", 1.5, "floor must be a share"),
        ("accumulate", 0, "accumulate must be 1 or more"),
        ("accumulate", 3, "batch_size 128 cannot be cut into 3 equal pieces"),
        ("optimizer", "sgd", "optimizer must be adamw or muon or muon-fp32 or radam, not 'sgd'"),
        ("schedule", "linear", "schedule must be wsd or cosine, not 'linear'"),
        ("precision", "fp8", "precision must be fp32 or bf16, not 'fp8'"),
        ("track", "wandb", "track must be nothing or tensorboard or trackio, not 'wandb'"),
        ("labels", "hard", "labels must be posterior or sampled, not 'hard'"),
        ("lengths", (), "lengths must be one or more positive multiples"),
        ("lengths", (1.0, 0.0), "lengths must be one or more positive multiples"),
    ],
)
def test_what_cannot_work_is_refused(field, value, sentence):
    with pytest.raises(ValueError, match=sentence):
        TrainConfig(**{field: value})


def test_a_cosine_needs_no_room_for_a_decay():
    assert TrainConfig(schedule="cosine", warmup=0.8).warmup == 0.8
    with pytest.raises(ValueError, match="may not exceed 1 together"):
        TrainConfig(warmup=0.8)
