"""``python -m greencrawl.cli``: the command ``greencrawl``."""

from greencrawl.schema import garbage
from greencrawl.schema.process import starting

starting.begin("greencrawl")

from greencrawl.schema.greenlets import patch_all

garbage.starting()
patch_all()

import io
import sys
from pathlib import Path

from greencrawl.cli.main import main


def run(*more: Path) -> int:
    """Run the command for the console script; return the exit code.

    ``.env`` in the current folder is read first, then ``more`` such files.
    """
    garbage.started()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
            stream.reconfigure(errors="replace")  # a title may be in any script
    return main(env_files=(Path(".env"), *more))


if __name__ == "__main__":
    sys.exit(run())
