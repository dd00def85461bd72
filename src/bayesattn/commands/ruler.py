"""`bayesattn lm ruler`: thirteen kinds of long prompts."""

from dataclasses import dataclass
from typing import Annotated, Any

from rich.console import Console
from tyro.conf import arg

from bayesattn.commands.lm_measure import Kept, Sofar
from bayesattn.commands.options import Answer
from bayesattn.corpora.ruler import KINDS
from bayesattn.drawing import save_picture
from bayesattn.evals.ruler import Ruler, ruler


@dataclass(frozen=True, kw_only=True)
class LanguageRuler(Kept):
    """Ask a language model RULER's thirteen kinds of questions about long prompts, offline.

    Answers are generated, greedily. With --json FILE a measurement that was stopped goes on: type
    the same command again.
    """

    lengths: Annotated[str, arg(metavar="1x,2x,...|TOKENS,...")] = "1x,2x,4x"
    """Lengths of the prompts: multiples of the training length, or numbers of tokens."""
    kinds: Annotated[str, arg(metavar="KIND,...")] = "all"
    """Kinds of prompts, such as niah_single_1,vt; those too long for a length are left out."""
    samples: int = 10
    """Prompts of each kind and length; what is asked for stands at as many depths."""
    seed: int = 0
    """Seed of all that is random."""
    corpus: str = "pydoc"
    """Text that needles are hidden in: pydoc, a file or folder, or hf:NAME."""

    def answer(self) -> Answer:
        names = [] if self.kinds == "all" else self.kinds.split(",")
        with Console(stderr=True).status("loading"):
            model = self.open()
        with Sofar(self.kept, _line, ruler_table) as sofar:
            found = ruler(
                model,
                self.lengths,
                kinds=[name.strip() for name in names],
                samples=self.samples,
                seed=self.seed,
                corpus=self.corpus,
                keep=self.kept,
                report=sofar.update,
                **self.limits,
            )
        if self.figure is not None:
            from bayesattn.figures.language import draw_ruler

            save_picture(draw_ruler(found), self.figure)
        return Answer(found.to_json(), ruler_table(found))


def _line(found: Ruler) -> str:
    if not found.cells:
        return ""
    last = found.cells[-1]
    return f"{last.requested} {last.kind}: {last.score:.2f} of {last.total}"


def ruler_table(found: Ruler) -> list[Any]:
    """A title, a row for each kind with a column for each length, and what was left out."""
    lengths = list(found.means())
    title = (
        f"{found.model}, trained at {found.trained} tokens: share of answers in greedy "
        f"continuations, with 95% intervals; running text: {found.corpus}"
    )
    rows = [
        {
            "kind": kind,
            **{name: _cell(found, kind, name) for name in lengths},
            "": KINDS[kind].about,
        }
        for kind in KINDS
        if any(cell.kind == kind for cell in found.cells)
    ]
    means = {name: f"{score:.2f}, {kinds} kinds" for name, (score, kinds) in found.means().items()}
    rows.append({"kind": "mean", **means, "": ""})
    left = [
        f"{kind} needs at least {least:,} tokens with this tokenizer, and is left out below."
        for kind, least in found.left_out.items()
    ]
    return [title, rows, *left]


def _cell(found: Ruler, kind: str, requested: str) -> str:
    cell = found.at(kind, requested)
    if cell is None:
        return "-"
    return f"{cell.score:.2f} ({cell.interval.low:.2f}…{cell.interval.high:.2f}, {cell.total})"
