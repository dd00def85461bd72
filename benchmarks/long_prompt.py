"""`python -m benchmarks prompt`: one long prompt in bounded memory, against the authors' way.

Each contender has a process of its own, so that its peak memory is its own too. They read the same
prompt in turns, a segment each: a slow moment of the machine hits all of them.
"""

import multiprocessing
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Annotated, Any, Literal, get_args

import torch
from rich.console import Console
from torch import Tensor
from tyro.conf import Positional, arg

from bayesattn.console import mistakes
from bayesattn.corpora import NeedleMaker, load_tokenizer
from bayesattn.errors import UserError
from bayesattn.evals.memory import GIBIBYTE
from bayesattn.evals.prefill import Reader
from bayesattn.models.open import LanguageModel, open_language
from bayesattn.training.recipes import small
from benchmarks.authors_prompt import AuthorsReader
from benchmarks.measure import report

Way = Literal["exact", "skipping", "authors"]
WAYS: tuple[Way, ...] = get_args(Way)
SEGMENT = 4096
"""Tokens that a contender reads in one turn."""
_WARM_UP = 256


@dataclass(frozen=True)
class Row:
    """One way to read the prompt."""

    way: Way
    length: int
    """Tokens of the prompt, the answer included."""
    seconds: float
    """Best of all rounds."""
    ratio: float
    """Seconds of the authors' way over those of this one, best of all rounds."""
    rounds: int
    extra_bytes: int
    """Peak memory of the process beyond what it held with the model loaded and warm."""
    max_difference: float
    """Largest difference of a logit at the answer from the exact way's."""
    same_answer: bool
    """Whether the most probable tokens are the exact way's."""
    found: bool
    """Whether they are the hidden number; only a trained model can know."""


@dataclass(frozen=True)
class Task:
    """What every contender is told."""

    source: str | None
    tokens: list[int]
    asked: list[int]
    tolerance: float
    memory: int
    threads: int
    segment: int


@dataclass(frozen=True, kw_only=True)
class PromptBench:
    """Time one long prompt against the authors' way, in turns, with peak memory of each."""

    source: Annotated[Positional[str | None], arg(metavar="MODEL")] = None
    """Run, zoo:NAME, or folder of a bayesattn model; the small recipe, untrained, if not given."""
    length: int = 64_000
    """Tokens of the prompt. At 64,000 the authors' way takes seven minutes or more on two cores."""
    tolerance: float = 1e-4
    """Share of the posterior that certified skipping may miss."""
    memory: Annotated[float, arg(metavar="GIB")] = 2.0
    """GiB that our ways may take beyond the model."""
    rounds: int = 1
    """How often to read the prompt in each way."""
    json: Annotated[str | None, arg(metavar="FILE")] = None
    """Write JSON to this file as well ("-": to standard output, instead of a table)."""

    def run(self) -> int:
        """Measure and print."""
        rows = run(self)
        return report(rows, _printed, f", {rows[0].length:,} tokens", self.json)


