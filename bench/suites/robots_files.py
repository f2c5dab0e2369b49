"""robots.txt files of real sites: how many verdicts are those of Google's own matcher.

Each file is asked about usual paths, and about the first paths that its own rules name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from jwm.robotstxt.googlebot import RobotsMatcher
from protego import Protego

from bench.suites.table import RAISED, Figure
from greencrawl.worker.robots.parser import parse

USUAL = (
    "/", "/index.html", "/search", "/search?q=x", "/admin/", "/wp-admin/", "/cart", "/checkout",
    "/wp-admin/admin-ajax.php", "/cgi-bin/x", "/a/b/c.html?x=1", "/login", "/user/1", "/private/",
    "/tmp/", "/images/a.png", "/news/2020/01/x", "/?s=a", "/tag/x", "/category/y/page/2", "/feed/",
    "/api/v1", "/about", "/x.pdf", "/print/1", "/en/",
)  # fmt: skip
OWN = 12
"""The number of own paths of a file, at most."""
DIFFER = 60
"""The number of verdicts of each kind that may differ."""

_RULE = re.compile(rb"^[ \t]*(?:dis)?allow[ \t]*:[ \t]*([^\r\n#]*)", re.IGNORECASE | re.MULTILINE)


def _usual(body: bytes) -> Iterator[tuple[str, str]]:
    return (("greencrawl", path) for path in USUAL)


def _own(body: bytes) -> Iterator[tuple[str, str]]:
    """Yield the file's own rules with a text in place of each wildcard, for two agents."""
    found: dict[str, None] = {}
    for rule in _RULE.findall(body):
        path = rule.strip().decode("utf-8", "replace").rstrip("$").replace("*", "x")
        if path.startswith("/"):
            found[path] = None
        if len(found) == OWN:
            break
    return ((agent, path) for agent in ("greencrawl", "Googlebot") for path in found)


def figures(folder: Path) -> list[Figure]:
    """Return the verdicts that agree with Google's: ours, and protego's."""
    bodies = {one.name: one.read_bytes() for one in sorted(folder.iterdir()) if one.is_file()}
    return [
        _figure("usual paths, as Google", bodies, _usual),
        _figure("paths of rules, as Google", bodies, _own),
    ]


def _figure(
    name: str, bodies: dict[str, bytes], asked: Callable[[bytes], Iterator[tuple[str, str]]]
) -> Figure:
    of = theirs = 0
    wrong = []
    for file, body in bodies.items():
        rules, protego = parse(body), _protego(body)
        for agent, path in asked(body):
            of += 1
            url = f"http://example.org{path}"
            allowed = bool(RobotsMatcher().OneAgentAllowedByRobots(body, agent, url))
            theirs += protego(agent, url) is allowed
            if rules.allowed(url, agent) is not allowed:
                line = rules.line_for(url, agent) or "no rule"
                wrong.append(f"{file}: {agent} at {path}: {line}")
    return Figure(name, of, of - len(wrong), {"protego": theirs}, of - DIFFER, wrong)


def _protego(body: bytes) -> Callable[[str, str], bool | None]:
    try:
        rules = Protego.parse(body.decode("utf-8", "replace"))
    except RAISED:  # its own tests leave these files out
        return lambda agent, url: None

    def ask(agent: str, url: str) -> bool | None:
        try:
            return bool(rules.can_fetch(url, agent))
        except RAISED:
            return None

    return ask
