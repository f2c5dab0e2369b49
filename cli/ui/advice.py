"""Commands in messages, as they can be typed here: with the data folder.

Messages name them as `greencrawl …` between back-ticks. A worker or a broker that wrote a message
does not know the folder. The command that shows a message calls :func:`complete`, which adds the
option.
"""

from __future__ import annotations

import re
import shlex
from contextvars import ContextVar
from pathlib import Path

_COMMAND = re.compile(r"`(greencrawl [^`]*)`")
_WITHOUT = re.compile(r"greencrawl (\S+ --help|store )")
"""Commands that use no data folder."""

_folder: ContextVar[Path | None] = ContextVar("folder", default=None)


def use(data: Path | None) -> None:
    """Note that this command works in that folder; None: it is not known (yet)."""
    _folder.set(data)


def data_option(data: Path) -> str:
    """Return the option `--data DIR` as it can be typed here, "" for the default folder."""
    return "" if data == Path("data").absolute() else f" --data {shlex.quote(_short(data))}"


def complete(text: str) -> str:
    """Return ``text`` with the data folder in each command that it advises."""
    data = _folder.get()
    option = "" if data is None else data_option(data)
    return _COMMAND.sub(lambda found: f"`{_with(found[1], option)}`", text)


def _with(command: str, option: str) -> str:
    return command if "--data " in command or _WITHOUT.match(command) else command + option


def _short(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
