"""How the text of a setting's variable is read. Readers raise ValueError for what they refuse."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

SESSION_KEY_LENGTH = 32
_MODULES = re.compile(r"\*|[A-Za-z_][\w.]*(\.\*|:[A-Za-z_]\w*)?")


def text(value: str) -> str:
    """Return the text without white space around it."""
    return value.strip()


def parts(value: str) -> tuple[str, ...]:
    """Return the parts between commas, without empty ones."""
    return tuple(part.strip() for part in value.split(",") if part.strip())


def bind(value: str) -> tuple[str, int]:
    """Return (host, port) of ``host:port``."""
    host, _, port = value.strip().rpartition(":")
    if not host or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise ValueError("must be host:port, as in 127.0.0.1:8765")
    return host.strip("[]"), int(port)


def optional_bind(value: str) -> tuple[str, int] | None:
    """Return :func:`bind`, or None for ""."""
    return bind(value) if value.strip() else None


def addresses(*schemes: str) -> Callable[[str], tuple[str, ...]]:
    """Return a reader of addresses with one of these schemes; it refuses an address given twice."""

    def parse(value: str) -> tuple[str, ...]:
        found = parts(value)
        for address in found:
            split = urlsplit(address)
            if split.scheme not in schemes or not (split.netloc or split.path):
                raise ValueError(f"each must start with {' or '.join(s + '://' for s in schemes)}")
        if len(set(found)) != len(found):
            raise ValueError("names an address twice")
        return found

    return parse


def store(value: str) -> str:
    """Return the URL of a store, or ""."""
    if value.strip() and urlsplit(value).scheme not in ("sqlite", "mysql"):
        raise ValueError("must start with sqlite:// or mysql://")
    return value.strip()


def webhook(value: str) -> str:
    """Return the URL of a webhook, or ""."""
    try:
        split = urlsplit(value.strip())
        named = split.scheme in ("http", "https") and bool(split.hostname) and split.port != 0
    except ValueError:
        named = False
    if value.strip() and not (named and value.strip().isascii() and value.strip().isprintable()):
        raise ValueError("must be http://HOST/… or https://HOST/…")
    if " " in value.strip():
        raise ValueError("must have no space in it")
    return value.strip()


def account(value: str) -> str:
    """Return ``USER:PASSWORD``, or ""."""
    user, colon, _ = value.strip().partition(":")
    if value.strip() and not (user and colon):
        raise ValueError("must be USER:PASSWORD")
    return value.strip()


def bodies(value: str) -> str:
    """Return ``sql``, or ``warc:`` and the full path of a folder."""
    kind, _, folder = value.strip().partition(":")
    if kind == "sql" and not folder:
        return kind
    if kind != "warc" or not folder.strip():
        raise ValueError("must be sql, or warc:FOLDER")
    return f"warc:{path(folder)}"


def networks(value: str) -> tuple[Network, ...]:
    """Return networks in CIDR notation."""
    return tuple(ipaddress.ip_network(part, strict=False) for part in parts(value))


def ports(value: str) -> tuple[int, ...]:
    """Return port numbers."""
    return tuple(number(int, 1, 65_535)(part) for part in parts(value))


SYSTEM = "system"
"""Stands for the resolver of the operating system, in place of name servers."""


def dns_servers(value: str) -> tuple[str, ...]:
    """Return name servers, each as ``address:port`` (``[address]:port`` for IPv6), none twice.

    :data:`SYSTEM` alone is allowed, too.
    """
    if value.strip().lower() == SYSTEM:
        return (SYSTEM,)
    found = []
    for part in parts(value):
        host, port = part, "53"
        if part.startswith("[") or part.count(":") == 1:
            host, _, port = part.removeprefix("[").replace("]", "", 1).rpartition(":")
        shown = ipaddress.ip_address(host)
        number(int, 1, 65_535)(port)
        found.append(f"{shown}:{port}" if shown.version == 4 else f"[{shown}]:{port}")
    if len(set(found)) != len(found):
        raise ValueError("names a server twice")
    return tuple(found)


def modules(value: str) -> tuple[str, ...]:
    """Return names of modules, ``module:Class`` or ``package.*`` among them, or ``*``."""
    found = parts(value)
    for part in found:
        if not _MODULES.fullmatch(part):
            raise ValueError(f"{part!r} is none of module, module:Class, package.* and *")
    return found


def number(kind: type[int] | type[float], low: float, high: float) -> Callable[[str], Any]:
    """Return a reader of numbers from ``low`` to ``high``."""

    def parse(value: str) -> Any:
        try:
            given = kind(value)
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            raise ValueError(f"must be {what} from {low:g} to {high:g}") from None
        if not low <= given <= high:
            raise ValueError(f"must be from {low:g} to {high:g}")
        return given

    return parse


def choice(*allowed: str) -> Callable[[str], str]:
    """Return a reader that accepts one of some words."""

    def parse(value: str) -> str:
        if value.strip().lower() not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}")
        return value.strip().lower()

    return parse


def path(value: str) -> Path:
    """Return a full path, with the home folder written out."""
    return Path(value.strip()).expanduser().absolute()


def optional_path(value: str) -> str:
    """Return a full path, or ""."""
    return str(path(value)) if value.strip() else ""


def session_key(value: str) -> str:
    """Return a key that is long enough, or ""."""
    if value.strip() and len(value.strip()) < SESSION_KEY_LENGTH:
        least = f"must have at least {SESSION_KEY_LENGTH} characters"
        raise ValueError(f"{least}: `openssl rand -base64 32` makes one")
    return value.strip()


def worker_id(value: str) -> str:
    """Return a name of letters, digits and ``._-``; the name of this machine by default."""
    name = value.strip() or socket.gethostname()
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in name)[:80]
