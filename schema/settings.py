"""Settings of one process: environment variables ``GREENCRAWL_*``, read once in ``__main__``.

Unknown or malformed keys stop the start and are all named at once. Every key, its default and its
meaning stand in :data:`KEYS`; the table in the docs is printed from there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.text import variables
from greencrawl.schema.text.variables import Network

PREFIX = "GREENCRAWL_"
_PASSWORD = re.compile(r"^([a-z]+://[^:/?#@]*):.*@", re.DOTALL)
"""It matches up to the last "@": no server's name has an "@"."""

AUTH = "AUTH_"
AUTH_FIELDS = (
    "username", "password", "token", "token_secret",
    "client_id", "client_key", "client_secret", "hosts",
)  # fmt: skip
"""Secrets of a crawl's entry NAME, and the hosts that they are for.
``greencrawl.worker.auth.state.secrets`` reads the variables GREENCRAWL_AUTH_NAME_FIELD. No field
ends in another one, so that a variable names one entry only."""
_AUTH_VARIABLE = re.compile(rf"{AUTH}[A-Z][A-Z0-9_]{{0,31}}_({'|'.join(AUTH_FIELDS).upper()})")


@dataclass(frozen=True)
class Settings:
    """Effective settings; durations in seconds. Field ``x_y`` is the variable GREENCRAWL_X_Y."""

    data: Path
    bind: tuple[str, int]
    metrics_bind: tuple[str, int] | None
    broker: tuple[str, ...]
    redis: tuple[str, ...]
    store: str
    store_steward: str
    bodies: str
    journal_months: int
    journal_days: int
    version_days: int
    sample_days: int
    alert: str
    allow_networks: tuple[Network, ...]
    allow_ports: tuple[int, ...]
    dns_servers: tuple[str, ...]
    hooks: tuple[str, ...]
    worker_token: str
    admin_token: str
    view_token: str
    tls_cert: str
    tls_key: str
    tls_ca: str
    processes: int
    greenlets: int
    partitions: int
    worker_id: str
    lease_seconds: float
    request_seconds: float
    stall_seconds: float
    host_bytes: int
    credentials: str
    session_key: str
    logger_bind: tuple[str, int]
    logger_days: int
    log_level: str
    fault: str
    said: frozenset[str] = field(default=frozenset(), compare=False)
    """Fields that the environment names; the others are defaults."""

    def source(self, field: str) -> Literal["default", "environment"]:
        """Tell where the value of a field comes from."""
        return "environment" if field in self.said else "default"

    @property
    def embedded_redis(self) -> bool:
        """Return whether the broker starts the bundled ``redis-server``: no address is given."""
        return not self.redis

    @property
    def redis_socket(self) -> Path:
        """Return the Unix socket of the embedded Redis."""
        return self.data / "redis" / "redis.sock"

    @property
    def redis_addresses(self) -> tuple[str, ...]:
        """Return the URLs of the nodes; the URL of the embedded node if none are set."""
        return self.redis or (f"unix://{self.redis_socket}",)

    @property
    def credentials_file(self) -> Path:
        """Return the file of passwords and keys; in the data folder if none is set. It need not
        exist."""
        return Path(self.credentials) if self.credentials else self.data / "credentials.toml"

    @property
    def logins(self) -> Path:
        """Return the folder where logins keep their state."""
        return self.data / "logins"

    @property
    def folders(self) -> tuple[Path, ...]:
        """Return the folders that processes write to."""
        kind, _, bodies = self.bodies.partition(":")
        return (self.data, Path(bodies)) if kind == "warc" else (self.data,)

    @property
    def store_url(self) -> str:
        """Return the store's URL, ``sqlite://…`` or ``mysql://…``; by default in the data
        folder."""
        return self.store or f"sqlite:///{self.data / 'content.sqlite'}"


SECRETS = frozenset({"STORE_STEWARD", "WORKER_TOKEN", "ADMIN_TOKEN", "VIEW_TOKEN", "SESSION_KEY"})

