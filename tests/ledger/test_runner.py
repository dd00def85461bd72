import json
import math

import numpy as np
import pytest

from bayesattn.claims import Tier, UserError
from bayesattn.ledger.jobs import seeds_of
from bayesattn.ledger.ledger import NAME, Ledger
from bayesattn.ledger.runner import parse_tier, prepare_folder, run_claims
from bayesattn.stats import Outcome
from tests.ledger.toy import crash, run_study, toy


def test_a_study_leaves_verdict_numbers_figures_and_the_command_to_repeat_it(tmp_path):
    record = run_study(toy(), Tier.QUICK, tmp_path)
    assert record.result == "supported"
    assert record.verdict.measured == pytest.approx(11)
    assert record.verdict.reported == "always"
    assert record.seeds == record.verdict.seeds == (0, 1, 2)
    assert record.numbers[2] == {"effect": 12.0, "many": [1.0, 2.0]}
    assert record.command == "bayesattn claims run toy --tier quick --seeds 3"
    assert record.recipe == {"seeds": 3}
    (figure,) = record.figures
    assert figure.file == "figures/toy-effects.svg"
    assert (tmp_path / figure.file).read_text().lstrip().startswith("<?xml")


def test_the_tier_and_the_number_of_seeds_are_those_asked_for(tmp_path):
    assert run_study(toy(), Tier.FULL, tmp_path).seeds == (0, 1, 2, 3, 4)
    record = run_study(toy(), Tier.FULL, tmp_path, count=2)
    assert record.seeds == (0, 1)
    assert record.command == "bayesattn claims run toy --tier full --seeds 2"


def test_a_refuted_claim_is_a_result_not_an_error(tmp_path):
    record = run_study(toy(level=-10.0), Tier.QUICK, tmp_path)
    assert record.verdict.outcome is Outcome.REFUTED
    assert record.failure is None


@pytest.mark.parametrize("method", ["measure", "judge", "draw"])
def test_a_crash_anywhere_becomes_part_of_the_record(tmp_path, method):
    record = run_study(toy(**{method: crash}), Tier.QUICK, tmp_path)
    assert record.result == "error"
    assert record.verdict is None
    assert record.failure.sentence == "RuntimeError: the toy broke"
    assert 'raise RuntimeError("the toy\\nbroke")' in record.failure.traceback


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
    assert [r.result for r in records] == ["supported", "error", "supported"]
    ledger = Ledger.load(tmp_path / NAME)
    assert {name: r.result for name, r in ledger.records.items()} == {
        "first": "supported",
        "second": "error",
        "third": "supported",
    }


def test_a_finished_study_is_in_the_ledger_before_the_next_begins(tmp_path):
    def interrupted(self, tier, seed):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(run_claims([toy("first"), toy("second", measure=interrupted)], Tier.QUICK, tmp_path))
    assert list(Ledger.load(tmp_path / NAME).records) == ["first"]


@pytest.mark.parametrize("bad", [math.nan, math.inf, [1.0, math.nan]])
def test_numbers_that_are_not_finite_are_an_error_that_names_them(tmp_path, bad):
    study = toy(measure=lambda self, tier, seed: {"effect": 1.0, "speed": bad})
    (record,) = run_claims([study], Tier.QUICK, tmp_path)
    assert "the measured 'speed' is not finite" in record.failure.sentence
    assert Ledger.load(tmp_path / NAME).records["toy"].result == "error"


def test_a_verdict_that_is_not_finite_is_an_error(tmp_path):
    study = toy(
        measure=lambda self, tier, seed: {"effect": 1e308 * (1 - 2 * (seed % 2))},
        draw=lambda self, tier, numbers: [],
    )
    with np.errstate(over="ignore", invalid="ignore"):
        (record,) = run_claims([study], Tier.QUICK, tmp_path)
    assert record.result == "error"


def test_numpy_numbers_are_kept_as_plain_ones(tmp_path):
    study = toy(measure=lambda self, tier, seed: {"effect": np.float32(2.5 + seed), "count": 3})
    (record,) = run_claims([study], Tier.QUICK, tmp_path)
    assert record.numbers[1] == {"effect": 3.5, "count": 3}
    stored = json.loads((tmp_path / NAME).read_text())["records"]["toy"]["numbers"]["1"]
    assert stored == {"effect": 3.5, "count": 3}


def test_whoever_waits_is_told_what_is_left(tmp_path):
    told = []
    list(run_claims([toy()], Tier.QUICK, tmp_path, tell=lambda left: told.append(len(left))))
    assert told[0] == 3 and told[-1] == 0


def test_what_was_measured_is_not_measured_again(tmp_path):
    count = []

    def counting(self, tier, seed):
        count.append(seed)
        return {"effect": 5.0 + seed}

    study = toy(measure=counting, draw=lambda self, tier, numbers: [])
    first, again = ([*run_claims([study], Tier.QUICK, tmp_path)] for _ in range(2))
    assert count == [0, 1, 2]
    assert first[0].numbers == again[0].numbers and first[0].verdict == again[0].verdict
    (more,) = run_claims([study], Tier.QUICK, tmp_path, seeds=4)
    assert count == [0, 1, 2, 3] and len(more.numbers) == 4


def test_tiers_and_seeds_that_do_not_exist_are_refused():
    with pytest.raises(UserError, match="no tier 'fast': choose one of quick, full, paper"):
        parse_tier("fast")
    with pytest.raises(UserError, match="claim toy has no paper tier: choose one of quick, full"):
        seeds_of(toy(), Tier.PAPER, None)
    with pytest.raises(UserError, match="--seeds must be 1 or more, not 0"):
        seeds_of(toy(), Tier.QUICK, 0)


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"Cannot write to .*: choose another --out"):
        prepare_folder(tmp_path / "file" / "report")
    assert prepare_folder(tmp_path / "new" / "report") == tmp_path / "new" / "report" / NAME
    assert list((tmp_path / "new" / "report").iterdir()) == []
