"""Corpora: text and prompts for language models.

documents (text.py) -> tokens (tokenizers.py) -> a store on disk (store.py) -> sequences
(sequences.py); and prompts that hide a needle (forms.py, sentences.py) in a haystack (needles.py).
"""

from bayesattn.corpora.needles import NeedleMaker, Prompts
from bayesattn.corpora.sentences import KINDS
from bayesattn.corpora.sequences import Mixture, Windows, windows
from bayesattn.corpora.store import TokenStore, prepare
from bayesattn.corpora.text import CorpusError, documents
from bayesattn.corpora.tokenizers import encode, fingerprint, load_tokenizer
from bayesattn.corpora.trained import tokenizer_of

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
