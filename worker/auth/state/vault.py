"""The results of logins: kept for all workers, and renewed by one at a time.

The worker that logs in holds a claim: a lease in the frontier, with a token. Only one worker of all
machines has it at a time. The result, a grant, is a file in ``logins/`` of the data folder, for the
processes of a machine. If ``GREENCRAWL_SESSION_KEY`` is set, it is also in the frontier, sealed,
for all machines.

Each grant has a higher generation than the one before. A holder may freeze, and another worker may
take over its claim meanwhile. Then the first holder overwrites nothing: the frontier takes nothing
from a process without the claim, and the file takes only what is newer. If the frontier and the
file differ, the newer grant counts. Grants that the frontier has lost (with its Redis) are restored
from a file. If its Redis node was away, the frontier gets the login later
(``greencrawl.worker.auth.state.late_grants``); the claim is held until then.

The files are in ``greencrawl.worker.auth.state.grant_files``, the leases in
``greencrawl.worker.auth.state.leases``.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from types import TracebackType

from greencrawl.schema.errors import Unavailable
from greencrawl.schema.log import logger
from greencrawl.schema.settings import Settings
from greencrawl.worker.auth.base import Grant
from greencrawl.worker.auth.state.grant_files import UNUSED, GrantFiles, decoded, encoded
from greencrawl.worker.auth.state.late_grants import Late, marked
from greencrawl.worker.auth.state.leases import Claims
from greencrawl.worker.auth.state.private_files import InsecureFile
from greencrawl.worker.auth.state.sealing import Sealing, Unsealable, sealing

log = logger("worker")

CLAIM_SECONDS = 90.0
SPARE_SECONDS = 30.0
"""A claim is renewed before each request, and lasts this long after the longest request."""
PURPOSE = "logins"
KEEP_SECONDS = 90 * 24 * 3600
"""How long the frontier keeps a grant; files keep it longer, and put it back."""

_ALIKE = "set GREENCRAWL_SESSION_KEY alike on all machines"
_APART = b"local:"
"""The frontier has this in place of a grant that stays on its host; a token follows."""
_FORGOTTEN = b""
"""The frontier has this in place of a dropped grant."""


class Vault:
    """Grants by ``greencrawl.worker.auth.base.name_of``, as one process sees them.

    Safe for many greenlets. With ``seal`` the frontier has the grants, too, for all machines. A
    claim lasts ``claim_seconds``, longer than the longest request. Methods raise Unavailable when
    the frontier is away; calling again is harmless. While the folder cannot be used, the log says
    so, and without ``seal`` every process logs in by itself.
    """

    def __init__(
        self,
        folder: Path,
        frontier: Claims,
        seal: Sealing | None,
        *,
        claim_seconds: float = CLAIM_SECONDS,
    ) -> None:
        self._files = GrantFiles(folder)
        self._frontier = frontier
        self._seal = seal
        self._claim_seconds = claim_seconds
        # for all claims: so a claim whose answer was lost stays ours
        self._token = secrets.token_hex(8)
        self._open: set[str] = set()
        self._late = Late(self._give)

    def file(self, name: str) -> Path:
        """Return where a grant is kept on this host."""
        return self._files.path(name)

    def read(self, name: str) -> Grant | None:
        """Return the newest grant, valid or refused; None if there is none that can be used."""
        kept = self._files.read(name)
        if self._seal is None:
            return kept
        found = self._frontier.login_get(name)
        generation = kept.generation if kept else 0
        if found is None or found[0] < generation:
            if kept and not self._put_back(name, kept):
                self._late.follow(name, kept)
            return kept
        if found[0] == generation:
            return kept
        if found[1] == _FORGOTTEN:
            self._files.remove(name)
            return None
        grant = self._unsealed(name, *found)
        if grant is None:
            return kept
        self._files.save(name, grant)
        return grant

    def claim(self, name: str) -> Claim | None:
        """Return the right to log in, or None while another worker has it. Use it with ``with``."""
        if name in self._open:
            return None
        self._open.add(name)  # first, so that no other greenlet gives our new claim back
        claim = None
        try:
            count = self._frontier.login_claim(name, self._token, self._claim_seconds)
            if count:
                found, kept = self._frontier.login_get(name), self._files.read(name)
                floor = max(found[0] if found else 0, kept.generation if kept else 0)
                claim = Claim(self, name, count, floor)
            return claim
        finally:
            if claim is None:
                self._open.discard(name)

    def resume(self) -> None:
        """Continue with grants that an earlier process of this machine could not give to the
        frontier."""
        if self._seal is None:
            return
        for name in marked(self._files.folder):
            kept = self._files.read(name)
            if kept:
                self._late.follow(name, kept)
            else:
                self._files.unmark(name, 0)

    # -- the frontier

    def _renew(self, name: str) -> bool:
        return self._frontier.login_claim(name, self._token, self._claim_seconds) > 0

    def _put(self, name: str, generation: int, blob: bytes) -> bool:
        if self._frontier.login_put(name, self._token, generation, blob, KEEP_SECONDS):
            return True
        # It may be there already: from a first try whose answer was lost.
        return self._frontier.login_get(name) == (generation, blob)

    def _give_back(self, name: str) -> None:
        try:
            self._frontier.login_drop(name, self._token)
        except Unavailable as error:  # the claim expires; until then it is ours
            log.warning("login_claim_not_released", login=name, reason=str(error))
        finally:
            self._open.discard(name)  # only now: otherwise a new claim of ours would be dropped

    def _blob(self, name: str, grant: Grant) -> bytes:
        """Return what the frontier gets for a grant."""
        if self._seal is None:
            return _APART + self._token.encode()
        return self._seal.seal(encoded(name, grant))

    def _unsealed(self, name: str, generation: int, blob: bytes) -> Grant | None:
        """Return the frontier's grant; None if another machine keeps it for itself."""
        if self._seal is None or blob.startswith(_APART):
            return None
        try:
            grant = decoded(name, self._seal.unseal(blob))
        except (Unsealable, InsecureFile) as error:
            self._files.tell(name, UNUSED, f"what Redis has {error}", _ALIKE)
            return None
        grant.generation = generation
        return grant

    def _put_back(self, name: str, kept: Grant) -> bool:
        """Give the frontier what it has lost; return False while another worker is about to log
        in."""
        if name in self._open:
            return False
        self._open.add(name)
        try:
            if not self._frontier.login_claim(name, self._token, self._claim_seconds):
                return False
            put = self._put(name, kept.generation, self._blob(name, kept))
            # after Unavailable the claim stays: no other worker may log in before the grant is put
            self._give_back(name)
            return put
        finally:
            self._open.discard(name)

    def _give(self, name: str, grant: Grant) -> bool:
        """Put back a late grant, unless one as new is there; return False like
        :meth:`_put_back`."""
        found = self._frontier.login_get(name)
        there = found[0] if found else 0
        if there < grant.generation and not self._put_back(name, grant):
            return False
        self._files.unmark(name, max(there, grant.generation))
        return True

    def _leave(self, name: str, grant: Grant) -> None:
        """End a claim whose grant is late: it stays ours in the frontier until the grant is
        there."""
        self._open.discard(name)
        self._late.follow(name, grant)


