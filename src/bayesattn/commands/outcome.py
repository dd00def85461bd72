"""How a training ended, for the one who typed the command."""

from pathlib import Path

from bayesattn.console import show_rows, write_json
from bayesattn.runs import Run
from bayesattn.training.machine import make_accelerator


def show_outcome(run: Run, folder: Path, headings: dict[str, str], json_target: str | None) -> None:
    """Print a finished run as a row, or as JSON; of several processes only the first does.

    Args:
        run: finished.
        folder: as it was typed.
        headings: of the metrics.
        json_target: see `write_json`.
    """
    if not make_accelerator().is_main_process:
        return
    result = run.finished
    assert result is not None
    if json_target:
        write_json({"run": str(folder), **result}, json_target)
    if json_target != "-":
        row = {"run": str(folder), "step": str(result["step"])}
        for name, value in result["metrics"].items():
            row[headings[name]] = f"{value:.3g}"
        show_rows([row | {"seconds": f"{result['seconds']:.0f}", "stopped": result["stopped"]}])
