"""Whether seeds were registered before they were measured, by the history of the repository."""

import subprocess
from functools import cache

from bayesattn.claims.registry import find_study, parse, recipes_of
from bayesattn.ledger.measured import recipe_hash

REGISTERED = "src/bayesattn/claims/registered"


def git(root, *words):
    """What git says, or None if it refuses."""
    done = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def why_no_history(root):
    """Why nothing can be said; None if all of the history is here."""
    try:
        shallow = git(root, "rev-parse", "--is-shallow-repository")
    except OSError:
        return "git is not installed"
    if shallow is None or not (root / ".git").exists():
        return "this is no git checkout"
    return "this clone is shallow: git fetch --unshallow" if shallow == "true" else None


def problem(root, found):
    """What is wrong with a measured seed; None if its registration stood at its commit."""
    if git(root, "merge-base", "--is-ancestor", found.commit, "HEAD") is None:
        return f"its commit {found.commit} is not in the history of HEAD"
    statements, recipe = registered(root, found.commit, found.claim, found.tier)
    if statements != dict(found.registered):
        return f"its statements were registered otherwise, or not at all, at {found.commit}"
    return None if recipe == found.recipe else f"its recipe was another one at {found.commit}"


@cache
def registered(root, commit, claim, tier):
    """Hashes of the statements and of the recipe of a claim as they were at a commit."""

    def file(name):
        return git(root, "show", f"{commit}:{REGISTERED}/{name}.toml")

    text = file(claim)
    if text is None:
        return {}, None
    words = parse(claim, text, file)
    recipes = recipes_of(words, type(find_study(claim)))
    statements = {own.name: own.hash for own in words.statements}
    return statements, recipe_hash(recipes[tier]) if tier in recipes else None
