"""Who does the jobs: this process, several processes of this machine, or (`on_ray`) a cluster."""

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import NamedTuple, Protocol

from bayesattn.ledger.jobs import Job, attempt
from bayesattn.ledger.ledger import Failure
from bayesattn.ledger.trained import runs_folder

PRELOADED = ["bayesattn.ledger.language_models"]
"""What processes have imported before they begin: with it, all of torch."""


class Ended(NamedTuple):
    """A job that has come to an end."""

    job: Job
    failure: Failure | None
    lost: bool = False
    """Whoever did it is gone: killed, out of memory, unplugged. It may go better elsewhere."""


class Engine(Protocol):
    """Does jobs."""

    @property
    def slots(self) -> int:
        """Jobs at once."""
        ...

    def start(self, job: Job) -> None:
        """Begin a job."""
        ...

    def wait(self, seconds: float) -> list[Ended]:
        """What has ended; if nothing has, wait for it, but not longer than `seconds`."""
        ...

    def close(self) -> None:
        """Stop all that is going on; trainings save first."""
        ...


class Here:
    """This process: one job at a time."""

    slots = 1

    def __init__(self) -> None:
        self._ended: list[Ended] = []

    def start(self, job: Job) -> None:
        """Do the job at once."""
        self._ended.append(Ended(job, attempt(job, str(runs_folder()))))

    def wait(self, seconds: float) -> list[Ended]:
        """The job that was done."""
        ended, self._ended = self._ended, []
        return ended

    def close(self) -> None:
        """Nothing goes on between calls."""


class Processes:
    """Processes of this machine, a fresh one for each job."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._context = multiprocessing.get_context("spawn" if os.name == "nt" else "forkserver")
        if os.name != "nt":
            self._context.set_forkserver_preload(PRELOADED)
        self._busy: dict[int, tuple[BaseProcess, Connection, Job]] = {}

    def start(self, job: Job) -> None:
        """Begin a job in a process of its own."""
        ours, theirs = self._context.Pipe(duplex=False)
        runs = str(runs_folder().absolute())  # processes have the environment of the first of them
        process = self._context.Process(target=_work, args=(job, runs, theirs))
        process.start()
        theirs.close()
        self._busy[process.sentinel] = (process, ours, job)

    def wait(self, seconds: float) -> list[Ended]:
        """Jobs whose process has ended."""
        ended: list[Ended] = []
        for sentinel in wait(list(self._busy), timeout=seconds):
            assert isinstance(sentinel, int)
            process, connection, job = self._busy.pop(sentinel)
            process.join()
            try:
                ended.append(Ended(job, connection.recv()))
            except EOFError:  # it never came to say anything
                ended.append(Ended(job, lost_process(process.exitcode), lost=True))
            connection.close()
        return ended

    def close(self) -> None:
        """Tell all to stop and wait until they have saved."""
        for process, _, _ in self._busy.values():
            process.terminate()
        for process, connection, _ in self._busy.values():
            process.join()
            connection.close()
        self._busy.clear()


def local_engine(workers: int | None = None) -> Engine:
    """As many processes as there are cores, or `workers`; with one, no further process."""
    count = default_workers() if workers is None else workers
    return Here() if count == 1 else Processes(count)


def default_workers() -> int:
    """One per core: every job computes on one thread."""
    return os.cpu_count() or 1


def lost_process(code: int | None) -> Failure:
    """What to say of a process that ended without a word."""
    why = "it was killed, often for lack of memory" if code == -9 else f"exit code {code}"
    return Failure(sentence=f"The process that did it ended early: {why}.", traceback="")


def _work(job: Job, runs: str, connection: Connection) -> None:
    say: Callable[[Failure | None], None] = connection.send
    try:
        say(attempt(job, runs))
    except KeyboardInterrupt:  # told to stop, and has saved; whoever told it knows
        raise SystemExit(130) from None
