"""Studies on a real Ray cluster of two workers on this machine."""

import os
import signal
import threading
import time

import pytest

from bayesattn.claims import Tier
from bayesattn.claims.registry import find_study
from bayesattn.errors import UserError
from bayesattn.ledger.engines import RayWorkers, require_answer
from bayesattn.ledger.ledger import NAME, Ledger
from bayesattn.ledger.runner import run_claims
from tests.ledger.test_engines import finish
from tests.ledger.work import Errand

pytest.importorskip("ray", reason="pip install 'bayesattn[cluster]'")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def cluster():
    import ray

    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    address = ray.get_runtime_context().gcs_address
    yield address
    ray.shutdown()


class Joined(RayWorkers):
    """Leaves the cluster running for the next test."""

    def __init__(self):
        import ray

        self._ray, self._busy = ray, {}
        self._attempt = ray.remote(num_cpus=1, max_retries=0)(self.attempt())

    @staticmethod
    def attempt():
        from bayesattn.ledger.jobs import attempt

        return attempt

    def close(self):
        self._busy.clear()


def test_the_ledger_of_a_cluster_is_that_of_one_process(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("BAYESATTN_RUNS", str(tmp_path / "runs"))
    studies = [find_study(name) for name in ("bam-size", "bam-laplace", "dynamics-routing")]
    for name, engine in {"here": None, "ray": Joined()}.items():
        assert len([*run_claims(studies, Tier.QUICK, tmp_path / name, engine=engine)]) == 3
    here, ray = (Ledger.load(tmp_path / name / NAME).records for name in ("here", "ray"))
    assert here.keys() == ray.keys()
    for name, record in here.items():
        assert record.rows == ray[name].rows


def test_a_worker_that_is_killed_loses_nothing(cluster, tmp_path):
    jobs = [Errand(tmp_path, "killed", dies=1), Errand(tmp_path, "other", 0.5)]
    ended = finish(jobs, Joined())
    assert ended["killed"].failure is None and jobs[0].done() and jobs[1].done()
    assert len(list(tmp_path.glob("killed.began*"))) == 2


def test_a_worker_that_dies_every_time_is_reported(cluster, tmp_path):
    ended = finish([Errand(tmp_path, "cursed", dies=99)], Joined())
    assert "The worker that ran it was lost" in ended["cursed"].failure.sentence


def test_the_driver_can_be_stopped_and_started_again(cluster, tmp_path, ctrl_c):
    jobs = [Errand(tmp_path, "first"), Errand(tmp_path, "second", 30.0)]

    def stop():
        while not jobs[0].done() or not list(tmp_path.glob("second.began*")):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=stop).start()
    with pytest.raises(KeyboardInterrupt):
        finish(jobs, Joined())
    assert jobs[0].done() and not jobs[1].done()


def test_an_address_where_nobody_listens_is_refused_at_once():
    start = time.monotonic()
    with pytest.raises(UserError, match="Nothing answers at 127.0.0.1:1"):
        RayWorkers("127.0.0.1:1")
    assert time.monotonic() - start < 10
    require_answer(None)
    require_answer("auto")
