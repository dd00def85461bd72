"""`bayesattn lm generate` and `lm export`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from bayesattn.commands.options import JsonTarget, RunFolder
from bayesattn.console import mistakes, write_json
from bayesattn.models.exporting import export
from bayesattn.models.generation import generate


@dataclass(frozen=True, kw_only=True)
class LanguageGenerate:
    """Let a language model continue a text."""

    source: RunFolder
    """A run, zoo:NAME, a Hugging Face folder, or a name of the hub."""
    prompt: Annotated[Positional[str], arg(metavar="PROMPT")]
    """The text; "-" reads it from standard input."""
    tokens: int = 100
    """Tokens to add, at most."""
    temperature: float = 0.0
    """0 always takes the most probable token; 1 draws as the model believes."""
    seed: int = 0
    """Of the draws."""
    step: int | None = None
    """Checkpoint of the run; the last one if not given."""
    json: JsonTarget = None
    """Write prompt and continuation as JSON to this file ("-": standard output)."""

    def run(self) -> int:
        prompt = sys.stdin.read() if self.prompt == "-" else self.prompt
        with mistakes():
            added = generate(
                self.source,
                prompt,
                tokens=self.tokens,
                temperature=self.temperature,
                seed=self.seed,
                step=self.step,
            )
        if self.json:
            write_json({"prompt": prompt, "continuation": added}, self.json)
        if self.json != "-":
            print(prompt + added)
        return 0


@dataclass(frozen=True, kw_only=True)
class LanguageExport:
    """Write a run's model, tokenizer and generation config as a Hugging Face folder."""

    source: RunFolder
    """The run, or zoo:NAME."""
    folder: Annotated[Positional[Path], arg(metavar="FOLDER")]
    """A new folder."""
    step: int | None = None
    """Checkpoint of the run; the last one if not given."""

    def run(self) -> int:
        with mistakes():
            print(f"Wrote {export(self.source, self.folder, self.step)}.")
        return 0
