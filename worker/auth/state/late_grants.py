"""Grants that must still be given to the frontier, so that no other machine uses the old ones
there.

A login may spend the refresh token that the frontier has. While its Redis node is away, what comes
of it is in a file of one machine only, and used there. Otherwise another machine would log in with
the spent one once the claim has run out. So one greenlet for each login gives the new grant to the
frontier as soon as it can. It ends when that is done, or a grant as new stands there, or with its
process. A mark beside the file tells the next process of the machine to go on with it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gevent

from greencrawl.schema.errors import Unavailable
from greencrawl.schema.log import logger
from greencrawl.worker.auth.base import Grant
from greencrawl.worker.session.backoff import delays

log = logger("worker")

TRY_SECONDS = 0.5
"""Between two tries at most: who needs the login elsewhere tries no more often, and comes later."""
_SUFFIX = ".late"


def mark(folder: Path, name: str) -> Path:
    """The file that says that the grant ``name`` is late."""
    return folder / f"{name}{_SUFFIX}"


def marked(folder: Path) -> list[str]:
    """Names of grants that are late, as far as the processes of this machine know."""
    return sorted(path.name.removesuffix(_SUFFIX) for path in folder.glob(f"*{_SUFFIX}"))


class Late:
    """The late grants of one process.

    ``give`` gives one to the frontier; False while it cannot be told whether that is needed any
    more. It may raise Unavailable.
    """

    def __init__(self, give: Callable[[str, Grant], bool]) -> None:
        self._give = give
        self._grants: dict[str, Grant] = {}

    def follow(self, name: str, grant: Grant) -> None:
        """Give ``grant`` to the frontier as soon as possible, unless a newer one is late, too."""
        before = self._grants.get(name)
        if before is None:
            self._grants[name] = grant
            gevent.spawn(self._until_given, name)
        elif before.generation < grant.generation:
            self._grants[name] = grant

    def _until_given(self, name: str) -> None:
        log.warning("login_not_shared", login=name, generation=self._grants[name].generation)
        try:
            for delay in delays(0.05, TRY_SECONDS):
                if self._given(name):
                    break
                gevent.sleep(delay)
        finally:
            grant = self._grants.pop(name)
        log.info("login_shared", login=name, generation=grant.generation)

    def _given(self, name: str) -> bool:
        grant = self._grants[name]
        try:
            return self._give(name, grant) and self._grants[name] is grant
        except Unavailable:
            return False
