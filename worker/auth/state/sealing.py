"""Sealing: Redis has the results and the requests of logins only in encrypted form.

It uses Fernet (AES-128-CBC with HMAC-SHA256). HKDF-SHA256 (RFC 5869) makes its key from
``GREENCRAWL_SESSION_KEY``. If that is not set, the key is made from a random key in the data
folder, which all processes of this machine use. Each purpose has its own key: what was sealed for
one purpose opens for no other.
"""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64encode
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from greencrawl.schema.errors import GreencrawlError
from greencrawl.schema.log import logger
from greencrawl.schema.settings import Settings
from greencrawl.worker.auth.state.private_files import (
    InsecureFile,
    locked,
    private_folder,
    read_private,
    write_private,
)

log = logger("worker")

KEY_FILE = "key"
_KEY_BYTES = 32


class Unsealable(GreencrawlError, ValueError):
    """Raised when something was sealed with another key, or is damaged."""


class Sealing:
    """Seals and unseals for one purpose with a key made of ``secret``."""

    def __init__(self, secret: bytes, purpose: str) -> None:
        derived = HKDF(SHA256(), 32, b"greencrawl", purpose.encode()).derive(secret)
        self._fernet = Fernet(urlsafe_b64encode(derived))

    def __repr__(self) -> str:
        return "Sealing()"

    def seal(self, data: bytes) -> bytes:
        """Return ``data`` encrypted and authenticated; the result differs each time."""
        return self._fernet.encrypt(data)

    def unseal(self, sealed: bytes) -> bytes:
        """Return what was sealed. Raises Unsealable."""
        try:
            return self._fernet.decrypt(sealed)
        except InvalidToken:
            raise Unsealable("was sealed with another key, or is damaged") from None


def sealing(settings: Settings, purpose: str) -> Sealing:
    """Make the sealing from the session key of ``settings``, else from the host's own key.

    If the data folder cannot keep a key, for example because another user owns it, the log says so,
    and sealed values open in this process only.
    """
    if settings.session_key:
        return Sealing(settings.session_key.encode(), purpose)
    try:
        key = host_key(settings.logins)
    except GreencrawlError as error:
        advice = "set GREENCRAWL_SESSION_KEY, or mend that: logins over several hosts fail"
        log.warning("key_not_shared", reason=str(error), advice=advice)
        key = secrets.token_bytes(_KEY_BYTES)
    return Sealing(key, purpose)


def host_key(folder: Path) -> bytes:
    """Return the key in ``folder``, made by whichever process comes first.

    A key that others could read, or that is damaged, is replaced: it seals only what is on its way
    between two processes. Raises GreencrawlError when it cannot be kept.
    """
    file = folder / KEY_FILE
    try:
        private_folder(folder)
        with locked(folder):
            try:
                key = read_private(file, _KEY_BYTES)
                if key is not None and len(key) == _KEY_BYTES:
                    return key
                reason = "is damaged" if key is not None else ""
            except InsecureFile as error:
                reason = str(error)
            if reason:
                log.warning("key_replaced", file=str(file), reason=reason)
            key = secrets.token_bytes(_KEY_BYTES)
            write_private(file, key)
            return key
    except OSError as error:
        why = error.strerror or str(error)
        raise GreencrawlError(f"the key of logins cannot be kept in {folder}: {why}") from error
    except InsecureFile as error:
        raise GreencrawlError(f"the key of logins cannot be kept: {folder} {error}") from error
