"""``greencrawl login``: tries a crawl's login from the terminal, and asks for a person's
consent."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import cast

import click
import gevent

from greencrawl.cli import choose, connecting, crawlfile
from greencrawl.cli.local import consent
from greencrawl.cli.local.data_folder import holder
from greencrawl.cli.ui import advice
from greencrawl.cli.ui.display import moment, printable
from greencrawl.schema.clock import epoch_ms, monotonic
from greencrawl.schema.errors import GreencrawlError, Refused, Unavailable
from greencrawl.schema.net.origins import Origins
from greencrawl.schema.net.permits import OWN, Permits
from greencrawl.schema.net.request import crawl_headers
from greencrawl.schema.net.urls import canonicalise, host_of
from greencrawl.schema.records import CrawlOptions, Failure, FailureKind, Fetched, HostPatch
from greencrawl.schema.records.auth import Auth, Form, OAuth1, OAuth2
from greencrawl.schema.settings import Settings
from greencrawl.worker.auth.base import Grant, Kind, LoginFailed, LoginRefused, Verdict, name_of
from greencrawl.worker.auth.state.leases import Claims, LocalClaims
from greencrawl.worker.auth.state.secrets import EntrySecrets, Secrets
from greencrawl.worker.auth.state.vault import Claim, Vault, open_vault
from greencrawl.worker.http.client import Downloader

MAX_BODY_BYTES = 2 * 1024 * 1024
WAIT_SECONDS = 0.2
"""Seconds between two checks whether a worker has ended its present login."""


@dataclass(frozen=True)
class Wanted:
    """An entry, and the options of its crawl. ``permits`` say what the entry may use."""

    entry: Auth
    options: CrawlOptions
    permits: Permits


@click.command()
@click.argument("name")
@click.argument("file", required=False, metavar="[FILE.toml]")
@click.option("--crawl", metavar="CRAWL", help="Take the entry from this crawl, not from a file.")
@click.option(
    "--url", metavar="URL", help="A page to try.  [default: the crawl's first seed there]"
)
@click.option("--redirect-uri", metavar="URI", help="OAuth: the redirect that the provider knows.")
@click.option("--paste", is_flag=True, help="OAuth: paste the browser's answer here by hand.")
@click.option("--status", is_flag=True, help="Only show the state of the last login.")
@click.option(
    "--forget", is_flag=True, help="Delete the state of the last login; the next one starts anew."
)
@connecting.data_option
def login(
    name: str,
    file: str | None,
    crawl: str | None,
    url: str | None,
    redirect_uri: str | None,
    paste: bool,
    status: bool,
    forget: bool,
    data: str | None,
) -> None:
    """Log in with an entry of a crawl's `auth`, for the workers.

    The command says whether the site accepts the login, or why not. For OAuth that needs a person
    (grant `code`, OAuth 1.0a) it shows the address to open, and waits for the browser's answer. The
    entry NAME is from FILE.toml, or from a known crawl. Secrets: see docs/authentication.md."""
    if status and forget:
        raise click.UsageError("use --status or --forget, not both")
    settings = connecting.load(data)
    wanted = _wanted(settings, name, file, crawl)
    with _leases(settings) as leases:
        vault = open_vault(settings, leases)
        if status:
            _show(vault, wanted.entry)
        elif forget:
            _forget(vault, settings, wanted.entry)
        else:
            login = _Login(settings, vault, wanted, consent.Way(redirect_uri, paste))
            with closing(login):
                _say(login.run(url))
            _unblock(settings, wanted.entry)


def _say(text: str) -> None:
    click.echo(printable(advice.complete(text)))


# -- the entry, and where claims are


def _wanted(settings: Settings, name: str, file: str | None, crawl: str | None) -> Wanted:
    """Return the entry of that name.

    Raises GreencrawlError with a list of the entries if there is none.
    """
    if file is not None and crawl is not None:
        raise click.UsageError("give FILE.toml or --crawl, not both")
    if file is not None:
        if not crawlfile.is_file(file):
            raise click.UsageError(f"{file}: the name of a crawl's file must end in .toml")
        options: Sequence[CrawlOptions] = (crawlfile.build((file,), {}),)
        permits = OWN
    else:
        options, permits = _options(settings, name, crawl)
    found = [Wanted(e, one, permits) for one in options for e in one.auth if e.name == name]
    if not found:
        names = sorted({entry.name for one in options for entry in one.auth})
        there = f"; there are: {', '.join(names)}" if names else ""
        where = file or (f"crawl {crawl}" if crawl else "the crawls that are known")
        ask = (
            "" if file else "; name the file that describes the crawl: `greencrawl login NAME FILE`"
        )
        raise GreencrawlError(f"no auth entry is called {name!r} in {where}{there}{ask}")
    if len({name_of(one.entry) for one in found}) > 1:
        raise GreencrawlError(f"crawls have different entries {name!r}: name one with --crawl")
    return found[0]


def _options(
    settings: Settings, name: str, crawl: str | None
) -> tuple[Sequence[CrawlOptions], Permits]:
    """Return the options of known crawls, and their permits: anybody may create a crawl."""
    permits = OWN
    broker = connecting.answering(settings)
    if broker is not None:
        crawls, permits = broker.crawls(), Permits.of(settings)
    else:
        path = connecting.sqlite_path(settings)
        if path is not None and not path.exists():
            raise GreencrawlError(
                f"{connecting.nothing_in(path.parent)}, or name the file that describes the crawl: "
                f"`greencrawl login {name} FILE.toml`"
            )
        with connecting.store(settings) as store:
            crawls = store.crawls()
    if crawl is not None:
        crawls = [choose.one(crawls, crawl)]
    return [one.options for one in crawls], permits


@contextmanager
def _leases(settings: Settings) -> Iterator[Claims]:
    """Yield the frontier, so that no worker logs in meanwhile; without a frontier, local claims.

    If a login is stored without a frontier, the first worker that reads it gives it to the
    frontier. Raises Unavailable when Redis should answer and does not.
    """
    from greencrawl.broker.frontier import Frontier

    path = connecting.sqlite_path(settings)
    if path is not None and not path.exists():  # nothing has been crawled yet
        yield LocalClaims()
        return
    with connecting.store(settings) as store:
        try:
            frontier = Frontier(
                settings.redis_addresses,
                store,
                partitions=settings.partitions,
                lease_seconds=settings.lease_seconds,
                request_seconds=settings.request_seconds,
                create=False,
            )
        except Unavailable:
            if store.frontier() is not None and not _may_rest(settings):
                raise
            yield LocalClaims()
            return
        try:
            yield frontier
        finally:
            frontier.stop()


def _may_rest(settings: Settings) -> bool:
    """Return whether Redis runs only with our own processes, and none of them runs."""
    return settings.embedded_redis and not holder(settings.data)


def _claimed(vault: Vault, settings: Settings, entry: Auth) -> Claim:
    """Claim the login. Raises GreencrawlError when a worker has it for too long."""
    limit = monotonic() + settings.request_seconds * 2
    told = False
    while (claim := vault.claim(name_of(entry))) is None:
        if monotonic() >= limit:
            raise GreencrawlError(f"a worker is logging in as auth {entry.name}: try again later")
        if not told:
            click.echo(f"a worker is logging in as auth {entry.name}; waiting", err=True)
            told = True
        gevent.sleep(WAIT_SECONDS)
    return claim


# -- the stored state


def _show(vault: Vault, entry: Auth) -> None:
    name = name_of(entry)
    grant = vault.read(name)
    if grant is None:
        _say(f"auth {entry.name}: nothing is kept; workers log in when they need to")
        return
    _say(f"auth {entry.name}: {'refused' if grant.refused else 'logged in'} as {grant.account}")
    _say(f"  {'tried   ' if grant.refused else 'made    '} {moment(grant.made_ms)}")
    if grant.refused:
        _say(f"  refused  {grant.refused}")
        _say(f"  again    not before {moment(grant.until_ms)}, or when its secrets change")
    else:
        ends = moment(grant.expires_ms) if grant.expires_ms else "when the site ends it"
        over = " (over)" if 0 < grant.expires_ms <= epoch_ms() else ""
        more = "; refreshed without asking" if grant.token.get("refresh_token") else ""
        _say(f"  expires  {ends}{over}{more}")
    _say(f"  kept in  {vault.file(name)}")


def _forget(vault: Vault, settings: Settings, entry: Auth) -> None:
    with _claimed(vault, settings, entry) as claim:
        if not claim.forget():
            raise GreencrawlError(f"a worker logs in as auth {entry.name} now: try again")
    _say(
        f"auth {entry.name}: forgotten; running workers keep their login until it ends, and the "
        f"site is not told to log out"
    )


def _unblock(settings: Settings, entry: Auth) -> None:
    """Let workers ask the entry's hosts again at once, if a failed login had blocked them."""
    broker = connecting.answering(settings)
    if broker is None:
        return
    plain = [pattern for pattern in entry.hosts if "*" not in pattern]
    try:
        for origin in (one if "://" in one else f"https://{one}" for one in plain):
            host = host_of(canonicalise(origin))
            state = broker.host(host)
            if state.blocked_in > 0 and re.search(rf"\bauth {entry.name}\b", state.why):
                broker.patch_host(host, HostPatch(block=0.0))
                _say(f"{host} was blocked because the login failed; requests to it start again now")
    except (Refused, Unavailable) as error:
        click.echo(f"blocked hosts stay blocked: the broker says {error}", err=True)


