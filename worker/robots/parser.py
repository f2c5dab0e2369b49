"""robots.txt by RFC 9309: parsing, matching, and the record that caches it.

These are pure functions of bytes: other modules fetch, follow redirects, and decide when to fetch
again. Beyond the RFC, ``Crawl-delay`` is read, and common typing errors of site owners are read as
they were meant: ``Disalow``, a missing colon, a path without its slash. docs/politeness.md says how
a file is read where the RFC leaves it open. protego was tried: it matches product tokens by prefix,
lets any directive end a group of user-agents, and cannot name the line that decides.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import msgspec
import zstandard

from greencrawl.schema import wire
from greencrawl.worker.process.steps import Steps, finish
from greencrawl.worker.robots.matching import MAX_STARS, Group, Line
from greencrawl.worker.robots.prefixes import STEP

MAX_BODY_BYTES = 500 * 1024
"""At most this many bytes of a file are read, the least that RFC 9309 section 2.5 requires; the
rest is ignored."""

Verdict = Literal["parse", "allow_all", "disallow_all_for_now"]
Kind = Literal["rules", "allow", "deny"]

_RULES_BYTES, _RULE_BYTES, _STAR_BYTES = 1000, 100, 600
"""Bytes that rules take besides their text: for the whole file, for each rule without ``*``, and
for each ``*`` of the other rules."""
_TOKEN_BYTES, _SITEMAP_BYTES = 200, 60

_FIELDS = {
    b"user-agent": "user-agent", b"useragent": "user-agent", b"user agent": "user-agent",
    b"allow": "allow",
    b"disallow": "disallow", b"disalow": "disallow", b"dissallow": "disallow",
    b"dissalow": "disallow", b"diasllow": "disallow", b"disallaw": "disallow",
    b"crawl-delay": "crawl-delay", b"crawldelay": "crawl-delay",
    b"sitemap": "sitemap", b"site-map": "sitemap",
}  # fmt: skip

# A line with a meaning, from its first letter to its comment: field, colon or white space, value.
# All other lines are skipped.
_SAYS = re.compile(
    rb"(?:^|[\r\n])[ \t\v\f]*((%s)(?:[ \t\v\f]*(:)|[ \t\v\f])[ \t\v\f]*([^\r\n#]*))"
    % b"|".join(sorted(_FIELDS, reverse=True)),
    re.IGNORECASE,
)
_TOKEN = re.compile(r"[a-z_-]+")
_MARK = b"\xef\xbb\xbf"
_UTF_16 = (
    (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"),
    (b"u\0", "utf-16-le"), (b"U\0", "utf-16-le"), (b"\0u", "utf-16-be"), (b"\0U", "utf-16-be"),
)  # fmt: skip
"""How a file in UTF-16 begins: with its mark, or with the word User-agent."""
_LINE_END = re.compile(rb"[\r\n]")
_READ_BYTES = 8192
"""Others have their turn after this many octets were searched for lines, or one longer line."""


@dataclass(slots=True)
class _Group:
    """Consecutive rules: the lines of Allow and Disallow, and how many they are."""

    text: bytes = b""
    rules: int = 0


@dataclass(slots=True)
class _Block:
    """A run of User-agent lines, shared by all of its tokens: their rules and their delay.

    Crawl-delay is not in RFC 9309 and ends no group, but counts only for the run above it.
    """

    group: _Group
    delay: float | None = None


def _said(body: bytes) -> Iterator[re.Match[bytes] | None]:
    """Yield the lines of a file that have a meaning.

    Yield None now and then: the work may be interrupted there.
    """
    begin = 0
    while begin < len(body):
        rest = _LINE_END.search(body, begin + _READ_BYTES)
        end = rest.start() if rest else len(body)
        for number, said in enumerate(_SAYS.finditer(body, begin, end)):
            if not number % STEP:
                yield None
            yield said
        begin = end
        yield None


def _lines(text: bytes) -> Iterator[Line]:
    for said in _SAYS.finditer(text):
        yield Line(said[4].strip(), _FIELDS[said[2].lower()] == "allow", said.start(1))


@dataclass(slots=True)
class Rules:
    """A parsed robots.txt. ``sitemaps`` are its Sitemap values, as written, in order.

    ``agent`` is a product token or a whole User-Agent; only its product token counts.
    """

    sitemaps: tuple[str, ...] = ()
    _blocks: dict[str, list[_Block]] = field(default_factory=dict)
    _groups: dict[str, Group] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Return about how much memory they take, with a group for each rule."""
        size = _RULES_BYTES + sum(map(len, self.sitemaps)) + sum(map(len, self._blocks))
        size += len(self._blocks) * _TOKEN_BYTES + len(self.sitemaps) * _SITEMAP_BYTES
        for group in {
            id(block.group): block.group for found in self._blocks.values() for block in found
        }.values():
            stars = group.text.count(b"*")
            size += 2 * len(group.text) + _RULE_BYTES * max(group.rules - stars, 0)
            size += _STAR_BYTES * min(stars, MAX_STARS // 2)
        return size

    def of(self, agent: str) -> Group:
        """Return what holds for ``agent``: its own group, else that of "*"; kept once it is
        made."""
        return self.known(agent) or finish(self.of_steps(agent))

    def known(self, agent: str) -> Group | None:
        """Return the group of ``agent`` if it has been made, else None."""
        return self._groups.get(self._token(agent))

    def _token(self, agent: str) -> str:
        token = _token_of_ours(agent)
        return token if token in self._blocks else "*"

    def of_steps(self, agent: str) -> Steps[Group]:
        """Make the group of ``agent`` in steps."""
        token = self._token(agent)
        group = self._groups.get(token)
        if group is None:
            blocks = self._blocks.get(token, ())
            text = b"\n".join([block.group.text for block in blocks if block.group.text])
            delay = max((b.delay for b in blocks if b.delay is not None), default=None)
            group = self._groups[token] = yield from Group.steps(text, _lines(text), delay)
        return group

    def allowed(self, url: str, agent: str) -> bool:
        """Return whether ``agent`` may fetch ``url``. /robots.txt itself always may be."""
        return self.of(agent).forbids(url) is None

    def line_for(self, url: str, agent: str) -> str | None:
        """Return the line of the file that decides about ``url``, or None if there is none."""
        return self.of(agent).line_for(url)

    def crawl_delay(self, agent: str) -> float | None:
        """Return the seconds between requests that ``agent``'s group asks for, the largest of
        several."""
        return self.of(agent).delay


def product_token(user_agent: str) -> str:
    """Return the lower-case product token of a User-Agent: the part before "/" or a space."""
    words = user_agent.partition("/")[0].split(maxsplit=1)
    return words[0].lower() if words else ""


_token_of_ours = lru_cache(maxsize=256)(product_token)
"""A cached product_token() for agents of crawls, which are few and short; it is called for each
page."""


def parse(body: bytes) -> Rules:
    """Parse a robots.txt; any bytes are valid, so nothing is raised. RFC 9309 section 2.2.

    Groups of one product token are merged. Only the first ``MAX_BODY_BYTES`` count, without the
    line that they cut through; ``worker.robots.matching`` says what else is bounded.
    """
    return finish(parse_steps(body))


def parse_steps(body: bytes) -> Steps[Rules]:
    """Parse a robots.txt in steps."""
    if len(body) > MAX_BODY_BYTES:
        body = body[:MAX_BODY_BYTES]
        body = body[: max(body.rfind(b"\n"), body.rfind(b"\r")) + 1]
    body = _text_of(body)
    blocks: dict[str, list[_Block]] = defaultdict(list)
    sitemaps: list[str] = []
    # what precedes the first User-agent line belongs to nobody
    group, lines = _Group(), list[bytes]()
    block = _Block(group)
    tokens: set[str] | None = None  # tokens of the group; None once its rules have begun
    delayed = False  # True once the run of User-agent lines has ended, but not the group
    for said in _said(body):
        if said is None:
            yield
            continue
        name, value = said[2].lower(), said[4].strip()
        if not said[3] and (not value or name == b"user agent"):
            continue  # "Disallow /x", as some write, has a meaning; these lines have none
        key = _FIELDS[name]
        if key == "user-agent":
            if tokens is None:
                group.text, group.rules = b"\n".join(lines), len(lines)
                group, lines, tokens, delayed = _Group(), [], set(), True
            if delayed:
                block, delayed = _Block(group), False
            for token in _named(value):
                if token not in tokens:
                    tokens.add(token)
                    blocks[token].append(block)
        elif key in ("allow", "disallow"):
            tokens = None
            if value:  # an empty path matches nothing
                lines.append(said[1])
        elif key == "crawl-delay":
            delayed = True
            seconds = _seconds(value)
            if seconds is not None:
                block.delay = max(seconds, block.delay or 0.0)
        elif key == "sitemap" and value:
            sitemaps.append(value.decode("utf-8", "replace"))
    group.text, group.rules = b"\n".join(lines), len(lines)
    return Rules(tuple(sitemaps), dict(blocks))


def _named(value: bytes) -> tuple[str, ...]:
    """Return whom a User-agent line names: the word as written, and the product token it begins
    with.

    By RFC 9309 a token has only letters, "_" and "-", so ``mybot2,`` names mybot; a crawler called
    ``mybot2`` is named as well. An empty line names nobody.
    """
    word = product_token(value.decode("utf-8", "replace"))
    token = _TOKEN.match(word)
    if token and token[0] != word:
        return word, token[0]
    return (word,) if word else ()


def _text_of(body: bytes) -> bytes:
    """Return a file as UTF-8 without byte-order marks, also if it came as UTF-16."""
    found = next((name for mark, name in _UTF_16 if body.startswith(mark)), None)
    if found:
        body = body.decode(found, "replace").encode("utf-8", "replace")
    while body.startswith(_MARK):
        body = body[len(_MARK) :]
    return body.removeprefix(_MARK[:2]).removeprefix(_MARK[:1])


def _seconds(value: bytes) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


ALLOW_ALL = parse(b"")
DENY_ALL = parse(b"User-agent: *\nDisallow: /")


def verdict_for(status: int) -> Verdict:
    """Return what the final HTTP status of robots.txt means, RFC 9309 section 2.3.1.

    2xx: read it. 4xx ("unavailable"), and redirects beyond those that are followed: anything may be
    fetched. 429, 5xx and no answer at all (0), "unreachable": nothing may be fetched until the next
    try.
    """
    if 200 <= status < 300:
        return "parse"
    if 300 <= status < 500 and status != 429:
        return "allow_all"
    return "disallow_all_for_now"


class Cached(msgspec.Struct, frozen=True, array_like=True):
    """robots.txt of an origin as Redis caches it; ``fetched_ms`` is Unix milliseconds."""

    kind: Kind
    fetched_ms: int
    body: bytes

    def rules(self) -> Rules:
        """Return the rules in force while this record is."""
        return finish(self.rules_steps())

    def rules_steps(self) -> Steps[Rules]:
        """Make the rules in steps."""
        if self.kind == "rules":
            return (yield from parse_steps(self.body))
        return ALLOW_ALL if self.kind == "allow" else DENY_ALL


def pack(kind: Kind, body: bytes, fetched_ms: int) -> bytes:
    """Return the compressed record for the cache; ``body`` is cut to what :func:`parse` would
    read."""
    kept = body[: MAX_BODY_BYTES + 1] if kind == "rules" else b""
    return wire.pack(wire.to_msgpack(Cached(kind, fetched_ms, kept)))


def unpack(record: bytes) -> Cached | None:
    """Return the record that :func:`pack` compressed; None if it is damaged: then robots.txt is to
    be fetched again."""
    try:
        return wire.from_msgpack(wire.unpack(record, 2 * MAX_BODY_BYTES), Cached)
    except (zstandard.ZstdError, msgspec.DecodeError):
        return None
