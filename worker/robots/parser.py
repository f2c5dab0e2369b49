"""robots.txt as RFC 9309 has it: parsing, matching, and the record that caches it.

Pure functions of bytes: fetching, redirects and when to fetch again are the engine's. Beyond the
RFC, ``Crawl-delay`` is read (it counts as a rule of its group), and what site owners commonly
mistype is understood in their favour: ``Disalow``, a missing colon, a path without its slash.
protego was tried: it matches product tokens by prefix, lets any directive end a group of
user-agents, allows ``/`` for ``Allow: /index.html``, and cannot name the line that decides.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import msgspec
import zstandard

from greencrawl.schema import wire

MAX_BODY_BYTES = 500 * 1024
"""What is read of a file, the least that RFC 9309 section 2.5 asks for; the rest is ignored."""

Verdict = Literal["parse", "allow_all", "disallow_all_for_now"]
Kind = Literal["rules", "allow", "deny"]

_RULES_BYTES, _RULE_BYTES = 1000, 400
"""What parsed rules take, and each of them, beside its text."""

_FIELDS = {
    "user-agent": "user-agent", "useragent": "user-agent", "user agent": "user-agent",
    "allow": "allow",
    "disallow": "disallow", "disalow": "disallow", "dissallow": "disallow",
    "dissalow": "disallow", "diasllow": "disallow", "disallaw": "disallow",
    "crawl-delay": "crawl-delay", "crawldelay": "crawl-delay",
    "sitemap": "sitemap", "site-map": "sitemap",
}  # fmt: skip

_ABSOLUTE = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")
_OCTETS = re.compile(rb"%[0-9A-Fa-f]{2}|[^\x21-\x7e]|[*$]")
# A URL whose path and query, if it is ASCII, are normal as they stand, as nearly all are.
_NORMAL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*(/[^#%*$]*)")


class _Rule(NamedTuple):
    """One Allow or Disallow; ``pattern`` normalised, ``line`` as it stood in the file."""

    pattern: str
    allow: bool
    line: str


def _normalise(path: bytes, *, pattern: bool) -> str:
    """Give two spellings of one path one form, RFC 9309 section 2.2.2, one unit after the other.

    Octets that are printable ASCII stand for themselves, all others are percent-encoded; ``%``,
    ``#``, ``*``, ``$``, and in the path ``/`` and ``?``, stay as they were written, since encoded
    they mean something else. In a pattern a bare ``*`` and a final ``$`` keep their power.
    """
    query = path.find(b"?")
    query = len(path) if query < 0 else query

    def unit(match: re.Match[bytes]) -> bytes:
        text = match[0]
        if text in (b"*", b"$"):
            special = pattern and (text == b"*" or match.end() == len(path))
            return text if special else b"%%%02X" % text[0]
        if len(text) == 1:
            return b"%%%02X" % text[0]
        octet = int(text[1:], 16)
        kept = b"%#*$" if match.start() > query else b"%#*$/?"
        return bytes((octet,)) if 0x21 <= octet <= 0x7E and octet not in kept else text.upper()

    return _OCTETS.sub(unit, path).decode("ascii")


def _target(url: str) -> str:
    """Path and query of a URL, normalised for comparison."""
    normal = _NORMAL.fullmatch(url)
    if normal and url.isascii():
        return normal[1]
    raw = url.encode("utf-8", "replace").partition(b"#")[0]
    absolute = _ABSOLUTE.match(raw)
    if absolute:
        raw = raw[absolute.end() :]
    if not raw.startswith(b"/"):
        raw = b"/" + raw
    if b"%" not in raw and b"*" not in raw and b"$" not in raw and url.isascii():
        return raw.decode("ascii")
    return _normalise(raw, pattern=False)


@dataclass(slots=True)
class _Block:
    """What stands under one run of User-agent lines; shared by all of its tokens."""

    rules: list[_Rule] = field(default_factory=list)
    delay: float | None = None


class _Wildcard:
    """A pattern with ``*`` or a final ``$``, matched in linear time, without backtracking.

    Leftmost matches of the parts are enough: if any placement of the parts fits, so does that.
    """

    __slots__ = ("anchored", "parts", "rule")

    def __init__(self, rule: _Rule) -> None:
        self.rule = rule
        self.anchored = rule.pattern.endswith("$")
        self.parts = (rule.pattern[:-1] if self.anchored else rule.pattern).split("*")

    def matches(self, target: str) -> bool:
        first, *rest = self.parts
        if not target.startswith(first):
            return False
        if not rest:
            return not self.anchored or len(target) == len(first)
        position = len(first)
        for part in rest[:-1]:
            found = target.find(part, position)
            if found < 0:
                return False
            position = found + len(part)
        if self.anchored:
            return len(target) - len(rest[-1]) >= position and target.endswith(rest[-1])
        return target.find(rest[-1], position) >= 0


class Group:
    """What a file says to one product token: its rules merged, arranged so that to ask is cheap.

    ``delay``: seconds between requests that are asked for, the largest of several, or None.

    Plain prefixes are looked up by length, so a file of thirty thousand lines costs a few dozen
    look-ups a URL; only wildcards are tried one by one.
    """

    __slots__ = ("_lengths", "_prefixes", "_wildcards", "delay")

    def __init__(self, blocks: Sequence[_Block]) -> None:
        self.delay = max((b.delay for b in blocks if b.delay is not None), default=None)
        self._prefixes: dict[str, _Rule] = {}
        self._wildcards: list[_Wildcard] = []
        for rule in (rule for block in blocks for rule in block.rules):
            if "*" in rule.pattern or rule.pattern.endswith("$"):
                self._wildcards.append(_Wildcard(rule))
            elif rule.allow or rule.pattern not in self._prefixes:
                self._prefixes[rule.pattern] = rule  # Allow wins over an equal Disallow
        self._wildcards.sort(key=lambda w: (len(w.rule.pattern), w.rule.allow), reverse=True)
        self._lengths = sorted({len(pattern) for pattern in self._prefixes}, reverse=True)

    def forbids(self, url: str) -> str | None:
        """The line of the file that forbids ``url``; None if it may be fetched."""
        rule = self.decide(url)
        return None if rule is None or rule.allow else rule.line

    def decide(self, url: str) -> _Rule | None:
        """The most specific rule that matches: most octets, and Allow where two are equal.

        None speaks of /robots.txt itself: that always may be fetched.
        """
        if not self._lengths and not self._wildcards:
            return None
        target = _target(url)
        if target.partition("?")[0] == "/robots.txt":
            return None
        best: _Rule | None = None
        for length in self._lengths:
            best = self._prefixes.get(target[:length]) if length <= len(target) else None
            if best is not None:
                break
        rank = (len(best.pattern), best.allow) if best else (-1, False)
        for wildcard in self._wildcards:
            rule = wildcard.rule
            if (len(rule.pattern), rule.allow) <= rank:
                break
            if wildcard.matches(target):
                return rule
        return best


@dataclass(slots=True)
class Rules:
    """A parsed robots.txt. ``sitemaps`` are its Sitemap values, as they stand, in order.

    ``agent`` is a product token or a whole User-Agent; only its product token is looked at.
    """

    sitemaps: tuple[str, ...] = ()
    _blocks: dict[str, list[_Block]] = field(default_factory=dict)
    _groups: dict[str, Group] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """About what they take of memory, with a group that was made of each rule."""
        blocks = {id(block): block for found in self._blocks.values() for block in found}
        rules = [rule for block in blocks.values() for rule in block.rules]
        texts = sum([len(rule.pattern) + len(rule.line) for rule in rules])
        names = sum(map(len, self.sitemaps)) + sum(map(len, self._blocks))
        return _RULES_BYTES + texts + names + _RULE_BYTES * (len(rules) + len(self._blocks))

    def of(self, agent: str) -> Group:
        """What holds for ``agent``: its own group, else that of "*"; kept once it is made."""
        token = product_token(agent)
        if token not in self._blocks:
            token = "*"
        group = self._groups.get(token)
        if group is None:
            group = self._groups[token] = Group(self._blocks.get(token, ()))
        return group

    def allowed(self, url: str, agent: str) -> bool:
        """Whether ``agent`` may fetch ``url``. /robots.txt itself always may be."""
        return self.of(agent).forbids(url) is None

    def line_for(self, url: str, agent: str) -> str | None:
        """The line of the file that decides about ``url``, or None if none speaks of it."""
        rule = self.of(agent).decide(url)
        return None if rule is None else rule.line

    def crawl_delay(self, agent: str) -> float | None:
        """Seconds between requests that ``agent``'s group asks for, the largest if it says more."""
        return self.of(agent).delay