# -- the login


class _Login:
    """A login from the terminal: its requests are sent at once, one after another."""

    def __init__(self, settings: Settings, vault: Vault, wanted: Wanted, way: consent.Way) -> None:
        self._settings = settings
        self._vault = vault
        self._entry, self._options = wanted.entry, wanted.options
        self._permits = wanted.permits
        self._way = way
        self._headers = crawl_headers(wanted.options)
        self._secrets = Secrets(settings.credentials_file)
        self._downloader = Downloader(
            settings.allow_networks,
            settings.request_seconds,
            allow_ports=settings.allow_ports,
            dns_servers=settings.dns_servers,
        )

    def close(self) -> None:
        self._downloader.close()

    def run(self, url: str | None) -> str:
        """Log in, and return the outcome in a sentence.

        Raises GreencrawlError if the login is refused.
        """
        from greencrawl.worker.auth.kinds import form_page, registry

        form_page.in_own_process()
        page = crawlfile.seed_url(url) if url else self._page()
        if page is not None and not Origins(self._entry.hosts).hold(page):
            raise GreencrawlError(f"{page} is not on the hosts of auth {self._entry.name}")
        secrets = self._secrets.of(self._entry)
        try:
            kind = registry.make(self._entry, secrets, self._permits)
        except LoginRefused as error:
            raise GreencrawlError(printable(f"refused: {error}")) from None
        if page is None and not kind.logs_in:
            raise GreencrawlError(f"nothing was tried: {self._no_page()}")
        grant = None
        if kind.logs_in:
            with _claimed(self._vault, self._settings, self._entry) as claim:
                grant = self._log_in(claim, kind, secrets)
        who = (
            f"auth {self._entry.name} as {kind.account}"
            if kind.account
            else (f"auth {self._entry.name}")
        )
        if page is not None:
            return f"in: {who}; {self._try(kind, grant, page)}"
        checked = isinstance(self._entry, Form) and self._entry.check_url
        return f"in: {who}" if checked else f"in: {who}; no page was tried: {self._no_page()}"

    def _log_in(self, claim: Claim, kind: Kind, secrets: EntrySecrets) -> Grant:
        from greencrawl.worker.auth.kinds import registry
        from greencrawl.worker.auth.transport import refusals, session_over

        def send(
            method: str, url: str, headers: Mapping[str, str], body: bytes
        ) -> Fetched | Failure:
            if not claim.renew():
                return Failure(FailureKind.LOGIN, "a worker has taken it over", requests=0)
            return self._fetch(url, headers, method, body)

        name = name_of(self._entry)
        old = self._vault.read(name)
        session = session_over(send, self._headers, registry.trusted(self._entry))
        try:
            with refusals(f"auth {self._entry.name}"):
                if _asks_a_person(self._entry, secrets):
                    asking = cast(consent.ConsentKind, kind)
                    made = consent.obtain(asking, session, self._way, consent.WAIT_SECONDS)
                else:
                    made = kind.log_in(session, None)
        except LoginRefused as error:
            raise GreencrawlError(printable(f"refused: {error}")) from None
        except LoginFailed as error:
            raise GreencrawlError(printable(f"the login could not be made: {error}")) from None
        made.account, made.made_ms = kind.account, epoch_ms()
        made.generation = old.generation + 1 if old else 1
        made.secrets_digest = self._secrets.digest(self._entry)
        if not claim.put(made):
            raise GreencrawlError(f"a worker logged in as auth {self._entry.name} meanwhile")
        return made

    def _try(self, kind: Kind, grant: Grant | None, page: str) -> str:
        """Ask for one page with the credentials.

        Raises GreencrawlError when it still asks for a login.
        """
        answer, verdict = self._ask(kind, grant, page)
        if verdict == "again":
            answer, verdict = self._ask(kind, grant, page)
        if verdict != "in" or answer.status in (401, 403, 407):
            though = ", in spite of the login that was just made" if grant else ""
            raise GreencrawlError(f"refused: {page} answers {_shown(answer)}{though}")
        return f"{page} answers {_shown(answer)}"

    def _ask(self, kind: Kind, grant: Grant | None, page: str) -> tuple[Fetched, Verdict | Failure]:
        target, sent = kind.prove(page, self._headers, grant)
        answer = self._fetch(target, sent)
        if isinstance(answer, Failure):
            raise GreencrawlError(f"{page} does not answer: {answer.kind} {answer.detail}")
        answer.url = page
        return answer, kind.judge(answer, grant)

    def _page(self) -> str | None:
        """Return a page to try: the first seed or list on the hosts of the entry; None: no page."""
        if isinstance(self._entry, Form) and self._entry.check_url:
            return None  # the login itself has asked for this page
        origins = Origins(self._entry.hosts)
        lists = [source.url for source in self._options.sources]
        found = (canonicalise(url) for url in (*self._options.seeds, *lists))
        return next((url for url in found if origins.hold(url)), None)

    def _no_page(self) -> str:
        """Say why there is no page to try, and what to do."""
        hosts = ", ".join(one if "://" in one else f"https://{one}" for one in self._entry.hosts)
        return f"no seed is on its hosts ({hosts}); correct `hosts`, or name a page with --url"

    def _fetch(
        self, url: str, headers: Mapping[str, str], method: str = "GET", body: bytes = b""
    ) -> Fetched | Failure:
        return self._downloader.fetch(
            url,
            headers,
            max_body_bytes=MAX_BODY_BYTES,
            deadline=monotonic() + self._settings.request_seconds,
            method=method,
            body=body,
        )


def _shown(answer: Fetched) -> str:
    """Return the status, and the target of a redirect: often it is the login page."""
    place = answer.location.partition("?")[0] if 300 <= answer.status < 400 else ""
    return f"{answer.status} (redirect to {place})" if place else f"{answer.status}"


def _asks_a_person(entry: Auth, secrets: EntrySecrets) -> bool:
    if isinstance(entry, OAuth1):
        return "token" not in secrets
    return isinstance(entry, OAuth2) and entry.grant == "code"