KEYS: dict[str, tuple[str, Callable[[str], Any], str]] = {
    "DATA": ("data", variables.path, "Folder of the embedded Redis, SQLite, sockets and locks"),
    "BIND": (
        "127.0.0.1:8765",
        variables.bind,
        "host:port on which the broker listens; unless this is loopback, tokens must be set",
    ),
    "METRICS_BIND": (
        "",
        variables.optional_bind,
        "host:port on which a worker's supervisor serves the metrics of all its processes, at "
        "/metrics, such as 127.0.0.1:8766; unless this is loopback, GREENCRAWL_WORKER_TOKEN must "
        "be set; if empty, no metrics are served",
    ),
    "BROKER": (
        "http://127.0.0.1:8765",
        variables.addresses("http", "https"),
        "Broker addresses for workers and commands, comma-separated; if one does not answer, the "
        "next is tried",
    ),
    "REDIS": (
        "",
        variables.addresses("redis", "rediss", "unix"),
        "Redis nodes, comma-separated; if empty, the embedded Redis",
    ),
    "STORE": (
        "",
        variables.store,
        "sqlite:///PATH, or mysql://USER:PASSWORD@MASTER[,MASTER]/DATABASE[?replicas=HOST,…]; "
        "if empty, content.sqlite in the data folder",
    ),
    "STORE_STEWARD": (
        "",
        variables.account,
        "USER:PASSWORD with which brokers and `greencrawl store` administer a ring of masters; "
        "workers do not need it; if empty, the account of GREENCRAWL_STORE; secret",
    ),
    "BODIES": (
        "sql",
        variables.bodies,
        "Where bodies are kept: sql, or warc:FOLDER for WARC files (SQL then has their positions "
        "in the files); the same on all workers and brokers",
    ),
    "JOURNAL_MONTHS": (
        "12",
        variables.number(int, 0, 1200),
        "How many months of the journal are kept, besides the current one; 0 keeps all",
    ),
    "JOURNAL_DAYS": (
        "30",
        variables.number(int, 0, 36_500),
        "How many days the journal keeps attempts that brought a page, on MySQL up to a month "
        "longer; at most GREENCRAWL_JOURNAL_MONTHS; 0 keeps them as long as other attempts",
    ),
    "VERSION_DAYS": (
        "365",
        variables.number(int, 0, 36_500),
        "How many days earlier fetches of a page stay in its history; 0 keeps them for ever",
    ),
    "SAMPLE_DAYS": (
        "90",
        variables.number(int, 1, 36_500),
        "How many days the counters of each minute are kept, for plots",
    ),
    "ALERT": (
        "",
        variables.webhook,
        "http:// or https:// URL to which brokers post alerts as JSON, such as a lost node or a "
        "full disk, see docs/operations.md; the same on all brokers; secret except for its host",
    ),
    "ALLOW_NETWORKS": (
        "",
        variables.networks,
        "Private and loopback networks (CIDRs) from which pages are fetched",
    ),
    "ALLOW_PORTS": (
        "",
        variables.ports,
        "Ports from which pages are fetched although databases, caches, queues or control "
        "interfaces usually have them, such as 9200",
    ),
    "DNS_SERVERS": (
        "",
        variables.dns_servers,
        "Name servers that workers ask, such as 127.0.0.1:5353,1.1.1.1,[::1]:53; the default port "
        "is 53; if empty, those of /etc/resolv.conf; `system` is the resolver of the operating "
        "system, in 32 threads",
    ),
    "HOOKS": (
        "",
        variables.modules,
        "Modules that crawls may name as hooks, kernels or logins, comma-separated: `module`, "
        "`module:Class`, `package.*`, or `*` for all; empty: all on a broker with tokens, "
        "none on one without; "
        "the same on all workers and brokers",
    ),
    "WORKER_TOKEN": ("", variables.text, "Bearer token of workers; secret"),
    "ADMIN_TOKEN": ("", variables.text, "Bearer token of administrators; secret"),
    "VIEW_TOKEN": ("", variables.text, "Token to see the Monitor, but change nothing; secret"),
    "TLS_CERT": (
        "",
        variables.text,
        "Certificate file (PEM) with which the broker serves its API, and a worker its metrics",
    ),
    "TLS_KEY": ("", variables.text, "Key file (PEM) of GREENCRAWL_TLS_CERT"),
    "TLS_CA": ("", variables.text, "CA file (PEM) with which clients verify the broker"),
    "PROCESSES": ("0", variables.number(int, 0, 1024), "Worker processes; 0: one per core"),
    "GREENLETS": (
        "300",
        variables.number(int, 1, 10_000),
        "Hosts from which one worker process fetches at once; besides these, up to twice as many "
        "whose answers take longer than two seconds",
    ),
    "PARTITIONS": (
        "64",
        variables.number(int, 1, 4096),
        "Number of partitions of a frontier; it cannot be changed later",
    ),
    "WORKER_ID": (
        "",
        variables.worker_id,
        "Name of this worker; if empty, the host name of its machine",
    ),
    "LEASE_SECONDS": (
        "60",
        variables.number(float, 1, 3600),
        "Seconds for which a lease is valid after it was given or extended",
    ),
    "REQUEST_SECONDS": (
        "60",
        variables.number(float, 0.5, 600),
        "Seconds that one request may take in all: look-up, connecting, TLS, head and body; the "
        "same on all workers and brokers",
    ),
    "STALL_SECONDS": (
        "30",
        variables.number(float, 0.5, 3600),
        "Seconds after which a worker process that still parses the same page is killed",
    ),
    "HOST_BYTES": (
        "16777216",
        variables.number(int, 1024, 2**40),
        "Bytes of one host's URLs that may wait in Redis; the others wait in the store",
    ),
    "CREDENTIALS": (
        "",
        variables.optional_path,
        "File (mode 0600) with secrets for logins of crawls; if empty, credentials.toml in the "
        "data folder; or set GREENCRAWL_AUTH_NAME_FIELD, see docs/authentication.md",
    ),
    "SESSION_KEY": (
        "",
        variables.session_key,
        "Key that encrypts the sessions of logins which workers share through Redis; the same on "
        "all machines; `openssl rand -base64 32` makes one; if empty, each machine logs in by "
        "itself; secret",
    ),
    "LOGGER_BIND": (
        "127.0.0.1:8766",
        variables.bind,
        "host:port on which a logger listens; it needs GREENCRAWL_WORKER_TOKEN unless this is "
        "loopback",
    ),
    "LOGGER_DAYS": (
        "14",
        variables.number(int, 1, 3650),
        "How many days a logger keeps lines, including today",
    ),
    "LOG_LEVEL": (
        "info",
        variables.choice("debug", "info", "warning", "error"),
        "Lowest level that is logged: debug, info, warning or error",
    ),
    "FAULT": (
        "",
        variables.text,
        "For tests: POINT[:N][@FILE] kills the process at the Nth pass of that point, "
        "counted while FILE exists; POINT>FILE notes what passes there",
    ),
}
"""Variable without prefix → (default, parser, meaning)."""


