import pytest

from tests.training.language_toy import toy_run, write_corpus


@pytest.fixture(scope="session")
def language_folder(tmp_path_factory):
    """Where corpora are kept, and a trained run that nobody may change."""
    return tmp_path_factory.mktemp("language")


@pytest.fixture
def corpus(language_folder, monkeypatch):
    """A small corpus, tokenised once."""
    monkeypatch.setenv("BAYESATTN_RUNS", str(language_folder))
    path = language_folder / "text.jsonl"
    return path if path.exists() else write_corpus(path)


@pytest.fixture
def trained(language_folder, corpus):
    """A finished run."""
    return toy_run(language_folder / "run", corpus)
