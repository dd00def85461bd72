from io import StringIO
from pathlib import Path

import pytest

from tests.training.conftest import corpus, language_folder, trained

__all__ = ["corpus", "language_folder", "trained"]


def save_nothing(figure, target, **options):
    if isinstance(target, StringIO):
        target.write("<svg><defs></defs></svg>")
    else:
        Path(target).write_bytes(b"")


@pytest.fixture
def unrendered(monkeypatch):
    """Figures are drawn and saved empty: rendering takes most of a probe's time."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", save_nothing)


@pytest.fixture(autouse=True)
def unswept(monkeypatch):
    """In a process of tests so much is kept that looking for garbage takes longer than a probe."""
    monkeypatch.setattr("bayesattn.probes.examine_language.gc.collect", lambda: 0)
