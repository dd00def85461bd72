"""`bayesattn tunnel fidelity` and `bayesattn tunnel show`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

from bayesattn.commands.options import Answer, Asking, JsonTarget, RunFolder, Step
from bayesattn.console import mistakes
from bayesattn.drawing import check_format, save_picture
from bayesattn.evals.fidelity import EVAL_SEED, Fidelity, measure_stretched
from bayesattn.evals.lengths import stretch
from bayesattn.evals.prediction import METRICS
from bayesattn.evals.relabelling import Relabelling, measure_relabelling
from bayesattn.models.architectures import Predictor
from bayesattn.models.open import open_tunnel, tunnel_run
from bayesattn.tunnels import HMM, Tunnel

Length = Annotated[
    str,
    arg(
        metavar="10x|STEPS",
        help="How long to make the sequences: a multiple of the training length, or a number of "
        "steps.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class TunnelFidelity(Asking):
    """Measure a run against the exact posterior, in bits, beside predictors that infer nothing."""

    folder: RunFolder
    length: Length = "1x"
    sequences: int = 2000
    """Held-out sequences to measure on."""
    step: Step = None
    json: JsonTarget = None

    def answer(self) -> Answer:
        model, trained, about = _load(self.folder, self.step)
        longer = stretch(trained, self.length)
        fidelity = measure_stretched(model, trained, longer, sequences=self.sequences)
        data: dict[str, Any] = {"run": about, **fidelity.to_json()}
        shown = [_title(trained, about), fidelity_rows(fidelity)]
        if isinstance(trained, HMM):
            renamed = measure_relabelling(model, trained)
            data["relabelling"] = renamed.to_json()
            shown += [f"\n{_renaming(renamed)}", _layer_rows(renamed)]
        return Answer(data, shown)


@dataclass(frozen=True, kw_only=True)
class TunnelShow:
    """Draw what a run believes, step by step, beside the exact posterior."""

    folder: RunFolder
    out: Annotated[Path, arg(aliases=["-o"], metavar="FILE")] = Path("fidelity.svg")
    """Image to write: .svg, .png or .pdf."""
    length: Length = "1x"
    sequences: int = 2000
    """Held-out sequences behind the curves."""
    examples: int = 3
    """Sequences whose beliefs are drawn in full."""
    seed: int = 0
    """Seed of these sequences."""
    step: Step = None

    def run(self) -> int:
        from bayesattn.figures.tunnel import beliefs, draw

        with mistakes():
            check_format(self.out)
            if not 1 <= self.examples <= 6:
                raise ValueError(f"--examples must lie in 1..6, not {self.examples}.")
            model, trained, about = _load(self.folder, self.step)
            longer = stretch(trained, self.length)
            fidelity = measure_stretched(model, trained, longer, sequences=self.sequences)
            shown = beliefs(model, longer, self.examples, EVAL_SEED + 1 + self.seed)
            title = _title(trained, about)
            save_picture(draw(fidelity, shown, trained.horizon, title), self.out)
        print(self.out)
        return 0


def _load(folder: str, step: int | None) -> tuple[Predictor, Tunnel, dict[str, Any]]:
    run = tunnel_run(folder)
    model, tunnel = open_tunnel(run, step)
    about = {
        "folder": folder,
        "step": run.checkpoint(step).step,
        "architecture": run.config["architecture"],
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
    }
    return model, tunnel, about


def _title(tunnel: Tunnel, about: dict[str, Any]) -> str:
    fields = {name: value for name, value in tunnel.to_dict().items() if name != "name"}
    return (
        f"{tunnel.name} · {about['architecture']['name']} of {about['parameters']:,} parameters "
        f"after {about['step']:,} training steps\n"
        f"{', '.join(f'{name} {value}' for name, value in fields.items())}"
    )


def fidelity_rows(fidelity: Fidelity) -> list[dict[str, str]]:
    """The table for people: a line per predictor, and the interval under the model's."""
    table: list[dict[str, str]] = []
    rows = fidelity.rows()
    metrics = [name for name in METRICS if any(row[name] is not None for row in rows)]
    for row in rows:
        where = {"part": row["part"], "steps": row["steps"]}
        cells = {name: _number(row[name]) for name in metrics}
        table.append({**where, "predictor": row["predictor"], **cells})
        if row["predictor"] == "model":
            ends = {
                name: f"{_number(row[f'{name}_low'])}…{_number(row[f'{name}_high'])}"
                for name in metrics
                if row[name] is not None
            }
            nothing = dict.fromkeys(metrics, "")
            table.append({"part": "", "steps": "", "predictor": "  95% from…to", **nothing, **ends})
    return table


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _renaming(renamed: Relabelling) -> str:
    return (
        f"Hidden states renamed: mae_tok {renamed.before['mae_tok']:.4f} before, "
        f"{renamed.after['mae_tok']:.4f} after; the prediction moves along up to a total variation "
        f"of {renamed.tv:.4f} (another sequence's: {renamed.tv_null:.4f})."
    )


def _layer_rows(renamed: Relabelling) -> list[dict[str, str]]:
    return [
        {
            "layer": str(change.layer),
            "distance of hidden states": _number(change.distance),
            "to another sequence's": _number(change.distance_null),
            "CKA": _number(change.cka),
            "with another's": _number(change.cka_null),
        }
        for change in renamed.layers
    ]
