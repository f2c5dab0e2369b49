"""``python -m greencrawl``: the command ``greencrawl``."""

import sys

from greencrawl.cli.__main__ import run

sys.exit(run())
