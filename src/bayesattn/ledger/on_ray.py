"""Jobs on a Ray cluster. Runs and the ledger must lie where all its machines can reach them.

The driver keeps nothing that is not in those folders: if it dies, start it again, and what was
finished is found.
"""

import logging
import socket
from typing import Any

from bayesattn.errors import UserError
from bayesattn.ledger.engines import Ended
from bayesattn.ledger.jobs import Job, attempt
from bayesattn.ledger.ledger import Failure
from bayesattn.ledger.trained import runs_folder

REACH = 5.0
"""Seconds to wait for an address to answer."""


class RayWorkers:
    """One job per CPU of the cluster."""

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
        """CPUs of the cluster as it is now: machines come and go."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def start(self, job: Job) -> None:
        """Hand a job to the cluster."""
        self._busy[self._attempt.remote(job, str(runs_folder().absolute()))] = job

    def wait(self, seconds: float) -> list[Ended]:
        """Jobs that have come back, and those whose worker will not."""
        found, _ = self._ray.wait(list(self._busy), num_returns=1, timeout=seconds)
        return [self._ended(reference) for reference in found]

    def _ended(self, reference: Any) -> Ended:
        job = self._busy.pop(reference)
        try:
            return Ended(job, self._ray.get(reference))
        except self._ray.exceptions.RayError as error:
            first = str(error).strip().splitlines()[0]
            sentence = f"The worker that did it was lost: {type(error).__name__}, {first}"
            return Ended(job, Failure(sentence=sentence, traceback=""), lost=True)

    def close(self) -> None:
        """Tell the workers to stop, which lets trainings save, and leave the cluster."""
        for reference in self._busy:
            self._ray.cancel(reference)
        if self._busy:
            self._ray.wait(list(self._busy), num_returns=len(self._busy), timeout=30)
        self._busy.clear()
        self._ray.shutdown()


def require_answer(address: str | None) -> None:
    """Refuse an address where nobody listens, at once: Ray itself would try for a minute."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host:
        return
    try:
        with socket.create_connection((host, int(port)), timeout=REACH):
            return
    except (OSError, ValueError) as error:
        raise UserError(
            f"Nothing answers at {address} ({error}): start a cluster there with "
            "`ray start --head`, or name another --address."
        ) from None
