"""Programs that a benchmark needs and the product does not: installed in a folder of ours."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

from bench.traps.debian import CACHE, Missing, unpacked
from tests.support.checkout import ROOT

REQUIREMENTS = ROOT / "requirements-playback.txt"
BROWSER = "chromium"


def environment() -> Path:
    """Return the Python of an environment with the benchmark's own requirements. Raises Missing."""
    digest = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]
    folder = CACHE / f"playback-{digest}"
    python = folder / "bin" / "python"
    if not (folder / "done").exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        _run([str(python), "-m", "pip", "install", "--quiet", "-r", str(REQUIREMENTS)])
        (folder / "done").touch()
    return python


def browser() -> tuple[list[str], dict[str, str]]:
    """Return the command of Debian's Chromium, and its variables. Raises Missing.

    Missing libraries are unpacked, but not installed.
    """
    said = _run(["apt-get", "-s", "--no-install-recommends", "install", BROWSER])
    needed = re.findall(r"^Inst (\S+)", said, re.MULTILINE)
    if not needed:  # it is installed already
        return [BROWSER], dict(os.environ)
    root = unpacked(BROWSER, *(name for name in needed if name != BROWSER))
    folders = sorted({str(path.parent) for path in root.rglob("*.so*")})
    program = root / "usr" / "lib" / "chromium" / "chromium"
    fonts = root / "etc" / "fonts"
    variables = {**os.environ, "LD_LIBRARY_PATH": ":".join(folders)}
    if fonts.is_dir() and not Path("/etc/fonts").is_dir():
        variables["FONTCONFIG_PATH"] = str(fonts)
    return [str(program)], variables


def _run(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError as error:
        raise Missing(f"this machine has no {command[0]}") from error
    except subprocess.CalledProcessError as error:
        raise Missing(f"{' '.join(command[:4])}: {error.stderr.strip()[-500:]}") from error
