"""Who may look and who may change something: a token at the log-in, then a signed cookie.

A cookie names a role and its end, under a key that is derived from the role's token. So no broker
keeps a list of sessions, every broker accepts the cookies of the others, and a changed token makes
all its cookies void. Each form has a token of its own, made from the cookie under the same key.

Without tokens everybody on this machine may do all. ``Host`` and ``Origin`` show whether a request
is from this machine or from a web page elsewhere. Without TLS only names of loopback are accepted,
so DNS rebinding does not help such a page. With TLS the certificate proves our name.
"""

from __future__ import annotations

import hmac
import secrets
from enum import StrEnum
from hashlib import sha256

import falcon
from msgspec import Struct

from greencrawl.schema.bearer import host_in, is_loopback, is_own
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.errors import GreencrawlError

LIFE_SECONDS = 12 * 3600
"""How long a log-in lasts."""
PLAIN, SECURE = "gc", "__Host-gc"
"""Names of the cookie: without TLS (allowed only on loopback), and with TLS."""
_PURPOSE = b"greencrawl monitor cookies, 1"


class Role(StrEnum):
    """A person's role: look, or change things as well."""

    VIEW = "view"
    ADMIN = "admin"


class NotAllowed(GreencrawlError):
    """Raised for a request that is not allowed. ``word`` names the text that says why."""

    def __init__(self, word: str) -> None:
        super().__init__(word)
        self.word = word


class Session(Struct, frozen=True):
    """The sender of a request. Forms must contain ``form_token``."""

    role: Role
    form_token: str

    @property
    def may_change(self) -> bool:
        """Return whether forms are shown and accepted."""
        return self.role is Role.ADMIN


class Access:
    """Judges requests by the two tokens of a broker; without an admin token it is open."""

    def __init__(self, admin_token: str, view_token: str) -> None:
        self.open = not admin_token
        given = {Role.ADMIN: admin_token, Role.VIEW: view_token}
        self._tokens = {role: token.encode() for role, token in given.items() if token}
        self._keys = {role: _hmac(token, _PURPOSE) for role, token in self._tokens.items()}
        self._own_key = secrets.token_bytes(32)

    def check_place(self, request: falcon.Request) -> None:
        """Raise NotAllowed for a host name that is not ours, and for a web page elsewhere."""
        if request.scheme != "https" and not is_loopback(host_in(request.get_header("Host"))):
            raise NotAllowed("refused.host" if self.open else "refused.plain")
        origin = request.get_header("Origin")
        if origin is None and request.method == "POST":
            raise NotAllowed("refused.origin")
        if origin is not None and not is_own(origin, request.scheme, request.get_header("Host")):
            raise NotAllowed("refused.origin")

    def session(self, request: falcon.Request) -> Session | None:
        """Return the session of the reader; None if the reader is not logged in.

        Without tokens everybody is an administrator.
        """
        if self.open:
            return Session(Role.ADMIN, self._form_token(self._own_key, "open"))
        for given in request.get_cookie_values(self._name(request)) or ():
            role = self._role_of(given)
            if role is not None:
                return Session(role, self._form_token(self._keys[role], given))
        return None

    def check_form(self, session: Session, given: str) -> None:
        """Raise NotAllowed for a role that only looks, and for a form that is not ours."""
        if not session.may_change:
            raise NotAllowed("refused.view")
        self.check_token(session.form_token, given)

    @staticmethod
    def check_token(expected: str, given: str) -> None:
        """Raise NotAllowed for a form with another token."""
        if not hmac.compare_digest(expected.encode(), given.encode()):
            raise NotAllowed("refused.form")

    def log_in_token(self) -> str:
        """Return the token in the log-in form, before there is a cookie."""
        return self._form_token(self._keys.get(Role.ADMIN, self._own_key), "log in")

    def log_in(self, request: falcon.Request, token: str) -> str | None:
        """Return the ``Set-Cookie`` for one of the tokens; None for any other text.

        All tokens are always compared, in constant time.
        """
        given = token.strip().encode()
        right = [role for role, one in self._tokens.items() if hmac.compare_digest(given, one)]
        if not right:
            return None
        said = f"{right[0]}.{epoch_ms() // 1000 + LIFE_SECONDS}.{secrets.token_hex(8)}"
        value = f"{said}.{_hmac(self._keys[right[0]], said.encode()).hex()}"
        return self._cookie(request, value, LIFE_SECONDS)

    def log_out(self, request: falcon.Request) -> str:
        """Return the ``Set-Cookie`` that removes the cookie."""
        return self._cookie(request, "", 0)

    def _role_of(self, cookie: str) -> Role | None:
        said, _, signature = cookie.rpartition(".")
        role, _, rest = said.partition(".")
        end, _, _ = rest.partition(".")
        if role not in self._keys or not end.isdecimal() or len(cookie) > 200:
            return None
        expected = _hmac(self._keys[Role(role)], said.encode()).hex()
        if not hmac.compare_digest(signature.encode(), expected.encode()):
            return None
        return Role(role) if int(end) > epoch_ms() // 1000 else None

    @staticmethod
    def _form_token(key: bytes, said: str) -> str:
        return _hmac(key, b"form " + said.encode()).hex()[:32]

    @staticmethod
    def _name(request: falcon.Request) -> str:
        return SECURE if request.scheme == "https" else PLAIN

    def _cookie(self, request: falcon.Request, value: str, seconds: int) -> str:
        secure = "; Secure" if request.scheme == "https" else ""
        name = self._name(request)
        return f"{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"


def _hmac(key: bytes, text: bytes) -> bytes:
    return hmac.new(key, text, sha256).digest()
