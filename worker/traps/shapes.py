"""The shape of a URL: its path and the names of its query, with holes for what varies.

``https://h/archive/2024/05/some-title.html?page=3`` has
``https://h/archive/{n}/{n}/{w}.html?page={n}``. Holes are numbers ``{n}``, dates ``{date}``, ids
``{id}``, years far from now ``{far}`` and words ``{w}``. Each host has its own words that are part
of the shape, which are learnt. In each folder these are the first few names of subfolders, since
menus come before the rest. Names of files are not learnt, unless a query follows: then they are
programs.
"""

from __future__ import annotations

import re
import time
from itertools import islice
from typing import NamedTuple
from zlib import crc32

from greencrawl.worker.traps.queries import LIST_PAGES, SEARCHES, params_of, plain, repeated

LONGEST = 300
"""The name of a shape has at most this many characters."""

_LIMITS = (20, 10, 6, 4, 4, 4, 4)
"""Number of words of one folder that are kept separate, by its depth; deeper folders are all
one."""
_PROGRAMS, _FEW_PROGRAMS = 20, 6
"""Number of files of one folder that are kept separate if a query follows; and of those that do not
look like programs."""
_PROGRAM_FILES = """
    action asp aspx cfm cgi dll do exe fcgi htm html jsp lua php pl py rb
"""
_PAGES = frozenset(("html", "htm", "php", "aspx"))
_SCRIPT = frozenset(_PROGRAM_FILES.split())
_PATTERNS = 12
"""Number of queries of one path that are kept separate."""
_EARLY = 4
"""Queries of one path that come before all others."""
_PREFIXES = 160
"""Number of folders of one host whose words are kept separate."""
_FOLDERS = 256
"""Folders whose shape is remembered."""
_VIEWS, _MANY_FOLDERS = 64, 5
"""Words that are remembered as possible views, and the folders that make a word a view."""
_DEEP = 12
_MANY = 8
_LONG_WORD = 40
_PLACES = 256  # names of folders whose places in paths are remembered

_DATE = re.compile(
    r"(?:19|2\d)\d\d[-_.](?:0?[1-9]|1[0-2])(?:[-_.][0-3]?\d)?(?:[T_-]?\d\d[-_.:]?\d\d)?"
).fullmatch
_HEX = re.compile(r"[0-9a-fA-F-]{8,}").fullmatch
_TOKEN = re.compile(r"[A-Za-z0-9_-]{10,}").fullmatch
_LETTERS = re.compile(r"[a-zA-Z]").search
_SWITCH = re.compile(r"[a-zA-Z]\d").findall
_DIGITS = re.compile(r"\d+")
_EXTENSION = re.compile(r"(?=\d*[a-z])[a-z0-9]{1,5}", re.IGNORECASE).fullmatch
_PLAIN = re.compile(r"[a-z](?:[a-z_/.-]|%2F){0,29}", re.IGNORECASE).fullmatch
_YEAR = re.compile(r"(\d{4})(?:[-_.](?:0?[1-9]|1[0-2])(?:[-_.][0-3]?\d)?.{0,9})?").fullmatch
_MONTH = re.compile(r"0?[1-9]|1[0-2]").fullmatch

_MODE_NAMES = """
    a act action cmd controller display do format func function layout m method mod mode module op
    option output page_type print route section show style t tab task template tmpl type v view
"""
_MODES = frozenset(_MODE_NAMES.split())
"""Parameters whose values say what a program does, rather than with what."""

_YEARS = frozenset(("ano", "annee", "date", "jahr", "y", "year", "yr"))


class Shape(NamedTuple):
    """``path`` is the part before the query. Shapes with the same ``section`` are also summed up
    together.

    ``params`` are the parameters of the URL that it was made from; ``hint`` is one of
    :data:`HINTS`, or "".
    """

    name: str
    path: str
    section: str
    hint: str = ""
    params: dict[str, str] | None = None


class _Folder(NamedTuple):
    name: str
    section: str
    hint: str
    words: tuple[str, ...]
    year: str


