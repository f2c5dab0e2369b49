"""Migrations: numbered SQL files, each applied once, in order. These rules hold for all databases.

A file that was applied must not change afterwards: its checksum is kept beside its number.

* ``NNNN_pre_name.sql`` only adds what processes of the previous version can ignore. It is applied
  when a process of the new version opens the store, while old processes run on.
* ``NNNN_post_name.sql`` requires that no old process runs; until then the new version works without
  it.
* ``NNNN_base.sql`` stands for all files up to its number, which it lists with their checksums: the
  schema of :data:`OLDEST`. An empty database gets this file, and records the listed files as
  applied.
* An empty database gets everything. A version accepts a later ``pre_`` that it does not know. It
  refuses a database with a later ``post_``, with a file of another name, or without a listed file.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from greencrawl.schema.errors import InvalidConfig

OLDEST = "0.1.0"
"""The earliest version whose databases are taken over."""


class Applied(NamedTuple):
    """The record of an applied migration in a database."""

    name: str
    checksum: str


class Migration(NamedTuple):
    """One file ``NNNN_name.sql``."""

    number: int
    name: str
    sql: str
    records: dict[int, Applied]
    """The records that a database gets with this file: of the file itself, or of the files that it
    stands for. A checksum is the SHA-256 of a file's text in hexadecimal."""

    @property
    def base(self) -> bool:
        """Return whether it stands for all files up to its number."""
        return self.name == "base"

    @property
    def post(self) -> bool:
        """Return whether the migration has to wait until no process of an older version is left."""
        return self.name.startswith("post_")

    def __str__(self) -> str:
        return f"{self.number:04d}_{self.name}"


Told = Callable[[Migration], None]


class Upgrade(Protocol):
    """The migrations of one database, for ``greencrawl migrate``."""

    def pending(self) -> list[Migration]:
        """Return all pending migrations, both kinds, in order. Raises InvalidConfig,
        Unavailable."""

    def apply(self, *, post: bool, told: Told) -> int:
        """Apply pending migrations, ``post_`` files only with ``post`` or to an empty database.

        ``told`` is called before each file; returns how many files were applied. Several processes
        may call this at once. Raises InvalidConfig, Unavailable.
        """

    def close(self) -> None:
        """Close the connections to the database."""


def load(folder: Path) -> list[Migration]:
    """Read the migrations of ``folder`` by number."""
    found = []
    for file in sorted(folder.glob("*.sql")):
        match = re.fullmatch(r"(\d{4})_(\w+)", file.stem)
        if match:
            sql = file.read_text(encoding="utf-8")
            itself = (match[1], match[2], hashlib.sha256(sql.encode()).hexdigest())
            listed = re.findall(r"(?m)^-- stands for (\d{4})_(\w+) ([0-9a-f]{64})$", sql)
            records = {int(n): Applied(name, checksum) for n, name, checksum in listed or [itself]}
            found.append(Migration(int(match[1]), match[2], sql, records))
    return found


def pending(
    available: Sequence[Migration], applied: Mapping[int, Applied], *, post: bool = True
) -> list[Migration]:
    """Return the migrations still to apply; without ``post``, a ``post_`` file only if nothing is
    applied yet.

    Raises InvalidConfig if a newer version changed the database for good, if an applied file was
    edited, or if the database is of a version before :data:`OLDEST`.
    """
    known = {number: one for file in available for number, one in file.records.items()}
    for number, (name, checksum) in sorted(applied.items(), reverse=True):
        if number not in known and not name.startswith("pre_"):
            raise refusal(
                f"was written by a newer version of Greencrawl (migration {number:04d}_{name}; "
                f"this one knows up to {max(known, default=0):04d}): upgrade, or use another store"
            )
        if number in known and known[number].checksum != checksum:
            raise refusal(
                f"migration {number:04d}_{known[number].name} was edited after it had been "
                "applied: restore the file, and put changes into a new one"
            )
    due = [one for one in available if not one.records.keys() <= applied.keys()]
    if applied and due and due[0].base:
        missing = min(due[0].records.keys() - applied.keys())
        raise refusal(
            f"is of a version before {OLDEST} (migration {missing:04d}_{known[missing].name} is "
            f"missing): end all its processes, run `greencrawl migrate --post` of version {OLDEST} "
            "once, and then start this one"
        )
    return [one for one in due if post or not one.post or not applied]


def statements(sql: str) -> Iterator[str]:
    """Split a script into statements; semicolons inside a trigger do not end one.

    ``executescript`` would commit the transaction that holds the migrations together.
    """
    statement = ""
    for piece in re.split(r"(?<=;)[ \t]*(?:--[^\n]*)?\n", sql):
        statement += piece + "\n"
        if sqlite3.complete_statement(statement):
            yield statement.strip()
            statement = ""
    if re.sub(r"--[^\n]*", "", statement).strip():
        raise ValueError(f"no semicolon ends: {statement.strip()[:100]!r}")


def recorded(migration: Migration, now_ms: int) -> list[tuple[int, str, str, int]]:
    """Return the rows of ``migrations`` that record it: number, name, checksum, ``now_ms``."""
    return [(number, *one, now_ms) for number, one in migration.records.items()]


def refusal(what: str) -> InvalidConfig:
    """Return the error that the store is not for this version, and why."""
    return InvalidConfig([("GREENCRAWL_STORE", what)])
