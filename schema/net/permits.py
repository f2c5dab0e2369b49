"""What a crawl may use that belongs to the operator: modules to import, and secrets to send.

The creator of a crawl writes its ``hook``, its ``kernels`` and its ``auth``; the modules and the
secrets belong to the operator. At a broker with tokens only people who hold a token can create a
crawl. What these people write counts, unless ``GREENCRAWL_HOOKS``, or ``hosts`` beside a secret,
allows less. A broker without tokens serves every account of its machine. There a crawl may name
only modules that ``GREENCRAWL_HOOKS`` lists, and only secrets with ``hosts`` that say where they
may go. The broker, which has no secrets, checks a new crawl by its own environment. The worker
checks before it imports a module or sends a secret, by the ``hosts`` beside the secrets.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from greencrawl.schema.net.origins import Origins
from greencrawl.schema.net.providers import login_urls
from greencrawl.schema.net.urls import canonicalise, origin_of
from greencrawl.schema.records import CrawlOptions
from greencrawl.schema.records.auth import BUILT_IN_KERNELS, Auth, Own
from greencrawl.schema.settings import AUTH, PREFIX, Settings

ANY = "*"


@dataclass(frozen=True)
class Permits:
    """``modules`` are the modules in ``GREENCRAWL_HOOKS``; ``hosts`` are the hosts of secrets, by
    entry.

    ``confined``: a secret without ``hosts`` may be sent nowhere. ``*`` stands for all modules, or
    for all hosts.
    """

    modules: tuple[str, ...]
    confined: bool
    hosts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Settings, environ: Mapping[str, str] | None = None) -> Permits:
        """Make the permits of an operator's settings; ``environ`` is the process's own by
        default."""
        open_broker = not (settings.worker_token or settings.admin_token)
        modules = settings.hooks or (() if open_broker else (ANY,))
        return cls(modules, open_broker, _hosts(os.environ if environ is None else environ))

    def module(self, named: str) -> str:
        """Return why a crawl may not name ``module`` or ``module:Class``; "" if it may, or names
        none."""
        module = named.partition(":")[0]
        for pattern in self.modules:
            if pattern in (ANY, module, named):
                return ""
            if pattern.endswith(".*") and module.startswith(pattern[:-1]):
                return ""
        if not named:
            return ""
        why = ": the broker has no tokens, so that anybody may create a crawl"
        where = f"{PREFIX}HOOKS of brokers and workers{why if self.confined else ''}"
        return (
            f"{named!r} is not among the modules that crawls may name: if it is trusted, the "
            f"operator adds it to {where}"
        )

    def secrets(self, entry: Auth, hosts: str, urls: Sequence[str]) -> str:
        """Return why an entry may not use its secrets; "" if it may.

        ``hosts`` are the hosts that the secrets are for, "" if nobody has named them; ``urls`` are
        where the entry would log in.
        """
        if not hosts:
            if not self.confined:
                return ""
            return (
                "its secrets may be sent nowhere: nobody says which hosts they are for, and the "
                "broker has no tokens, so that anybody may create a crawl. If they may go there, "
                "the operator sets "
                f"{variable(entry.name)}={','.join(permitted_hosts(entry, urls))} "
                "for brokers and workers"
            )
        if hosts.strip() == ANY:
            return ""
        named = [part.strip() for part in hosts.split(",") if part.strip()]
        try:
            origins = Origins(named)
        except ValueError as error:
            return f"hosts of the secrets: {error}"
        for url in _places(entry, named, urls):
            if "*" in url or not origins.hold(canonicalise(url)):
                return (
                    f"its secrets are for {', '.join(named)} only, not for {url}: if that is "
                    f"right, the operator adds it to {variable(entry.name)}"
                )
        return ""

    def problems(self, options: CrawlOptions) -> Iterator[tuple[str, str]]:
        """Yield (field, what is wrong) for what a crawl names and may not use, as a broker sees
        it."""
        if why := self.module(options.hook):
            yield "hook", why
        for index, rule in enumerate(options.kernels):
            if rule.kernel not in BUILT_IN_KERNELS and (why := self.module(rule.kernel)):
                yield f"kernels[{index}].kernel", why
        for index, entry in enumerate(options.auth):
            if isinstance(entry, Own) and (why := self.module(entry.login)):
                yield f"auth[{index}].login", why
            hosts = self.hosts.get(entry.name, "")
            if why := self.secrets(entry, hosts, login_urls(entry)):
                yield f"auth[{index}].hosts", why


OWN = Permits((ANY,), confined=False)
"""The permits of users who run crawls of their own in their own process."""


def variable(name: str) -> str:
    """Return the variable that says where the secrets of the entry ``name`` may be sent."""
    return f"{PREFIX}{AUTH}{name.upper()}_HOSTS"


def permitted_hosts(entry: Auth, urls: Sequence[str]) -> list[str]:
    """Return the ``hosts`` under which an entry that logs in at ``urls`` may use its secrets."""
    logins = [origin_of(canonicalise(url)) for url in urls if url]
    written = [f"https://{host}" for host in entry.hosts if "://" not in host]
    return list(dict.fromkeys([*entry.hosts, *(one for one in logins if one not in written)]))


def _places(entry: Auth, named: Sequence[str], urls: Sequence[str]) -> Iterator[str]:
    yield from (url for url in urls if url)
    for host in entry.hosts:
        if host not in named:
            yield host if "://" in host else f"https://{host}"


def _hosts(environ: Mapping[str, str]) -> dict[str, str]:
    start, end = PREFIX + AUTH, "_HOSTS"
    return {
        key[len(start) : -len(end)].lower(): value
        for key, value in environ.items()
        if key.startswith(start) and key.endswith(end) and value.strip()
    }
