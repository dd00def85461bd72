"""`bayesattn extend`: a longer context for a model that exists, measured before recommended."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import arg

from bayesattn.commands.options import Answer, Asking, File, JsonTarget, ModelName, optional
from bayesattn.console import telling
from bayesattn.corpora.text import EMBEDDED
from bayesattn.drawing import check_format, save_picture
from bayesattn.evals.extend import LOST, Measured
from bayesattn.evals.extend_run import Extending, Settings, check_ways
from bayesattn.evals.lengths import one_length, token_lengths
from bayesattn.evals.passkey import passkey
from bayesattn.evals.ruler import ruler
from bayesattn.files import only_one
from bayesattn.models.extend import AS_IS
from bayesattn.models.extend_fit import Diagnosis
from bayesattn.models.hugging_face import longest_input
from bayesattn.models.open import find, language_config, open_language
from bayesattn.system import GIBIBYTE

WORST = 5
"""Heads that are named."""
ASKED = 10
"""RULER's prompts of each kind and length."""


@dataclass(frozen=True, kw_only=True)
class Extend(Asking):
    """Give a language model a longer context: diagnose its heads, try several ways, prove, save.

    A few numbers are fitted, the weights stay. With --out FOLDER a run that was stopped goes on:
    type the same command again.
    """

    source: ModelName
    to: Annotated[str, arg(metavar="2x|16k|TOKENS")] = "2x"
    """How long the context is to be: a multiple of the trained length, or tokens."""
    ways: Annotated[str, arg(metavar="WAY,...")] = "yarn,log-temperature,temperatures,priors"
    """Ways to try beside the model as it is: yarn, ntk, log-temperature, temperatures, priors, or
    two of them such as yarn+temperatures."""
    lengths: Annotated[str | None, optional("1x,16k,...")] = None
    """Lengths at which to ask; four up to --to if not given."""
    text: Annotated[str | None, optional("FILE|FOLDER")] = None
    """Text to look at heads, to fit and to measure with; Python's documentation if not given."""
    texts: int = 2
    """Pieces of text to measure on, each as long as --to."""
    fit_texts: int = 1
    """Further pieces to look at heads and to fit with."""
    needles: int = 16
    """Needles in each piece to measure on."""
    only: Literal["diagnose"] | None = None
    """Look at the heads, and do nothing else."""
    passkeys: int = 0
    """Ask the recommended way for passkeys at so many depths, as `lm passkey` does."""
    ruler: Annotated[str, arg(metavar="KIND,...")] = ""
    """Afterwards ask RULER's questions of these kinds, as `lm ruler` does."""
    dtype: Annotated[str | None, optional("DTYPE")] = None
    """float32, float16 or bfloat16, which is quicker on some machines; as stored if not given."""
    memory: Annotated[float, arg(metavar="GIB")] = 4.0
    """GiB that reading may take beyond the model itself."""
    seed: int = 0
    """Seed of the needles."""
    out: Path | None = None
    """Folder for the extension and all that is found; MODEL-extended if not given."""
    figure: File = None
    """Draw the diagnosis to this .svg, .png or .pdf."""
    json: JsonTarget = None

    def answer(self) -> Answer:
        if self.figure is not None:
            check_format(self.figure)
        for name in ("texts", "fit_texts", "needles"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, not {getattr(self, name)}")
        ways = check_ways(self.ways)
        folder = self.out
        if folder is None and self.only is None:
            folder = Path(f"{Path(self.source).name.replace(':', '-')}-extended")
        settings = self._settings()
        with telling() as tell:
            memory = int(self.memory * GIBIBYTE)
            opened = partial(open_language, self.source, dtype=self.dtype)
            work = Extending(opened, settings, memory, folder, tell)
            if folder is None:
                return self._diagnosed(work)
            with only_one(folder, "extending a model"):
                answer = self._diagnosed(work)
                return answer if self.only else self._extended(work, ways, answer)

    def _settings(self) -> Settings:
        config = language_config(find(self.source))
        trained = longest_input(config)
        if trained is None:
            raise ValueError(f"{self.source} has no longest input that could be extended")
        to = one_length(_thousands(self.to), trained)
        if self.lengths is None:
            step = (to - trained) / 2
            lengths = [trained // 2, trained, round(trained + step), to]
        else:
            lengths = list(token_lengths(_thousands(self.lengths), trained).values())
            if lengths[-1] > to:
                raise ValueError(
                    f"lengths end at --to, which is {to:,} tokens, not {lengths[-1]:,}"
                )
        source = self.text or EMBEDDED
        counts = (self.texts, self.fit_texts, self.needles, self.seed)
        return Settings(to, sorted({*lengths, to}), source, *counts)

    def _diagnosed(self, work: Extending) -> Answer:
        found = work.diagnosis
        if self.figure is not None:
            from bayesattn.figures.extend import draw_diagnosis

            save_picture(draw_diagnosis(found, work.opened.name), self.figure)
        source = "Python's documentation, for want of --text" if self.text is None else self.text
        lines = diagnosis_lines(found, work.opened.name, source)
        heads = [asdict(head) for head in found.heads()]
        data = {"model": work.opened.name, "trained": work.trained, "heads": heads}
        return Answer({**data, **asdict(work.settings)}, lines)

    def _extended(self, work: Extending, ways: Sequence[str], diagnosed: Answer) -> Answer:
        measured = work.measure(ways)
        more: dict[str, Any] = {"heads": diagnosed.data["heads"]}
        report = work.finish(measured, more)
        shown = [*diagnosed.shown, *measured_lines(measured), report["why"]]
        lengths = ",".join(map(str, work.settings.lengths))
        asked = dict.fromkeys((AS_IS, report["recommended"] or AS_IS))
        for way in asked if self.passkeys or self.ruler else ():
            opened = work.extended(way)
            kept = work.folder and work.folder / "work" / f"asked-{way}"
            settings: dict[str, Any] = {"memory": work.memory, "seed": self.seed}
            if self.passkeys:
                found = passkey(
                    opened, lengths, depths=self.passkeys, samples=1, keep=kept, **settings
                )
                cells = ", ".join(
                    f"{c.correct}/{c.total} at {c.length:,}" for c in found.by_length()
                )
                shown.append(f"Passkeys, {way}: {cells}")
                report.setdefault("passkeys", {})[way] = found.to_json()
            if self.ruler:
                kinds = [kind.strip() for kind in self.ruler.split(",")]
                read = ruler(opened, lengths, kinds=kinds, samples=ASKED, keep=kept, **settings)
                scores = ", ".join(
                    f"{score:.2f} at {at}" for at, (score, _) in read.means().items()
                )
                shown.append(f"RULER ({self.ruler}), {way}: {scores}")
                report.setdefault("ruler", {})[way] = read.to_json()
        if report["recommended"]:
            shown.append(f'To use it: load_extension(model, "{work.folder}").')
        return Answer(report, shown)


def _thousands(text: str) -> str:
    """16k as 16384."""
    words = [word.strip() for word in text.split(",")]
    parts = [w[:-1] if w[-1:] in ("k", "K") and w[:-1].isdigit() else None for w in words]
    return ",".join(
        w if n is None else str(1024 * int(n)) for w, n in zip(words, parts, strict=True)
    )


def diagnosis_lines(found: Diagnosis, name: str, source: str) -> list[Any]:
    """What becomes of the heads, and the worst of them."""
    heads = found.heads()
    counts = Counter(head.kind for head in heads)
    title = (
        f"{name}, trained at {found.trained:,} tokens: entropy of {len(heads)} heads up to "
        f"{int(found.rows[-1]) + 1:,} keys, beside the line in ln n that each follows inside "
        f"(text: {source})"
    )
    kinds = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
    worst = sorted(heads, key=lambda head: -abs(head.excess))[:WORST]
    rows = [
        {
            "layer": str(head.layer),
            "head": str(head.head),
            "": head.kind,
            "nats off": f"{head.excess:+.2f} ± {head.error:.2f}",
            "entropy / ln n inside": f"{head.inside:.2f}",
            "beyond": f"{head.beyond:.2f}",
        }
        for head in worst
    ]
    return [title, f"Heads: {kinds}. Farthest off:", rows]


def measured_lines(measured: Sequence[Measured]) -> list[Any]:
    """A row for each way: needles found and perplexity by length, bits lost inside."""
    first = measured[0]
    found: list[dict[str, str]] = []
    losses: list[dict[str, str]] = []
    for m in measured:
        rows = m.to_json()["lengths"]
        cells = {f"{row['length']:,}": _found(row) for row in rows}
        lost = "-" if m.way == AS_IS else f"{m.lost:.4f}"
        found.append({"way": m.way, **cells, "bits lost inside": lost})
        parts = {f"{row['from']:,}-{row['length']:,}": f"{row['perplexity']:.2f}" for row in rows}
        losses.append({"way": m.way, **parts})
    texts = len(first.readings)
    return [
        f"Needles found of those in the first … tokens of {texts} texts, with 95% intervals; at "
        f"most {LOST} bits a token may be lost inside {first.trained:,} tokens:",
        found,
        "Perplexity of the tokens from … to …:",
        losses,
    ]


def _found(row: dict[str, Any]) -> str:
    return f"{row['found']}/{row['asked']} ({row['low']:.2f}…{row['high']:.2f})"
