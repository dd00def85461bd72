import platform
import subprocess

import pytest

from bayesattn import system as module
from bayesattn.system import commit, environment


def git(folder, *arguments):
    name = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", "-C", folder, *name, *arguments], check=True, capture_output=True)


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A package in a git repository, in place of ours."""
    (tmp_path / "package").mkdir()
    init = tmp_path / "package" / "__init__.py"
    init.write_text("")
    git(tmp_path, "init", "-q")
    monkeypatch.setattr(module.bayesattn, "__file__", str(init))
    return tmp_path


def test_the_environment_names_versions_but_neither_host_nor_folder():
    found = environment()
    assert found["python"] == platform.python_version()
    assert found["torch"].startswith("2.")
    assert found["cpus"] >= 1
    text = str(found)
    assert platform.node() not in text
    assert "/" not in text


def test_the_commit_tells_whether_files_were_changed(source):
    git(source, "add", ".")
    git(source, "commit", "-qm", "x")
    git(source, "tag", "v9")
    clean = commit()
    assert len(clean) == 12 and int(clean, 16) >= 0
    (source / "package" / "__init__.py").write_text("x = 1")
    assert commit() == f"{clean}-dirty"


def test_the_commit_of_a_repository_that_merely_contains_us_is_not_ours(source):
    (source / "other.py").write_text("")
    git(source, "add", "other.py")
    git(source, "commit", "-qm", "x")
    assert commit() is None


def test_no_git_gives_no_commit(source, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert commit() is None
