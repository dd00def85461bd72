"""`python -m bayesattn` is `bayesattn`."""

import sys

from bayesattn.cli import main

if __name__ == "__main__":
    sys.exit(main())
