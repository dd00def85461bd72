"""The header of a .gguf file, read once and checked against the length of the file.

    header = read_header(path)
    header.values["general.architecture"]     'llama'
    header.values["tokenizer.ggml.tokens"]    Strings(count=49152)
    header.tensors["output_norm.weight"]      Stored(shape=(576,), kind=0, start=…, size=2304)

Counts and lengths in a damaged header can have any value, so each is compared with the length of
the file before it is used. Arrays stay in the file until they are used.
"""

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

MAGIC = b"GGUF"
VERSIONS = (2, 3)
STRING, ARRAY = 8, 9
NUMBERS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
"""Types of numbers, in the notation of `struct`."""
MOST_DIMENSIONS = 4
LEAST_VALUE, LEAST_TENSOR = 13, 24
"""Least number of bytes of a value, and of a tensor, in the header."""
LONG = struct.Struct("<Q").unpack_from


class HeaderError(ValueError):
    """A file is damaged, or not a .gguf file."""


class Strings(NamedTuple):
    """An array of strings; only their number is stored."""

    count: int


class Stored(NamedTuple):
    """Place and format of a tensor in the file."""

    shape: tuple[int, ...]
    """Shape in torch's order: rows first."""
    kind: int
    """Kind of its blocks, in ggml's numbers."""
    start: int
    size: int


@dataclass(frozen=True)
class Header:
    """The header of a file."""

    path: Path
    values: dict[str, Any]
    """Numbers, texts, arrays of numpy and `Strings`."""
    tensors: dict[str, Stored]

    @property
    def architecture(self) -> str:
        return str(self.values["general.architecture"])

    def own(self, key: str) -> Any:
        """A value of this architecture; None if there is none."""
        return self.values.get(f"{self.architecture}.{key}")

    def bytes_of(self, name: str) -> np.ndarray:
        """The stored bytes of a tensor, mapped; nothing is read yet."""
        stored = self.tensors[name]
        return np.memmap(self.path, np.uint8, "r", stored.start, (stored.size,))


def read_header(path: Path) -> Header:
    """The header of a file; the last few headers are cached.

    Raises:
        HeaderError: the file is damaged, or not a .gguf file.
    """
    about = path.stat()
    return _read(str(path), about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=8)
def _read(path: str, changed: int, size: int) -> Header:
    if size < 24:
        raise HeaderError("it is no .gguf file")
    with _mapped(path) as data:
        try:
            return _Reader(data, 0).header(path)
        except (struct.error, UnicodeDecodeError, OverflowError):
            raise HeaderError("its header ends early or is damaged") from None


@dataclass
class _Reader:
    data: mmap.mmap
    at: int

    def header(self, path: str) -> Header:
        if self.data[:4] != MAGIC:
            raise HeaderError("it is no .gguf file")
        version, tensors, values = struct.unpack_from("<IQQ", self.data, 4)
        if version not in VERSIONS:
            raise HeaderError(f"it has version {version} of the format, where 2 and 3 are known")
        self.at = 24
        self.require(tensors * LEAST_TENSOR + values * LEAST_VALUE, "its counts")
        found = dict(self.value(path) for _ in range(values))
        if not isinstance(found.get("general.architecture"), str):
            raise HeaderError("it does not say which architecture it has")
        table = [self.tensor() for _ in range(tensors)]
        if len({name for name, *_ in table}) < tensors:
            raise HeaderError("two of its tensors have one name")
        step = found.get("general.alignment", 32)
        if not isinstance(step, int) or step < 1 or step & (step - 1):
            raise HeaderError(f"its tensors are said to be aligned at {step} bytes")
        begin = -(-self.at // step) * step
        placed = {name: self.placed(begin, shape, *at) for name, shape, *at in table}
        return Header(Path(path), found, placed)

    def require(self, size: int, what: str) -> None:
        """Refuse sizes that reach beyond the end of the file."""
        if self.at + size > len(self.data):
            raise HeaderError(f"{what} reach beyond its end")

    def number(self, letter: str) -> Any:
        (found,) = struct.unpack_from(f"<{letter}", self.data, self.at)
        self.at += struct.calcsize(letter)
        return found

    def texts(self, count: int) -> Iterator[bytes]:
        """Consecutive strings; their lengths are compared with the rest of the file."""
        for _ in range(count):
            (length,) = LONG(self.data, self.at)
            self.at += 8
            self.require(length, "its strings")
            yield self.data[self.at : self.at + length]
            self.at += length

    def text(self) -> str:
        (found,) = self.texts(1)
        return str(found, "utf-8")

    def value(self, path: str) -> tuple[str, Any]:
        key, kind = self.text(), self.number("I")
        if kind in NUMBERS:
            return key, self.number(NUMBERS[kind])
        if kind == STRING:
            return key, self.text()
        if kind != ARRAY:
            raise HeaderError(f"the value {key[:40]!r} has the unknown type {kind}")
        kind, count = self.number("I"), self.number("Q")
        start = self.at
        if kind in NUMBERS:
            width = struct.calcsize(NUMBERS[kind])
            self.require(count * width, "its arrays")
            self.at += count * width
            own = np.memmap(path, f"<{NUMBERS[kind]}", "r", start, (count,)) if count else ()
            return key, own
        if kind != STRING:
            raise HeaderError(f"the array {key[:40]!r} has the unknown type {kind}")
        self.skip_texts(count)
        return key, Strings(count)

    def skip_texts(self, count: int) -> None:
        """Skip many strings in a plain loop: vocabularies have hundreds of thousands."""
        data, at, end = self.data, self.at, len(self.data)
        for _ in range(count):
            at += 8 + LONG(data, at)[0]
            if at > end:
                raise HeaderError("its strings reach beyond its end")
        self.at = at

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name, dimensions = self.text(), self.number("I")
        if not 1 <= dimensions <= MOST_DIMENSIONS:
            raise HeaderError(f"the tensor {name[:40]!r} has {dimensions} dimensions")
        sizes = [self.number("Q") for _ in range(dimensions)]
        # ggml counts from the fastest, torch from the slowest
        return name, tuple(reversed(sizes)), self.number("I"), self.number("Q")

    def placed(self, begin: int, shape: tuple[int, ...], kind: int, offset: int) -> Stored:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

        try:
            elements, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
        except ValueError:
            raise HeaderError(f"it has tensors of the unknown type {kind}") from None
        count = prod(shape)
        if count < 1 or shape[-1] % elements:
            raise HeaderError("the sizes of its tensors are no whole blocks")
        stored = Stored(shape, kind, begin + offset, count // elements * size)
        if stored.start + stored.size > len(self.data):
            raise HeaderError("its tensors reach beyond its end: it was not downloaded completely")
        return stored


def _mapped(path: str) -> mmap.mmap:
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
