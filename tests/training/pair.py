"""A tunnel and a language model, trained by however many processes there are. A program of its own.

torchrun --nproc-per-node 2 -m tests.training.pair FOLDER CORPUS
"""

import sys
from pathlib import Path

from bayesattn.models.architectures import Transformer, build
from bayesattn.training import TrainConfig, TunnelTask, train_language, train_tunnel
from bayesattn.training.loop import steps_within
from bayesattn.tunnels import Bijection
from tests.training.language_toy import toy_language

CONFIG = TrainConfig(steps=6, batch_size=8, threads=1, log_every=1, warmup=0, decay=0)


def train_both(folder, corpus):
    """Last steps of both, and how many fit into a minute; all processes say the same."""
    model, tunnel = Transformer(layers=1, width=8, heads=2), Bijection(4)
    first = train_tunnel(tunnel, model, CONFIG, folder / "tunnel")
    second = train_language(toy_language(corpus), CONFIG, folder / "language")
    steps = steps_within(1, TunnelTask(tunnel, "posterior"), build(model, tunnel, 0), CONFIG)
    return f"{first.finished['step']} {second.finished['step']} {steps}"


if __name__ == "__main__":
    # one write: the processes share a pipe
    sys.stdout.write(f"{train_both(Path(sys.argv[1]), sys.argv[2])}\n")
