"""``greencrawl explain``: where a URL is, and why it has not been fetched."""

from __future__ import annotations

from collections.abc import Callable

import click
import msgspec

from greencrawl.cli import choose, connecting
from greencrawl.cli.crawlfile import has_scheme, typed_url, with_scheme
from greencrawl.cli.ui import advice
from greencrawl.cli.ui.display import change_text, moment, printable
from greencrawl.schema.errors import GreencrawlError, InvalidUrl
from greencrawl.schema.net.normalising import queued_url
from greencrawl.schema.net.origins import Origins
from greencrawl.schema.net.scope import compile
from greencrawl.schema.net.urls import fingerprint, host_of
from greencrawl.schema.records import Attempt, Crawl, FrontierIdentity, UrlState, Version
from greencrawl.schema.settings import Settings
from greencrawl.schema.text.again import again_text
from greencrawl.schema.text.declared import declared_text
from greencrawl.schema.text.guessed import guessed_text
from greencrawl.schema.text.parked import parked_text
from greencrawl.store.base import Store


@click.command()
@click.argument("url")
@click.option("--crawl", metavar="NAME", help="Only in this crawl.  [default: in every crawl]")
@connecting.data_option
def explain(url: str, crawl: str | None, data: str | None) -> None:
    """Say in which state a URL is, and why.

    A URL is fetched, waiting, held back, excluded by a rule, parked or given up. The command says
    which, in one sentence for each crawl. Then it lists the tries so far, the latest first, and the
    versions of a page that was fetched more than once. It asks the running broker. If none answers,
    it reads the store, which does not know which URLs wait.
    """
    typed_url(url, "URL")
    settings = connecting.load(data)
    broker = connecting.answering(settings)

    def ask(at: str) -> list[UrlState]:
        return broker.url(at, crawl) if broker else _offline(settings, at, crawl)

    asked = with_scheme(url)
    states = ask(asked)
    if not has_scheme(url):
        asked, states = _likelier(asked, states, ask)
        click.echo(printable(f"without a scheme, taken for {asked}"), err=True)
    if not states:
        raise GreencrawlError("there is no crawl yet; start one with `greencrawl crawl URL`")
    for state in states:
        said = f"{state.crawl}: {state.state}. {state.why}".rstrip()
        click.echo(printable(advice.complete(said)))
        for attempt in state.attempts:
            click.echo(printable(f"  {attempt_line(attempt)}"))
        for version in state.versions:
            click.echo(f"  {version_line(version)}")
    if broker is None:
        text = f"{connecting.no_broker(settings)}: this is what the store knows"
        click.echo(text, err=True)


def _likelier(
    asked: str, states: list[UrlState], ask: Callable[[str], list[UrlState]]
) -> tuple[str, list[UrlState]]:
    """Return the answer for the other scheme, if a person wrote no scheme and only the other URL is
    known."""
    if any(state.state not in ("unseen", "invalid") for state in states):
        return asked, states
    scheme, _, rest = asked.partition("://")
    other = f"{'http' if scheme == 'https' else 'https'}://{rest}"
    found = ask(other)
    known = any(state.state not in ("unseen", "invalid") for state in found)
    return (other, found) if known else (asked, states)


def attempt_line(attempt: Attempt) -> str:
    """Return one try as a line: when, status, kind, errors so far, and the wait that followed."""
    wait = f", tried again after {attempt.wait:g} s" if attempt.wait is not None else ""
    detail = f": {attempt.detail}" if attempt.detail else ""
    at = moment(attempt.at_ms)
    return f"{at}  {attempt.code or '-'} {attempt.kind}{detail}, errors {attempt.errors}{wait}"


def version_line(version: Version) -> str:
    """Return one fetch of a page as a line: when, status, size, digest, and whether it had
    changed."""
    digest = version.digest.hex()[:12] or "-"
    return (
        f"{moment(version.fetched_ms)}  version {digest}, {change_text(version)}, "
        f"status {version.status}, {version.body_bytes} bytes"
    )


def versions(store: Store, crawl: int, number: int) -> tuple[Version, ...]:
    """Return a page's history as :class:`UrlState` has it."""
    found = store.history(crawl, number)
    return tuple(found) if len(found) > 1 else ()


def _offline(settings: Settings, url: str, crawl: str | None) -> list[UrlState]:
    with connecting.store(settings) as store:
        crawls = store.crawls()
        chosen = [choose.one(crawls, crawl)] if crawl else crawls
        identity = store.frontier()
        if identity is None:
            return []
        states = [in_store(store, one, url, identity) for one in chosen]
    return [_refused(settings, *pair) for pair in zip(chosen, states, strict=True)]