class Shaper:
    """The shapes of one host, and the words that were kept separate so far."""

    def __init__(self, year: int | None = None) -> None:
        self._year = year or time.gmtime().tm_year
        self._words: dict[str, dict[str, None]] = {}
        self._full: dict[int, frozenset[int]] = {}
        self._folders: dict[str, _Folder] = {}
        self._kinds: dict[str, dict[str, Shape]] = {}
        self._views: dict[str, tuple[int, str]] = {}
        self._places: dict[str, int] = {}
        self.sessions = False
        """True if one of the host's URLs had the id of a session."""

    def shape(self, url: str) -> Shape:
        """Return the shape of a canonical URL; the id of a session is no part of it."""
        folder, _, leaf = url.rpartition("/")
        kind = _kind(leaf)
        kinds = self._kinds.get(folder) if kind else None
        found = None if kinds is None else kinds.get(kind)
        if found is not None:
            return found
        found = self._shape(url)
        known = self._folders.get(folder) if kind and not found.hint else None
        if known is not None and not known.year and "." not in "".join(known.words):
            if len(self._kinds) >= _FOLDERS:
                self._kinds.clear()
            self._kinds.setdefault(folder, {})[kind] = found
        return found

    def _shape(self, url: str) -> Shape:
        without_session = plain(url)
        if without_session is not url and without_session != url:
            self.sessions = True
            found = self.shape(without_session)
            return found._replace(hint=found.hint or "session")
        start, mark, query = url.partition("?")
        folder, _, leaf = start.rpartition("/")
        slash = ""
        if not leaf and folder.count("/") > 2:
            folder, _, leaf = folder.rpartition("/")
            slash = "/"
        known = self._folders.get(folder) or self._folder(folder)
        hint = known.hint
        if leaf:
            if leaf in known.words and repeated([*known.words, leaf]):
                hint = "repeats"
            name, odd = self._leaf(leaf, known, mark != "")
            if name == "{w}" and folder.count("/") > 2 and self._is_view(leaf, folder):
                name = leaf
            hint = hint or odd
        else:
            name = ""
        if hint in ("repeats", "deep", "choices"):
            origin = url[: url.index("/", 8)]
            what = f"{origin}/{known.words[0]}" if hint == "choices" else origin
            what += f"/{{{hint}}}"
            return Shape(what, what, what, hint, params_of(query) if mark else None)
        folder = known.name
        if known.year and _MONTH(leaf):
            folder, hint = f"{folder.rpartition('/')[0]}/{{far}}", "far"
        path = f"{folder}/{name}{slash}"
        if not mark:
            return Shape(path[:LONGEST], path, known.section, hint)
        params = params_of(query)
        program = self._program(path, params)
        pattern, odd = self._query(program, query, params)
        join = "?" if program is path else "&" if pattern else ""
        name = f"{program}{join}{pattern}"[:LONGEST]
        return Shape(name, program, f"{program}?", hint or odd, params)

    def _is_view(self, leaf: str, folder: str) -> bool:
        """Return whether a word ends URLs in many folders, such as ``feed`` or ``print``.

        Then it names a view of the folder.
        """
        if len(leaf) > _LONG_WORD:
            return False
        folder = folder[-_LONG_WORD:]
        count, last = self._views.pop(leaf, (0, ""))
        if last != folder and count < _MANY_FOLDERS:
            count += 1
        self._views[leaf] = count, folder
        if len(self._views) > _VIEWS:
            rare = (word for word, (times, _) in self._views.items() if times < _MANY_FOLDERS)
            del self._views[next(rare, next(iter(self._views)))]
        return count >= _MANY_FOLDERS

    def patterns(self, path: str) -> int:
        """Return how many queries of a path were met, by their parameters."""
        return len(self._words.get(f"{path}?", range(_PATTERNS)))

    def is_late(self, shape: Shape) -> bool:
        """Return whether the shape's query is another choice of parameters at a path that has
        offered several."""
        words = self._words.get(f"{shape.path}?")
        if words is None:
            return _hash(f"{shape.path}?") in self._full
        pattern = shape.name[len(shape.path) + 1 :]
        early = islice(words, _EARLY)
        return len(words) > _EARLY and pattern not in early

    def full(self) -> dict[int, frozenset[int]]:
        """Return hashes of the folders whose words are settled, and of these words."""
        for prefix in [prefix for prefix, words in self._words.items() if "" in words]:
            words = self._words.pop(prefix)
            self._full[_hash(prefix)] = frozenset(_hash(word) for word in words if word)
        return self._full

    def learn(self, full: dict[int, frozenset[int]]) -> None:
        """Take over what another process has settled."""
        if any(prefix not in self._full for prefix in full):
            self._full.update(full)
            self._folders.clear()
            self._kinds.clear()

    @property
    def size(self) -> int:
        """Return about how many strings it keeps."""
        words = sum(map(len, self._words.values())) + sum(map(len, self._full.values()))
        return words + len(self._folders) + len(self._views) + 2 * len(self._kinds)

    def _own(self, prefix: str, word: str, limit: int) -> bool:
        """Return whether a word in the folder ``prefix`` is one of those that are kept separate."""
        words = self._words.get(prefix)
        if words is None:
            if self._full:
                settled = self._full.get(_hash(prefix))
                if settled is not None:
                    return _hash(word) in settled
            if len(self._words) + len(self._full) >= _PREFIXES:
                return False
            words = self._words[prefix] = {}
        if word in words:
            return True
        if "" in words or len(word) > _LONG_WORD:
            return False
        if len(words) < limit:
            words[word] = None
            return True
        words[""] = None  # no more words
        return False

    def _folder(self, folder: str) -> _Folder:
        segments = folder.split("/")
        name = "/".join(segments[:3])
        section, words = f"{name}/", []
        depth, hint = len(segments) - 3, ""
        for i, segment in enumerate(segments[3:]):
            if i >= len(_LIMITS):
                name += "/{…}"
                break
            what = _type(segment)
            if what:
                if self._is_far(segment, segments[4 + i] if i + 1 < depth else ""):
                    what, hint = "far", "far"
                name += f"/{{{what}}}"
            else:
                words.append(segment)
                word = _masked(segment)
                own = word.count("-") < 2 and self._own(name, word, _LIMITS[i])
                name += f"/{word}" if own else "/{w}"
            if i == 0:
                section = name
        if depth >= _DEEP:
            hint = "deep"
        if depth > 2 and self._in_any_order(segments[3:]):
            hint = "choices"
        if repeated(words):
            hint = "repeats"
        year = segments[-1] if depth else ""
        if len(year) != 4 or not _far(year, self._year):
            year = ""
        found = _Folder(name, section, hint, tuple(words[:_DEEP]), year)
        if len(self._folders) >= _FOLDERS:
            self._folders.clear()
        self._folders[folder] = found
        return found

    def _in_any_order(self, segments: list[str]) -> bool:
        """Return whether all folders below the first come in any order: /by/red/large beside
        /by/large/red. Then they are choices, and no folder is in another."""
        first, *others = segments
        moved = 0
        for place, word in enumerate(others):
            if not word.isalpha() or len(word) > _LONG_WORD:
                return False
            name = f"{first}/{word}"
            places = self._places.pop(name, 0) | 1 << min(place, 15)
            self._places[name] = places
            moved += places & (places - 1) != 0
        while len(self._places) > _PLACES:
            del self._places[next(iter(self._places))]
        return moved == len(others)

    def _leaf(self, leaf: str, folder: _Folder, program: bool) -> tuple[str, str]:
        if not program:  # nearly all are plain words
            stem, dot, extension = leaf.partition(".")
            if (stem.isalpha() or stem.replace("-", "").replace("_", "").isalpha()) and (
                not dot or extension in _PAGES or _EXTENSION(extension)
            ):
                return f"{{w}}{dot}{extension}", ""
        stem, dot, extension = leaf.rpartition(".")
        if not dot or not stem or not _EXTENSION(extension):
            stem, dot, extension = leaf, "", ""
        end = f"{dot}{extension}"
        what = _type(stem)
        if what:
            if what == "date" and _far(stem, self._year):
                return "{far}" + end, "far"
            return f"{{{what}}}{end}", ""
        if program:
            is_shallow = folder.name.count("/") < 4
            limit = _PROGRAMS if is_shallow or extension in _SCRIPT else _FEW_PROGRAMS
            stem = _masked(stem)
            own = self._own(f"{folder.name}/?", stem, limit)
            return (stem if own else "{w}") + end, ""
        prefix, colon, _ = stem.partition(":")
        if colon and prefix and len(prefix) <= _LONG_WORD:
            own = self._own(f"{folder.name}/:", prefix, _PROGRAMS)
            return (f"{prefix}:{{w}}" if own else "{w}") + end, ""
        masked = _masked(stem)
        if masked != stem and self._own(f"{folder.name}/0", masked, _LIMITS[0]):
            return masked + end, ""
        return "{w}" + end, ""

    def _program(self, path: str, params: dict[str, str]) -> str:
        """Return a path with the parameters that say which of several programs is meant."""
        modes = []
        for name, value in params.items():
            if name in _MODES and _PLAIN(value):
                own = self._own(f"{path}?{name}", value, _LIMITS[1])
                modes.append(f"{name}={value if own else '{w}'}")
        return f"{path}?{'&'.join(sorted(modes))}" if modes else path

    def _query(self, path: str, query: str, params: dict[str, str]) -> tuple[str, str]:
        hint = ""
        patterns = set()
        for name, value in params.items():
            if name in _MODES and _PLAIN(value):
                continue
            what = "n" if value.isdigit() else ""
            if ("-" in value or name in _YEARS) and _far(value, self._year):
                what = hint = "far"
            elif not what and value:
                what = _type(value) or "w"
                if name in SEARCHES:
                    hint = hint or "search"
            patterns.add(f"{name}={{{what}}}" if what else name)
        count = query.count("&") + 1
        if count >= _MANY or count >= len(params) + 2:
            return "{many}", "many"
        pattern = "&".join(sorted(patterns))
        if not self._own(f"{path}?", pattern, _PATTERNS):
            pattern = "{other}&page"
            if LIST_PAGES.isdisjoint(params):
                pattern, hint = "{other}", hint or "mixed"
        return pattern, hint

    def _is_far(self, segment: str, following: str) -> bool:
        if len(segment) == 4:  # a number that may mean anything, unless a month follows
            return bool(_MONTH(following)) and _far(segment, self._year)
        return not segment.isdigit() and _far(segment, self._year)


