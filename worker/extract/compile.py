"""Compiles the part in C: ``python -m greencrawl.worker.extract.compile``, as ``make setup`` does.

The part in C reads structures of one release of lxml. ``setup.py`` compiles it while pip builds,
for the lxml that pip has; the command compiles it for the lxml that is installed. Without this part
there is no main text, and all other reading is the same, but slower.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

import lxml
from lxml import etree

from greencrawl.worker.extract import speedups
from greencrawl.worker.extract.text import BLOCKS, INVISIBLE

_SECONDS = 120


def compile(folder: Path, *flags: str, sources: Sequence[Path] = ()) -> str:
    """Compile into ``folder``; return "", or why that failed.

    Modules made of other sources stay there: other checkouts may share the environment. ``flags``
    are additional flags of the compiler; ``sources`` is a changed copy of the sources, for trials.
    """
    name = speedups.name_of(BLOCKS, INVISIBLE)
    target = folder / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    headers = Path(str(lxml.__file__)).parent
    command = [
        *(os.environ.get("CC") or "cc").split(),
        *("-O2", "-std=c11", "-shared", "-fPIC", *flags),
        f"-I{sysconfig.get_path('include')}",
        *(f"-I{path}" for path in (headers, headers / "includes")),
        f'-DMODULE="{name}"',
        f"-DINIT=PyInit_{name}",
        f"-DMADE_FOR={_number(etree.LIBXML_VERSION)}",
        f"-DBLOCKS={_strings(BLOCKS)}",
        f"-DINVISIBLE={_strings(INVISIBLE)}",
    ]
    try:
        with tempfile.TemporaryDirectory(dir=folder) as made:
            built = Path(made) / target.name
            command += ["-o", str(built)]
            command += [
                str(source) for source in sources or speedups.SOURCES if source.suffix == ".c"
            ]
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
            if done.returncode:
                return _first_error(done.stderr) or f"exit status {done.returncode}"
            built.replace(target)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return ""


def _first_error(said: str) -> str:
    lines = said.strip().splitlines()
    return next((line for line in lines if "error" in line), lines[0] if lines else "")


def _number(release: tuple[int, int, int]) -> int:
    """Return a release of libxml2 as its headers have it: 2.14.5 is 21405."""
    major, minor, patch = release
    return major * 10_000 + minor * 100 + patch


def _strings(names: Sequence[str]) -> str:
    return ",".join(f'"{name}"' for name in names)


def main() -> int:
    """Compile for this Python; return the exit status."""
    problem = compile(Path(sysconfig.get_path("platlib")))
    if problem:
        print(
            f"the part in C was not compiled ({problem}): everything but main text works without "
            "it, only slower; to get it, install a compiler and Python's headers "
            "(apt-get install gcc python3-dev) and run: make setup, or in an environment that has "
            "greencrawl installed: python -m greencrawl.worker.extract.compile",
            file=sys.stderr,
        )
    return 1 if problem else 0


if __name__ == "__main__":
    raise SystemExit(main())
