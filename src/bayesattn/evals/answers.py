"""Answers to long prompts, kept on disk as they come.

A prompt of 65,536 tokens takes a minute, so a measurement that is stopped should not ask again. The
file has a line that says what is measured, then one per answer, and grows by whole lines: after a
kill the last one may be torn, and is dropped.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

_SAMPLED = 256  # numbers of each tensor that tell models apart


class Answers(dict[str, bool]):
    """Whether prompts were answered right, by `key_of` the prompt.

    Args:
        about: what decides the answers, as plain values.
        file: where they are kept; in memory only if not given.

    Raises:
        ValueError: the file holds answers to something else.
    """

    def __init__(self, about: Mapping[str, Any], file: Path | None = None) -> None:
        super().__init__()
        self.file = file
        if file is None:
            return
        lines = _whole_lines(file)
        if lines:
            self._check(about, json.loads(lines[0]))
            self.update(json.loads(line) for line in lines[1:])
        # without what is torn; and if it cannot be written, that is known now
        file.write_text("".join(lines or [_line(about)]), encoding="utf-8")

    def add(self, answers: Mapping[str, bool]) -> None:
        """Keep some more."""
        self.update(answers)
        if self.file is not None:
            with self.file.open("a", encoding="utf-8") as file:
                file.write("".join(_line(answer) for answer in answers.items()))

    def _check(self, about: Mapping[str, Any], before: Mapping[str, Any]) -> None:
        other = [name for name in about if about[name] != before.get(name)]
        if other:
            was = ", ".join(f"{name} {before.get(name)!r}" for name in other)
            raise ValueError(
                f"{self.file} holds answers with {was}: remove it, or write to another file."
            )


def key_of(prompt: Tensor, answer: Tensor) -> str:
    """A hash of the tokens of a prompt and of its right answer."""
    tokens = torch.cat((prompt, answer)).long().cpu()
    return sha256(tokens.numpy().tobytes()).hexdigest()[:16]


def identity_of(model: PreTrainedModel) -> str:
    """A hash of the settings of a model, and of some numbers of every tensor."""
    settings = {**model.config.to_dict(), "_name_or_path": None}
    digest = sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        step = max(1, tensor.numel() // _SAMPLED)
        digest.update(tensor.detach().flatten()[::step].cpu().double().numpy().tobytes())
    return digest.hexdigest()[:16]


def _line(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False) + "\n"


def _whole_lines(file: Path) -> list[str]:
    if not file.exists():
        return []
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    return [line for line in lines if line.endswith("\n")]
