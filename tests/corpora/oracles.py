"""Slow and obvious versions of what corpora/ does."""

import hashlib

from bayesattn.corpora import documents, encode
from bayesattn.corpora.sentences import FILLER, wording

# Hash of the documentation that words.json and the held-out documents were chosen with.
DOCUMENTATION = "d816f8d22e0cf35d139a6b91ddbf71926779433fc91cdc3a126e599d8445e57e"


def same_documentation():
    """Whether this Python's documentation is that one."""
    text = "\0".join(documents("pydoc"))
    return hashlib.sha256(text.encode()).hexdigest() == DOCUMENTATION


def pieces_of(tokenizer, *texts):
    """Tokens of texts that are tokenised one by one and joined."""
    return [token for text in texts for token in encode(tokenizer, [text])[0]]


def prompt(tokenizer, kind, values, before, needles, key=None):
    """A prompt from its text.

    Args:
        before: fillers before each needle and, last, before the question.
        needles: the fields of each, in the order in which they stand.
        key: asked for.
    """
    words = wording(kind, values)
    texts = [words.head]
    for count, fields in zip(before[:-1], needles, strict=True):
        texts += [FILLER] * count
        texts.append(words.needle.format(**fields))
    texts += [FILLER] * before[-1]
    texts.append(words.question.format(key=key))
    return pieces_of(tokenizer, *texts)
