"""Imported by the process that starts workers, before all else, and by nothing else.

Workers end with it, and it with the process that it belongs to, however that ends. What a terminal
or a cluster tells all processes at once it leaves to that one, which lets trainings save.
"""

import signal

from bayesattn.ledger.following import follow

follow()
for name in ("SIGTERM", "SIGHUP"):
    if hasattr(signal, name):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