def product_token(user_agent: str) -> str:
    """The lower-case product token of a User-Agent: what stands before "/" or a space."""
    words = user_agent.partition("/")[0].split(maxsplit=1)
    return words[0].lower() if words else ""


def parse(body: bytes) -> Rules:
    """Parse a robots.txt; anything is one, so nothing is raised. RFC 9309 section 2.2.

    Groups of one product token are merged. Only the first ``MAX_BODY_BYTES`` count, without the
    line that they cut through.
    """
    if len(body) > MAX_BODY_BYTES:
        body = body[:MAX_BODY_BYTES]
        body = body[: max(body.rfind(b"\n"), body.rfind(b"\r")) + 1]
    blocks: dict[str, list[_Block]] = defaultdict(list)
    sitemaps: list[str] = []
    block = _Block()  # what precedes the first User-agent line is nobody's
    tokens: set[str] | None = None  # those of the block; None once its rules have begun
    for raw in body.removeprefix(b"\xef\xbb\xbf").splitlines():
        key, value = _split(raw)
        if key == "user-agent":
            if tokens is None:
                block, tokens = _Block(), set()
            token = product_token(value.decode("utf-8", "replace")).rstrip("*") or "*"
            if token not in tokens:
                tokens.add(token)
                blocks[token].append(block)
        elif key in ("allow", "disallow"):
            tokens = None
            if value:  # an empty path matches nothing
                line = raw.decode("utf-8", "replace").partition("#")[0].strip()
                block.rules.append(_Rule(_pattern(value), key == "allow", line))
        elif key == "crawl-delay":
            tokens = None
            seconds = _seconds(value)
            if seconds is not None:
                block.delay = max(seconds, block.delay or 0.0)
        elif key == "sitemap" and value:
            sitemaps.append(value.decode("utf-8", "replace"))
    return Rules(tuple(sitemaps), dict(blocks))


