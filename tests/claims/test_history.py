"""Registered before measured: the registration of every recorded seed stood at its commit.

A seed's file says at which commit it was measured, and the hashes of its statements and recipe.
That commit must be in the history, with these in the claim's file: so they were committed first.
"""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bayesattn.claims import Tier, find_study, registry
from bayesattn.ledger.measured import FOLDER, Measured, read, recipe_hash
from tests.claims.history import REGISTERED, problem, why_no_history

ROOT = Path(__file__).parents[2]


def test_every_recorded_seed_was_registered_before_it_was_measured():
    if reason := why_no_history(ROOT):
        pytest.skip(reason)
    seeds = [read(path) for path in sorted((ROOT / "results" / FOLDER).glob("*.json"))]
    problems = {found.name: problem(ROOT, found) for found in seeds}
    assert {name: said for name, said in problems.items() if said} == {}


def run(folder, *words):
    settings = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    done = subprocess.run(
        ["git", "-C", folder, *settings, *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def history(tmp_path):
    """A repository whose second commit registers bam-size, and a third one another limit."""
    file = tmp_path / REGISTERED / "bam-size.toml"
    file.parent.mkdir(parents=True)
    text = (registry.FOLDER / "bam-size.toml").read_text("utf-8")
    run(tmp_path, "init", "-q")
    commits = []
    for content in ("title = 'a'\nsource = 'b'\nmethod = 'c'", text, text.replace("= 0", "= 1")):
        file.write_text(content, "utf-8")
        run(tmp_path, "add", ".")
        run(tmp_path, "commit", "-qm", "one")
        commits.append(run(tmp_path, "rev-parse", "HEAD"))
    return tmp_path, commits


@pytest.fixture
def seed():
    study = find_study("bam-size")
    return Measured(
        claim="bam-size",
        tier=Tier.FULL,
        part=None,
        seed=0,
        recipe=recipe_hash(study.recipes[Tier.FULL]),
        versions={},
        version=study.claim.version,
        registered={own.name: own.hash for own in study.claim.statements},
        commit="",
        seconds=1.0,
        numbers={},
    )


def test_a_seed_counts_at_a_commit_that_has_its_registration_and_at_no_other(history, seed):
    root, commits = history
    said = [problem(root, replace(seed, commit=commit)) for commit in commits]
    assert said[1] is None
    assert "its statements were registered otherwise, or not at all" in said[0]
    assert "its statements were registered otherwise" in said[2]
    other = replace(seed, commit=commits[1], recipe="0123")
    assert problem(root, other) == f"its recipe was another one at {commits[1]}"


def test_a_commit_that_is_not_in_the_history_is_refused(history, seed):
    root, commits = history
    run(root, "checkout", "-q", "-b", "side", commits[0])
    assert "is not in the history" in problem(root, replace(seed, commit=commits[1]))
    assert "is not in the history" in problem(root, replace(seed, commit="0" * 12))


def test_a_copy_without_history_says_why_it_is_skipped(history, tmp_path_factory):
    root, _ = history
    assert why_no_history(root) is None
    copy = tmp_path_factory.mktemp("copy")
    run(root, "clone", "-q", "--depth", "1", f"file://{root}", str(copy / "shallow"))
    assert "shallow" in why_no_history(copy / "shallow")
    assert why_no_history(copy) == "this is no git checkout"
