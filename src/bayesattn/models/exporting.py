"""A run's model as an ordinary Hugging Face folder."""

import shutil
from pathlib import Path

from bayesattn import files
from bayesattn.models.hugging_face import without_bars
from bayesattn.models.open import open_language
from bayesattn.runs import Run, RunError


def export(run: Run | Path | str, folder: Path | str, step: int | None = None) -> Path:
    """Write model, tokenizer and generation config to a new `folder`; all of it or nothing.

    `AutoModelForCausalLM.from_pretrained(folder)` loads it once bayesattn is imported.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder} is there already: choose another folder.")
    found = open_language(run, step)
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
