"""`bayesattn tunnel fidelity` and `bayesattn tunnel show`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from bayesattn.commands.options import (
    Answer,
    Asking,
    JsonTarget,
    OutFile,
    Rows,
    RunFolder,
    Step,
)
from bayesattn.drawing import Picture, check_format, save_picture
from bayesattn.evals.fidelity import EVAL_SEED, Fidelity, measure_stretched
from bayesattn.evals.lengths import stretch
from bayesattn.evals.prediction import METRICS
from bayesattn.evals.relabelling import Relabelling, measure_relabelling
from bayesattn.models.architectures import Predictor
from bayesattn.models.open import open_tunnel, tunnel_run
from bayesattn.tunnels import HMM, Tunnel

if TYPE_CHECKING:
    from bayesattn.probes.beliefs import BeliefGeometry

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
class TunnelShow(Asking):
    """Draw what a run believes, step by step, beside the exact posterior.

    With --beliefs, of tunnels with a hidden state (hmm, sticky, mess3, rrxor): exact beliefs about
    it, beside what the residual stream tells of them, with nulls.
    """

    folder: RunFolder
    beliefs: bool = False
    """Draw beliefs about the hidden state."""
    out: OutFile = None
    """Image to write: .svg, .png or .pdf; fidelity.svg or beliefs.svg if not given."""
    length: Length = "1x"
    sequences: int = 2000
    """Held-out sequences behind curves and numbers."""
    examples: int = 3
    """Sequences whose beliefs are drawn in full."""
    seed: int = 0
    """Seed of these sequences."""
    step: Step = None
    json: JsonTarget = None

    def answer(self) -> Answer:
        out = self.out or Path("beliefs.svg" if self.beliefs else "fidelity.svg")
        check_format(out)
        if not 1 <= self.examples <= 6:
            raise ValueError(f"--examples must lie in 1..6, not {self.examples}.")
        data, shown, picture = self._geometry() if self.beliefs else self._fidelity()
        save_picture(picture, out)
        return Answer({**data, "image": str(out)}, [*shown, str(out)])

    def _fidelity(self) -> tuple[dict[str, Any], list[str | Rows], Picture]:
        from bayesattn.figures.tunnel import beliefs, draw

        model, trained, about = _load(self.folder, self.step)
        longer = stretch(trained, self.length)
        fidelity = measure_stretched(model, trained, longer, sequences=self.sequences)
        shown = beliefs(model, longer, self.examples, EVAL_SEED + 1 + self.seed)
        picture = draw(fidelity, shown, trained.horizon, _title(trained, about))
        return {"run": about, **fidelity.to_json()}, [], picture

    def _geometry(self) -> tuple[dict[str, Any], list[str | Rows], Picture]:
        from bayesattn.figures.beliefs import draw_beliefs
        from bayesattn.probes.beliefs import measure_beliefs
        from bayesattn.probes.examine_tunnel import CHECKED, TunnelSubject
        from bayesattn.probes.measured import held_out
        from bayesattn.probes.selfcheck import check_capture

        if self.length != "1x":
            raise ValueError("--beliefs looks at sequences as in training: leave --length out.")
        model, tunnel, about = _load(self.folder, self.step)
        initial = TunnelSubject.load(tunnel_run(self.folder), self.step).initial
        batch = held_out(tunnel, self.sequences)
        check_capture(model, batch.inputs[:CHECKED]).require()
        found = measure_beliefs(model, tunnel, batch, initial)
        title = _title(tunnel, about)
        data = {"run": about, **found.to_json()}
        return data, [title, _belief_rows(found)], draw_beliefs(found, title)


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


def _belief_rows(found: "BeliefGeometry") -> list[dict[str, str]]:
    """A line per layer, and one for each null that is the same for all layers."""
    table: list[dict[str, str]] = []
    for one in found.readouts:
        interval, nulls = one.r_squared.interval, one.r_squared.nulls
        table.append(
            {
                "beliefs read from": one.states,
                "R²": _number(one.r_squared.value),
                "95%": f"{_number(interval.low)}…{_number(interval.high)}" if interval else "",
                **{name: _number(nulls[name]) for name in ("other words", "untrained")},
                "squared error": _number(one.error.value),
            }
        )
    r_squared, error = found.whole.r_squared.nulls, found.whole.error.nulls
    for name in r_squared:
        if name not in table[0]:
            row = {"R²": _number(r_squared[name]), "squared error": _number(error[name])}
            table.append(dict.fromkeys(table[0], "") | {"beliefs read from": name} | row)
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
