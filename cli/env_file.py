"""``.env``: variables for the command and what it starts, as honcho reads them for a Procfile.

A line is ``NAME=VALUE``: blanks go unless they are quoted, ``#`` begins a comment unless it is
quoted, and ``\\n`` and ``\\t`` in quotes are a line break and a tab. Other lines say nothing. In
one point the command is not like honcho, which puts the file above the environment: a variable that
is set stays.
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
    """Put into ``environ`` what ``files`` have and it has not; the first file counts.

    A file that is not there, or is not ours to read, has nothing. Raises InvalidConfig for a
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
    """Names and values of the lines; the last of a name counts.

    Raises InvalidConfig, which says the file ``named`` so and the line, for a setting of ours whose
    quotes do not end. The lines of other programs are theirs.
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
                if "\0" not in value:  # no variable can hold that
                    found[name] = value
    return found
