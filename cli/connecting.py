"""How a command finds its settings, the broker to ask, and the store to read without one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import takewhile
from pathlib import Path

import click

from greencrawl.broker.client import BrokerClient
from greencrawl.cli.local.data_folder import holder, in_use
from greencrawl.cli.ui import advice
from greencrawl.schema import settings as configuration
from greencrawl.schema.errors import GreencrawlError, Refused, Unavailable
from greencrawl.schema.settings import Settings
from greencrawl.store import open_store
from greencrawl.store.base import Store

data_option = click.option(
    "--data",
    metavar="DIR",
    default=None,
    help="Data folder.  [default: $GREENCRAWL_DATA, else data]",
)

_ADVICE = "greencrawl store status"

DEMO = "demo"
"""The folder in a data folder that ``crawl --demo`` uses as its own data folder."""

CALL_SECONDS = 30.0
"""The longest time in seconds of a command's call to the broker."""
FROZEN_SECONDS = 2.0
"""A broker that is silent for this long is asked after the others."""


def load(data: str | None = None, **overrides: str | None) -> Settings:
    """Load settings from the environment, overridden by ``--data`` and other options (None: not
    given).

    If a later message advises a command, this command names the same folder. Raises
    :class:`greencrawl.schema.errors.InvalidConfig`.
    """
    given = {name: value for name, value in {"data": data, **overrides}.items() if value}
    loaded = configuration.load(None, **given)
    advice.use(loaded.data)
    if data and not named_broker():
        # If a person names a folder, a broker of another folder must not answer.
        return replace(loaded, broker=())
    return loaded


def named_broker() -> bool:
    """Return whether the environment names a broker to use instead of our own."""
    return bool(os.environ.get("GREENCRAWL_BROKER", "").strip())


def own_address(settings: Settings) -> str:
    """Return the address at which this machine reaches a broker that is bound as ``settings``
    say."""
    host, port = settings.bind
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"
    name = f"[{host}]" if ":" in host else host
    return f"{'https' if settings.tls_cert else 'http'}://{name}:{port}"


def addresses(settings: Settings) -> tuple[str, ...]:
    """Return the addresses at which a command looks for a broker.

    These are the addresses in the environment; else the address of the broker that now serves the
    data folder; else the default address.
    """
    if named_broker():
        return settings.broker
    other = holder(settings.data)
    return (other.broker,) if other else settings.broker


def client(settings: Settings, *at: str) -> BrokerClient:
    """Return a client of the brokers ``at`` these addresses, with the administrator's token.

    If there are several brokers, the client first asks one that answers within
    :data:`FROZEN_SECONDS`.
    """
    if len(at) > 1:
        late = list(takewhile(partial(_is_silent, settings), at))
        at = (*at[len(late) :], *late)
    return BrokerClient(at, settings.admin_token, ca=settings.tls_ca, timeout=CALL_SECONDS)


def _is_silent(settings: Settings, address: str) -> bool:
    """Return whether a broker does not answer soon: it is away, or frozen."""
    one = BrokerClient((address,), ca=settings.tls_ca, timeout=FROZEN_SECONDS)
    try:
        return bool(one.trouble("/healthz"))
    except Refused:
        return False


def answering(settings: Settings) -> BrokerClient | None:
    """Return a client whose broker is ready now, or None."""
    at = addresses(settings)
    found = client(settings, *at) if at else None
    return found if found is not None and is_ready(found) else None


def no_broker(settings: Settings) -> str:
    """Say that no broker answers, and where it was looked for if a person has named it."""
    at = addresses(settings) if named_broker() else ()
    return f"no broker answers at {', '.join(at)}" if at else "no broker is running"


def nothing_runs(settings: Settings) -> bool:
    """Return whether no process can be at work on the crawls of the store.

    The result is False if a broker elsewhere may serve the crawls: the environment names a broker,
    or the store or Redis is not in the data folder.
    """
    alone = settings.embedded_redis and not settings.store
    return alone and not named_broker() and not in_use(settings.data)


def is_ready(broker: BrokerClient) -> bool:
    """Return whether a broker is ready; False if it is away, or if another program answers."""
    try:
        return broker.ready()
    except Refused:
        return False


class NoBroker(GreencrawlError):
    """Raised when a command needs a broker and none answers; the message says how to start one."""

    def __init__(self, settings: Settings) -> None:
        at = addresses(settings)
        where = f" at {', '.join(at)}" if at else f" for {settings.data}"
        super().__init__(
            f"no broker answers{where}; start one with `greencrawl up`, or name one in "
            "GREENCRAWL_BROKER"
        )


def required(settings: Settings) -> BrokerClient:
    """Return a client whose broker is ready.

    Raises :class:`NoBroker`, and Unavailable that says why a broker that answers is not ready.
    """
    found = living(settings)
    if why := found.trouble():
        raise Unavailable(f"no broker is ready: {why}")
    return found


def living(settings: Settings) -> BrokerClient:
    """Return a client whose broker answers, ready or not: for calls that need no Redis, such as
    orders and logs.

    Raises :class:`NoBroker`.
    """
    at = addresses(settings)
    found = client(settings, *at) if at else None
    try:
        if found is not None and not found.trouble("/healthz"):
            return found
    except Refused:  # another program answers
        pass
    raise NoBroker(settings)


@contextmanager
def store(settings: Settings, *, upgrade: bool = False) -> Iterator[Store]:
    """Open the store of ``settings``, without a broker.

    A command that only reads leaves the schema alone; ``upgrade`` brings it up to date. Raises
    :class:`GreencrawlError` when there is none yet: reading creates nothing.
    """
    path = sqlite_path(settings)
    try:
        new = path is not None and not path.exists()
    except OSError as error:
        where = str(settings.data)[:200]
        raise GreencrawlError(f"cannot read {where}: {error.strerror}") from error
    if path is not None and new:
        raise GreencrawlError(nothing_in(path.parent))
    try:
        opened = open_store(settings.store_url, settings.bodies, upgrade=upgrade)
    except Unavailable as error:
        if path is not None or _ADVICE in str(error):
            raise
        raise Unavailable(f"{error}; `{_ADVICE}` says which servers answer") from error
    try:
        yield opened
    finally:
        opened.close()


def nothing_in(folder: Path) -> str:
    """Say that nothing has been crawled into a data folder; name that of the demo if it has one."""
    demo = folder / DEMO
    there = (
        f" (`crawl --demo` has crawled into {demo})" if (demo / "content.sqlite").exists() else ""
    )
    return f"nothing has been crawled into {folder} yet{there}; see --data"


def sqlite_path(settings: Settings) -> Path | None:
    """Return the file of a SQLite store, or None for another kind."""
    scheme, _, path = settings.store_url.partition(":///")
    return Path(path) if scheme == "sqlite" else None
