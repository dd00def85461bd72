"""Measures ways to extend a model's context beside the unchanged model: needles found, bits lost.

A text with needles at equal distances is read once. At every length, from the longest to the
shortest, all needles up to this length are queried, with the cache of this one reading:

    found at a length       share of the needles before it whose value is the most probable answer,
                            digit by digit (teacher-forced)
    perplexity              of some tokens between two lengths that belong to no needle
    lost inside             KL(original ‖ way), bits per token, at tokens within the trained length

Needles of one text are not independent, so Wilson's intervals are a little too narrow. Each piece
of work is stored in a file when it is done, and is not repeated.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (torch leaves some members untyped)

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Generator, Tensor

from bayesattn import files
from bayesattn.bits import LN2
from bayesattn.corpora.forms import Form, number_field, word_field
from bayesattn.corpora.sentences import WORDS, Wording
from bayesattn.evals.memory import cache_bytes, config_of
from bayesattn.evals.prefill import Reader
from bayesattn.models.extend import AS_IS
from bayesattn.models.interface import NAME
from bayesattn.models.open import LanguageModel
from bayesattn.stats import Interval, mean_interval, wilson_interval

LOST = 0.01
"""Largest loss of a recommended way inside the trained length, in bits per token."""
SURE = 0.05
"""Significance level of the sign test at which a way counts as better."""
WINDOWS, PER_WINDOW = 16, 64
"""Number of equal parts of a text, and number of tokens in each part whose loss is measured."""
DIGITS = 5
WORDING = Wording(
    "",
    " The pass key of {key} is {value}. Remember it. {value} is the pass key of {key}.",
    " What is the pass key of {key}? The pass key of {key} is",
    " {value0}",
)
SLICE = 64  # rows of logits in float32 at once


@dataclass(frozen=True)
class Planted:
    """A text with needles."""

    tokens: Tensor
    """[n]."""
    ends: list[int]
    """Index after the last token of each needle, in order."""
    questions: Tensor
    """[N, q]."""
    answers: Tensor
    """[N, a]."""
    scored: Tensor
    """[k] indices of tokens after which the loss is measured, in order."""


def plant(tokenizer: Any, text: Tensor, needles: int, seed: int) -> Planted:
    """Hide `needles` keys with numbers in a text [n], which keeps its length."""
    generator = Generator().manual_seed(seed)
    keys, numbers = word_field(tokenizer, WORDS), number_field(tokenizer, DIGITS)
    fields = {"key": keys, "value": numbers}
    needle, question = (Form(tokenizer, x, fields) for x in (WORDING.needle, WORDING.question))
    answer = Form(tokenizer, WORDING.answer, {"value0": numbers})
    room = len(text) // needles
    most = min(len(text) // (2 * len(needle)), len(keys.slots[0]))
    if needles > most:
        raise ValueError(f"{len(text):,} tokens hold {most} needles at most: choose fewer")
    key = keys.sample_distinct(1, needles, generator)[0]
    value = numbers.sample([needles], generator)
    hidden = needle.rows({"key": key, "value": value})
    pieces: list[Tensor] = []
    ends: list[int] = []
    taken = torch.zeros(len(text), dtype=torch.bool)
    for number in range(needles):
        start = number * room + (room - len(needle)) // 2
        begun = sum(map(len, pieces))
        pieces += [text[begun - number * len(needle) :][: start - begun], hidden[number]]
        ends.append(start + len(needle))
        taken[start - 1 : ends[-1]] = True
    rest = len(text) - ends[-1]
    pieces.append(text[ends[-1] - needles * len(needle) :][:rest])
    scored = [
        part[torch.randperm(len(part), generator=generator)[:PER_WINDOW]]
        for part in torch.arange(len(text) - 1).tensor_split(WINDOWS)
    ]
    chosen = torch.cat(scored)
    return Planted(
        torch.cat(pieces),
        ends,
        question.rows({"key": key, "value": value}),
        answer.rows({"value0": value}),
        chosen[~taken[chosen]].sort().values,
    )


@dataclass(frozen=True)
class Reading:
    """Results of one way on one text."""

    right: dict[int, list[bool]]
    """By length, whether each needle before it was found."""
    losses: Tensor
    """[k] nats at the scored tokens."""
    lost: Tensor
    """[i] bits lost at the scored tokens inside."""


def read_text(
    opened: LanguageModel,
    text: Planted,
    lengths: Sequence[int],
    memory: int,
    original: Tensor | None = None,
) -> tuple[Reading, Tensor]:
    """Read a text once and query its needles; also log-probabilities [i, vocabulary] inside.

    `original` are the log-probabilities of the unchanged model.
    """
    model: Any = opened.model
    model.set_attn_implementation(NAME)
    count, asked = len(text.tokens), text.scored
    room = count + text.questions.shape[1] + text.answers.shape[1]
    reader = Reader(model, batch=1, tokens=room, memory=memory)
    if needed(model, count) <= memory:
        reader.chunk = count  # in one piece attention needs no mask, and is quicker
    logits = reader.logits(text.tokens[None], asked.tolist())[0].cpu()
    inside = int((asked < opened.length - 1).sum())
    losses, lost, kept = [], [], []
    for at in range(0, len(asked), SLICE):
        log_p = logits[at : at + SLICE].float().log_softmax(-1)
        wanted = text.tokens[asked[at : at + SLICE] + 1]
        losses.append(-log_p.gather(1, wanted[:, None])[:, 0])
        kept.append(log_p[: max(0, inside - at)].half())
        if original is not None and at < inside:
            before = original[at : at + SLICE].float()
            gap = (before.exp() * (before - log_p[: len(before)])).sum(-1)
            lost.append(gap / LN2)
    right: dict[int, list[bool]] = {}
    for length in sorted(lengths, reverse=True):
        known = [number for number, end in enumerate(text.ends) if end <= length]
        right[length] = [_is_answered(reader, text, number, length) for number in known]
    none = torch.zeros(inside)
    return Reading(right, torch.cat(losses), torch.cat(lost) if lost else none), torch.cat(kept)


def _is_answered(reader: Reader, text: Planted, number: int, length: int) -> bool:
    """Whether the model answers the question about a needle after so many tokens of the text."""
    at = reader.rewind(length)
    if at < length:
        reader.logits(text.tokens[None, at:length], [length - at - 1])
    question, answer = text.questions[number], text.answers[number]
    tokens = torch.cat((question, answer[:-1]))
    asked = range(len(question) - 1, len(tokens))
    return bool((reader.logits(tokens[None], list(asked))[0].argmax(-1).cpu() == answer).all())


def needed(model: Any, tokens: int) -> int:
    """Bytes, beyond the model, for reading so many tokens in one piece."""
    config, size = config_of(model), model.dtype.itemsize
    inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    states = size * tokens * (12 * config.hidden_size + 3 * inner)
    scored = WINDOWS * PER_WINDOW * config.vocab_size * size
    return cache_bytes(model, tokens) + states + scored + 4 * 4 * SLICE * config.vocab_size


def fits(model: Any, trained: int, memory: int) -> int:
    """Largest number of tokens that fit, in steps of a quarter of the trained length."""
    step = max(1, trained // 4)
    count = 0
    while needed(model, count + step) <= memory:
        count += step
    return count


@dataclass(frozen=True)
class Measured:
    """Results of one way on all texts."""

    way: str
    trained: int
    lengths: list[int]
    readings: list[Reading]
    scored: list[Tensor]

    def found(self, length: int) -> tuple[int, int]:
        answers = [right for reading in self.readings for right in reading.right[length]]
        return sum(answers), len(answers)

    @property
    def beyond(self) -> list[bool]:
        """All answers at lengths beyond the trained one."""
        pairs = [(reading.right, n) for reading in self.readings for n in self.lengths]
        return [right for known, n in pairs if n > self.trained for right in known[n]]

    @property
    def lost(self) -> float:
        return float(torch.cat([reading.lost for reading in self.readings]).mean())

    @property
    def lost_interval(self) -> Interval | None:
        return mean_interval(torch.cat([r.lost for r in self.readings]).double().numpy())

    def loss(self, start: int, stop: int) -> Tensor:
        """[k] nats of the scored tokens from `start` to `stop`, over all texts."""
        pairs = zip(self.readings, self.scored, strict=True)
        return torch.cat([r.losses[(at >= start) & (at < stop)] for r, at in pairs])

    def to_json(self) -> dict[str, Any]:
        rows: list[dict[str, Any]] = []
        for start, stop in zip([0, *self.lengths], self.lengths, strict=False):
            correct, total = self.found(stop)
            loss = float(self.loss(start, stop).mean())
            row = {"length": stop, "found": correct, "asked": total, "loss": loss}
            row |= {"from": start, "perplexity": math.exp(loss)}
            # of needles that stand nowhere before a length nothing is known
            share = wilson_interval(correct, total) if total else Interval(0.0, 1.0)
            rows.append(row | share._asdict())
        low, high = self.lost_interval or (None, None)
        lost = {"bits": self.lost, "low": low, "high": high}
        depths = [
            {"length": n, "depth": end, "right": sum(r.right[n][end] for r in self.readings)}
            for n in self.lengths
            for end in range(len(self.readings[0].right[n]))
        ]
        texts = len(self.readings)
        return {
            "way": self.way,
            "lengths": rows,
            "lost": lost,
            "texts": texts,
            "needles": depths,
        }


def better(way: Measured, before: Measured) -> float:
    """The p-value of a sign test on the right answers beyond the trained length."""
    pairs = list(zip(way.beyond, before.beyond, strict=True))
    won, lost = (sum(a and not b for a, b in pairs), sum(b and not a for a, b in pairs))
    count = won + lost
    return sum(math.comb(count, k) for k in range(won, count + 1)) / 2**count


def recommend(measured: Sequence[Measured]) -> tuple[str | None, str]:
    """The recommended way, if there is one, and a sentence with the reason."""
    before = next(m for m in measured if m.way == AS_IS)
    others = [m for m in measured if m.way != AS_IS and better(m, before) < SURE]
    rule = (
        f"the rule takes the way that finds most beyond {before.trained:,} tokens among those that "
        f"find more than the model as it is (sign test, p < {SURE}) and lose at most {LOST} bits a "
        "token inside"
    )

    def said(m: Measured) -> str:
        return (
            f"{m.way} finds {sum(m.beyond)} of {len(m.beyond)} beyond, the model as it is "
            f"{sum(before.beyond)}, and loses {m.lost:.4f} bits a token inside"
        )

    best = max(others, key=lambda m: (sum(m.beyond), -m.lost), default=None)
    gentle = [m for m in others if m.lost <= LOST]
    if gentle:
        chosen = max(gentle, key=lambda m: (sum(m.beyond), -m.lost))
        return chosen.way, f"Recommended: {chosen.way}; {said(chosen)} ({rule})."
    if best is None:
        return None, f"Recommended: nothing; no way finds more than the model as it is ({rule})."
    return best.way, (
        f"Recommended for longer prompts only: {best.way}; {said(best)}, so keep the model as it "
        f"is for prompts up to {before.trained:,} tokens ({rule})."
    )


def kept(
    folder: Path | None, name: str, make: Callable[[], tuple[dict[str, Tensor], Any]]
) -> tuple[dict[str, Tensor], Any]:
    """Tensors and JSON of one piece of work, from its file; computed and stored if missing."""
    if folder is None:
        return make()
    path = folder / f"{name}.safetensors"
    if path.exists():
        try:
            with safe_open(path, framework="pt") as file:
                found = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
                return found, json.loads(file.metadata()["about"])
        except (SafetensorError, KeyError, TypeError, ValueError):
            files.aside(path)
    tensors, about = make()
    with files.writing(str(path), "make room, or choose another folder"):
        temporary = path.with_name(f"{files.TEMPORARY}{path.name}")
        whole = {key: x.contiguous() for key, x in tensors.items()}
        save_file(whole, temporary, metadata={"about": json.dumps(about)})
        files.sync(temporary)
        temporary.replace(path)
    return tensors, about
