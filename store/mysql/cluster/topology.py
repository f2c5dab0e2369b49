"""The contents of ``GREENCRAWL_STORE=mysql://…``: the servers, their roles, and how to connect."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from greencrawl.schema.errors import InvalidConfig

PORT = 3306
LAG_SECONDS = 10.0


class Server(NamedTuple):
    """A server's address; its text is its name everywhere: in votes, logs and ``store status``."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True)
class Topology:
    """One or two masters, any number of replicas, and one account for all of them."""

    masters: tuple[Server, ...]
    replicas: tuple[Server, ...]
    user: str
    password: str = field(repr=False)
    database: str
    ca: str = ""
    """CA file that verifies servers.

    Without it, a connection is encrypted if the server offers that, but no server is verified.
    """
    cert: str = ""
    key: str = ""
    lag_seconds: float = LAG_SECONDS
    """A replica that lags more is not read."""

    @property
    def servers(self) -> tuple[Server, ...]:
        """Return all servers, masters first."""
        return (*self.masters, *self.replicas)

    @property
    def ring(self) -> bool:
        """Return whether there are two masters; then votes decide who takes writes."""
        return len(self.masters) == 2

    @property
    def majority(self) -> int:
        """Return how many votes decide."""
        return len(self.servers) // 2 + 1

    def other(self, name: str) -> str:
        """Return the name of the other of two masters.

        Raises ValueError unless there is exactly one other master.
        """
        [other] = [str(one) for one in self.masters if str(one) != name]
        return other


def parse(url: str) -> Topology:
    """Parse
    ``mysql://USER:PASSWORD@MASTER[,MASTER]/DATABASE[?replicas=HOST,…&ca=FILE&lag=SECONDS]``.

    USER and PASSWORD are percent-encoded where they hold "@", ":" or "/"; a host may have a port.
    ``cert`` and ``key`` name the client's own certificate. Raises InvalidConfig, which never shows
    the password.
    """
    parts = urlsplit(url)
    account, at, hosts = parts.netloc.rpartition("@")
    user, _, password = account.partition(":")
    if parts.scheme != "mysql" or not at or not user:
        raise _wrong("must be mysql://USER:PASSWORD@HOST[,HOST]/DATABASE")
    database = unquote(parts.path.removeprefix("/"))
    if not database or "/" in database or "`" in database:
        raise _wrong("names no database: mysql://USER:PASSWORD@HOST/DATABASE")
    options = _options(parts.query)
    masters = _servers(hosts)
    if len(masters) > 2:
        raise _wrong("names more than two masters; replicas go behind ?replicas=")
    replicas = _servers(options.pop("replicas", ""))
    if not masters or len({*masters, *replicas}) != len(masters) + len(replicas):
        raise _wrong("names no server, or one twice")
    try:
        lag = float(options.pop("lag", LAG_SECONDS))
    except ValueError:
        raise _wrong("lag must be a number of seconds") from None
    if bool(options.get("cert")) != bool(options.get("key")):
        raise _wrong("cert needs key, and the other way round")
    return Topology(
        masters=masters, replicas=replicas, user=unquote(user), password=unquote(password),
        database=database, lag_seconds=lag, **options,
    )  # fmt: skip


def _options(query: str) -> dict[str, str]:
    found = dict(parse_qsl(query, keep_blank_values=True))
    unknown = set(found) - {"replicas", "ca", "cert", "key", "lag"}
    if unknown:
        raise _wrong(f"does not know the option {min(unknown)!r}")
    return found


def _servers(text: str) -> tuple[Server, ...]:
    found = []
    for part in filter(None, (one.strip() for one in text.split(","))):
        try:
            address = urlsplit(f"//{part}")
            found.append(Server(address.hostname or "", address.port or PORT))
        except ValueError:
            raise _wrong(f"has a server that is no HOST[:PORT]: {part!r}") from None
    return tuple(found)


def _wrong(what: str) -> InvalidConfig:
    return InvalidConfig([("GREENCRAWL_STORE", what)])
