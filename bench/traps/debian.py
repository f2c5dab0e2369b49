"""Packages of Debian in a folder of ours: fetched by apt and unpacked, without being installed."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "greencrawl-bench"
"""Fetched packages stay here; a package's folder can be deleted at any time."""


class Missing(Exception):
    """A package is not available here: the machine has no apt, or apt has no such package."""


def unpacked(*packages: str) -> Path:
    """Return a folder with the files of all ``packages``, with their paths below ``/``.

    Raises :class:`Missing`.
    """
    folder = CACHE / packages[0]
    if (folder / "done").exists():
        return folder / "root"
    folder.mkdir(parents=True, exist_ok=True)
    for package in packages:
        for left in folder.glob("*.deb"):
            left.unlink()
        _run(["apt-get", "download", "-qq", package], folder, package)
        (file,) = folder.glob("*.deb")
        _run(["dpkg-deb", "-x", file.name, "root"], folder, package)
        file.unlink()
    (folder / "done").touch()
    return folder / "root"


def newest(pattern: str) -> str:
    """Return the name of the package that matches ``pattern`` and has the highest numbers in it.

    Raises :class:`Missing`.
    """
    said = _run(["apt-cache", "search", "--names-only", f"^{pattern}$"], None, pattern)
    names = [line.split(" ")[0] for line in said.splitlines()]
    if not names:
        raise Missing(f"apt knows no package {pattern}; try apt-get update")
    return max(names, key=lambda name: [int(part) for part in re.findall(r"\d+", name)])


def libraries(binaries: Iterable[Path]) -> set[str]:
    """Return the names of shared libraries that ``binaries`` need and the system does not have."""
    missing = set()
    for binary in binaries:
        said = subprocess.run(
            ["ldd", str(binary)], env={**os.environ, "LC_ALL": "C"}, capture_output=True, text=True
        )
        missing |= set(re.findall(r"^\s*(\S+) => not found", said.stdout, re.MULTILINE))
    return missing


def _run(command: list[str], folder: Path | None, package: str) -> str:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    except FileNotFoundError as error:
        raise Missing(f"{package}: this machine has no {command[0]}") from error
    except subprocess.CalledProcessError as error:
        raise Missing(f"{package}: {error.stderr.strip()}") from error
    return done.stdout
