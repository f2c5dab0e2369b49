"""A real MediaWiki behind its login: Debian's package on PHP's own server, with SQLite.

Only its users can read its thirty pages of three revisions each. Neither PHP nor MediaWiki is
installed: both run from folders that :mod:`bench.traps.debian` unpacks.
"""

from __future__ import annotations

import os
import re
import secrets
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from bench.traps.debian import Missing, libraries, newest, unpacked
from bench.traps.kinds.text import Prose
from tests.support.ports import free_port
from tests.support.system import wait_until

PAGES = 30
REVISIONS = 3
MAIN = "Main_Page"
USER = "Crawler"
CATEGORIES = ("Handbook", "Projects", "People", "Places")
PHP_PARTS = ("cli", "common", "mbstring", "xml", "intl", "sqlite3", "opcache")
PHP_LOADED = (
    *("ctype", "calendar", "iconv", "tokenizer", "fileinfo", "posix", "mbstring", "dom", "xml"),
    *("xmlreader", "xmlwriter", "simplexml", "intl", "pdo", "sqlite3", "pdo_sqlite"),
)
INI = """memory_limit = 256M
extension_dir = "{extensions}"
zend_extension = opcache
opcache.enable = 1
"""
SETTINGS = """
$wgGroupPermissions['*']['read'] = false;
$wgGroupPermissions['*']['edit'] = false;
$wgGroupPermissions['*']['createaccount'] = false;
"""
FREE_LOGINS = 4
"""The number of requests of the login page that are its own: the form, its answer, and the next
page."""

LEFT_OUT = {
    "objectcache": "cache",
    "l10n_cache": "cache",
    "module_deps": "cache of what styles need",
    "querycache": "cache",
    "querycache_info": "cache",
    "job": "the queue of jobs, which page views work off",
    "site_stats": "counters",
    "searchindex": "made of the pages",
}
"""Tables that may differ after a crawl, and why."""

LEFT_OUT_COLUMNS = {
    "user": {"user_touched": "the time of the last login", "user_token": "of the session"},
    "page": {"page_touched": "set by jobs", "page_links_updated": "set by jobs"},
}
"""Columns that may differ, and why."""

