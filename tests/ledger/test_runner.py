"""Claims on their way through their looks, into the ledger."""

import math

import numpy as np
import pytest

from bayesattn.claims import Kind, Recipe, Tier, UserError, Value
from bayesattn.ledger.judging import look_after
from bayesattn.ledger.ledger import NAME, Ledger
from bayesattn.ledger.measured import read
from bayesattn.ledger.runner import parse_seeds, parse_tier, prepare_folder, run_claims
from bayesattn.verdicts import Outcome
from tests.ledger.toy import crash, run_study, statement, toy

NO_FIGURES = {"draw": lambda self, tier, numbers: []}


def counting(effects, **changes):
    """A toy that notes which seeds it measured; it has these effects, then the last of them."""
    seen = []

    def measure(self, tier, seed):
        seen.append(seed)
        return {"effect": effects[min(seed, len(effects) - 1)] + 0.01 * (-1) ** seed}

    return toy(measure=measure, **NO_FIGURES, **changes), seen


def run(study, folder, tier=Tier.FULL, seeds=None, **settings):
    return [*run_claims([study], tier, folder, seeds, **settings)]


def test_a_study_leaves_rows_numbers_figures_and_the_command_to_repeat_it(tmp_path):
    record = run_study(toy(), Tier.FULL, tmp_path)
    row = record.rows["effect"]
    assert (row.outcome, row.verdict) == (Outcome.YES, "supported")
    assert row.comparator == 0.0 and row.registered == statement().hash
    assert record.seeds[: len(row.seeds)] == row.seeds
    assert record.command == "bayesattn claims run toy --tier full"
    assert record.recipe == {"seeds": 2}
    (figure,) = record.figures
    assert figure.file == "figures/toy-effects.svg"
    assert (tmp_path / figure.file).read_text().lstrip().startswith("<?xml")
    assert read(tmp_path / "measured" / "toy-full-2.json").numbers["effect"] == 12.0
    assert "numbers" not in (tmp_path / NAME).read_text()


def test_the_first_look_that_decides_ends_it(tmp_path):
    study, seen = counting([10.0])
    (record,) = run(study, tmp_path)
    row = record.rows["effect"]
    assert seen == [0, 1, 2, 3] and row.seeds == (0, 1, 2, 3)
    assert row.outcome is Outcome.YES and row.verdict == "supported"
    assert row.interval.low > 5 and row.level == pytest.approx(0.997) and row.p < 0.05
    assert look_after(record) is None


@pytest.mark.parametrize(("late", "outcome"), [(10.0, "yes"), (-20.0, "no")])
def test_seeds_are_added_up_to_the_next_look_while_undecided(tmp_path, late, outcome):
    study, seen = counting([5.0, 5.1, 4.9, 5.0, late])
    records = run(study, tmp_path)
    assert [len(record.seeds) for record in records][:2] == [4, 8]
    assert seen == [*range(len(records[-1].seeds))]
    assert records[0].rows["effect"].outcome is Outcome.UNDECIDED
    assert records[-1].rows["effect"].outcome == outcome


def test_after_the_last_look_it_stays_undecided_and_says_what_it_would_take(tmp_path):
    study, seen = counting([5.0, 5.6, 4.6, 5.5, 4.4, 5.7, 4.8, 5.2, 4.7, 5.5, 4.9, 5.4])
    records = run(study, tmp_path)
    row = records[-1].rows["effect"]
    assert [len(record.seeds) for record in records] == [4, 8, 12] and len(seen) == 12
    assert row.verdict == "undecided" and row.needed > 12
    assert records[0].rows["effect"].needed is None
    assert look_after(records[-1]) is None


def test_a_decided_statement_keeps_its_look_while_another_goes_on(tmp_path):
    def values(self, tier, one):
        return {"effect": Value(one["effect"]), "other": Value(5 + (one["effect"] - 10) * 99)}

    other = statement(name="other", kind=Kind.OURS)
    study, _ = counting([10.0], statements=(statement(), other), values=values)
    record = run(study, tmp_path)[-1]
    assert len(record.seeds) == 12 and record.rows["other"].verdict == "undecided"
    assert record.rows["effect"].seeds == (0, 1, 2, 3)


def test_seeds_that_have_not_learnt_are_left_out_and_too_many_decide_nothing(tmp_path):
    def values(self, tier, one, least=9.0):
        return {"effect": Value(one["effect"], learnt=one["effect"] > least)}

    study, _ = counting([10.0, 1.0, 10.0], values=values)
    (record,) = run(study, tmp_path / "one")
    row = record.rows["effect"]
    assert row.verdict == "supported" and (row.seeds, row.left_out) == ((0, 2, 3), (1,))
    study, seen = counting([10.0, 1.0, 1.0], values=values)
    row = run(study, tmp_path / "most")[-1].rows["effect"]
    assert len(seen) == 12 and row.outcome is Outcome.UNDECIDED
    assert row.value is None and "premise fails" in row.reason
    study, seen = counting([1.0], values=values)  # not one has learnt: no more are tried
    row = run(study, tmp_path / "none")[-1].rows["effect"]
    assert len(seen) == 4 and row.left_out == (0, 1, 2, 3) and "premise fails" in row.reason


