"""A corpus of made-up sentences and a language model that trains on it in a second."""

import json
import random

from bayesattn.training import LanguageConfig, TrainConfig, train_language

TEXT = "The grass is green and the sky was blue there and back again so here is some more text"
STEPS = 8


def write_corpus(path, documents=120, seed=0):
    """A .jsonl file of short documents, so that most windows hold several."""
    chance = random.Random(seed)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(documents):
            words = chance.choices(TEXT.split(), k=chance.randint(5, 80))
            file.write(json.dumps({"text": " ".join(words) + "."}) + "\n")
    return path


def toy_language(corpus, **changes):
    settings = {"corpus": str(corpus), "length": 112, "size": "nano", "layers": 1, "width": 16}
    settings |= {"heads": 2, "prior_options": {"init": "mixed"}}
    return LanguageConfig(**{**settings, **changes})


def toy_training(**changes):
    settings = {"steps": STEPS, "batch_size": 4, "threads": 1, "log_every": 2}
    return TrainConfig(**{**settings, "evaluate_every": 4, "checkpoint_every": 3, **changes})


def toy_run(folder, corpus, **changes):
    return train_language(toy_language(corpus, **changes), toy_training(), folder, progress=False)