_REQUEST = re.compile(r"\[(\d{3})\]: (GET|HEAD|POST) (\S+)")
_SPECIAL = re.compile(r"special:(\w+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class WikiHit:
    """A request as PHP's server logged it, in order of ending."""

    status: int
    method: str
    target: str

    @property
    def title(self) -> str:
        """Return the page that the request asks for."""
        parts = urlsplit(self.target)
        given = parse_qs(parts.query).get("title", [""])[0]
        path = unquote(parts.path).removeprefix("/index.php").strip("/")
        return (given or path).replace(" ", "_")

    @property
    def what(self) -> str:
        """Return ``read``, ``start``, or what else was asked of a page, for a table."""
        query = parse_qs(urlsplit(self.target).query)
        if found := _SPECIAL.match(self.title):
            return f"Special:{found[1]}"
        for name in ("diff", "oldid", "redlink", "printable", "veaction", "mobileaction"):
            if name in query:
                return name
        action = query.get("action", ["view"])[0]
        if action != "view":
            return action
        if query.keys() - {"title", "action"}:
            return "variant"
        return "read" if self.title else "start"


class Wiki:
    """A wiki of its own in ``folder``; a context manager. Raises :class:`Missing`."""

    def __init__(self, folder: Path, seed: object = 1) -> None:
        self.folder = folder
        self.port = free_port()
        self.password = secrets.token_urlsafe(18)
        self.database = folder / "database" / "wiki.sqlite"
        self._prose = Prose(("wiki", seed))
        self.titles = self._titles()
        self._process: subprocess.Popen[bytes] | None = None
        self._log = folder / "php.log"
        self._php: list[str] = []

    def _titles(self) -> list[str]:
        """Return the titles of the private pages; one title is a harmful word."""
        made = [self._prose.title("page", n).rstrip("?").replace(",", "") for n in range(PAGES * 2)]
        found = list(dict.fromkeys(title.replace(" ", "_") for title in made))[: PAGES - 1]
        return ["Delete", *found]

    @property
    def origin(self) -> str:
        """Return the wiki's origin."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Wiki:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._php = self._interpreter()
        self._lay_out()
        self._maintain(
            *("install.php", "--dbtype", "sqlite", "--dbname", "wiki"),
            *("--dbpath", str(self.database.parent), "--server", self.origin),
            *("--scriptpath", "", "--confpath", str(self._root), "--pass", self.password),
            *("Our wiki", "Admin"),
            installed=False,
        )
        with (self._root / "LocalSettings.php").open("a") as settings:
            settings.write(SETTINGS)
        self._maintain("createAndPromote.php", USER, self.password)
        self._write_pages()
        self._maintain("runJobs.php")
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(10)

    @property
    def _root(self) -> Path:
        return self.folder / "mediawiki"

    # -- making it

    def _interpreter(self) -> list[str]:
        version = newest(r"php[0-9.]+-cli").removesuffix("-cli")
        root = unpacked(*(f"{version}-{part}" for part in PHP_PARTS))
        loaded = list(root.glob("usr/lib/php/*/*.so"))
        binary, extensions = root / "usr" / "bin" / version, loaded[0].parent
        if missing := libraries([binary, *loaded]):
            raise Missing(f"{version} needs {', '.join(sorted(missing))}: apt-get install php-cli")
        ini = self.folder / "php.ini"
        text = INI.format(extensions=extensions)
        ini.write_text(text + "".join(f"extension = {name}\n" for name in PHP_LOADED))
        return [str(binary), "-c", str(ini)]

    def _lay_out(self) -> None:
        """Make a folder with links to the package's files, like its own folder below /var."""
        root = unpacked("mediawiki", "mediawiki-classes")
        share = root / "usr" / "share" / "mediawiki"
        self._root.mkdir()
        for found in share.iterdir():
            if not found.is_symlink():
                (self._root / found.name).symlink_to(found)
        (self._root / "extensions").symlink_to(share / "extensions-core")
        (self._root / "images").mkdir()

    def _environment(self, installed: bool = True) -> dict[str, str]:
        settings = {"MW_CONFIG_FILE": str(self._root / "LocalSettings.php")} if installed else {}
        return {
            **os.environ,
            "MW_INSTALL_PATH": str(self._root),
            "PHP_INI_SCAN_DIR": "",
            **settings,
        }

    def _maintain(self, script: str, *arguments: str, installed: bool = True) -> None:
        command = [*self._php, str(self._root / "maintenance" / script), *arguments]
        done = subprocess.run(
            command,
            cwd=self._root,
            env=self._environment(installed),
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise Missing(f"MediaWiki's {script}: {(done.stdout + done.stderr)[-1500:]}")

    def _write_pages(self) -> None:
        """Write the pages.

        The start page names the categories and every sixth page; pages link to each other.
        """
        for revision in range(REVISIONS):
            texts = self.folder / f"texts-{revision}"
            texts.mkdir()
            ways = [f"* [[:Category:{name}]]" for name in CATEGORIES]
            ways += [f"* [[{title}]]" for title in self.titles[::6]]
            (texts / f"{MAIN}.txt").write_text("Welcome.\n" + "\n".join(ways))
            for n, title in enumerate(self.titles):
                (texts / f"{title}.txt").write_text(self._page(n, revision))
            for name in CATEGORIES:
                (texts / f"Category:{name}.txt").write_text(self._prose.text(3, name))
            files = sorted(map(str, texts.iterdir()))
            self._maintain("importTextFiles.php", "--user", "Admin", "--overwrite", "--rc", *files)

    def _page(self, n: int, revision: int) -> str:
        parts = []
        for section in range(2 + revision):
            heading = self._prose.title("heading", n, section)
            text = self._prose.text(8, "text", n, section)
            near = self.titles[(n * 5 + section * 7 + 1) % PAGES]
            parts.append(f"== {heading} ==\n{text} See [[{near}]] and [[Not yet {n} {section}]].\n")
        following = self.titles[(n + 1) % PAGES]
        category = CATEGORIES[n % len(CATEGORIES)]
        return "\n".join([*parts, f"Next: [[{following}]].", f"[[Category:{category}]]"])

    def _start(self) -> None:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*self._php, "-S", f"127.0.0.1:{self.port}", "-t", str(self._root)],
                cwd=self._root,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_until(lambda: "started" in self._log.read_text(), 20, "PHP's server is up")

    # -- the result of a crawl

    def hits(self) -> list[WikiHit]:
        """Return all requests except those for robots.txt."""
        found = _REQUEST.findall(self._log.read_text(errors="replace"))
        hits = [WikiHit(int(status), method, target) for status, method, target in found]
        return [hit for hit in hits if hit.target != "/robots.txt"]

    def dump(self) -> dict[str, list[str]]:
        """Return the rows of each table as text, without :data:`LEFT_OUT`."""
        uri = f"file:{self.database}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=30)) as database:
            named = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
            tables = [name for (name,) in database.execute(named)]
            kept = [one for one in tables if not one.startswith(tuple(LEFT_OUT))]
            return {table: _rows(database, table) for table in kept}


def _rows(database: sqlite3.Connection, table: str) -> list[str]:
    rows = database.execute(f'SELECT * FROM "{table}"')
    left_out = LEFT_OUT_COLUMNS.get(table, {})
    kept = [n for n, column in enumerate(rows.description) if column[0] not in left_out]
    return sorted(repr([row[n] for n in kept]) for row in rows)


def changed(before: dict[str, list[str]], after: dict[str, list[str]]) -> list[str]:
    """Return the tables whose rows differ, with the first row that differs."""
    findings = []
    for table in sorted(before.keys() | after.keys()):
        old, new = set(before.get(table, ())), set(after.get(table, ()))
        if old != new:
            one = sorted(new - old or old - new)[0]
            findings.append(
                f"{table}: {len(new - old)} rows more, {len(old - new)} less: {one:.200}"
            )
    return findings
