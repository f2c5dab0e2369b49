"""The public suffixes, under which anybody can have a host name (publicsuffix.org/list).

The list is the pinned snapshot that comes with tldextract, and the answers are that library's: a
test compares them. Only its file is used here: importing the library takes requests along, and its
tree of labels is several times as large as the table below.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import NamedTuple

_PRIVATE_RULES = "// ===BEGIN PRIVATE DOMAINS==="
_INNER, _REGISTRY, _PRIVATE = range(3)
"""Kinds of names in the table: a mere part of longer rules, a registry's rule, a private rule."""


class _Split(NamedTuple):
    """The labels of a name, and the index of the first label of its suffix: the number of labels if
    there is no suffix."""

    labels: list[str]
    suffix: int
    registry: int
    private: bool
    """True if the suffix is a private one; the suffix of its registry begins at ``registry``."""


def _snapshot() -> bytes:
    spec = find_spec("tldextract")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).with_name(".tld_set_snapshot").read_bytes()


SUFFIXES = f"psl-{hashlib.sha256(_snapshot()).hexdigest()[:16]}"
"""Name and hash of the pinned snapshot."""


def under_registry(name: str) -> str:
    """Return the domain one label under a suffix that a registry runs.

    ``name`` is a canonical host name without a port. Returns "" for a bare suffix, a name under no
    known suffix, and an address.
    """
    found = _split(name)
    domain = _domain(found)
    if found.private and domain:
        # Take the part under the registry's suffix, which has at least one label even if it is
        # unknown.
        domain = domain[-1 - max(1, len(found.labels) - found.registry) :]
    return ".".join(domain)


def under_suffix(name: str) -> str:
    """Return the domain like :func:`under_registry`, or under a private suffix (github.io)."""
    return ".".join(_domain(_split(name)))


def is_suffix(name: str) -> bool:
    """Return whether ``name`` is a public suffix, a private one included."""
    found = _split(name)
    return found.suffix < len(found.labels) and not _domain(found)


def _domain(found: _Split) -> list[str]:
    """Return the suffix and the label before it; nothing if one of the two is missing."""
    below = found.suffix - 1
    if below < 0 or found.suffix == len(found.labels) or not found.labels[below]:
        return []
    return found.labels[below:]


def _split(name: str) -> _Split:
    """Find the longest rule that a name ends with, from its last label to its first."""
    rules = _rules()
    labels = _ascii(name.rstrip(".").lower()).split(".")
    at = suffix = registry = len(labels)
    known, private = "", False
    while at:
        longer = f"{labels[at - 1]}.{known}" if known else labels[at - 1]
        kind = rules.get(longer)
        if kind is None:
            any_label = rules.get(f"*.{known}")
            if any_label is not None:
                suffix = at if f"!{longer}" in rules else at - 1
                private = any_label == _PRIVATE
            break
        at, known = at - 1, longer
        if kind != _INNER:
            suffix, private = at, kind == _PRIVATE
            registry = registry if private else at
    return _Split(labels, suffix, registry, private)


@cache
def _rules() -> dict[str, int]:
    """Read the kind of each rule, ``*.ck`` and ``!www.ck`` too, and of each ending of a rule."""
    rules: dict[str, int] = {}
    kind = _REGISTRY
    # reading all lines at once would leave holes in the heap
    for line in StringIO(_snapshot().decode()):
        if line.startswith(_PRIVATE_RULES):
            kind = _PRIVATE
        if line.strip() and not line.startswith("//"):
            rule = _ascii(line.split()[0])
            rules[rule] = kind
            while rule := rule.partition(".")[2]:
                rules.setdefault(rule, _INNER)
    return rules


def _ascii(name: str) -> str:
    """Return a name, or a rule, with its labels as they stand in canonical URLs."""
    if name.isascii():
        return name
    labels = name.split(".")
    return ".".join(
        label if label.isascii() else "xn--" + label.encode("punycode").decode() for label in labels
    )
