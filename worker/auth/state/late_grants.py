"""Late grants: the frontier must still get them, so that no other machine uses the old ones there.

A login may use up the refresh token that the frontier has. While its Redis node is away, the new
grant is only in a file of one machine, and only that machine uses it. Another machine would log in
with the used token once the claim has expired. So one greenlet for each login gives the new grant
to the frontier as soon as it can. The greenlet ends when the frontier has this grant or one as new,
or with its process. A mark beside the file tells the machine's next process to continue.
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
"""At most this many seconds pass between two tries: other machines try no more often, and so come
later."""
_SUFFIX = ".late"


def mark(folder: Path, name: str) -> Path:
    """Return the file that marks the grant ``name`` as late."""
    return folder / f"{name}{_SUFFIX}"


def marked(folder: Path) -> list[str]:
    """Return names of grants that are late, as far as the processes of this machine know."""
    return sorted(path.name.removesuffix(_SUFFIX) for path in folder.glob(f"*{_SUFFIX}"))


class Late:
    """The late grants of one process.

    ``give`` gives one to the frontier; it returns False while it is not known whether that is still
    needed. It may raise Unavailable.
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
