"""Style and files of figures: SVG that is readable on light and on dark pages."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colour of text and axes, which becomes the text colour of the page in the file.
INK = "#0a1b2c"
# Okabe and Ito's palette: for colour-blind readers, visible on white and on black.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
GREY = "#8a8f98"
"""Grey, readable on white and on black: for baselines and borders."""
DASHED = {"color": INK, "linestyle": "--", "linewidth": 1}
"""Style of the line at the training length."""
FORMATS = (".svg", ".png", ".pdf")
STYLE = """<style>
svg { color: #1b1f24 } @media (prefers-color-scheme: dark) { svg { color: #e6e9ec } }
</style>"""


class Picture(NamedTuple):
    """A figure, its caption and its description for readers who cannot see it."""

    name: str
    figure: "Figure"
    caption: str
    alt: str


@contextmanager
def house_style() -> Iterator[None]:
    """Context in which figures have our colours and are the same every time."""
    import matplotlib
    from cycler import cycler

    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    settings: dict[Any, Any] = {
        **dict.fromkeys(inked, INK),
        "axes.prop_cycle": cycler(color=COLOURS),
        "axes.facecolor": "none",
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlesize": "medium",
        "figure.facecolor": "none",
        "font.size": 10,
        "legend.fontsize": "small",
        "legend.frameon": False,
        "savefig.facecolor": "none",
        "svg.hashsalt": "bayesattn",
    }
    with matplotlib.rc_context(settings):
        yield


@contextmanager
def new_figure(width: float, height: float, title: str | None = None) -> "Iterator[Figure]":
    """An empty figure of this size in inches, in house style."""
    from matplotlib.figure import Figure

    with house_style():
        figure = Figure(figsize=(width, height), layout="constrained")
        if title is not None:
            figure.suptitle(title, fontsize="medium")
        yield figure


def add_colour_bar(image: Any, panels: Any, **place: Any) -> Any:
    """Add a colour bar, without a frame, for an image in these panels."""
    bar = image.axes.figure.colorbar(image, ax=panels, **place)
    bar.outline.set_visible(False)
    return bar


def panels(
    width: float, height: float, rows: int = 1, columns: int = 1, **options: Any
) -> tuple[Any, Any]:
    """A figure of this size in inches and its axes [rows, columns]; options of `Figure.subplots`.

    The types are Any, because matplotlib's own types are incomplete.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def check_format(path: Path) -> None:
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"The image {path} must end in one of {', '.join(FORMATS)}")


def save_picture(picture: Picture, path: Path) -> None:
    """Write a figure by the ending of `path`.

    SVG is for pages: its colours follow the reader's colour scheme. PNG and PDF are for papers, on
    white.
    """
    check_format(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() != ".svg":
        picture.figure.savefig(path, dpi=200, facecolor="white")
        return
    buffer = StringIO()
    with house_style():
        picture.figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    head, _, body = buffer.getvalue().replace(INK, "currentColor").partition("<defs>")
    path.write_text(f"{head}{STYLE}<defs>{body}", encoding="utf-8")