def _is_seed(crawl: Crawl, url: str) -> bool:
    """Return whether the crawl's options name the URL as a seed."""
    for seed in crawl.options.seeds:
        try:
            if queued_url(crawl.options, seed) == url:
                return True
        except InvalidUrl:
            continue
    return False


def _refused(settings: Settings, crawl: Crawl, state: UrlState) -> UrlState:
    """Return ``state``, with the refused login if that may be why there is no page."""
    if state.state not in ("unseen", "later"):
        return state
    entry = next((e for e in crawl.options.auth if Origins(e.hosts).hold(state.url)), None)
    if entry is None or compile(crawl).excluded_by(state.url, 0, seed=True) is not None:
        return state
    # slow to import, and only needed here
    from greencrawl.worker.auth.base import name_of
    from greencrawl.worker.auth.state.leases import LocalClaims
    from greencrawl.worker.auth.state.vault import Vault

    grant = Vault(settings.logins, LocalClaims(), None).read(name_of(entry))
    if grant is None or not grant.refused:
        return state
    command, when = f"`greencrawl login {entry.name}`", moment(grant.made_ms)
    again = "" if command in grant.refused else f"; {command} tries it again"
    why = f"Not fetched: the login auth {entry.name} was refused at {when}: {grant.refused}{again}."
    return msgspec.structs.replace(state, why=why)


def in_store(store: Store, crawl: Crawl, given: str, identity: FrontierIdentity) -> UrlState:
    """Return what the store knows of a URL, by the frontier's ``identity``."""
    try:
        url = queued_url(crawl.options, given)
    except InvalidUrl as error:
        return UrlState(crawl=crawl.name, url=given, state="invalid", why=f"{error.reason}.")
    number = fingerprint(url, identity.secret, identity.canonicaliser)
    known = UrlState(
        crawl=crawl.name,
        url=url,
        host=host_of(url),
        attempts=tuple(store.attempts(crawl.id, number)),
        versions=versions(store, crawl.id, number),
    )
    page, final = store.page(crawl.id, number, detail="row"), store.final(crawl.id, number)
    rules = compile(crawl)
    first = page or final
    found_as = f" It was found as {first.url}." if first is not None and first.url != url else ""
    if page is not None:
        why = f"Stored at {moment(page.fetched_ms)} with status {page.status}"
        if page.final_url not in ("", page.url):
            kept_out = rules.excluded_by(page.final_url, 1)
            because = f", which the crawl's rules keep out: {kept_out}" if kept_out else ""
            why += f", redirecting to {page.final_url}{because}"
        said = declared_text(page.url, page.canonical, page.directives)
        again = again_text(crawl, url, moment, store.planned(crawl.id, number))
        why = "; ".join(filter(None, (why, said, again))) + f".{found_as}"
        return msgspec.structs.replace(known, state="fetched", why=why, page=page.id)
    if final is not None:
        if final.state == "parked":
            why = parked_text(crawl.name, final, moment(final.at_ms))
            why = f"{why[0].upper()}{why[1:]}."
            return msgspec.structs.replace(known, state="parked", why=why)
        detail = f" ({final.detail})" if final.detail else ""
        why = f"Settled at {moment(final.at_ms)}: {final.kind}{detail}.{found_as}"
        return msgspec.structs.replace(known, state=final.state, why=why)
    as_seed, as_link = rules.excluded_by(url, 0, seed=True), rules.excluded_by(url, 1)
    if as_seed is not None and not known.attempts:
        return msgspec.structs.replace(known, why=f"The crawl's rules keep it out: {as_seed}.")
    if known.attempts and (guessed := guessed_text(url, known.attempts)):
        why = f"{guessed[0].upper()}{guessed[1:]}."
        return msgspec.structs.replace(known, state="seen", why=why)
    if known.attempts:
        why = "Tried and not settled; the command that began the crawl tries it again."
        return msgspec.structs.replace(known, state="later", why=why)
    why = "Not fetched; only a running broker knows whether it is waiting (`greencrawl up`)."
    if as_link is not None and not _is_seed(crawl, url):
        why = (
            f"Not fetched: the crawl's rules keep links to it out ({as_link}). Only a running "
            "broker knows whether it waits as a seed (`greencrawl up`)."
        )
    return msgspec.structs.replace(known, why=why)
