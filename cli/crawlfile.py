"""Makes a crawl of arguments, options and a TOML file: ``CreateCrawl``, checked as a whole."""

from __future__ import annotations

import difflib
import hashlib
import re
import tomllib
from pathlib import Path
from typing import Any, get_args

import msgspec

from greencrawl.schema.errors import InvalidConfig, InvalidUrl
from greencrawl.schema.net.scope import check_options
from greencrawl.schema.net.urls import canonicalise, host_of
from greencrawl.schema.records import CreateCrawl
from greencrawl.schema.records.auth import Auth
from greencrawl.schema.records.recrawl import Recrawl
from greencrawl.schema.settings import AUTH_FIELDS

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:(?!\d)")  # localhost:8080 has no scheme
_MISTYPED = re.compile(r"https?(?:[;/\\]|:{2})[;:/\\]*", re.IGNORECASE)  # https//example.org
_PORT = re.compile(r"[^/?#]*:(?P<port>[0-9]+)(?:[/?#]|$)")
_WORD = re.compile(
    r"(?!localhost(?:[/?#]|$))[^.:/?#\\\u3002\uff0e\uff61]+(?P<path>[/?#].*)?",
    re.IGNORECASE | re.DOTALL,
)
"""A host of one label, with its path. U+3002, U+FF0E and U+FF61 are dots in host names, too."""
_DOTS = re.compile(r"[.\u3002\uff0e\uff61]+(?:[/?#].*)?", re.DOTALL)
"""Dots alone, with a path: the name of a folder, and not of a host."""
_FIELD = re.compile(r" - at `\$\.?(?P<path>[^`]*)`")
_UNKNOWN = re.compile(r"unknown field `(?P<name>[^`]*)`")

_NAMED = {"name": "x"}
"""Fields that a crawl needs; they are added to an option that is checked alone."""

_LIST = 'must be a list of texts, as in ["..."]'
WANTED = {
    "name": "must be 1 to 64 of a-z 0-9 . _ - and begin with a letter or a digit",
    "scope": "must be one of host, domain, prefix, any",
    "order": "must be one of breadth, depth, best",
    "include": _LIST,
    "exclude": _LIST,
    "follow_actions": _LIST,
    "nofollow": "must be skip or follow",
    "user_agent": 'must be a product token, as in "mybot" or "mybot/1.0"',
    "traps": 'must be "on" or "off", in quotes',
    "recrawl": 'must be a table: [recrawl] with every = "1d"; see docs/recrawl.md',
    "recrawl.depth": 'must be a number from 0 on, or "all"',
    "recrawl.every": "must be a number of s, m, h, d or w, as in 90m, at most 6 digits",
    "contact": "must be printable ASCII on one line: an address or a URL",
}
"""The rule for an option in words, if msgspec's own words are not clear."""

_TABLES = {
    "auth": "docs/authentication.md", "sources": "docs/sources.md", "kernels": "docs/kernels.md"
}  # fmt: skip
"""Options that are lists of tables, and the page that says how to write them."""


def build(
    arguments: tuple[str, ...], options: dict[str, Any], name: str | None = None
) -> CreateCrawl:
    """Make the crawl that the command line describes.

    ``arguments`` are URLs (:func:`with_scheme` completes them) and at most one TOML file;
    ``options`` win over the file. The crawl's name is ``name``, else the ``name`` in the file, else
    the file's own name, else the first seed's host: the same command always means the same crawl.

    Raises :class:`InvalidConfig` naming the option that is wrong.
    """
    files = [argument for argument in arguments if is_file(argument)]
    if len(files) > 1:
        raise InvalidConfig([("FILE.toml", f"one at a time, not {', '.join(files)}")])
    values: dict[str, Any] = read(Path(files[0])) if files else {}
    urls = [argument for argument in arguments if not is_file(argument)]
    for url in urls:
        if what := _on_disk(url):
            raise InvalidConfig([("seeds", f"{url[:200]} is {what}")])
    seeds = values.get("seeds", [])
    if not isinstance(seeds, list) or not all(isinstance(seed, str) for seed in seeds):
        raise InvalidConfig([("seeds", "must be a list of URLs")])
    recrawl = values.get("recrawl")
    values |= options
    if isinstance(recrawl, dict) and "recrawl" in options:  # an option sets a part of the table
        values["recrawl"] = recrawl | options["recrawl"]
    values["seeds"] = list(dict.fromkeys(seed_url(text) for text in [*seeds, *urls]))
    if not values["seeds"] and not values.get("sources"):
        what = "give at least one URL, or a TOML file with `seeds` or `sources`"
        raise InvalidConfig([*_problems(values), ("seeds", what)])
    if name:
        values["name"] = name
    elif "name" not in values:
        values["name"] = default_name(Path(files[0]).stem if files else host_of(values["seeds"][0]))
    return _checked(values)