def _split(raw: bytes) -> tuple[str | None, bytes]:
    """Field (None if it is none of ours) and value of a line, without its comment."""
    line = raw.partition(b"#")[0].strip()
    key, colon, value = line.partition(b":")
    name = _FIELDS.get(key.strip().lower().decode("ascii", "replace")) if colon else None
    if name is None:  # "Disallow /x", as some write
        words = line.split(None, 1)
        if len(words) == 2:
            key, value = words
            name = _FIELDS.get(key.lower().decode("ascii", "replace"))
    return name, value.strip()


def _pattern(value: bytes) -> str:
    absolute = _ABSOLUTE.match(value)
    if absolute:
        value = value[absolute.end() :]
    if not value.startswith((b"/", b"*")):
        value = b"/" + value
    return re.sub(r"\*+", "*", _normalise(value, pattern=True))


def _seconds(value: bytes) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


ALLOW_ALL = parse(b"")
DENY_ALL = parse(b"User-agent: *\nDisallow: /")


def verdict_for(status: int) -> Verdict:
    """What the final HTTP status of robots.txt means, RFC 9309 section 2.3.1.

    2xx: read it. 4xx ("unavailable"), and redirects beyond those that are followed: anything may
    be fetched. 429, 5xx and no answer at all (0), "unreachable": nothing may, until it is tried
    again.
    """
    if 200 <= status < 300:
        return "parse"
    if 300 <= status < 500 and status != 429:
        return "allow_all"
    return "disallow_all_for_now"


class Cached(msgspec.Struct, frozen=True, array_like=True):
    """robots.txt of an origin as Redis caches it; ``fetched_ms`` is epoch milliseconds."""

    kind: Kind
    fetched_ms: int
    body: bytes

    def rules(self) -> Rules:
        """The rules in force while this record is."""
        if self.kind == "rules":
            return parse(self.body)
        return ALLOW_ALL if self.kind == "allow" else DENY_ALL


def pack(kind: Kind, body: bytes, fetched_ms: int) -> bytes:
    """The compressed record for the cache; ``body`` is cut to what :func:`parse` would read."""
    kept = body[: MAX_BODY_BYTES + 1] if kind == "rules" else b""
    return wire.pack(wire.to_msgpack(Cached(kind, fetched_ms, kept)))


def unpack(record: bytes) -> Cached | None:
    """Undo :func:`pack`. None if the record is damaged: then robots.txt is to be fetched again."""
    try:
        return wire.from_msgpack(wire.unpack(record, 2 * MAX_BODY_BYTES), Cached)
    except (zstandard.ZstdError, msgspec.DecodeError):
        return None
