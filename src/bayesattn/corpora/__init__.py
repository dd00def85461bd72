"""Corpora: text and prompts for language models.

documents (text.py) -> tokens (tokenizers.py) -> a store on disk (store.py) -> sequences
(sequences.py); and prompts that hide a needle (forms.py, sentences.py) in a haystack (needles.py).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bayesattn.corpora.needles import NeedleMaker, Prompts
    from bayesattn.corpora.sentences import KINDS
    from bayesattn.corpora.sequences import Mixture, Windows, windows
    from bayesattn.corpora.store import TokenStore, prepare
    from bayesattn.corpora.text import CorpusError, documents
    from bayesattn.corpora.tokenizers import encode, fingerprint, load_tokenizer
    from bayesattn.corpora.trained import tokenizer_of

_HOMES = {
    "needles": "NeedleMaker Prompts",
    "sentences": "KINDS",
    "sequences": "Mixture Windows windows",
    "store": "TokenStore prepare",
    "text": "CorpusError documents",
    "tokenizers": "encode fingerprint load_tokenizer",
    "trained": "tokenizer_of",
}
"""Module of each name, imported on first use, because text alone needs no torch."""

__all__ = [
    "KINDS",
    "CorpusError",
    "Mixture",
    "NeedleMaker",
    "Prompts",
    "TokenStore",
    "Windows",
    "documents",
    "encode",
    "fingerprint",
    "load_tokenizer",
    "prepare",
    "tokenizer_of",
    "windows",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names.split():
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
