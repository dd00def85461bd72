"""A bar on standard error, for people; in pipes and files nothing is shown."""

from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


class Bar:
    """Step, loss, entropy error, learning rate and time left, written when there is news."""

    def __init__(self, steps: int, shown: bool) -> None:
        console = Console(stderr=True, markup=False, highlight=False)
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        self._progress = Progress(
            *columns,
            console=console,
            transient=True,
            refresh_per_second=2,
            disable=not (shown and console.is_terminal),
        )
        self._steps = steps
        self._task = self._progress.add_task("training", total=steps)
        self._news: dict[str, float] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, step: int, news: dict[str, Any]) -> None:
        """Show what is new."""
        self._news |= {name: news[name] for name in ("loss", "mae", "lr") if name in news}
        numbers = "  ".join(f"{name} {value:.3g}" for name, value in self._news.items())
        self._progress.update(
            self._task, completed=step, description=f"step {step}/{self._steps}  {numbers}"
        )
