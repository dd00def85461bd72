"""`python -m bayesattn` is `bayesattn`."""

import sys

from bayesattn.commands.main import main

if __name__ == "__main__":
    sys.exit(main())