def is_file(argument: str) -> bool:
    """Return whether an argument is the name of a TOML file rather than a URL."""
    return argument.endswith(".toml") and not _SCHEME.match(argument)


def read(path: Path) -> dict[str, Any]:
    """Return the TOML file's table. Raises :class:`InvalidConfig` when it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidConfig([(str(path), error.strerror or str(error))]) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidConfig([(str(path), f"not TOML: {error}")]) from error


def with_scheme(text: str) -> str:
    """Return ``text`` as a URL: ``https://`` is put before a text without a scheme.

    A text with a port gets ``http://``, since test servers on such ports rarely speak TLS. If the
    port ends in 443, the text gets ``https://``.
    """
    text = text.strip()
    if has_scheme(text):
        return text
    port = _PORT.match(text)
    return f"{'http' if port and not port['port'].endswith('443') else 'https'}://{text}"


def has_scheme(text: str) -> bool:
    """Return whether a person wrote the scheme of a URL."""
    return bool(_SCHEME.match(text.strip()))


def seed_url(text: str) -> str:
    """Return the canonical URL of what a person typed as a seed: see :func:`typed_url`."""
    return typed_url(text, "seeds")


def typed_url(text: str, field: str) -> str:
    """Return the canonical URL of what a person typed: ``example.org`` is
    ``https://example.org/``.

    A word without a scheme, a dot or a port is refused, unless it is ``localhost``: it is more
    often the name of a crawl or a file. So is a host of dots alone. Raises InvalidConfig, which
    names the ``field``.
    """
    text = text.strip()
    if typo := _MISTYPED.match(text):
        raise InvalidConfig([(field, f"{text[:200]!r} is no URL{_meant(typo[0], text)}")])
    if not text:
        raise InvalidConfig([(field, "an empty text is no URL")])
    if _DOTS.fullmatch(text):
        raise InvalidConfig([(field, f"{text[:200]!r} is no URL, and no name of a host")])
    if host := _WORD.fullmatch(text):
        url = f"https://{text[:200]}{'' if host['path'] else '/'}"
        no_file = field == "seeds" and not _exists(text)
        what = f"{text[:200]!r} is no URL{', and there is no such file' if no_file else ''}"
        raise InvalidConfig([(field, f"{what}; if it is a host, give {url}")])
    try:
        return canonicalise(with_scheme(text))
    except InvalidUrl as error:
        begin = _SCHEME.match(text)
        meant = _meant(begin[0], text) if begin else ""
        raise InvalidConfig([(field, f"{error}{meant}")]) from error


def _on_disk(text: str) -> str:
    """Say what a text is if it names a file or a folder, and what to give instead; "" if it does
    not.

    A host with a dot is no folder: a folder with the name of a site is often a copy of it.
    """
    if _SCHEME.match(text):
        return ""
    is_path = text.startswith(("/", "./", "../", "~"))
    no_host = is_path or _DOTS.fullmatch(text) or _WORD.fullmatch(text)
    if no_host and _exists(text) and Path(text).is_dir():
        return "a folder: give a URL, or a file that ends in .toml and lists URLs as `seeds`"
    if _exists(text) and Path(text).is_file():
        ends = "the name of a file that describes a crawl ends in .toml"
        return f"a file; {ends}; a list of URLs goes there as `seeds`"
    return "the path of a file: give a URL, or a file that ends in .toml" if is_path else ""


def _exists(text: str) -> bool:
    """Return whether there is a file of that name, for any text."""
    try:
        return Path(text).exists()
    except OSError:  # the text is too long for a name
        return False


def _meant(begin: str, text: str) -> str:
    """Guess the URL if its scheme, ``begin``, is misspelt; "" if it is not."""
    similar = difflib.get_close_matches(begin.rstrip(":;/\\").lower(), ("http", "https"), n=1)
    rest = text.strip()[len(begin) :].lstrip(":;/\\")
    known = text.lower().startswith(("http://", "https://"))
    return f"; did you mean {similar[0]}://{rest[:200]}?" if similar and not known else ""


def default_name(source: str) -> str:
    """Make a crawl's name from a host or a file's stem: lower case, at most 64 characters."""
    name = re.sub(r"[^a-z0-9._-]+", "-", source.lower()).strip("-._") or "crawl"
    if len(name) > 64:
        digest = hashlib.blake2b(source.encode(), digest_size=4).hexdigest()
        name = f"{name[:55]}-{digest}"
    return name


def _checked(values: dict[str, Any]) -> CreateCrawl:
    """Return the crawl. Raises InvalidConfig that names all errors at once."""
    if found := _problems(values):
        raise InvalidConfig(found)
    crawl = msgspec.convert(values, CreateCrawl)
    problems = check_options(crawl)
    if problems:
        raise InvalidConfig(problems)
    return crawl


def _problems(values: dict[str, Any]) -> list[tuple[str, str]]:
    """Return (field, what is wrong) for each value that a crawl cannot have."""
    found: list[tuple[str, str]] = []
    for name, value in values.items():
        try:
            msgspec.convert({name: value, **({} if name == "name" else _NAMED)}, CreateCrawl)
        except msgspec.ValidationError as error:
            found.append(_problem(str(error)))
    return found


def _problem(text: str) -> tuple[str, str]:
    """Return msgspec's message as (field, what is wrong), with a guess for a misspelt name."""
    place = _FIELD.search(text)
    path = place["path"] if place else "crawl"
    unknown = _UNKNOWN.search(text)
    option = path.partition("[")[0]
    if option in _TABLES:
        return _problem_of_table(path, unknown["name"] if unknown else "", _FIELD.sub("", text))
    if unknown:
        name, table = unknown["name"], f"{path}." if path == "recrawl" else ""
        known = Recrawl if table else CreateCrawl
        similar = difflib.get_close_matches(name, known.__struct_fields__, n=1)
        meant = f"; did you mean {table}{similar[0]}?" if similar else ""
        return f"{table}{name}", f"unknown option{meant}"
    wanted = WANTED.get(option)
    return path, wanted or f"{_FIELD.sub('', text)}; see `greencrawl crawl --help`"


def _problem_of_table(path: str, unknown: str, text: str) -> tuple[str, str]:
    """Return (field, what is wrong) for an entry in a list of tables.

    ``unknown`` is the name of an unknown field, or "".
    """
    option = path.partition("[")[0]
    if path == option:
        return path, f"must be a list of tables: write [[{option}]]; see {_TABLES[option]}"
    if unknown in AUTH_FIELDS and option == "auth":
        return f"{path}.{unknown}", (
            "is no field of it: secrets belong in the environment or in credentials.toml; "
            f"see {_TABLES[option]}"
        )
    if unknown:
        return f"{path}.{unknown}", f"is no field of it; see {_TABLES[option]}"
    if path.endswith(".kind"):
        kinds = ", ".join(str(kind.__struct_config__.tag) for kind in get_args(Auth))
        return path, f"must be one of {kinds}"
    if option == "auth" and path.endswith(".name"):
        return path, "must be 1 to 32 of a-z 0-9 _ and begin with a letter"
    return path, f"{text}; see {_TABLES[option]}"
