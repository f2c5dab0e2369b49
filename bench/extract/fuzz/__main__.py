"""``python -m bench.extract.fuzz [FOLDER…]``: does the part in C survive broken pages?

Ten defects are put into copies of the sources, one each: the sanitizers (address, undefined) have
to find every one. Then the unchanged sources read broken pages under the sanitizers for
``--seconds``, and then ``--pages`` of them as compiled for use. FOLDERs have pages in HTML; without
any, pages made here are broken. It needs gcc with its sanitizers.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.extract.fuzz.defects import DEFECTS, Defect, copied
from bench.rig.record import Record
from greencrawl.worker.extract.compile import compile

ROOT = Path(__file__).resolve().parents[3]
FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O1", "-g")
PLANTED_SECONDS = 60.0
"""After this time a defect counts as not found."""
DEAREST_SECONDS = 0.5
"""The CPU that a page may take: ten times that of a usual page under the sanitizers."""


class Tried(NamedTuple):
    """The result of a reading process: ``said`` is "" if nothing killed it."""

    pages: int
    dearest: float
    seconds: float
    said: str


def sanitizer() -> str:
    """Return the compiler's library that has to be loaded before all others, "" without one.

    The result is also "" if the address space is limited: the library needs terabytes of it.
    """
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        return ""
    command = [os.environ.get("CC") or "cc", "-print-file-name=libasan.so"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
    return found if Path(found).is_absolute() and Path(found).exists() else ""


def tried(
    folders: Sequence[Path],
    *,
    seed: int,
    seconds: float | None = None,
    pages: int | None = None,
    compiled: Path | None = None,
) -> Tried:
    """Read broken pages in a process.

    ``compiled`` is a folder of sources that were compiled with sanitizers.
    """
    command = [sys.executable, "-m", "bench.extract.fuzz.reader", "--seed", str(seed)]
    command += [] if seconds is None else ["--seconds", str(seconds)]
    command += [] if pages is None else ["--pages", str(pages)]
    path = [str(ROOT / "src"), str(ROOT)]
    environ = dict(os.environ)
    if compiled is not None:
        command += ["--compiled", str(compiled)]
        path.insert(0, str(compiled))
        # Python's own allocator would hide accesses beyond the end of a piece
        environ |= {"LD_PRELOAD": sanitizer(), "ASAN_OPTIONS": "detect_leaks=0"}
        environ["PYTHONMALLOC"] = "malloc"
    began = time.monotonic()
    done = subprocess.run(
        [*command, *map(str, folders)],
        cwd=ROOT, env=environ | {"PYTHONPATH": os.pathsep.join(path)},
        capture_output=True, text=True, check=False, errors="replace",
    )  # fmt: skip
    last = json.loads((done.stdout.splitlines() or ['{"pages": 0, "dearest": 0}'])[-1])
    said = (done.stderr.strip() or f"exit status {done.returncode}") if done.returncode else ""
    return Tried(last["pages"], last["dearest"], time.monotonic() - began, said)


def planted(defect: Defect, folders: Sequence[Path], folder: Path, seed: int, *flags: str) -> Tried:
    """Try a copy of the sources with a defect, compiled in ``folder`` with further ``flags``.

    Raises RuntimeError if it cannot be compiled.
    """
    sources = copied(folder / "sources", defect)
    if problem := compile(folder, *FLAGS, *flags, sources=sources):
        raise RuntimeError(f"{defect.what}: {problem}")
    return tried(folders, seed=seed, seconds=PLANTED_SECONDS, compiled=folder)


def found_by(said: str) -> str:
    """Return the first message of a sanitizer, "" if there was none."""
    for line in said.splitlines():
        if "ERROR: AddressSanitizer" in line or "runtime error:" in line:
            found = line.partition("Sanitizer: ")[2] or line.partition("runtime error: ")[2]
            return found.partition(" on ")[0]
    return ""


def main(arguments: list[str]) -> int:
    """Run all; return 1 if a defect was not found, or if the unchanged sources have one."""
    parser = argparse.ArgumentParser(prog="python -m bench.extract.fuzz", description=__doc__)
    parser.add_argument("folders", type=Path, nargs="*", metavar="FOLDER")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    if not sanitizer():
        print("it needs gcc with its sanitizers, and no limit of memory", file=sys.stderr)
        return 2
    folders = [folder.resolve() for folder in given.folders]
    record = Record("extract-fuzz", "The part in C and broken pages", False)
    rows, missed = [], 0
    for defect in DEFECTS:
        with tempfile.TemporaryDirectory() as made:
            one = planted(defect, folders, Path(made), given.seed)
        found = found_by(one.said)
        missed += not found
        rows.append([defect.what, defect.file, f"{one.seconds:.1f}", found[:60] or "not found"])
    record.table("Planted defects", ["defect", "file", "seconds", "found as"], rows)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        if problem := compile(folder, *FLAGS):
            raise RuntimeError(problem)
        guarded = tried(folders, seed=given.seed + 1, seconds=given.seconds, compiled=folder)
    plain = tried(folders, seed=given.seed + 2, pages=given.pages)
    for name, one in (("under the sanitizers", guarded), ("as it is used", plain)):
        record.figure(f"{name}: pages", one.pages)
        record.figure(f"{name}: seconds", one.seconds)
        record.figure(f"{name}: CPU of the dearest page, s", one.dearest)
        if one.said:
            print(f"{name}:\n{one.said[:4000]}", file=sys.stderr)
    record.finish()
    return int(missed > 0 or bool(guarded.said or plain.said) or plain.dearest > DEAREST_SECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
