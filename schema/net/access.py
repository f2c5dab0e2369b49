"""Checks of a crawl's ``auth`` and ``sources``, and the links that ``auth`` keeps out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from greencrawl.schema.errors import InvalidUrl
from greencrawl.schema.net.action_data import Action
from greencrawl.schema.net.actions import by_url
from greencrawl.schema.net.origins import Origins, is_root, same_page
from greencrawl.schema.net.origins import problem as origin_problem
from greencrawl.schema.net.urls import canonicalise, origin_of
from greencrawl.schema.records.auth import Auth, Bearer, Form, OAuth1, OAuth2, Own, Source
from greencrawl.schema.text import expressions
from greencrawl.schema.text.patterns import Patterns
from greencrawl.schema.text.patterns import problem as pattern_problem

_HEADER = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PREFIX = re.compile(r"[\x20-\x7e]*")
_RESERVED = frozenset(
    {"accept-encoding", "connection", "content-length", "host", "te", "transfer-encoding"}
    | {"upgrade", "user-agent"}
)

Problems = Iterator[tuple[str, str]]
"""``(field, what is wrong with it)`` pairs."""


# --- links that a logged-in session must not follow ------------------------------------------


@dataclass(frozen=True, slots=True)
class Skip:
    """The URLs that an entry of ``auth`` excludes on its origins."""

    name: str
    origins: Origins
    patterns: Patterns
    login_url: str
    """Canonical; "" if there is no login page, or if it is the start page."""
    words: bool
    """True if links are skipped whose words show that they log out or change something."""
    followed: Patterns
    """URLs that are fetched although their words show an action."""

    def reason(self, url: str) -> str | None:
        """Return why a canonical URL under these origins is not fetched, None if it is."""
        if self.login_url and same_page(url, self.login_url):
            return f"auth {self.name}: the login page"
        tail = url[len(origin_of(url)) :]
        pattern = self.patterns.first(tail) if self.patterns.texts else None
        if pattern is not None:
            return f"auth {self.name}: skip pattern {pattern.removeprefix(_IGNORE_CASE)!r}"
        found = by_url(tail) if self.words else None
        if found is None or self.lets(url):
            return None
        action, place = found
        return f"auth {self.name}: {action} in {place}"

    def lets(self, url: str) -> bool:
        """Return whether the crawl wants this URL fetched, whatever its words show."""
        return bool(self.followed.texts) and self.followed.first(url) is not None


_IGNORE_CASE = "(?i)"
_says_action = re.compile(r"auth \w+: action ").match


def is_action(reason: str) -> bool:
    """Return whether a reason, for example from :func:`skipped`, says that a link is an action."""
    return _says_action(reason) is not None


def skips(entries: Sequence[Auth], followed: Sequence[str] = ()) -> tuple[Skip, ...]:
    """Return the skip rules of the entries, in their order: the first entry that names an origin
    counts.

    ``followed`` are patterns of actions that are not skipped.
    """
    lets = Patterns(followed)
    return tuple(
        Skip(
            name=entry.name,
            origins=Origins(entry.hosts),
            patterns=Patterns([_IGNORE_CASE + pattern for pattern in entry.skip or ()]),
            login_url=_login_page(entry),
            words=entry.skip != (),
            followed=lets,
        )
        for entry in entries
    )


def skipped(found: tuple[Skip, ...], url: str) -> str | None:
    """Return why the entry for a canonical URL's origin keeps the URL out, None if it does not."""
    for skip in found:
        if skip.origins.hold(url):
            return skip.reason(url)
    return None


def skipped_text(found: tuple[Skip, ...], url: str, action: Action, page: str) -> str | None:
    """Return why a canonical URL is kept out to which a link on ``page`` with this ``action``
    leads, or None.

    Links are kept out only under the origins of entries.
    """
    return _of_page(found, url, f"{action} in the text of a link on {page}")


def skipped_form(found: tuple[Skip, ...], url: str, page: str) -> str | None:
    """Return why a canonical URL is kept out to which a form of ``page`` leads, or None."""
    return _of_page(found, url, f"action of a form on {page}")


def _of_page(found: tuple[Skip, ...], url: str, what: str) -> str | None:
    for skip in found:
        if skip.origins.hold(url):
            return f"auth {skip.name}: {what}" if skip.words and not skip.lets(url) else None
    return None


def _login_page(entry: Auth) -> str:
    if not isinstance(entry, Form | Own) or not entry.login_url:
        return ""
    url = canonicalise(entry.login_url)
    return "" if is_root(url) else url


# --- what is wrong ---------------------------------------------------------------------------