class Claim:
    """The right to log in. It ends when a grant is put, when the claim is given back (at the end of
    ``with``), or when the claim expires."""

    def __init__(self, vault: Vault, name: str, count: int, floor: int) -> None:
        self._vault = vault
        self._name = name
        self._count = count
        self._floor = floor
        self._over = False
        self._late: Grant | None = None
        self._sent: tuple[bytes, bytes] | None = None

    @property
    def count(self) -> int:
        """Return the number of claims since the last one that was put or given back, this one
        included.

        More than 1 means that earlier holders died.
        """
        return self._count

    def renew(self) -> bool:
        """Extend the claim for the time of a request; return False when another worker has it."""
        return not self._over and self._vault._renew(self._name)

    def put(self, grant: Grant) -> bool:
        """Keep ``grant`` for all workers; return False, and change nothing, when the claim is lost.

        The generation of the grant becomes higher than the one at the time of the claim. After
        Unavailable the grant is in the file, and the caller need not try again: if machines share
        grants, the vault puts it into the frontier when that is back, and holds the claim until
        then.
        """
        grant.generation = max(grant.generation, self._floor + 1)
        plain = encoded(self._name, grant)
        if self._sent is None or self._sent[0] != plain:
            self._sent = plain, self._vault._blob(self._name, grant)
        if self._over:
            return False
        try:
            put = self._vault._put(self._name, grant.generation, self._sent[1])
            if not put and self._vault._renew(self._name):
                # No other worker has taken it over: Redis has forgotten the claim, or it has
                # expired. A refresh token that came with the grant is the only one that is still
                # valid.
                put = self._vault._put(self._name, grant.generation, self._sent[1])
        except Unavailable:  # this process may end before the frontier is back
            self._late = grant if self._vault._seal is not None else None
            self._vault._files.save(self._name, grant, late=self._late is not None)
            raise
        if put:
            self._vault._files.save(self._name, grant)
            if self._late is not None:
                self._late = None
                self._vault._files.unmark(self._name, grant.generation)
        return put

    def forget(self) -> bool:
        """Drop the grant, here and – if it is shared – for all machines; return False like
        :meth:`put`."""
        if self._over:
            return False
        vault = self._vault
        if vault._seal is not None and not vault._put(self._name, self._floor + 1, _FORGOTTEN):
            return False
        vault._files.remove(self._name)
        return True

    def drop(self) -> None:
        """Give the claim back: now, or, if a grant is late, after the grant has been put."""
        if self._over:
            return
        self._over = True
        if self._late is None:
            self._vault._give_back(self._name)
        else:
            self._vault._leave(self._name, self._late)

    def __enter__(self) -> Claim:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.drop()


def open_vault(settings: Settings, frontier: Claims) -> Vault:
    """Open the vault of a process."""
    return Vault(
        settings.logins,
        frontier,
        sealing(settings, PURPOSE) if settings.session_key else None,
        claim_seconds=settings.request_seconds + SPARE_SECONDS,
    )
