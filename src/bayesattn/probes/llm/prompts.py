"""Which prompts a model is looked at with.

stratified   candidates of one length, cut out of text by rule; the entropy of the model's next
             token after each; as many from every fifth of the entropies
endings      a token stands last in a second candidate only after others had their turn: states at
             the last token depend on that token above all
seeds        each has a stretch of the text to itself, so that no prompt is in two draws
"""

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from bayesattn.bits import LN2
from bayesattn.corpora.text import EMBEDDED, documents
from bayesattn.probes.llm.capture import capture_prompts
from bayesattn.probes.llm.domains import DOMAINS, authors_prompts, compose
from bayesattn.probes.llm.subject import Subject
from bayesattn.probes.llm.windows import Window, every_window
from bayesattn.probes.states import FEWEST

MIXED = "mixed"
AUTHORS = "authors"
FIFTHS = 5
LENGTH = 32
CANDIDATES = 240
EACH = 15
SPARE = 4
"""Windows read for each candidate that is kept, so that endings can differ."""
PART = 100
"""Sentences composed at once."""


@dataclass(frozen=True, kw_only=True)
class PromptSet:
    """Prompts for one model."""

    name: str
    rule: str
    """Where they come from, in words."""
    texts: list[str]
    tokens: list[list[int]]
    sources: list[str]
    """What each was cut out of. Prompts of one source are alike in many ways, so only those can be
    exchanged to see what chance does."""

    def __len__(self) -> int:
        return len(self.tokens)

    def about(self) -> dict[str, Any]:
        """What is in the set, in plain values."""
        lengths = [len(tokens) for tokens in self.tokens]
        return {
            "name": self.name,
            "rule": self.rule,
            "prompts": len(self),
            "tokens": [min(lengths), max(lengths)],
            "distinct tokens": len({token for tokens in self.tokens for token in tokens}),
            "distinct last tokens": len({tokens[-1] for tokens in self.tokens}),
            "most prompts with one last token": max(
                Counter(tokens[-1] for tokens in self.tokens).values()
            ),
            "texts": self.texts,
            "sources": self.sources,
        }


def draw(
    subject: Subject,
    source: str = MIXED,
    *,
    length: int = LENGTH,
    candidates: int = CANDIDATES,
    each: int = EACH,
    seed: int = 0,
) -> PromptSet:
    """Prompts stratified by the entropy of the subject's next token.

    Args:
        subject: whose entropy.
        source: mixed, a domain, or a corpus: pydoc, a file, a folder, hf:NAME.
        length: tokens of each prompt.
        candidates: to choose from.
        each: how many from every fifth of the entropies.
        seed: another one takes other text.
    """
    if candidates < FIFTHS * each:
        raise ValueError(
            f"{FIFTHS} × {each} prompts cannot be drawn from {candidates} candidates: "
            f"take {FIFTHS * each} or more"
        )
    sources = (EMBEDDED, *DOMAINS) if source == MIXED else (source,)
    pool: list[Window] = []
    times: Counter[int] = Counter()
    for place, own in enumerate(sources):
        share = len(range(place, candidates, len(sources)))
        windows = [
            window._replace(source=own)
            for window in stretch(_windows(subject, own, length), SPARE * share, seed)
        ]
        if len(windows) < share:
            raise ValueError(
                f"{own} has {len(windows)} pieces of exactly {length} tokens left for seed {seed} "
                f"and {share} are needed: give more text, or take fewer candidates or tokens"
            )
        pool += take_turns(windows, share, times)
    bits = next_token_entropy(subject, [window.tokens for window in pool])
    generator = Generator().manual_seed(seed)
    chosen = [pool[place] for place in stratify(bits, each, generator)]
    rule = (
        f"{each} from each fifth, by entropy, of {len(pool)} pieces of {length} tokens of "
        f"{', '.join(sources)}; seed {seed}"
    )
    return as_set(source, rule, chosen)


def given(subject: Subject, texts: Sequence[str], name: str, rule: str) -> PromptSet:
    """Prompts as they stand."""
    if len(texts) < FEWEST:
        raise ValueError(f"{name}: {len(texts)} prompts are too few, give {FEWEST} or more")
    windows = [Window(text, subject.encode(text)) for text in texts]
    return as_set(name, rule, windows)


def released(subject: Subject) -> PromptSet:
    """The authors' thirteen."""
    return given(subject, authors_prompts(), AUTHORS, "the thirteen prompts the authors released")


def read_prompts(path: Path) -> list[str]:
    """One prompt per line of a text file, or per line {"text": …} of a .jsonl file."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if path.suffix != ".jsonl":
        return lines
    try:
        return [str(json.loads(line)["text"]) for line in lines]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f'every line of {path} must be {{"text": "…"}}') from None


def stratify(bits: Tensor, each: int, generator: Generator) -> list[int]:
    """Places of `each` values from every fifth of `bits` [N], drawn at random, in order."""
    fifths = bits.argsort(stable=True).tensor_split(FIFTHS)
    drawn = [fifth[torch.randperm(len(fifth), generator=generator)[:each]] for fifth in fifths]
    return sorted(torch.cat(drawn).tolist())


def next_token_entropy(subject: Subject, prompts: Sequence[Sequence[int]]) -> Tensor:
    """[N] entropy in bits of the next token after each prompt."""
    return entropy_of(capture_prompts(subject, prompts, ["logits"]).logits)


def entropy_of(logits: Tensor) -> Tensor:
    """H = -Σ p log2 p over the vocabulary, of logits [N, V]."""
    found: list[Tensor] = []
    for rows in logits.split(64):  # float64 copies of a large vocabulary add up
        logs = rows.double().log_softmax(-1)
        found.append(-(logs.exp() * logs.clamp(min=-1e4)).sum(-1) / LN2)
    return torch.cat(found)


def stretch(windows: Iterable[Window], count: int, seed: int) -> list[Window]:
    """`count` different windows that no other seed has: those after the stretches before."""
    return list(islice(_different(windows), seed * count, (seed + 1) * count))


def take_turns(windows: Sequence[Window], count: int, times: Counter[int]) -> list[Window]:
    """`count` windows, next always the first of those whose last token stood last least often.

    Args:
        windows: to choose from.
        count: how many.
        times: how often each token stood last so far; counted on.
    """
    left, chosen = list(windows), []
    for _ in range(count):
        place = min(range(len(left)), key=lambda at: times[left[at].tokens[-1]])
        chosen.append(left.pop(place))
        times[chosen[-1].tokens[-1]] += 1
    return chosen


def _different(windows: Iterable[Window]) -> Iterator[Window]:
    """Without those that came before: sentences have parts that are always the same."""
    seen: set[tuple[int, ...]] = set()
    for window in windows:
        if (key := tuple(window.tokens)) not in seen:
            seen.add(key)
            yield window


def _windows(subject: Subject, source: str, length: int) -> Iterator[Window]:
    """All windows of a source in a fixed order; a domain has no end."""
    if source in DOMAINS:
        texts: Iterable[str] = (compose(source, PART, part) for part in itertools.count())
    else:
        known = list(documents(source))
        order = torch.randperm(len(known), generator=Generator().manual_seed(0)).tolist()
        texts = (known[place] for place in order)
    for text in texts:
        yield from every_window(subject.encode, text, length)


def as_set(name: str, rule: str, windows: Sequence[Window]) -> PromptSet:
    """Windows as prompts."""
    return PromptSet(
        name=name,
        rule=rule,
        texts=[window.text for window in windows],
        tokens=[window.tokens for window in windows],
        sources=[window.source for window in windows],
    )
