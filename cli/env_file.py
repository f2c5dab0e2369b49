"""``.env``: variables for the command and its processes, in honcho's syntax.

A line is ``NAME=VALUE``: blanks are removed unless they are quoted, ``#`` begins a comment unless
it is quoted, and ``\\n`` and ``\\t`` in quotes are a line break and a tab. Other lines are ignored.
One thing differs from honcho, where the file overrides the environment: here a variable that is set
stays.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, MutableMapping
from pathlib import Path

from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.settings import PREFIX

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def take(files: Iterable[Path], environ: MutableMapping[str, str]) -> None:
    """Add variables of ``files`` that are not set in ``environ``; the first file wins.

    A file that is missing, or that we may not read, adds nothing. Raises InvalidConfig for a
    setting of ours that cannot be read.
    """
    for file in files:
        try:
            content = file.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            continue
        for name, value in parsed(content, str(file)).items():
            environ.setdefault(name, value)


def parsed(content: str, named: str = ".env") -> dict[str, str]:
    """Return names and values of the lines; the last line of a name counts.

    Raises InvalidConfig, which names the file as ``named`` and the line, for a setting of ours
    whose quotes do not end. Lines of other programs are not checked.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(content.splitlines(), 1):
        try:
            tokens = list(shlex.shlex(line, posix=True))
        except ValueError:
            if line.lstrip().startswith(PREFIX):
                what = 'a quotation mark without its other; write NAME="a value"'
                raise InvalidConfig([(f"{named}, line {number}", what)]) from None
            continue
        match tokens:
            case [name, "=", _, *_] if _NAME.match(name):
                value = "".join(tokens[2:]).replace("\\n", "\n").replace("\\t", "\t")
                if "\0" not in value:  # no variable can hold a NUL
                    found[name] = value
    return found
