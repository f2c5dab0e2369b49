"""``python -m greencrawl.cli``: the command ``greencrawl``."""

from gevent import monkey

monkey.patch_all()

import sys

from greencrawl.cli.main import main


def run() -> int:
    """What the console script calls. Returns the exit code."""
    return main()


if __name__ == "__main__":
    sys.exit(run())
