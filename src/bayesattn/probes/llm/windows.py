"""Pieces of text that have exactly so many tokens and end with a word.

All prompts of a set are equally long, so that neither length nor position can order them, and no
two of them overlap. A piece ends where a word ends: what comes next is a word to predict, not the
rest of one.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

WORD = re.compile(r"\S+")
Encode = Callable[[str], list[int]]


class Window(NamedTuple):
    """A piece of text and its tokens."""

    text: str
    tokens: list[int]
    source: str = ""
    """What it was cut out of."""


def words_of(text: str) -> list[tuple[int, int]]:
    """Where each word begins and ends."""
    return [match.span() for match in WORD.finditer(text)]


def window_ending(
    encode: Encode, text: str, words: Sequence[tuple[int, int]], last: int, length: int
) -> Window | None:
    """The piece of `length` tokens that ends with the word `last`, if whole words make one."""
    stop = words[last][1]
    first = max(0, last - length // 2)
    seen: dict[int, list[int]] = {}
    while first not in seen:
        tokens = seen[first] = encode(text[words[first][0] : stop])
        if len(tokens) == length:
            return Window(text[words[first][0] : stop], tokens)
        first += 1 if len(tokens) > length else -1
        if not 0 <= first <= last:
            return None
    return None


def every_window(encode: Encode, text: str, length: int) -> Iterator[Window]:
    """Windows that do not overlap, from the beginning of a text to its end."""
    words = words_of(text)
    # a word has a token or more, so a window has no more words than tokens
    for last in range(length - 1, len(words), length):
        if window := window_ending(encode, text, words, last, length):
            yield window


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