def test_what_was_measured_is_not_measured_again_and_is_judged_the_same(tmp_path):
    study, seen = counting([5.0, 5.1, 4.9, 5.0, 10.0])
    first = run(study, tmp_path)[-1]
    count = len(seen)
    again = run(study, tmp_path)[-1]
    assert len(seen) == count and again.rows == first.rows and again.seeds == first.seeds
    (tmp_path / "measured" / "toy-full-1.json").unlink()
    assert run(study, tmp_path)[-1].rows == first.rows
    assert seen[count:] == [1]
    run(study, tmp_path, again=True)
    assert len(seen) == 2 * count + 1


def test_more_seeds_than_a_look_do_not_change_what_it_decided(tmp_path):
    study, _ = counting([10.0, 10.0, 10.0, 10.0, -90.0])
    (first,) = run(study, tmp_path)
    (more,) = run(study, tmp_path, seeds=8)
    assert more.seeds == tuple(range(8)) and more.rows == first.rows


def test_seeds_of_another_machine_count_once_those_before_them_are_there(tmp_path):
    study, seen = counting([5.0, 5.1, 4.9, 5.0, 10.0])
    (alone,) = run(study, tmp_path, seeds=range(4, 8))
    assert seen == [4, 5, 6, 7]
    assert alone.seeds == () and "0 of the 4 seeds" in alone.rows["effect"].reason
    assert len(run(study, tmp_path)[0].seeds) == 8
    assert seen[:8] == [4, 5, 6, 7, 0, 1, 2, 3]


def test_fresh_seeds_begin_where_the_registration_says(tmp_path):
    study, seen = counting([10.0])
    type(study).claim = type(study.claim)(**{**vars(study.claim), "first_seed": 100})
    (record,) = run(study, tmp_path)
    assert seen == [*record.seeds] == [100, 101, 102, 103]
    assert record.rows["effect"].seeds == (100, 101, 102, 103)


def test_the_quick_tier_has_its_own_seeds_and_no_verdict(tmp_path):
    (record,) = run(toy(), tmp_path, Tier.QUICK)
    row = record.rows["effect"]
    assert record.seeds == row.seeds == (0, 1, 2) and row.value == pytest.approx(11)
    assert row.outcome is row.verdict is row.interval is row.p is None
    (record,) = run(toy(), tmp_path, Tier.QUICK, seeds=5)
    assert len(record.seeds) == 5 and record.rows["effect"].outcome is None
    (record,) = run(toy(), tmp_path, Tier.QUICK, seeds=1)
    assert record.seeds == (0,)


def test_an_identity_takes_its_seeds_and_no_interval(tmp_path):
    def values(self, tier, one):
        return {"effect": Value(one["effect"] * 1e-17, comparator=1.0)}

    own = statement(kind=Kind.IDENTITY, rule="below", limit=1e-9, looks=(3,))
    study, seen = counting([10.0], statements=(own,), values=values)
    (few,) = run(study, tmp_path, seeds=2)
    assert few.rows["effect"].verdict == "undecided"
    (record,) = run(study, tmp_path)
    assert len(seen) == 3
    row = record.rows["effect"]
    assert row.verdict == "holds" and row.interval is None and row.p is None


@pytest.mark.parametrize("method", ["measure", "values", "draw"])
def test_a_crash_anywhere_becomes_part_of_the_record(tmp_path, method):
    record = run_study(toy(**{method: crash}), Tier.QUICK, tmp_path)
    assert record.rows == {}
    assert record.failure.sentence == "RuntimeError: the toy broke"
    assert 'raise RuntimeError("the toy\\nbroke")' in record.failure.traceback


def test_statements_that_nobody_speaks_about_are_a_crash_that_names_them(tmp_path):
    study = toy(values=lambda self, tier, one: {"efect": Value(1.0)})
    (record,) = run(study, tmp_path, Tier.QUICK)
    assert "what `values` gives differ in efect, effect" in record.failure.sentence


def test_a_traceback_names_no_folder_of_the_machine(tmp_path):
    def chained(self, tier, seed):
        try:
            np.asarray([1.0]).reshape(7)
        except ValueError as error:
            raise RuntimeError("later") from error

    trace = run_study(toy(measure=chained), Tier.QUICK, tmp_path).failure.traceback
    assert 'File "bayesattn/ledger/jobs.py"' in trace
    assert 'File "test_runner.py"' in trace
    assert 'File "/' not in trace