def run(config: PromptBench, segment: int = SEGMENT) -> list[Row]:
    """One row for each way, which take turns of `segment` tokens."""
    if config.rounds < 1:
        raise UserError(f"--rounds must be 1 or more, not {config.rounds}.")
    with mistakes():
        model = _load(config.source)
        prompts = NeedleMaker(model.tokenizer).prompts(config.length, [0.5], 1)
        tokens = torch.cat((prompts.tokens, prompts.answers[:, :-1]), dim=1)
        scored: list[int] = prompts.scored.nonzero().flatten().tolist()
        asked = [prompts.length - 1 + at for at in scored]
        task = Task(
            config.source,
            tokens[0].tolist(),
            asked,
            config.tolerance,
            int(config.memory * GIBIBYTE),
            torch.get_num_threads(),
            segment,
        )
        for way in WAYS:  # what a model cannot do is said here, not in another process
            _reader(way, model, task)
    answer = prompts.answers[0, scored]
    del model
    turns = -(-len(task.tokens) // segment)
    seconds: dict[Way, list[float]] = {way: [] for way in WAYS}
    with _contenders(task) as contenders, Console(stderr=True).status("warming up") as status:
        for _ in range(config.rounds):
            for way in WAYS:
                seconds[way].append(0.0)
            for turn in range(turns):
                for way, connection in contenders.items():
                    spent = ", ".join(f"{w} {sum(s):.0f} s" for w, s in seconds.items())
                    status.update(f"segment {turn + 1} of {turns}: {way} ({spent})")
                    connection.send(turn)
                    seconds[way][-1] += connection.recv()
        results: dict[Way, tuple[Tensor, int]] = {
            way: _finish(connection) for way, connection in contenders.items()
        }
    return [_row(way, task, seconds, results, answer) for way in WAYS]


def _row(
    way: Way,
    task: Task,
    seconds: dict[Way, list[float]],
    results: dict[Way, tuple[Tensor, int]],
    answer: Tensor,
) -> Row:
    (logits, extra), exact = results[way], results["exact"][0]
    guessed, best = logits.argmax(-1), min(seconds[way])
    return Row(
        way,
        len(task.tokens),
        best,
        min(seconds["authors"]) / best,
        len(seconds[way]),
        extra,
        float((logits - exact).abs().max()),
        bool((guessed == exact.argmax(-1)).all()),
        bool((guessed[0] == answer).all()),
    )


def _load(source: str | None) -> LanguageModel:
    if source is not None:
        return open_language(source)
    language, _ = small()
    tokenizer = load_tokenizer(language.tokenizer)
    model = language.build(tokenizer, 0)  # half of its heads start local
    return LanguageModel(model.eval(), tokenizer, language.length, "small, untrained")


def _reader(way: Way, language_model: LanguageModel, task: Task) -> Any:
    """Something with `logits` and `rewind`."""
    model: Any = language_model.model
    if way == "authors":
        return AuthorsReader(model, len(task.tokens))
    tolerance = task.tolerance if way == "skipping" else None
    size = len(task.tokens)
    return Reader(model, batch=1, tokens=size, memory=task.memory, tolerance=tolerance)


@contextmanager
def _contenders(task: Task) -> Iterator[dict[Way, Connection]]:
    """A process for each way, warm and waiting."""
    context = multiprocessing.get_context("spawn")
    connections: dict[Way, Connection] = {}
    processes: list[Any] = []
    try:
        for way in WAYS:
            connections[way], theirs = context.Pipe()
            process = context.Process(target=_contend, args=(way, task, theirs), daemon=True)
            process.start()
            theirs.close()
            processes.append(process)
        for connection in connections.values():
            connection.recv()
        yield connections
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _contend(way: Way, task: Task, connection: Connection) -> None:
    """Read the segments that are asked for; in the end send logits and peak memory."""
    torch.set_num_threads(task.threads)
    language_model = _load(task.source)
    tokens = torch.tensor([task.tokens])
    _reader(way, language_model, task).logits(tokens[:, :_WARM_UP], [0])
    reader, before = _reader(way, language_model, task), _resident_bytes()
    connection.send("ready")
    found: list[Tensor] = []
    while isinstance(turn := connection.recv(), int):
        first = turn * task.segment
        stop = min(first + task.segment, tokens.shape[1])
        asked = [at - first for at in task.asked if first <= at < stop]
        begin = time.perf_counter()
        reader.rewind(first)
        logits = reader.logits(tokens[:, first:stop], asked)
        connection.send(time.perf_counter() - begin)
        found = [logits] if turn == 0 else [*found, logits]
    connection.send((torch.cat(found, dim=1).numpy(), peak_resident() - before))


def _finish(connection: Connection) -> tuple[Tensor, int]:
    connection.send("finish")
    logits, extra = connection.recv()
    return torch.from_numpy(logits), extra


def _resident_bytes() -> int:
    """What the process holds now."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:  # no Linux: the most it ever held is at least as much
        return peak_resident()


def peak_resident() -> int:
    """The most that the process ever held."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _printed(row: Row) -> dict[str, str]:
    return {
        "way": row.way,
        "seconds": f"{row.seconds:.1f}",
        "times faster": f"{row.ratio:.2f}",
        "rounds": str(row.rounds),
        "extra MiB": f"{row.extra_bytes / 2**20:.0f}",
        "largest logit difference": f"{row.max_difference:.1e}",
        "same answer": "yes" if row.same_answer else "no",
        "the right one": "yes" if row.found else "no",
    }
