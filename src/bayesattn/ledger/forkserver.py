"""Imported first by the process that starts workers, and by no other code.

Workers end with this process, and this process with the main process. It ignores signals that a
terminal or a cluster sends to all processes: the main process handles them and lets trainings save.
"""

import signal

from bayesattn.ledger.following import follow

follow()
for name in ("SIGTERM", "SIGHUP"):
    if hasattr(signal, name):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
