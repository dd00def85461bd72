"""Needles: prompts that hide a value in a haystack and ask for it at the end.

    head · filler × places · needle · filler × the rest · question · answer

    passkey      the authors' prompt: a number among one repeated sentence
    noise        RULER's: a value hidden under a key, in the same haystack
    essay        the same in a haystack of running text
    multikey     several keys with a value each; the question asks for one of them
    multivalue   several values of one key; the question asks for all of them in order

The pieces are tokenised separately, without <bos>, and joined as tokens, so lengths and places
are exact. N prompts, n tokens, a tokens of an answer, M needles.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Generator, Tensor
from transformers import PreTrainedTokenizerBase

from bayesattn.checks import LONGEST, check_kinds, shortened
from bayesattn.corpora.forms import Form, number_field, word_field
from bayesattn.corpora.haystacks import Filler, Haystack, make_haystack, running_text
from bayesattn.corpora.sentences import DISTRACTOR, KINDS, VALUES, WORDS, Kind, Values, wording
from bayesattn.corpora.text import CorpusError

MOST_DIGITS, MOST_SAMPLES = 100, 10**6
MOST_TOKENS = 2**28
"""Largest number of tokens of all prompts of one call; more would fill the memory."""


@dataclass(frozen=True)
class Prompts:
    """Prompts of one length, each with its right answer."""

    tokens: Tensor
    """[N, n] int64 tokens, question included."""
    answers: Tensor
    """[N, a] int64 tokens of the answers."""
    scored: Tensor
    """[a] bool: tokens of an answer that depend on the value. A leading space does not."""
    depth: Tensor
    """[N] float64 requested depth: 0 right after the head, 1 right before the question."""
    places: Tensor
    """[N] int64 units of filler before the needle (of several needles, the one in question)."""

    @property
    def length(self) -> int:
        return self.tokens.shape[1]


@dataclass(frozen=True)
class _Sampled:
    """The random parts of prompts; needles are not in order yet, the one in question is first."""

    keys: Tensor
    """[N, M, 1] symbols; arbitrary for needles without keys."""
    values: Tensor
    """[N, M, slots] symbols of the values."""
    units: Tensor
    """[N] units of filler."""
    starts: Tensor
    """[N] start of the filler in its haystack."""
    places: Tensor
    """[N, M] units of filler before each needle."""


class _Written(NamedTuple):
    """One prompt."""

    tokens: Tensor
    """[n] tokens, question included."""
    answer: Tensor
    given: Tensor
    """[n] True where a hidden value occurs for the first time, so it is unpredictable."""


class NeedleMaker:
    """Makes prompts of one kind with one tokenizer.

    Args:
        tokenizer: of the model.
        kind: one of `KINDS`.
        digits: number of digits of a number.
        values: kind of the hidden values, numbers or words.
        haystack: [n] tokens of running text, repeated if it is too short: "essay" needs one,
            "multikey" and "multivalue" may have one. Or one of `FILLERS`, for "passkey".
        distractors: number of other keys with a number that are not in question; for "passkey".
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        kind: Kind = "passkey",
        digits: int = 5,
        values: Values = "numbers",
        haystack: Tensor | Filler | None = None,
        distractors: int = 0,
    ) -> None:
        _check(kind, digits, values, haystack, distractors)
        words = wording(kind, values)
        self.kind: Kind = kind
        self.digits = digits
        self.values: Values = values
        self.needles = words.needles + distractors
        self.filler = haystack if isinstance(haystack, str) else "repeated"
        self._key = word_field(tokenizer, WORDS)
        self._value = (
            number_field(tokenizer, digits) if values == "numbers" else word_field(tokenizer, WORDS)
        )
        fields = {"key": self._key, "value": self._value}
        answers = {f"value{count}": self._value for count in range(words.needles)}
        self._haystack: Haystack = (
            running_text(tokenizer, haystack)
            if isinstance(haystack, Tensor)
            else make_haystack(self.filler, tokenizer)
        )
        self._head = Form(tokenizer, words.head, {}).template
        self._needle = Form(tokenizer, words.needle, fields)
        self._distractor = Form(tokenizer, DISTRACTOR, fields) if distractors else self._needle
        self._question = Form(tokenizer, words.question, fields)
        self._answer = Form(tokenizer, words.answer, answers)

    @property
    def title(self) -> str:
        """Kind, haystack and distractors, in words."""
        others = self.needles - 1 if self.kind == "passkey" else 0
        where = f" in {self.filler}" if self.filler != "repeated" else ""
        return f"{self.kind}{where}" + (f" among {others} others" if others else "")

    @property
    def shortest(self) -> int:
        """Number of tokens of a prompt without filler and without answer."""
        others = (self.needles - 1) * len(self._distractor)
        return len(self._head) + len(self._needle) + others + len(self._question)

    @property
    def answer_length(self) -> int:
        return len(self._answer)

    @property
    def unit(self) -> int:
        """Tokens of one unit of filler: a sentence, or one token of running text."""
        return self._haystack.unit

    def prompts(
        self,
        length: int,
        depths: Sequence[float] | Literal["equidistant"] = "equidistant",
        samples: int = 10,
        seed: int = 0,
    ) -> Prompts:
        """Prompts of at most `length` tokens, as long as whole units of filler allow.

        Args:
            length: largest number of tokens, without the answer.
            depths: from 0 to 1, `samples` prompts at each; or "equidistant", `samples` in all from
                the first to the last possible place, as in the paper.
            samples: see `depths`.
            seed: the same seed and length give the same prompts.
        """
        check_kinds(
            {"length": int, "samples": int, "seed": int, "depths": list[float] | str},
            {"length": length, "samples": samples, "seed": seed, "depths": depths},
        )
        for name, given, most in (("length", length, LONGEST), ("samples", samples, MOST_SAMPLES)):
            if not 1 <= given <= most:
                raise CorpusError(f"{name} must be 1 or more and at most {most:,}, not {given}.")
        if isinstance(depths, str) and depths != "equidistant":
            raise CorpusError(f"depths are numbers from 0 to 1, or equidistant, not {depths!r}.")
        if depths == "equidistant":
            depth = torch.linspace(0, 1, samples, dtype=torch.float64)
        else:
            depth = torch.tensor(list(depths), dtype=torch.float64).repeat_interleave(samples)
            if not len(depth) or not bool(((depth >= 0) & (depth <= 1)).all()):
                raise CorpusError(f"depths must be numbers from 0 to 1, not {list(depths)}.")
        if len(depth) * length > MOST_TOKENS:
            raise CorpusError(
                f"{len(depth):,} prompts of {length:,} tokens are more than the {MOST_TOKENS:,} "
                "tokens that are made at once: ask for shorter or fewer ones."
            )
        units = torch.tensor(self._units(length)).expand(len(depth))
        # A third of 3 units is 1 unit, although the product of the floats is a little less.
        places = (depth * units + 1e-9).long()
        digest = hashlib.sha256(f"{self.kind} {seed} {length}".encode()).digest()
        generator = Generator().manual_seed(int.from_bytes(digest[:4], "little"))
        sampled = self._sample(units, generator, places)
        written = self._written(sampled)
        tokens = torch.stack([prompt.tokens for prompt in written])
        answers = torch.stack([prompt.answer for prompt in written])
        return Prompts(tokens, answers, self._answer.scored, depth, sampled.places[:, 0])

    def training(
        self, batch: int, length: int, generator: Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Prompts with answers: tokens [batch, length], numbers of used tokens, `given` tokens.

        Length, place and values are random; the length is between the shortest possible one and
        `length`. Tokens after the used ones are 0, for the caller to fill. `given` marks the first
        occurrence of a hidden value, which nothing before predicts.
        """
        most = self._units(length - self.answer_length, length)
        units = torch.randint(most + 1, (batch,), generator=generator)
        tokens, used = torch.zeros(batch, length, dtype=torch.int64), torch.zeros_like(units)
        given = torch.zeros(batch, length, dtype=torch.bool)
        for row, prompt in enumerate(self._written(self._sample(units, generator))):
            whole = torch.cat([prompt.tokens, prompt.answer])
            used[row] = len(whole)
            tokens[row, : len(whole)] = whole
            given[row, : len(prompt.given)] = prompt.given
        return tokens, used, given

    def _units(self, room: int, asked: int | None = None) -> int:
        """Units of filler that fit into `room` tokens."""
        if room < self.shortest:
            least = self.shortest if asked is None else self.shortest + self.answer_length
            kind = "prompt" if asked is None else "prompt with its answer"
            raise CorpusError(
                f"A {self.kind} {kind} has at least {least} tokens with this tokenizer and does "
                f"not fit into {room if asked is None else asked}: choose {least} or more."
            )
        return (room - self.shortest) // self._haystack.unit

    def _sample(
        self, units: Tensor, generator: Generator, places: Tensor | None = None
    ) -> _Sampled:
        """Needles among `units` [N] of filler, the first of them at `places` [N] or anywhere."""
        count, distinct = len(units), 1 if self.kind == "multivalue" else self.needles
        keys = self._key.sample_distinct(count, distinct, generator).expand(-1, self.needles, -1)
        values = self._value.sample([count, self.needles], generator)
        starts = self._haystack.sample_starts(units, generator)
        first = _up_to(units, generator) if places is None else places
        others = [_up_to(units, generator) for _ in range(self.needles - 1)]
        spread = self._haystack.snap(torch.stack([first, *others], 1), starts)
        return _Sampled(keys, values, units, starts, spread)

    def _written(self, sampled: _Sampled) -> list[_Written]:
        places, order = sampled.places.sort(dim=1, stable=True)
        rows = torch.arange(len(order))[:, None]
        keys, values = sampled.keys[rows, order], sampled.values[rows, order]
        fields = {"key": keys, "value": values}
        needles, others = self._needle.rows(fields), self._distractor.rows(fields)
        questions = self._question.rows({"key": sampled.keys[:, 0], "value": sampled.values[:, 0]})
        asked = values if self.kind == "multivalue" else sampled.values[:, :1]
        answers = self._answer.rows(
            {f"value{number}": value for number, value in enumerate(asked.unbind(1))}
        )
        ends = torch.cat([places, sampled.units[:, None]], 1) * self._haystack.unit
        written: list[_Written] = []
        for row, start in enumerate(sampled.starts.tolist()):
            fillers = self._haystack.pieces(start, ends[row].tolist())
            pieces = [self._head, fillers[0]]
            given = [torch.zeros(len(piece), dtype=torch.bool) for piece in pieces]
            for at, filler in enumerate(fillers[1:]):
                first = int(order[row, at]) == 0
                pieces += [needles[row, at] if first else others[row, at], filler]
                form = self._needle if first else self._distractor
                given += [form.given, torch.zeros(len(filler), dtype=torch.bool)]
            pieces.append(questions[row])
            given.append(torch.zeros(len(questions[row]), dtype=torch.bool))
            written.append(_Written(torch.cat(pieces), answers[row], torch.cat(given)))
        return written


def _check(
    kind: str, digits: int, values: str, haystack: Tensor | str | None, distractors: int
) -> None:
    check_kinds(
        {"kind": str, "digits": int, "values": str, "distractors": int},
        {"kind": kind, "digits": digits, "values": values, "distractors": distractors},
    )
    if haystack is not None and not isinstance(haystack, Tensor | str):
        raise CorpusError(f"haystack is a tensor of tokens or a name, not {shortened(haystack)}.")
    if kind not in KINDS:
        raise CorpusError(f"unknown needle {kind!r}; choose one of {', '.join(KINDS)}.")
    if values not in VALUES:
        raise CorpusError(f"values must be {' or '.join(VALUES)}, not {values!r}.")
    if not 1 <= digits <= MOST_DIGITS:
        raise CorpusError(f"digits must be 1 to {MOST_DIGITS}, not {digits}.")
    if kind == "essay" and not isinstance(haystack, Tensor):
        raise CorpusError("An essay needle needs a haystack of running text.")
    if kind in ("passkey", "noise") and isinstance(haystack, Tensor):
        raise CorpusError(f"A {kind} needle brings its own haystack; for another, choose essay.")
    if kind != "passkey" and (distractors or isinstance(haystack, str)):
        raise CorpusError(f"Haystacks by name and distractors are for passkeys, not for {kind}.")
    if not 0 <= distractors < len(WORDS):
        most = len(WORDS) - 1
        raise CorpusError(f"distractors must be 0 or more and at most {most}, not {distractors}.")


def _up_to(units: Tensor, generator: Generator) -> Tensor:
    """[N] uniformly random integers from 0 to `units`."""
    share = torch.rand(len(units), generator=generator, dtype=torch.float64)
    return (share * (units + 1)).long()
