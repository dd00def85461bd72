from dataclasses import replace
from typing import Any

import pytest

from bayesattn.claims import Claim, Study, UserError, all_studies, find_study, register, registry
from bayesattn.ledger.study import Recipe, Tier
from tests.ledger.toy import CLAIM, Toy

WORDS = """
title = '''Toys
  work.'''
source = "arXiv 0000.00000"
method = "By playing."
mind = "A toy that does not work."
[[statements]]
name = "effect"
kind = "ours"
text = '''The effect
is large.'''
scale = "one toy"
unit = "points"
estimand = "the mean effect"
rule = "above"
limit = 5.0
comparator = "no toy"
looks = [4, 8, 12]
"""


class ToyRecipe(Recipe):
    games: tuple[int, ...]
    rate: float = 0.5


class Game(Toy, Study[ToyRecipe, Any]):
    pass


def write(name, text):
    (registry.FOLDER / f"{name}.toml").write_text(text, encoding="utf-8")


@pytest.fixture
def empty(monkeypatch, tmp_path):
    all_studies()  # a study file registers once per process: not into the dict we take away again
    monkeypatch.setattr(registry, "_studies", {})
    monkeypatch.setattr(registry, "FOLDER", tmp_path)


def test_every_study_file_is_found():
    assert {"bam-laplace", "bam-size", "bam-uniform"} <= {s.claim.id for s in all_studies()}


def test_studies_are_complete():
    for study in all_studies():
        claim = study.claim
        assert claim.id == claim.id.lower()
        assert claim.title.endswith(".")
        assert "arXiv" in claim.source
        assert claim.method
        assert claim.mind or not claim.statements
        assert study.recipes, f"{claim.id} has no tier"


def test_a_registered_study_has_the_words_and_recipes_of_its_file(empty):
    write("game", f"{WORDS}[quick]\nseeds = 2\ngames = [1, 2]\n[paper]\ngames=[]\nrate=1")
    assert register("game")(Game) is Game
    study = find_study("game")
    assert isinstance(study, Game)
    assert study.claim == replace(CLAIM, id="game")
    assert study.recipes == {
        Tier.QUICK: ToyRecipe(seeds=2, games=(1, 2)),
        Tier.PAPER: ToyRecipe(games=(), rate=1),
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"{WORDS}[quick]\nseeds = 2\ngams = []", r"\[quick\] .* no 'gams'; .* 'games'\.$"),
        (f"{WORDS}[full]\nrate = 2", r"\[full\] ToyRecipe needs 'games'\.$"),
        (f"{WORDS}[full]\ngames = 2.5", r"\[full\] games: 2\.5 is no list\.$"),
        (f"{WORDS}[full]\nseeds = 2\ngames = []", r"\[full\] has no seeds: the looks .*\.$"),
        (f"{WORDS}[ful]\nrate = 2", r"no 'ful'; the nearest name is 'full'\.$"),
        (f"{WORDS}limt = 2", r"\[\[statements\]\] effect: .* no 'limt'; .* 'limit'\.$"),
        (WORDS.replace("above", "over"), r"effect: rule: 'over' is none of|one of 'above'"),
        (WORDS.replace("4, 8, 12", "3"), r"\[\[statements\]\] effect: looks must be"),
        (WORDS.replace('arXiv 0000.00000"', 'arXiv"\nversion = 2'), r"version 2 needs one"),
        ("title = 'a'", r"needs 'source'\.$"),
        ("statement", r"game\.toml: "),
    ],
)
def test_a_file_with_a_mistake_is_refused_with_one_sentence(empty, text, sentence):
    write("game", text)
    with pytest.raises(UserError, match=sentence):
        register("game")(Game)


def test_a_claim_like_another_has_its_statements_and_tiers_of_its_own(empty):
    changed = f"{WORDS}[quick]\nseeds = 2\ngames = [1]\n[full]\ngames = [2]"
    write(
        "game",
        changed.replace("title =", "version = 2\ntitle =", 1).replace(
            "[[statements]]", "[[changes]]\nversion = 2\nreason = 'a'\n[[statements]]"
        ),
    )
    write("more", "like = 'game'\nscale = 'two toys'\n[full]\nrate = 0.1")
    register("more")(Game)
    study = find_study("more")
    assert study.recipes == {Tier.FULL: ToyRecipe(games=(2,), rate=0.1)}
    assert study.claim == replace(
        CLAIM, id="more", statements=(replace(CLAIM.statements[0], scale="two toys"),)
    )


def test_a_claim_needs_its_file(empty):
    with pytest.raises(UserError, match=r"The claim game needs the file .*game\.toml"):
        register("game")(Game)


def test_registering_twice_is_harmless_but_two_studies_with_one_id_are_not(empty):
    write("game", WORDS)
    register("game")(Game)
    register("game")(Game)
    with pytest.raises(ValueError, match="two studies claim the id 'game'"):
        register("game")(type("Other", (Game,), {}))


def test_every_file_belongs_to_a_claim():
    files = {path.stem for path in registry.FOLDER.glob("*.toml")}
    assert files == {study.claim.id for study in all_studies()}


def test_an_unknown_study_is_answered_with_the_nearest():
    with pytest.raises(UserError, match=r"no claim 'bam-unifrom': did you mean 'bam-uniform'\?"):
        find_study("bam-unifrom")


def test_a_study_unlike_any_other_is_answered_with_the_list():
    with pytest.raises(UserError, match=r"choose one of bam-.*bam-laplace.*, tunnel-primitives\."):
        find_study("zzz")


def test_studies_come_in_order(empty):
    names = ["zebra", "apple", "mango"]
    for name in names:
        write(name, WORDS)
        register(name)(type(name, (Game,), {}))
    found = [study.claim.id for study in all_studies()]
    assert [name for name in found if name in names] == sorted(names)
    assert all(isinstance(study.claim, Claim) for study in all_studies())
