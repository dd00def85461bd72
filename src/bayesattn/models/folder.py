"""Files beside the weights of a saved model that say which package the model needs."""

import re
from pathlib import Path

import bayesattn

CODE = "bayesattn_model"
"""The module that config.json names in its auto_map."""
BESIDE_WEIGHTS = {
    # With trust_remote_code, transformers reads this and names the package if it is missing.
    f"{CODE}.py": """# The model is in the package bayesattn: pip install bayesattn
from bayesattn.models import *  # noqa: F403
""",
    "README.md": """---
library_name: transformers
pipeline_tag: text-generation
---

A language model whose attention has a positional prior. It needs the package bayesattn:

    pip install bayesattn

```python
import bayesattn  # without this line transformers does not know the model type
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("this folder")
```

Where there is no place for that line, as on the command line of another program, pass
`trust_remote_code=True`: the file bayesattn_model.py does nothing but that import.
""",
}


class OnlyNamed:
    """A class whose source is not copied into the folder of a saved model."""

    @classmethod
    def register_for_auto_class(cls, auto_class: str = "") -> None:
        """Do nothing: transformers would copy our source."""


def write_beside_weights(folder: Path) -> None:
    """Write these files into a folder, except files that exist there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in BESIDE_WEIGHTS.items():
        if not (folder / name).exists():
            (folder / name).write_text(text, encoding="utf-8")


def _parts(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def check_version(saved_by: str | None, notes: list[str]) -> None:
    """Refuse a config of a newer version with fields that this version does not know."""
    if saved_by is None or not notes or _parts(saved_by) <= _parts(bayesattn.__version__):
        return
    raise ValueError(
        f"config.json was written by bayesattn {saved_by} and has the setting {notes[0]!r}, which "
        f"{bayesattn.__version__} does not know: pip install --upgrade bayesattn"
    )
