"""How names and values are looked up before torch is imported, by what help calls them."""

import os
import re
import socket
from collections.abc import Callable
from pathlib import Path

from bayesattn.errors import UserError
from bayesattn.files import is_taken
from bayesattn.source import DEFAULT, Source, find, no_language, no_tunnel

SECONDS = 3.0
"""That the hub is waited for, before it counts as out of reach."""
LENGTH = re.compile(r"\d+(\.\d+)?x|\d+[kK]?")
DEVICE = re.compile(r"(cpu|cuda|mps|xpu)(:\d+)?")


def check_value(flag: str, takes: str, value: str) -> None:
    """What follows an option: text, lengths, kinds, devices, and places that are written to."""
    if flag == "--corpus" or takes == "FILE|FOLDER":
        from bayesattn.corpora.text import require_source

        require_source(value)
    elif takes == "KIND,..." and value not in ("all", ""):
        for word in value.split(","):
            if word.strip() not in kinds():
                raise UserError(
                    f"There is no kind of prompt {word.strip()!r}: choose of {', '.join(kinds())}."
                )
    elif re.match(r"\d+x", takes) and value != "None":
        for word in filter(None, value.split(",") if "," in takes else [value]):
            if not LENGTH.fullmatch(word.strip()):
                raise UserError(
                    f"{flag} takes a multiple such as 8x, or a number, not {word.strip()!r}."
                )
    elif flag == "--device" and not DEVICE.fullmatch(value):
        raise UserError(f"There is no device {value!r}: --device takes cpu or cuda.")
    elif flag == "--resume" and not (Path(value) / "config.json").is_file():
        raise UserError(
            f"There is no run in {value}: name the folder that --out named when it was trained."
        )
    elif flag == "--prompts" and takes == "FILE":
        _require_file(value)
    elif takes == "FILE" and value != "-" and not Path(value).absolute().parent.is_dir():
        raise UserError(f"Cannot write {value}: there is no folder {Path(value).parent}.")
    if flag == "--figure":
        from bayesattn.drawing import check_format

        try:
            check_format(Path(value))
        except ValueError as error:
            raise UserError(f"{error}.") from None


def kinds() -> list[str]:
    """Of RULER's prompts."""
    path = Path(__file__).parent.parent / "corpora" / "ruler" / "kinds.py"
    return re.findall(r'^    "(\w+)": ', path.read_text(encoding="utf-8"), re.MULTILINE)


def _find(word: str) -> Source:
    try:
        return find(word)
    except ValueError as error:  # of the zoo
        raise UserError(str(error)) from None


def _require_model(word: str) -> None:
    """A model that is here, or one that the hub can be asked for."""
    if _find(word).kind == "hub" and not _cached(word) and not _hub_answers():
        raise UserError(
            f"{word} is neither on this machine nor on the Hugging Face hub, which cannot be "
            "reached: name the folder of a run or of a model, a file, or zoo:NAME; "
            f"{DEFAULT} is a package."
        )


def _require_run(word: str) -> None:
    """Nothing on the hub is a run of a tunnel."""
    found = _find(word)
    if found.kind == "hub":
        raise UserError(
            f"There is no run in {word}: name the folder that --out named when it was trained, or "
            "zoo:NAME; `bayesattn tunnel zoo` lists those."
        )
    if found.kind != "tunnel":
        raise no_tunnel(found)


def _require_language(word: str) -> None:
    """No run of a tunnel."""
    _require_model(word)
    if (found := _find(word)).kind == "tunnel":
        raise no_language(found)


def _cached(name: str) -> bool:
    """Whether files of a model of the hub were fetched before."""
    home = os.environ.get("HF_HOME", "~/.cache/huggingface")
    folder = Path(os.environ.get("HF_HUB_CACHE", f"{home}/hub")).expanduser()
    return (folder / f"models--{name.replace('/', '--')}").is_dir()


def _hub_answers() -> bool:
    """Whether it is worth asking; a proxy or a mirror is not judged."""
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        return False
    if any(
        name in os.environ for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "HF_ENDPOINT")
    ):
        return True
    try:
        socket.create_connection(("huggingface.co", 443), timeout=SECONDS).close()
    except OSError:
        return False
    return True


def _require_claim(word: str) -> None:
    from bayesattn.claims.registry import require_claim

    require_claim(word)


def _require_folder(word: str) -> None:
    if not Path(word).is_dir():
        raise UserError(f"There is no folder {word}.")


def _require_file(word: str) -> None:
    if not Path(word).is_file():
        raise UserError(f"There is no file {word}.")


def require_ledger(folder: Path) -> None:
    from bayesattn.ledger.ledger import NAME, require

    require(folder / NAME)


def _require_new(word: str) -> None:
    if is_taken(Path(word)):
        raise UserError(f"{word} is there already: choose another folder.")


OF_TEXT = ("generate", "export", "passkey", "ruler", "perplexity", "harness", "priors")
"""Commands of `lm` that take a model."""
CHECKS: dict[tuple[str, str], Callable[[str], None] | None] = {
    ("", "MODEL"): _require_model,
    **{(f"lm {own}", "MODEL"): _require_language for own in OF_TEXT},
    ("extend", "MODEL"): _require_language,
    ("", "RUN"): _require_run,
    ("", "CLAIM"): _require_claim,
    ("", "FILE.py"): _require_file,
    ("lm export", "FOLDER"): _require_new,
    ("report", "FOLDER"): _require_folder,
    ("claims add", "FOLDER"): None,  # its own sentence says what should be there
    ("claims bank", "MODEL"): None,  # of the bank
}
"""How names are looked up, by what help calls them; of a command first."""
