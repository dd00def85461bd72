"""How far a training is, for people."""

import time
from typing import Any, Self

from bayesattn.console import make_bar

SHOWN = ("loss", "mae", "heldout", "needles", "lr")


class Bar:
    """Step, loss, quality, learning rate, speed and time left, written when there is news."""

    def __init__(self, steps: int, shown: bool, tokens: int | None = None) -> None:
        """`tokens` are those of one step, where speed is told."""
        self._progress = make_bar(shown)
        self._steps, self._tokens = steps, tokens
        self._task = self._progress.add_task("training", total=steps)
        self._news: dict[str, float] = {}
        self._last: tuple[int, float] | None = None  # step and time of the last news

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, step: int, news: dict[str, Any]) -> None:
        """Show what is new."""
        self._news |= {name: news[name] for name in SHOWN if name in news}
        numbers = "  ".join(f"{name} {value:.3g}" for name, value in self._news.items())
        text = f"step {step}/{self._steps}  {numbers}{self._speed(step)}"
        self._progress.update(self._task, completed=step, description=text)

    def _speed(self, step: int) -> str:
        """Tokens per second since the last news."""
        last, self._last = self._last, (step, time.perf_counter())
        if self._tokens is None or last is None or step == last[0]:
            return ""
        return f"  {(step - last[0]) * self._tokens / (self._last[1] - last[1]):,.0f} tokens/s"
