"""Sets of prompts that differ in their domain, and in as little else as can be.

matched    all domains have equally many prompts for each of the same last words, all of one
length: the token whose state is looked at is the same in all of them, as often
shuffled   the same tokens, the words before the last one in another order: a domain's
vocabulary without its sense
"""

from dataclasses import replace

import torch
from torch import Generator

from bayesattn.probes.llm.domains import DOMAINS, compose
from bayesattn.probes.llm.prompts import LENGTH, PART, PromptSet, as_set
from bayesattn.probes.llm.subject import Subject
from bayesattn.probes.llm.windows import Window, windows_with_ending, word_groups

MOST_PARTS = 1000
ENDINGS = ("the", "of", "a", "is", "in")
"""Words that sentences of every domain have."""


def matched(
    subject: Subject, *, each: int, length: int = LENGTH, seed: int = 0
) -> dict[str, PromptSet]:
    """A set for every domain, with `each` prompts for each of the same last words.

    Prompts of one last word stand together, in the same order of last words in each set.
    """
    return {domain: _with_endings(subject, domain, each, length, seed) for domain in DOMAINS}


def shuffled(subject: Subject, prompts: PromptSet, seed: int = 0) -> PromptSet:
    """The same tokens, but the words between the first and the last one in another order."""
    generator = Generator().manual_seed(seed)
    tokens: list[list[int]] = []
    for text, own in zip(prompts.texts, prompts.tokens, strict=True):
        first, *middle, last = word_groups(subject.encode, Window(text, own))
        order = torch.randperm(len(middle), generator=generator).tolist()
        tokens.append([*first, *(token for place in order for token in middle[place]), *last])
    name, rule = f"{prompts.name}, shuffled", f"{prompts.rule}; words shuffled"
    return replace(prompts, name=name, rule=rule, tokens=tokens)


def _with_endings(subject: Subject, domain: str, each: int, length: int, seed: int) -> PromptSet:
    found: dict[str, list[Window]] = {ending: [] for ending in ENDINGS}
    seen: set[tuple[int, ...]] = set()
    wanted = (seed + 1) * each  # those of the seeds before are left to them
    for part in range(MOST_PARTS):
        text = compose(domain, PART, part)
        for ending, window in windows_with_ending(subject.encode, text, length, ENDINGS):
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
