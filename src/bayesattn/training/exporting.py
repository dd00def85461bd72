"""A run's model as an ordinary Hugging Face folder."""

import shutil
from pathlib import Path

from bayesattn.training import files
from bayesattn.training.errors import RunError
from bayesattn.training.language import load_language_model
from bayesattn.training.machine import without_bars
from bayesattn.training.runs import Run


def export(run: Run | Path | str, folder: Path | str, step: int | None = None) -> Path:
    """Write model, tokenizer and generation config to a new `folder`; all of it or nothing.

    `AutoModelForCausalLM.from_pretrained(folder)` loads it once bayesattn is imported.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder} is there already: choose another folder.")
    found = load_language_model(run, step)
    temporary = folder.with_name(f"{files.TEMPORARY}{folder.name}")
    with files.writing(str(folder), "choose another folder"):
        try:
            with without_bars():
                found.model.save_pretrained(temporary)
            found.tokenizer.save_pretrained(temporary)
            if folder.exists():
                folder.rmdir()
            temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return folder
