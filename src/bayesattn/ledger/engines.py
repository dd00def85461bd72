"""Engines that run jobs: this process, several processes of this machine, or a Ray cluster."""

import logging
import multiprocessing
import os
import signal
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from bayesattn.errors import UserError
from bayesattn.ledger.following import follow_starter
from bayesattn.ledger.jobs import Job, attempt
from bayesattn.ledger.ledger import Failure
from bayesattn.ledger.trained import runs_folder

PRELOADED = ["bayesattn.ledger.forkserver", "bayesattn.ledger.jobs"]
"""Module that worker processes import before they start; it imports torch."""
LOSSES = 2
"""Number of further tries of a job whose process was lost."""
PATIENCE = 1.0
"""Seconds between two updates of the display."""
ANSWER = 5.0
"""Seconds to wait for an answer of an address."""


class Ended(NamedTuple):
    """A job that has ended."""

    job: Job
    failure: Failure | None
    lost: bool = False
    """Whether its process was lost (killed, out of memory, unplugged), so a retry may succeed."""


class Here:
    """This process: one job at a time."""

    slots = 1

    def __init__(self) -> None:
        self._ended: list[Ended] = []

    def start(self, job: Job) -> None:
        self._ended.append(Ended(job, attempt(job, str(runs_folder()))))

    def wait(self, seconds: float) -> list[Ended]:
        ended, self._ended = self._ended, []
        return ended

    def close(self) -> None:
        """Does nothing: no job runs between calls."""


class Processes:
    """Processes of this machine, a new one for each job, so a killed process affects no other."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._context = multiprocessing.get_context("spawn" if os.name == "nt" else "forkserver")
        if os.name != "nt":
            self._context.set_forkserver_preload(PRELOADED)
        self._busy: dict[int, tuple[BaseProcess, Connection, Job]] = {}

    def start(self, job: Job) -> None:
        ours, theirs = self._context.Pipe(duplex=False)
        runs = str(runs_folder().absolute())  # all processes have the environment of the first
        process = self._context.Process(target=_work, args=(job, runs, theirs))
        process.start()
        theirs.close()
        self._busy[process.sentinel] = (process, ours, job)

    def wait(self, seconds: float) -> list[Ended]:
        ended: list[Ended] = []
        for sentinel in wait(list(self._busy), timeout=seconds):
            assert isinstance(sentinel, int)
            process, connection, job = self._busy.pop(sentinel)
            process.join()
            try:
                ended.append(Ended(job, connection.recv()))
            except EOFError:  # it never came to say anything
                killed = "it was killed, often for lack of memory"
                why = killed if process.exitcode == -9 else f"exit code {process.exitcode}"
                ended.append(_lost(job, "process", why))
            connection.close()
        return ended

    def close(self) -> None:
        """Tell all processes to stop, and wait until trainings have saved."""
        for process, _, _ in self._busy.values():
            process.terminate()
        for process, connection, _ in self._busy.values():
            process.join()
            connection.close()
        self._busy.clear()


class RayWorkers:
    """One job per CPU of a cluster whose machines share the folders of runs and ledger.

    All state of the driver is in these folders. If the driver dies, start it again: it finds the
    finished jobs.
    """

    def __init__(self, address: str | None = None) -> None:
        """Args: address: host:port, ray://host:port, auto, or local for one on this machine."""
        try:
            import ray
        except ImportError:
            raise UserError(
                "Running on Ray needs the package ray: pip install 'bayesattn[cluster]'."
            ) from None
        require_answer(address)
        self._ray: Any = ray
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise UserError(
                f"There is no Ray cluster at {address} ({' '.join(str(error).split())[:200]}): "
                "start one with `ray start --head`, or name another --address."
            ) from None
        self._attempt: Any = ray.remote(num_cpus=1, max_retries=0)(attempt)
        self._busy: dict[Any, Job] = {}

    @property
    def slots(self) -> int:
        """Present number of CPUs of the cluster; machines may come and go."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def start(self, job: Job) -> None:
        self._busy[self._attempt.remote(job, str(runs_folder().absolute()))] = job

    def wait(self, seconds: float) -> list[Ended]:
        found, _ = self._ray.wait(list(self._busy), num_returns=1, timeout=seconds)
        return [self._ended(reference) for reference in found]

    def _ended(self, reference: Any) -> Ended:
        job = self._busy.pop(reference)
        try:
            return Ended(job, self._ray.get(reference))
        except self._ray.exceptions.RayError as error:
            first = str(error).strip().splitlines()[0]
            return _lost(job, "worker", f"{type(error).__name__}, {first}")

    def close(self) -> None:
        """Tell the workers to stop, so trainings can save, and disconnect from the cluster."""
        for reference in self._busy:
            self._ray.cancel(reference)
        if self._busy:
            self._ray.wait(list(self._busy), num_returns=len(self._busy), timeout=30)
        self._busy.clear()
        self._ray.shutdown()


Engine = Here | Processes | RayWorkers


def local_engine(workers: int | None = None) -> Engine:
    """An engine with one process per core, or `workers` processes; for one, this process."""
    count = default_workers() if workers is None else workers
    return Here() if count == 1 else Processes(count)


def default_workers() -> int:
    """One per core: every job computes on one thread."""
    return os.cpu_count() or 1


def run_jobs(jobs: Mapping[str, Job], engine: Engine) -> Iterator[Ended | None]:
    """Run all jobs, as many at once as the engine takes; yields None if no job ended for a while.

    The next job is the first one whose needs are met. `jobs` may grow meanwhile.
    """
    waiting: dict[str, Job] = {}
    needs: dict[str, frozenset[str]] = {}  # finding out takes a while
    running: set[str] = set()
    losses: Counter[str] = Counter()
    while True:
        new = {name: job for name, job in jobs.items() if name not in needs}
        waiting |= new
        needs |= {name: job.needs for name, job in new.items()}
        if not waiting and not running:
            return
        pending = waiting.keys() | running
        for name, job in [*waiting.items()]:
            if len(running) >= engine.slots:
                break
            if needs[name].isdisjoint(pending):
                del waiting[name]
                running.add(name)
                engine.start(job)
        found = engine.wait(PATIENCE)
        for ended in found:
            name = ended.job.name
            running.discard(name)
            losses[name] += ended.lost
            if ended.lost and losses[name] <= LOSSES:
                waiting = {name: ended.job, **waiting}
                continue
            yield ended
        if not found:
            yield None


def require_answer(address: str | None) -> None:
    """Refuse an address without a listener at once; Ray itself would try for a minute."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host:
        return
    try:
        with socket.create_connection((host, int(port)), timeout=ANSWER):
            return
    except (OSError, ValueError) as error:
        raise UserError(
            f"Nothing answers at {address} ({error}): start a cluster there with "
            "`ray start --head`, or name another --address."
        ) from None


def _work(job: Job, runs: str, connection: Connection) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    follow_starter()
    try:
        connection.send(attempt(job, runs))
    except KeyboardInterrupt:  # it was told to stop, and has saved
        raise SystemExit(130) from None


def _lost(job: Job, who: str, why: str) -> Ended:
    return Ended(
        job, Failure(sentence=f"The {who} that ran it was lost: {why}.", traceback=""), True
    )
