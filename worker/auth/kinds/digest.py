"""HTTP Digest (RFC 7616), and the rest of RFC 2069: challenges, answers, counted nonces."""

from __future__ import annotations

import hashlib
import re
import secrets as random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from greencrawl.schema.net.origins import Origins
from greencrawl.schema.net.urls import origin_of
from greencrawl.schema.records import Fetched
from greencrawl.schema.records.auth import Digest
from greencrawl.worker.auth.base import Grant, LoginRefused, Verdict

if TYPE_CHECKING:
    import requests

_ROUNDS = 3
"""At most this many challenges in a row are answered for one URL."""
_UNDER_WAY = 10_000
_ORIGINS = 10_000


def _sha512_256(data: bytes) -> str:
    return hashlib.new("sha512_256", data).hexdigest()


_HASHES: Mapping[str, Callable[[bytes], str]] = {
    "SHA-512-256": _sha512_256,
    "SHA-256": lambda data: hashlib.sha256(data).hexdigest(),
    "MD5": lambda data: hashlib.md5(data, usedforsecurity=False).hexdigest(),
}
"""The strongest first."""

# Takes linear time for any header: the parts are possessive if two could share the blanks.
_SCHEME = re.compile(r"[\s,]*+([!#$%&'*+\-.^_`|~0-9A-Za-z]+)(?:\s++(?!=)|(?=,)|$)")
_PARAMETER = re.compile(
    r"[\s,]*+([!#$%&'*+\-.^_`|~0-9A-Za-z]+)\s*+=\s*+(?:\"((?:[^\"\\]|\\.)*)\"|([^\s,\"]*))"
)


@dataclass
class Challenge:
    """The challenge of a server; ``count`` is how often its nonce was used."""

    realm: str
    nonce: str
    algorithm: str = "MD5"
    session: bool = False
    opaque: str | None = None
    qop: bool = False
    utf8: bool = False
    userhash: bool = False
    stale: bool = False
    named: bool = False
    """True if the server named the algorithm; only then our answer names it, too."""
    count: int = 0


class DigestKind:
    """Answers the challenges of origins; each process answers the challenges that it has met.

    The first request to an origin carries no answer; each later request answers the last challenge
    of the origin in advance. Secrets: username, password. Raises LoginRefused for secrets that
    cannot be sent.
    """

    logs_in = False

    def __init__(self, entry: Digest, secrets: Mapping[str, str]) -> None:
        self.entry = entry
        self.account = secrets["username"]
        self._password = secrets["password"]
        if any(ord(char) < 32 or ord(char) == 127 for char in self.account + self._password):
            raise LoginRefused("control characters are not allowed in user name and password")
        self._origins = Origins(entry.hosts)
        self._challenges: dict[str, Challenge] = {}
        self._under_way: dict[str, tuple[str, int]] = {}
        """URL → (the nonce that was answered, or ""; the number of its challenges in a row)."""

    def __repr__(self) -> str:
        return f"DigestKind({self.entry.name})"

    def log_in(self, session: requests.Session, old: Grant | None) -> Grant:
        """Never called: the secrets authenticate each request."""
        raise NotImplementedError

    def prove(
        self, url: str, headers: Mapping[str, str], grant: Grant | None
    ) -> tuple[str, dict[str, str]]:
        """Add ``Authorization`` for the entry's origins, once they have asked for it."""
        if not self._origins.hold(url):
            return url, dict(headers)
        origin = origin_of(url)
        challenge = self._challenges.get(origin)
        rounds = self._under_way.get(url, ("", 0))[1]
        while len(self._under_way) >= _UNDER_WAY:  # left by requests that got no answer
            del self._under_way[next(iter(self._under_way))]
        self._under_way[url] = ("" if challenge is None else challenge.nonce, rounds)
        if challenge is None:
            return url, dict(headers)
        target = url[len(origin) :]
        value = answer(challenge, self.account, self._password, "GET", target)
        return url, {**headers, "Authorization": value}

    def judge(self, fetched: Fetched, grant: Grant | None) -> Verdict:
        """Return "again" on a new challenge; "out" if one was answered correctly and refused.

        A 401 without a challenge that we can answer is "out", too.
        """
        nonce, rounds = self._under_way.pop(fetched.url, ("", 0))
        origin = origin_of(fetched.url)
        if not self._origins.hold(fetched.url):
            return "in"
        if fetched.status != 401:
            self._take_next(origin, fetched.headers.get("authentication-info", ""))
            return "in"
        challenge = strongest(fetched.headers.get("www-authenticate", ""))
        if challenge is None:
            return "out"
        known = self._challenges.get(origin)
        fresh = rounds > 0  # the refused nonce was new: the previous answer brought it
        # Without stale=true the server refuses the password for this realm, not the nonce.
        same = known is not None and known.realm == challenge.realm
        if nonce and fresh and same and not challenge.stale:
            return "out"
        if rounds + 1 >= _ROUNDS:
            return "out"
        if known is None or known.nonce == nonce or not same:
            if len(self._challenges) >= _ORIGINS:
                self._challenges.clear()
            self._challenges[origin] = challenge
        # otherwise another request has got a newer challenge meanwhile
        self._under_way[fetched.url] = ("", rounds + 1)
        return "again"

    def _take_next(self, origin: str, info: str) -> None:
        """Use the next nonce, if the server names one (RFC 7616, section 3.5)."""
        challenge = self._challenges.get(origin)
        following = _parameters(info, 0)[0].get("nextnonce", "") if info else ""
        if challenge is not None and following and following != challenge.nonce:
            challenge.nonce, challenge.count = following, 0


