"""What a model is asked: its own tunnel, or tunnels put into words."""

from collections.abc import Callable, Sequence

from torch import Generator, randperm

from bayesattn.probes.bayes.behaviour import Task
from bayesattn.probes.bayes.readers import (
    Reader,
    TunnelReader,
    Write,
    pick_outcomes,
    put_into_words,
)
from bayesattn.probes.llm.subject import Subject
from bayesattn.probes.llm.sula import WORDS
from bayesattn.tunnels import Dice, Labels, Markov, Tunnel

COIN, DIE, CHAIN, SULA = "coin", "die", "chain", "SULA"
FACES = 4
LENGTH = 24
"""Draws of a sequence; SULA has two thirds as many, as its words take room."""
INTRODUCTIONS = {COIN: "Throws of a coin:", DIE: "Throws of a die:", CHAIN: "States of a chain:"}


def tunnel_task(reader: TunnelReader, tunnel: Tunnel) -> Task:
    """The tunnel that a model was trained on."""
    return Task(tunnel.name, f"its own tunnel, {tunnel.horizon} steps", tunnel, lambda _: reader)


def language_tasks(
    subject: Subject, labels: Sequence[str] = (), length: int = LENGTH
) -> list[Task]:
    """Coin, die, chain and SULA, in labels of one token."""
    if length < 4:
        raise ValueError(f"--length must be 4 or more, not {length}")
    chosen = pick_outcomes(subject, FACES, labels)
    tunnels: dict[str, tuple[Tunnel, str]] = {
        COIN: (Dice(length), "throws of a coin with unknown bias"),
        DIE: (Dice(length, FACES), f"throws of a die with {FACES} faces"),
        CHAIN: (Markov(length), "states of a Markov chain"),
        SULA: (Labels(2 * length // 3), "words with noisy copies of a hidden label"),
    }
    return [
        Task(name, f"{what}, in {', '.join(own)}", tunnel, _reader(subject, name, own, tunnel))
        for name, (tunnel, what) in tunnels.items()
        for own in [chosen[: tunnel.outcomes]]
    ]


def _reader(
    subject: Subject, name: str, labels: Sequence[str], tunnel: Tunnel
) -> Callable[[int], Reader]:
    def reader(seed: int) -> Reader:
        write = sula_text(seed) if name == SULA else list_text(INTRODUCTIONS[name])
        return put_into_words(subject, write, labels, tunnel.horizon)

    return reader


def list_text(introduction: str) -> Write:
    """Throws of a coin: A, B, A"""  # noqa: D415  an example of what it writes
    return lambda labels: introduction + ",".join(f" {label}" for label in labels)


def sula_text(seed: int) -> Write:
    """happy: A, cruel: B, calm: A"""  # noqa: D415
    order = randperm(len(WORDS), generator=Generator().manual_seed(seed)).tolist()

    def write(labels: Sequence[str]) -> str:
        words = (WORDS[order[at % len(order)]] for at in range(len(labels)))
        return ", ".join(f"{word}: {label}" for word, label in zip(words, labels, strict=True))

    return write