def check_auth(entries: Sequence[Auth]) -> Problems:
    """Yield what is wrong with a crawl's ``auth`` beyond its types."""
    names: dict[str, int] = {}
    for index, entry in enumerate(entries):
        at = f"auth[{index}]"
        if entry.name in names:
            yield f"{at}.name", f"{entry.name!r} is auth[{names[entry.name]}] already"
        names.setdefault(entry.name, index)
        wrong = [(i, what) for i, host in enumerate(entry.hosts) if (what := origin_problem(host))]
        for i, what in wrong:
            yield f"{at}.hosts[{i}]", what
        for i, pattern in enumerate(entry.skip or ()):
            yield from _pattern(f"{at}.skip[{i}]", pattern)
        bad = {i for i, _ in wrong}
        origins = Origins([host for i, host in enumerate(entry.hosts) if i not in bad])
        yield from _of_kind(at, entry, origins)


def _of_kind(at: str, entry: Auth, origins: Origins) -> Problems:
    match entry:
        case Bearer():
            yield from _bearer(at, entry)
        case Form():
            yield from _url(f"{at}.login_url", entry.login_url, origins)
            yield from _url(f"{at}.check_url", entry.check_url, origins, within=True)
            for field in ("logged_in", "logged_out"):
                yield from _pattern(f"{at}.{field}", getattr(entry, field))
        case Own():
            yield from _url(f"{at}.login_url", entry.login_url, origins)
        case OAuth1():
            wanted = ("request_token_url", "authorize_url", "access_token_url")
            given = [field for field in wanted if getattr(entry, field)]
            if given and not entry.provider:
                for field in wanted:
                    if field not in given:
                        yield f"{at}.{field}", f"is needed along with {given[0]}"
            yield from _endpoints(at, entry, wanted, origins)
        case OAuth2():
            needed = ("token_url", "authorize_url") if entry.grant == "code" else ("token_url",)
            for field in needed:
                if not entry.provider and not getattr(entry, field):
                    yield f"{at}.{field}", f"is needed for grant = {entry.grant}"
            yield from _pattern(f"{at}.expired", entry.expired)
            if not _PREFIX.fullmatch(entry.prefix):
                yield f"{at}.prefix", "must be printable ASCII"
            yield from _endpoints(at, entry, ("token_url", "authorize_url"), origins)


def _bearer(at: str, entry: Bearer) -> Problems:
    if not _HEADER.fullmatch(entry.header):
        yield f"{at}.header", f"{entry.header!r} is no name of a header"
    elif entry.header.lower() in _RESERVED:
        yield f"{at}.header", f"{entry.header} is the crawler's own"
    if not _PREFIX.fullmatch(entry.prefix):
        yield f"{at}.prefix", "must be printable ASCII"
    if entry.query and not entry.query.isprintable():
        yield f"{at}.query", "must be printable"


def _endpoints(
    at: str, entry: OAuth1 | OAuth2, fields: Sequence[str], origins: Origins
) -> Problems:
    for field in fields:
        yield from _url(f"{at}.{field}", getattr(entry, field), origins)
    if not entry.base:
        return
    if not entry.provider:
        yield f"{at}.base", "needs a provider, whose origin it replaces"
    wrong = list(_url(f"{at}.base", entry.base, origins))
    yield from wrong
    if not wrong and not is_root(canonicalise(entry.base)):
        yield f"{at}.base", f"{entry.base!r} is no origin: without a path"


def _url(field: str, text: str, origins: Origins, *, within: bool = False) -> Problems:
    """Check a URL that secrets are sent to: it needs TLS, unless ``hosts`` writes ``http://`` out.

    ``within``: the entry must name the URL's origin.
    """
    if not text:
        return
    try:
        url = canonicalise(text)
    except InvalidUrl as error:
        yield field, str(error)
        return
    if "@" in text.partition("://")[2].partition("/")[0]:
        yield field, "may hold no user name and no password"
        return
    if origins.hold(url):
        return
    origin = origin_of(url)
    if within:
        yield field, f"`hosts` does not name {origin}"
    elif url.startswith("http:"):
        yield field, f"would send secrets without TLS: if that is meant, put {origin!r} in `hosts`"


def _pattern(field: str, pattern: str) -> Problems:
    what = pattern_problem(pattern) if pattern else None
    if what is not None:
        yield field, what


def check_sources(sources: Sequence[Source]) -> Problems:
    """Yield what is wrong with a crawl's ``sources`` beyond their types."""
    seen: dict[str, int] = {}
    for index, source in enumerate(sources):
        at = f"sources[{index}]"
        try:
            url = canonicalise(source.url)
        except InvalidUrl as error:
            yield f"{at}.url", str(error)
        else:
            if url in seen:
                yield f"{at}.url", f"is that of sources[{seen[url]}]"
            seen.setdefault(url, index)
        for field, expression in (("items", source.items), ("next", source.next)):
            what = expressions.problem(expression) if expression else None
            if what is not None:
                yield f"{at}.{field}", what
        if source.cursor and not source.next:
            yield f"{at}.cursor", "needs `next`, which says what its value is"
