"""Corpora: text as tokens on disk, needles to hide in it, and the mixture models are trained on."""

from bayesattn.corpora.errors import CorpusError
from bayesattn.corpora.mixture import Mixture, Windows
from bayesattn.corpora.needles import NeedleMaker, Prompts
from bayesattn.corpora.sentences import KINDS
from bayesattn.corpora.store import TokenStore, prepare
from bayesattn.corpora.text import documents
from bayesattn.corpora.tokenizers import encode, fingerprint, load_tokenizer

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
]