def test_the_other_studies_run_after_a_crash_and_all_are_in_the_ledger(tmp_path):
    studies = [toy("first"), toy("second", measure=crash), toy("third")]
    records = list(run_claims(studies, Tier.QUICK, tmp_path))
    assert [bool(record.failure) for record in records] == [False, True, False]
    ledger = Ledger.load(tmp_path / NAME)
    assert ledger.records == {record.claim.id: record for record in records}


def test_a_finished_study_is_in_the_ledger_before_the_next_begins(tmp_path):
    def interrupted(self, tier, seed):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(run_claims([toy("first"), toy("second", measure=interrupted)], Tier.QUICK, tmp_path))
    assert list(Ledger.load(tmp_path / NAME).records) == ["first"]


@pytest.mark.parametrize("bad", [math.nan, math.inf, [1.0, math.nan]])
def test_numbers_that_are_not_finite_are_an_error_that_names_them(tmp_path, bad):
    study = toy(measure=lambda self, tier, seed: {"effect": 1.0, "speed": bad})
    (record,) = run(study, tmp_path, Tier.QUICK)
    assert "the measured 'speed' is not finite" in record.failure.sentence
    assert Ledger.load(tmp_path / NAME).records["toy"].failure


def test_numpy_numbers_are_kept_as_plain_ones(tmp_path):
    study = toy(measure=lambda self, tier, seed: {"effect": np.float32(2.5 + seed), "count": 3})
    run(study, tmp_path, Tier.QUICK)
    stored = read(tmp_path / "measured" / "toy-quick-1.json").numbers
    assert stored == {"effect": 3.5, "count": 3}


def test_whoever_waits_is_told_what_is_left(tmp_path):
    told = []
    list(run_claims([toy()], Tier.QUICK, tmp_path, tell=lambda left: told.append(len(left))))
    assert told[0] == 3 and told[-1] == 0


def test_tiers_and_seeds_that_do_not_exist_are_refused(tmp_path):
    with pytest.raises(UserError, match="no tier 'fast': choose one of quick, full, paper"):
        parse_tier("fast")
    with pytest.raises(UserError, match="claim toy has no paper tier: choose one of quick, full"):
        run(toy(), tmp_path, Tier.PAPER)
    with pytest.raises(UserError, match="claim toy has no statements yet"):
        run(toy(statements=()), tmp_path)
    for text in ("0", "7-4", "-1", "many", "1.5"):
        with pytest.raises(UserError, match=r"^--seeds .*\.$"):
            parse_seeds(text)
    assert parse_seeds("4-4") == range(4, 5)


class Longer(Recipe):
    steps: int = 7


def change_of(study, **changes):
    type(study).claim = type(study.claim)(**{**vars(study.claim), **changes})
    return study


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"recipes": {Tier.FULL: Longer()}}, "by another recipe than the full tier of toy has"),
        ({"statements": (statement(limit=6.0),)}, "before toy/effect was registered as it is"),
        ({"version": "99"}, "with bayesattn .*, and this is 99"),
    ],
)
def test_seeds_that_do_not_count_any_more_are_neither_used_nor_overwritten(
    tmp_path, monkeypatch, change, problem
):
    study, _ = counting([10.0])
    run(study, tmp_path)
    before = (tmp_path / "measured" / "toy-full-0.json").read_bytes()
    if version := change.pop("version", None):
        monkeypatch.setattr("bayesattn.ledger.measured.__version__", version)
    changed, seen = counting([10.0], **change)
    with pytest.raises(UserError, match=rf"Seed 0 of toy in .* does not count: .*{problem}"):
        run(changed, tmp_path)
    assert seen == [] and (tmp_path / "measured" / "toy-full-0.json").read_bytes() == before
    run(changed, tmp_path, again=True)
    assert seen == [0, 1, 2, 3]


def test_a_change_that_says_that_it_came_after_lets_seeds_count(tmp_path):
    from bayesattn.ledger.statement import Change

    study, _ = counting([10.0])
    run(study, tmp_path)
    for after, counts in ((True, True), (False, False)):
        changed, seen = counting([10.0], statements=(statement(limit=6.0),))
        change_of(changed, version=2, changes=(Change(version=2, reason="why", after=after),))
        if counts:
            (record,) = run(changed, tmp_path)
            assert seen == [] and record.rows["effect"].verdict == "supported"
        else:
            with pytest.raises(UserError, match="does not count"):
                run(changed, tmp_path)


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"Cannot write to .*: choose another --out"):
        prepare_folder(tmp_path / "file" / "report")
    assert prepare_folder(tmp_path / "new" / "report") == tmp_path / "new" / "report" / NAME
    assert list((tmp_path / "new" / "report").iterdir()) == []