RENAMED = {"LOG_MONTHS": "JOURNAL_MONTHS", "LOG_DAYS": "JOURNAL_DAYS"}
"""Names of variables before 0.1.0 → their names now."""


def load(environ: Mapping[str, str] | None = None, **overrides: str) -> Settings:
    """Read settings from ``environ`` (the process's own by default) and keyword overrides.

    An override has the name of the field and the text that the variable would hold. Raises
    :class:`InvalidConfig` naming every unknown and malformed variable at once.
    """
    given = {
        key.removeprefix(PREFIX): value
        for key, value in (os.environ if environ is None else environ).items()
        if key.startswith(PREFIX)
    }
    given.update({name.upper(): value for name, value in overrides.items()})
    problems = [
        (PREFIX + key, _unknown(key))
        for key in sorted(set(given) - set(KEYS))
        if not _AUTH_VARIABLE.fullmatch(key)
    ]
    values: dict[str, Any] = {}
    for key, (default, parse, _) in KEYS.items():
        text = given.get(key, "")
        try:
            values[key.lower()] = parse(text if text.strip() else default)
        except ValueError as error:
            secret = key in SECRETS or key == "ALERT" or "@" in text
            shown = "***" if secret else repr(text[:200])
            problems.append((PREFIX + key, f"{shown}: {error}"))
    if bool(values.get("tls_cert")) != bool(values.get("tls_key")):
        problems.append((PREFIX + "TLS_CERT", "needs GREENCRAWL_TLS_KEY, and the other way round"))
    months, days = values.get("journal_months", 0), values.get("journal_days", 0)
    if 0 < months * 365 // 12 < days:
        over = f"is above {months * 365 // 12} days, GREENCRAWL_JOURNAL_MONTHS={months}"
        problems.append(
            (PREFIX + "JOURNAL_DAYS", f"{days}: {over}: raise that too, or set it to 0")
        )
    if problems:
        raise InvalidConfig(problems)
    said = frozenset(key.lower() for key, text in given.items() if key in KEYS and text.strip())
    return Settings(**values, said=said)


def _unknown(key: str) -> str:
    if key.startswith(AUTH):
        return f"unknown variable: {PREFIX}{AUTH}NAME_… ends in {', '.join(AUTH_FIELDS).upper()}"
    if key in RENAMED:
        return f"is called {PREFIX}{RENAMED[key]} now"
    matches = get_close_matches(key, KEYS, 1)
    meant = f"did you mean {PREFIX}{matches[0]}? " if matches else ""
    return f"unknown variable; {meant}docs/configuration.md lists all"


def mask_url(url: str) -> str:
    """Return the URL with its password, if any, shown as ***.

    A password with "/", "#", "?" or "@" should have been percent-encoded; it is hidden as well. The
    URL is refused later, but it is logged before.
    """
    return _PASSWORD.sub(r"\1:***@", url)


def mask_path(url: str) -> str:
    """Return the URL with all but its scheme and host shown as ***: any part may be a token."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}/***" if url else ""


def changed(settings: Settings) -> dict[str, str]:
    """Return the values that are not the defaults, :func:`masked`, for the log at start."""
    return dict(sorted(masked(settings).items() - masked(load({})).items()))


def masked(settings: Settings) -> dict[str, str]:
    """Return the effective values as text; tokens and passwords in URLs are masked."""
    shown: dict[str, str] = {}
    for key in KEYS:
        value = getattr(settings, key.lower())
        if key in SECRETS:
            shown[key] = "***" if value else ""
        elif key in ("BIND", "METRICS_BIND", "LOGGER_BIND"):
            shown[key] = f"{value[0]}:{value[1]}" if value else ""
        elif isinstance(value, tuple):
            shown[key] = ",".join(mask_url(str(part)) for part in value)
        else:
            shown[key] = mask_url(str(value))
    return {**shown, "ALERT": mask_path(settings.alert)}
