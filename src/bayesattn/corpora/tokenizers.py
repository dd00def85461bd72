"""Tokenizers: bytes, words of a small vocabulary, or any of Hugging Face's.

    bytes   one token per byte of UTF-8; its number is the byte
    words   1,024 pieces learnt from the embedded corpus and the sentences of needles: each word of
            a needle is one token with the space before it, each digit is one token

Both decode to exactly the encoded text, and no text encodes to one of their three special tokens.
"""

import hashlib
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from bayesattn.corpora.text import CorpusError

BUILT_IN = ("bytes", "words")
SPECIAL = ("<bos>", "<eos>", "<pad>")
WORDS_FILE = Path(__file__).parent / "words.json"
"""Written by `make_words_tokenizer` in tests/corpora/words.py."""


def load_tokenizer(name: str = "bytes") -> PreTrainedTokenizerBase:
    """The tokenizer called `name`: "bytes", "words", a folder, or a name on the hub."""
    if name.startswith("train:"):
        raise CorpusError(
            f"The tokenizer {name!r} is trained on a corpus: name one of {' or '.join(BUILT_IN)}, "
            "or train:NUMBER where a corpus is named, too."
        )
    if name in BUILT_IN:
        return make_fast(make_bytes_tokenizer() if name == "bytes" else _words())
    try:
        return AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise CorpusError(
            f"There is no tokenizer {name!r}: use {' or '.join(BUILT_IN)}, a folder that holds "
            "one, or a name on the Hugging Face hub."
        ) from error


def encode(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    """Tokens of each text, without added tokens; no part of the text counts as a special token."""
    encoded: Any = tokenizer(
        list(texts),
        add_special_tokens=False,
        split_special_tokens=True,
        return_attention_mask=False,
        verbose=False,  # texts may be longer than any model
    )
    return encoded["input_ids"]


def start_token(tokenizer: PreTrainedTokenizerBase) -> int:
    """First token of every document: <bos>, or <eos> for tokenizers without <bos>."""
    for token in (tokenizer.bos_token_id, tokenizer.eos_token_id):
        if isinstance(token, int):
            return token
    raise CorpusError(
        "This tokenizer has neither a bos nor an eos token to begin a document with: "
        "set its bos_token."
    )


def fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """Hash of vocabulary and merges: equal for tokenizers with the same pieces and numbers."""
    merges: list[Any] = []
    if isinstance(tokenizer, PreTrainedTokenizerFast):
        merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"].get("merges") or []
    decisive = [sorted(tokenizer.get_vocab().items()), merges]
    return hashlib.sha256(json.dumps(decisive).encode()).hexdigest()[:16]


def make_bytes_tokenizer() -> Tokenizer:
    """One token per byte, then the special tokens."""
    vocabulary = {character: byte for byte, character in bytes_to_unicode().items()}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    return tokenizer


@cache
def _words() -> Tokenizer:
    return Tokenizer.from_file(str(WORDS_FILE))


def make_fast(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """A tokenizer of transformers with our special tokens."""
    special = {f"{token.strip('<>')}_token": token for token in SPECIAL}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        **special,
        clean_up_tokenization_spaces=False,
        split_special_tokens=True,
        model_input_names=["input_ids", "attention_mask"],
    )
