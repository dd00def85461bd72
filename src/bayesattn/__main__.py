"""`python -m bayesattn` runs the command `bayesattn`."""

import sys

from bayesattn.commands.main import main

if __name__ == "__main__":
    sys.exit(main())
