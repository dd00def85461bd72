"""Who does jobs: this process, or several."""

import multiprocessing
import os
import signal
import threading
import time

import pytest

from bayesattn.claims import tunnel_bijection as bijection
from bayesattn.ledger.engines import Here, Processes, local_engine, run_jobs
from bayesattn.ledger.jobs import measurements, to_do
from bayesattn.ledger.study import Tier
from tests.claims.test_tunnels import small
from tests.ledger.work import Errand


def finish(jobs, engine):
    """What ended, by name."""
    try:
        found = run_jobs({job.name: job for job in jobs}, engine)
        return {ended.job.name: ended for ended in found if ended is not None}
    finally:
        engine.close()


@pytest.mark.slow
def test_as_many_at_once_as_there_are_slots(tmp_path):
    jobs = [Errand(tmp_path, str(number), waits_for=2) for number in range(3)]
    assert finish(jobs, Processes(2)).keys() == {"0", "1", "2"}
    spans = [job.between() for job in jobs]
    busy = [sum(began <= at < ended for began, ended in spans) for at, _ in spans]
    assert max(busy) == 2


def test_what_fails_is_told_and_the_others_go_on(tmp_path):
    for engine in (Here(), Processes(2)):
        folder = tmp_path / type(engine).__name__
        folder.mkdir()
        jobs = [Errand(folder, str(number), fails=number == 1) for number in range(3)]
        ended = finish(jobs, engine)
        assert [job.done() for job in jobs] == [True, False, True]
        assert ended["1"].failure.sentence == "RuntimeError: no luck"
        assert 'File "work.py"' in ended["1"].failure.traceback
        assert ended["0"].failure is None


def test_a_job_whose_process_died_is_tried_again_but_not_for_ever(tmp_path):
    jobs = [Errand(tmp_path, "unlucky", dies=2), Errand(tmp_path, "cursed", dies=99)]
    ended = finish(jobs, Processes(1))
    assert jobs[0].done() and ended["unlucky"].failure is None
    assert not jobs[1].done()
    assert ended["cursed"].failure.sentence == (
        "The process that ran it was lost: it was killed, often for lack of memory."
    )
    assert len(list(tmp_path.glob("cursed.began*"))) == 3


@pytest.mark.slow
def test_stopping_stops_what_goes_on_and_begins_nothing_more(tmp_path, ctrl_c):
    jobs = [Errand(tmp_path, str(number), 60.0) for number in range(3)]

    def stop():
        while len(list(tmp_path.glob("*.began*"))) < 2:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=stop).start()
    with pytest.raises(KeyboardInterrupt):
        finish(jobs, Processes(2))
    assert len(list(tmp_path.glob("*.began*"))) == 2
    assert not multiprocessing.active_children()


def test_one_worker_needs_no_process():
    assert isinstance(local_engine(1), Here)
    assert local_engine(3).slots == 3


@pytest.mark.slow
def test_measured_beside_each_other_as_measured_alone(tmp_path, monkeypatch):
    study = small(bijection.TunnelBijection)
    found = {}
    for name, engine in {"alone": Here(), "beside": Here()}.items():
        monkeypatch.setenv("BAYESATTN_RUNS", str(tmp_path / name / "runs"))
        planned = measurements(study, Tier.QUICK, range(2), tmp_path / name)
        left = to_do(planned)
        trainings = [job for job in left.values() if not job.needs]
        if name == "beside":
            finish(trainings, Processes(2))
        finish([job for job in left.values() if not job.done()], engine)
        measured = [job.measured().numbers for job in planned]
        found[name] = measured
    assert found["alone"] == found["beside"]
    assert len(found["alone"]) == 2
