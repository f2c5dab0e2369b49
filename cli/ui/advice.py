"""Commands in messages, as they can be typed here: with the command's path and the data folder.

Messages name a command as `greencrawl …` between back-ticks. A worker or a broker that writes a
message does not know path and folder. So the command that shows the message calls
:func:`complete`, which adds both.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from contextvars import ContextVar
from pathlib import Path

LIMITS = ("max_pages", "max_bytes", "max_seconds")
"""Reasons of crawls that ended at a limit."""

_CALLED = "_GREENCRAWL_CALLED"
"""The launcher of a checkout says in it how a person called it."""
_COMMAND = re.compile(r"`greencrawl ([^`]*)`")
_MODULE = "`python -m greencrawl"
_WITHOUT = re.compile(r"\S+ --help|store ")
"""Commands that use no data folder."""

_folder: ContextVar[Path | None] = ContextVar("folder", default=None)


def use(data: Path | None) -> None:
    """Note that this command works in that folder; None: it is not known (yet)."""
    _folder.set(data)


def command() -> str:
    """Return this command as a person can type it here: in a checkout, the path of its launcher."""
    called = os.environ.get(_CALLED)
    return shlex.quote(called) if called and not shutil.which("greencrawl") else "greencrawl"


def data_option(data: Path) -> str:
    """Return the option `--data DIR` as it can be typed here, "" for the default folder."""
    return "" if data == Path("data").absolute() else f" --data {shlex.quote(_short(data))}"


def to_export(name: str, data: Path) -> str:
    """Return the command that exports the crawl, as it can be typed here."""
    return f"{command()} export {name}{data_option(data)} -o {name}.jsonl"


def at_limit(crawl: str, reason: str) -> str:
    """Say how to raise the limit at which a crawl ended; "" if its ``reason`` names none."""
    if reason not in LIMITS:
        return ""
    return (
        f"{crawl} has reached its {reason}; to go on, run the same command with a greater "
        f"--{reason.replace('_', '-')}, or while a broker runs, "
        f"`greencrawl set {crawl} {reason}=N` and `greencrawl resume {crawl}`"
    )


def complete(text: str) -> str:
    """Return ``text`` with each command that it advises as it can be typed here."""
    data = _folder.get()
    option = "" if data is None else data_option(data)
    python = shlex.quote(_short(Path(sys.executable)))
    text = text.replace(_MODULE, f"`{python} -m greencrawl")
    return _COMMAND.sub(lambda found: f"`{command()} {_with(found[1], option)}`", text)


def _with(arguments: str, option: str) -> str:
    has = "--data " in arguments or _WITHOUT.match(arguments)
    return arguments if has else arguments + option


def _short(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