def _kind(leaf: str) -> str:
    """Return the common part of a folder's files that certainly have one shape; "" for others."""
    stem, dot, extension = leaf.partition(".")
    if extension and not extension.isalnum():
        return ""
    if stem.isdigit():
        return f"0{dot}{extension}"
    return extension if stem.replace("-", "").isalpha() else ""


def _type(segment: str) -> str:
    """Return what kind of value a segment is: n, date or id; "" for a word."""
    if segment.isdigit():
        return "n"
    if len(segment) < 6 or segment.isalpha():
        return ""
    if segment[0] in "12" and _DATE(segment):
        return "date"
    if len(segment) < 8:
        return ""
    if _HEX(segment) and _LETTERS(segment) and _DIGITS.search(segment):
        return "id"
    if len(segment) < 10 or not _TOKEN(segment):
        return ""
    mixed = len(_SWITCH(segment))
    return "id" if mixed > 2 or (mixed > 1 and segment != segment.lower()) else ""


def _far(value: str, year: int) -> bool:
    found = _YEAR(value)
    return found is not None and not 1900 <= int(found[1]) <= year + 2


def _masked(word: str) -> str:
    """Return a word with holes for its numbers, unless it is encoded."""
    return word if "%" in word else _DIGITS.sub("{n}", word)


def _hash(text: str) -> int:
    return crc32(text.encode("utf-8", "replace"))
