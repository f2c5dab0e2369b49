"""``python -m greencrawl``: the command ``greencrawl``.

A checkout's executable runs this; then the file ``.env`` beside the Procfile is read, too.
"""

from greencrawl.schema.process import starting

starting.begin("greencrawl")

import sys
from pathlib import Path

from greencrawl.cli.__main__ import run

_HOME = Path(__file__).resolve().parents[2]

sys.exit(run(*([_HOME / ".env"] if (_HOME / "Procfile").is_file() else [])))