def strongest(header: str) -> Challenge | None:
    """Return the challenge in a WWW-Authenticate header to answer, None if there is none.

    Basic is never answered: it would send the password in clear.
    """
    found = [
        challenge
        for scheme, parameters in challenges(header)
        if scheme == "digest" and (challenge := _read(parameters)) is not None
    ]
    order = list(_HASHES)
    return min(found, key=lambda challenge: order.index(challenge.algorithm), default=None)


def challenges(header: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (scheme in lower case, parameters) of each challenge (RFC 9110, section 11.6.1)."""
    at = 0
    while (found := _SCHEME.match(header, at)) is not None:
        parameters, at = _parameters(header, found.end())
        yield found[1].lower(), parameters


def _parameters(text: str, at: int) -> tuple[dict[str, str], int]:
    """Parse the parameters from ``at`` on, names in lower case; return them and where they end."""
    parameters: dict[str, str] = {}
    while (found := _PARAMETER.match(text, at)) is not None:
        at = found.end()
        quoted = found[2]
        value = found[3] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        parameters.setdefault(found[1].lower(), value)
    return parameters, at


def _read(parameters: Mapping[str, str]) -> Challenge | None:
    """Return the challenge; None if we cannot answer it."""
    if "nonce" not in parameters or "realm" not in parameters:
        return None
    named = parameters.get("algorithm", "MD5").upper()
    algorithm = named.removesuffix("-SESS")
    offered = [word.strip().lower() for word in parameters.get("qop", "").split(",")]
    if algorithm not in _HASHES or (parameters.get("qop") and "auth" not in offered):
        return None
    return Challenge(
        realm=parameters["realm"],
        nonce=parameters["nonce"],
        algorithm=algorithm,
        session=named.endswith("-SESS"),
        opaque=parameters.get("opaque"),
        qop="auth" in offered,
        utf8=parameters.get("charset", "").lower() == "utf-8",
        userhash=parameters.get("userhash", "").lower() == "true",
        stale=parameters.get("stale", "").lower() == "true",
        named="algorithm" in parameters,
    )


def answer(
    challenge: Challenge,
    username: str,
    password: str,
    method: str,
    target: str,
    cnonce: str = "",
) -> str:
    """Return the Authorization header for a request to ``target``; count the use of the nonce."""
    challenge.count += 1
    cnonce = cnonce or random.token_hex(16)
    hashed = _HASHES[challenge.algorithm]

    def digest(*parts: str | bytes) -> str:
        # The content of a header is sent back byte by byte. Names and passwords are UTF-8, even if
        # the server does not say so: servers store them as a person typed them into a terminal.
        return hashed(b":".join(p if isinstance(p, bytes) else p.encode("latin-1") for p in parts))

    key = digest(username.encode(), challenge.realm, password.encode())
    if challenge.session:
        key = digest(key, challenge.nonce, cnonce)
    request = digest(method, target)
    count = f"{challenge.count:08x}"
    if challenge.qop:
        response = digest(key, challenge.nonce, count, cnonce, "auth", request)
    else:
        response = digest(key, challenge.nonce, request)
    fields = [_user(challenge, username, digest(username.encode(), challenge.realm))]
    fields += [f"realm={_quoted(challenge.realm)}", f"nonce={_quoted(challenge.nonce)}"]
    fields += [f'uri="{target}"', f'response="{response}"']
    if challenge.named:
        fields.append(f"algorithm={challenge.algorithm}{'-sess' if challenge.session else ''}")
    if challenge.qop:
        fields += ["qop=auth", f"nc={count}"]
    if challenge.qop or challenge.session:
        fields.append(f'cnonce="{cnonce}"')
    if challenge.opaque is not None:
        fields.append(f"opaque={_quoted(challenge.opaque)}")
    if challenge.userhash:
        fields.append("userhash=true")
    return f"Digest {', '.join(fields)}"


def _user(challenge: Challenge, username: str, hashed: str) -> str:
    """Return the user's name in the form of RFC 7616, section 3.4."""
    if challenge.userhash:
        return f'username="{hashed}"'
    if username.isascii():
        return f"username={_quoted(username)}"
    if challenge.utf8:
        return f"username*=UTF-8''{quote(username, safe='')}"
    return f"username={_quoted(username.encode().decode('latin-1'))}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
