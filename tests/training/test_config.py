import json
from dataclasses import asdict

import pytest

from bayesattn.training import TrainConfig


def test_a_config_survives_json():
    config = TrainConfig(betas=(0.8, 0.9), ema=0.99, prior_lr=0.1)
    assert TrainConfig(**json.loads(json.dumps(asdict(config)))) == config


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
        ("prior_lr", -1.0, "prior_lr must be positive"),
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
        ("optimizer", "sgd", "optimizer must be adamw or muon, not 'sgd'"),
        ("labels", "hard", "labels must be posterior or sampled, not 'hard'"),
    ],
)
def test_what_cannot_work_is_refused(field, value, sentence):
    with pytest.raises(ValueError, match=sentence):
        TrainConfig(**{field: value})
