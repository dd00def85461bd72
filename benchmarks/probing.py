"""`python -m benchmarks probing`: what looking inside costs, against a plain pass over one batch.

Of language models, everything that its probes measure is captured at the last token of
prompts, against a pass over the same prompts that gives nothing but the last logits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from rich.console import Console
from tyro.conf import arg

from bayesattn.console import mistakes
from bayesattn.corpora.text import EMBEDDED, documents
from bayesattn.errors import UserError
from bayesattn.evals.prediction import evaluating
from bayesattn.models.architectures import Predictor, Transformer, build
from bayesattn.probes.anatomy import anatomy
from bayesattn.probes.capture import capture, resolve
from bayesattn.probes.llm.capture import NAMES as OF_PROMPTS
from bayesattn.probes.llm.capture import batches, capture_prompts, last_only
from bayesattn.probes.llm.subject import Subject, load
from bayesattn.source import DEFAULT
from bayesattn.tunnels import HMM, Bijection, Tunnel
from benchmarks.measure import interleave, report

CASES: dict[str, tuple[Tunnel, Transformer]] = {
    "bijection of 10": (Bijection(10, replacement=True), Transformer(prior="ggd")),
    "bijection of 20": (
        Bijection(20, replacement=True),
        Transformer(layers=6, width=192, heads=6, prior="ggd"),
    ),
    "filter of 5 states": (
        HMM(5, 5, 20),
        Transformer(layers=4, width=96, prior="ggd", exempt="header"),
    ),
}
"""The sizes of our studies, and the authors' bijection model."""
NAMES = {
    "everything": ["*"],
    "attention": ["layers.*.attention"],
    "residuals": ["layers.*.residual_*"],
}

PROMPTS, PROMPT_LENGTH = 75, 24


@dataclass(frozen=True)
class Row:
    """One capture beside a plain pass."""

    case: str
    names: str
    ratio: float
    """Best time over the best time of a plain pass in the same rounds."""
    ratio_low: float
    ratio_high: float
    """Quartiles of the ratio round by round."""
    rounds: int
    seconds: float
    """Best time of one capture."""
    tensors: int
    """Names captured."""
    batch: int
    """Sequences or prompts."""


@dataclass(frozen=True, kw_only=True)
class ProbingBench:
    """Time capturing what a model computes against a plain pass over the same batch."""

    batch: int = 256
    """Sequences."""
    seconds: float = 10.0
    """Time to spend on each model; three rounds at the least."""
    models: tuple[str, ...] = (DEFAULT,)
    """Language models."""
    json: Annotated[str | None, arg(metavar="FILE")] = None
    """Write JSON to this file as well ("-": to standard output, instead of a table)."""

    def run(self) -> int:
        """Measure and print."""
        if self.batch < 1:
            raise UserError(f"--batch counts sequences: it must be positive, not {self.batch}.")
        log = Console(stderr=True)
        rows: list[Row] = []
        for case, (tunnel, architecture) in CASES.items():
            with log.status(case), mistakes():
                model = build(architecture, tunnel, 0).eval()
                rows += measure(case, model, tunnel, self.batch, self.seconds)
        for name in self.models:
            with log.status(name), mistakes():
                subject = load(name)
                rows.append(measure_prompts(name, subject, prompts_of(subject), self.seconds))
        return report(rows, _printed, "", self.json)


def measure(
    case: str, model: Predictor, tunnel: Tunnel, batch_size: int, seconds: float
) -> list[Row]:
    """Every set of names at the scored positions, in the same rounds as a plain pass."""
    batch = tunnel.sample(batch_size, torch.Generator().manual_seed(0))

    def plain() -> object:
        with evaluating(model):
            return model(batch.inputs, batch.scored)

    def captured(names: list[str]) -> Callable[[], object]:
        return lambda: capture(model, batch.inputs, names, batch.scored, batch_size)

    calls = {"plain": plain} | {name: captured(names) for name, names in NAMES.items()}
    times = interleave(calls, "plain", seconds)
    return [
        Row(
            case,
            name,
            times[name].ratio,
            times[name].low,
            times[name].high,
            times[name].rounds,
            times[name].seconds,
            len(resolve(anatomy(model), names)),
            batch_size,
        )
        for name, names in NAMES.items()
    ]


def prompts_of(
    subject: Subject, count: int = PROMPTS, length: int = PROMPT_LENGTH
) -> list[list[int]]:
    """The first pieces of the embedded corpus, all of one length."""
    tokens: list[int] = []
    for text in documents(EMBEDDED):
        tokens += encode(subject, text)
        if len(tokens) >= count * length:
            break
    return [tokens[at : at + length] for at in range(0, count * length, length)]


def encode(subject: Subject, text: str) -> list[int]:
    """Tokens of a text of any length."""
    assert subject.tokenizer is not None
    encoded: Any = subject.tokenizer(text, add_special_tokens=False, verbose=False)
    return encoded["input_ids"]


def measure_prompts(
    case: str, subject: Subject, prompts: Sequence[Sequence[int]], seconds: float
) -> Row:
    """Everything at the last token of prompts, in the same rounds as a plain pass over them."""
    model: Any = subject.model

    def plain() -> object:
        with evaluating(model):
            passes = (tokens for _, tokens in batches(prompts))
            return [model(x, use_cache=False, **last_only(model)).logits for x in passes]

    calls = {"plain": plain, "everything": lambda: capture_prompts(subject, prompts)}
    time = interleave(calls, "plain", seconds)["everything"]
    tensors = (len(OF_PROMPTS) - 1) * len(subject.parts.layers) + 1
    found = (time.ratio, time.low, time.high, time.rounds, time.seconds)
    return Row(case, "everything", *found, tensors, len(prompts))


def _printed(row: Row) -> dict[str, str]:
    return {
        "model of": row.case,
        "batch": str(row.batch),
        "captured": f"{row.names} ({row.tensors} names)",
        "ratio": f"{row.ratio:.2f}",
        "quartiles": f"{row.ratio_low:.2f}-{row.ratio_high:.2f}",
        "rounds": str(row.rounds),
        "ms": f"{1000 * row.seconds:.1f}",
    }
