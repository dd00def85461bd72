"""Which prompts a model is looked at with.

stratified   candidates of one length, cut out of text by rule; the entropy of the model's next
             token after each; as many from every fifth of the entropies
endings      a token stands last in a second candidate only after others had their turn: states at
             the last token depend on that token above all
seeds        each has a stretch of the text to itself, so that no prompt is in two draws
domains      text composed by rule from sentences with slots: a sentence is drawn, then a word for
             each slot; slots that name one thing throughout a sentence keep their word
matched      sets that differ in their domain, and in as little else as can be: all have equally
             many prompts for each of the same last words, all of one length
shuffled     the same tokens, the words before the last one in another order: a domain's vocabulary
             without its sense

A window is a piece of text with exactly so many tokens: all prompts of a set are equally long, so
that neither length nor position can order them, and no two of them overlap. It ends where a word
ends: what comes next is a word to predict, not the rest of one.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from bayesattn.bits import LN2
from bayesattn.corpora.text import EMBEDDED, documents
from bayesattn.probes.llm.capture import BATCH_TOKENS, capture_prompts
from bayesattn.probes.llm.subject import Subject
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
MOST_PARTS = 1000
MOST = 2000
"""Prompts that are read from a file: more of them sharpen no number that is measured on them."""
DOMAINS = ("mathematics", "code", "philosophy", "general")
ENDINGS = ("the", "of", "a", "is", "in")
"""Words that sentences of every domain have."""
SLOT = re.compile(r"\{(\w+)\}")
WORD = re.compile(r"\S+")
Encode = Callable[[str], list[int]]
Spans = Sequence[tuple[int, int]]
"""Where each word of a text begins and ends."""


class Window(NamedTuple):
    """A piece of text and its tokens."""

    text: str
    tokens: list[int]
    source: str = ""


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


def sample(
    subject: Subject,
    source: str = MIXED,
    *,
    length: int = LENGTH,
    candidates: int = CANDIDATES,
    each: int = EACH,
    seed: int = 0,
    tell: Callable[[str], None] = lambda _: None,
) -> PromptSet:
    """Prompts stratified by the entropy of the subject's next token.

    The source is mixed, a domain, or a corpus: pydoc, a file, a folder, hf:NAME. From every fifth
    of the candidates' entropies `each` are taken; another seed takes other text.
    """
    if candidates < FIFTHS * each:
        raise ValueError(
            f"{FIFTHS} × {each} prompts cannot be drawn from {candidates} candidates: "
            f"take {FIFTHS * each} or more"
        )
    if subject.plan.context is not None and length > subject.plan.context:
        raise ValueError(
            f"{subject.name} reads no more than {subject.plan.context:,} tokens: take prompts of "
            f"that length or less, not {length:,}"
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
    bits = next_token_entropy(subject, [window.tokens for window in pool], tell)
    generator = Generator().manual_seed(seed)
    chosen = [pool[place] for place in stratify(bits, each, generator)]
    rule = (
        f"{each} from each fifth, by entropy, of {len(pool)} pieces of {length} tokens of "
        f"{', '.join(sources)}; seed {seed}"
    )
    return as_set(source, rule, chosen)


def matched_sets(
    subject: Subject, *, each: int, length: int = LENGTH, seed: int = 0
) -> dict[str, PromptSet]:
    """A set for every domain, with `each` prompts for each of the same last words.

    Prompts of one last word stand together, in the same order of last words in each set.
    """
    return {domain: _with_endings(subject, domain, each, length, seed) for domain in DOMAINS}


def _with_endings(subject: Subject, domain: str, each: int, length: int, seed: int) -> PromptSet:
    found: dict[str, list[Window]] = {ending: [] for ending in ENDINGS}
    seen: set[tuple[int, ...]] = set()
    wanted = (seed + 1) * each  # those of the seeds before are left to them
    for part in range(MOST_PARTS):
        text = compose(domain, PART, part)
        for ending, window in windows_with_ending(subject.tokenize, text, length, ENDINGS):
            if len(found[ending]) < wanted and tuple(window.tokens) not in seen:
                seen.add(tuple(window.tokens))
                found[ending].append(window)
        if all(len(windows) == wanted for windows in found.values()):
            break
    else:
        raise ValueError(f"no {wanted} prompts of {length} tokens for each last word in {domain}")
    rule = (
        f"{each} pieces of {length} tokens for each of the last words {', '.join(ENDINGS)}, of "
        f"{domain}; seed {seed}"
    )
    own = [window for windows in found.values() for window in windows[seed * each :]]
    return as_set(domain, rule, own)


def shuffle_words(subject: Subject, prompts: PromptSet, seed: int = 0) -> PromptSet:
    """The same tokens, but the words between the first and the last one in another order."""
    generator = Generator().manual_seed(seed)
    tokens: list[list[int]] = []
    for text, own in zip(prompts.texts, prompts.tokens, strict=True):
        first, *middle, last = word_groups(subject.tokenize, Window(text, own))
        order = torch.randperm(len(middle), generator=generator).tolist()
        tokens.append([*first, *(token for place in order for token in middle[place]), *last])
    name, rule = f"{prompts.name}, shuffled", f"{prompts.rule}; words shuffled"
    return replace(prompts, name=name, rule=rule, tokens=tokens)


def given(subject: Subject, texts: Sequence[str], name: str, rule: str) -> PromptSet:
    if len(texts) < FEWEST:
        raise ValueError(f"{name}: {len(texts)} prompts are too few, give {FEWEST} or more")
    windows = [Window(text, subject.encode(text)) for text in texts]
    return as_set(name, rule, windows)


def released(subject: Subject) -> PromptSet:
    """The thirteen prompts that the authors released, from certain to uncertain."""
    texts = [text for group in _grammars()["authors"].values() for text in group]
    return given(subject, texts, AUTHORS, "the thirteen prompts the authors released")


def read_prompts(path: Path) -> list[str]:
    """One prompt per line of a text file, or per line {"text": …} of a .jsonl file.

    Of more than `MOST`, every so many; what is left out is never in memory.
    """
    with path.open(encoding="utf-8") as file:
        count = sum(1 for line in file if line.strip())
    every = max(1, -(-count // MOST))
    with path.open(encoding="utf-8") as file:
        lines = list(islice(filter(str.strip, file), 0, None, every))
    if path.suffix != ".jsonl":
        return [line.rstrip("\n") for line in lines]
    try:
        return [str(json.loads(line)["text"]) for line in lines]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f'every line of {path} must be {{"text": "…"}}') from None


def stratify(bits: Tensor, each: int, generator: Generator) -> list[int]:
    """Places of `each` values from every fifth of `bits` [N], drawn at random, in order."""
    fifths = bits.argsort(stable=True).tensor_split(FIFTHS)
    drawn = [fifth[torch.randperm(len(fifth), generator=generator)[:each]] for fifth in fifths]
    return sorted(torch.cat(drawn).tolist())


def next_token_entropy(
    subject: Subject, prompts: Sequence[Sequence[int]], tell: Callable[[str], None] = lambda _: None
) -> Tensor:
    """[N] entropy in bits of the next token after each prompt."""
    # as many as one pass reads: logits of all prompts over a large vocabulary would add up
    size = max(1, BATCH_TOKENS // max(map(len, prompts), default=1))
    found: list[Tensor] = []
    for first in range(0, len(prompts), size):
        tell(f"choosing prompts: {first} of {len(prompts)} candidates read")
        some = capture_prompts(subject, prompts[first : first + size], ["logits"])
        found.append(entropy_of(some.logits))
    bits = torch.cat(found)
    if lost := int((~bits.isfinite()).sum()):
        raise ValueError(
            f"{subject.name} puts out NaN or infinity after {lost} of {len(prompts)} prompts: its "
            "weights are damaged, or too large for its dtype (--dtype float32 has the most room)"
        )
    return bits


def entropy_of(logits: Tensor) -> Tensor:
    """H = -Σ p log2 p over the vocabulary, of logits [N, V]."""
    found: list[Tensor] = []
    for rows in logits.split(64):  # float64 copies of a large vocabulary add up
        logs = rows.double().log_softmax(-1)
        found.append(-(logs.exp() * logs.clamp(min=-1e4)).sum(-1) / LN2)
    return torch.cat(found)


def stretch(windows: Iterable[Window], number: int, seed: int) -> list[Window]:
    """`number` different windows that no other seed has: those after the stretches before."""
    return list(islice(_different(windows), seed * number, (seed + 1) * number))


def take_turns(windows: Sequence[Window], number: int, times: Counter[int]) -> list[Window]:
    """`number` windows, next always the first of those whose last token stood last least often.

    `times` is how often each token stood last so far; it is counted on.
    """
    left, chosen = list(windows), []
    for _ in range(number):
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
        texts: Iterable[str] = (compose(source, PART, part) for part in count())
    else:
        known = list(documents(source))
        order = torch.randperm(len(known), generator=Generator().manual_seed(0)).tolist()
        texts = (known[place] for place in order)
    for text in texts:
        yield from every_window(subject.tokenize, text, length)


def compose(domain: str, sentences: int, seed: int = 0) -> str:
    grammar = _grammars()[domain]
    # its own stream for each domain and seed; strings seed alike in every process
    rng = random.Random(f"{domain} {seed}")
    return grammar["between"].join(_sentence(grammar, rng) for _ in range(sentences))


def _sentence(grammar: dict[str, Any], rng: random.Random) -> str:
    chosen: dict[str, str] = {}

    def word(match: re.Match[str]) -> str:
        slot = match[1]
        drawn = rng.choice(grammar["words"][slot])
        return chosen.setdefault(slot, drawn) if slot in grammar["bound"] else drawn

    text = SLOT.sub(word, rng.choice(grammar["sentences"]))
    return text[0].upper() + text[1:] if grammar["between"] == " " else text  # prose, or code


@cache
def _grammars() -> dict[str, Any]:
    return json.loads((Path(__file__).parent / "data/domains.json").read_text(encoding="utf-8"))


def as_set(name: str, rule: str, windows: Sequence[Window]) -> PromptSet:
    return PromptSet(
        name=name,
        rule=rule,
        texts=[window.text for window in windows],
        tokens=[window.tokens for window in windows],
        sources=[window.source for window in windows],
    )


def words_of(text: str) -> Spans:
    return [match.span() for match in WORD.finditer(text)]


def window_ending(
    encode: Encode, text: str, words: Spans, last: int, length: int, free: int = 0
) -> Window | None:
    """The piece of `length` tokens that ends with the word `last`, if whole words make one.

    It begins with the word `free` or a later one.
    """
    stop = words[last][1]
    first = max(free, last - length // 2)
    tried: set[int] = set()
    while first not in tried:
        tried.add(first)
        piece = text[words[first][0] : stop]
        if len(tokens := encode(piece)) == length:
            return Window(piece, tokens)
        first += 1 if len(tokens) > length else -1
        if not free <= first <= last:
            return None
    return None


def every_window(encode: Encode, text: str, length: int) -> Iterator[Window]:
    """Windows that do not overlap, from the beginning of a text to its end."""
    words = words_of(text)
    free, last = 0, length // 2
    while last < len(words):
        window = window_ending(encode, text, words, last, length, free)
        if window is None:
            last += 1
            continue
        yield window
        free = last + 1
        last += len(words_of(window.text))  # the next one has about as many


def windows_with_ending(
    encode: Encode, text: str, length: int, endings: Collection[str]
) -> Iterator[tuple[str, Window]]:
    """Windows whose last word is one of `endings`, with that word; they do not overlap."""
    words, free = words_of(text), length - 1
    for last, (begin, end) in enumerate(words):
        if last < free or text[begin:end] not in endings:
            continue
        if window := window_ending(encode, text, words, last, length):
            free = last + length
            yield text[begin:end], window


def word_groups(encode: Encode, window: Window) -> list[list[int]]:
    """The tokens of a window, word by word; words that share a token stay together."""
    groups: list[list[int]] = []
    done = 0
    for _, end in words_of(window.text):
        tokens = encode(window.text[:end])
        if tokens == window.tokens[: len(tokens)] and len(tokens) > done:
            groups.append(tokens[done:])
            done = len(tokens)
    if done < len(window.tokens):
        groups.append(window.tokens[done:])
    return groups
