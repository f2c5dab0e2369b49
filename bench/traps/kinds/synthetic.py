"""Six traps, and a good site of 300 pages that links to the chosen ones.

The good pages are a menu, six sections of articles with lists of their own, and some pages about
the site. Every good page links to each trap, like a calendar in a sidebar.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Sequence
from html import escape
from urllib.parse import quote_plus, urlencode

from bench.traps.kinds.sites import Layout, Query, Reply, Site, items, link, missing, number, pager
from bench.traps.kinds.text import slug

SECTIONS = ("news", "travel", "food", "science", "culture", "people")
ARTICLES = 44
"""Articles of a section; with the lists, the start page and five pages about the site these make
300 pages."""
PER_LIST = 9
ABOUT = ("about", "contact", "imprint", "privacy", "authors")
TRAPS = ("calendar", "growth", "session", "soft404", "equal", "facets")
FACETS = {
    "color": ("red", "green", "blue", "black", "white", "grey"),
    "size": ("xs", "s", "m", "l", "xl"),
    "brand": ("alto", "brava", "cora", "delta", "elma", "fino"),
    "material": ("wool", "linen", "cotton", "leather"),
    "price": ("0-20", "20-50", "50-100", "100-500"),
    "sort": ("price", "name", "newest", "rating"),
}


class Synthetic(Site):
    """The good site with ``traps``, some of :data:`TRAPS`."""

    def __init__(self, seed: object, traps: Sequence[str], today: datetime.date) -> None:
        self.name = "six traps" if len(traps) > 1 else "".join(traps) or "good alone"
        super().__init__(seed)
        self._today = today
        self._traps = tuple(traps)
        menu = [(f"/{name}/", name.capitalize()) for name in SECTIONS]
        about = " · ".join(link(f"/{name}.html", name.capitalize()) for name in ABOUT)
        self._layout = Layout("The Daily Walk", menu, f"<p>© The Daily Walk · {about}</p>")
        self._articles: dict[str, tuple[str, int]] = {}
        self._paths: dict[str, list[tuple[str, str]]] = {name: [] for name in SECTIONS}
        for section in SECTIONS:
            for i in range(ARTICLES):
                title = self.prose.title(section, i)
                path = f"/{section}/{slug(title)}-{i + 1}/"
                self._articles[path] = (title, i)
                self._paths[section].append((path, title))
        lists = [f"/{name}/" for name in SECTIONS]
        lists += [f"/{name}/page/{n}/" for name in SECTIONS for n in range(2, self._lists() + 1)]
        self.content = {"/", *lists, *self._articles, *(f"/{name}.html" for name in ABOUT)}
        self._session = random.Random(repr((seed, "sessions")))
        self._ways: dict[str, Callable[[str, Query], Reply]] = {
            "calendar": self._calendar,
            "guide": self._growth,
            "portal": self._portal,
            "archive": self._soft404,
            "go": self._equal,
            "find": self._facets,
        }

    def _lists(self) -> int:
        return -(-ARTICLES // PER_LIST)

    def reply(self, path: str, query: Query) -> Reply:
        """Return a good page, or a page of one of the traps that this site has."""
        if path in self.content:
            return Reply("content", "good", path, self._good(path))
        way = self._ways.get(path.split("/")[1].partition(";")[0])
        return way(path, query) if way else missing()

    # -- the good site

    def _good(self, path: str) -> str:
        parts = path.strip("/").split("/")
        if path in self._articles:
            title, _ = self._articles[path]
            return self._article(path, parts[0], title)
        if parts[0] in SECTIONS:
            return self._list(parts[0], number(parts[-1], 1))
        if path == "/":
            latest = [self._paths[name][i] for i in range(2) for name in SECTIONS]
            return self._page("Welcome", path, self._teasers(latest))
        title = parts[0].removesuffix(".html").capitalize()
        return self._page(title, path, self.prose.paragraphs(8, 25, path))

    def _article(self, path: str, section: str, title: str) -> str:
        author, chance = self.prose.person(path), self.prose.chance("related", path)
        related = chance.sample(self._paths[section], 3)
        text = self.prose.paragraphs(10, 45, path)
        return self._page(
            title, path, f'<p class="by">By {author}</p>\n{text}\n<h2>Related</h2>{items(related)}'
        )

    def _list(self, section: str, page: int) -> str:
        shown = self._paths[section][(page - 1) * PER_LIST : page * PER_LIST]
        links = []
        if page > 1:
            links.append((f"/{section}/" + (f"page/{page - 1}/" if page > 2 else ""), "Newer"))
        if page < self._lists():
            links.append((f"/{section}/page/{page + 1}/", "Older"))
        title = f"{section.capitalize()}, page {page}"
        return self._page(title, f"{section}{page}", self._teasers(shown) + pager(links))

    def _teasers(self, shown: Sequence[tuple[str, str]]) -> str:
        return "".join(
            f"<h2>{link(path, title)}</h2><p>{self.prose.text(2, 'teaser', path)}</p>\n"
            for path, title in shown
        )

    def _page(self, title: str, key: str, main: str) -> str:
        return self._layout.page(title, main, self._ways_in(key))

    def _ways_in(self, key: str) -> str:
        """Return the sidebar: links into the traps, which are not the same on all pages."""
        chance, words = self.prose.chance("aside", key), self.prose.word
        day = self._today - datetime.timedelta(days=chance.randint(0, 40))
        color, brand = (chance.choice(FACETS[name]) for name in ("color", "brand"))
        ways = {
            "calendar": [
                (f"/calendar/{day:%Y/%m}/", "Calendar"),
                (f"/calendar/{day:%Y/%m/%d}/", f"{day:%d %B %Y}"),
            ],
            "growth": [("/guide/", "Guide"), ("/guide/start/", "First steps")],
            "session": [
                (self._with_session(chance.randint(0, 19), chance.randint(0, 2)), "My portal")
            ],
            "soft404": [(f"/archive/{words(key, 1)}-{words(key, 2)}", "From the archive")],
            "equal": [(f"/go/{words(key, 3)}-{chance.randint(1, 9999)}", "Tip of the day")],
            "facets": [
                (f"/find?color={color}", f"All {color}"),
                (f"/find?brand={brand}&sort=price", brand.capitalize()),
            ],
        }
        return "".join(items(ways[trap]) for trap in self._traps)

    # -- the traps

    def _trap(self, kind: str, title: str, main: str, dress: str = "", key: str = "") -> Reply:
        return Reply("side" if key else "trap", kind, key, self._layout.page(title, main), dress)

    def _calendar(self, path: str, query: Query) -> Reply:
        """Return months, weeks and days, without end in both directions, and without any events."""
        parts = [number(part) for part in path.strip("/").split("/")[1:]]
        given = query.get("week", "")
        if given:
            parts = [number(part) for part in given.split("-")]
        year, month, day = [*parts, 1, 1, 1][:3] if parts else (2000, 1, 1)
        try:
            at = datetime.date(year, month, day)
        except ValueError:
            return missing()
        one = datetime.timedelta(days=1)
        if len(parts) == 2:
            before, after = at - one, (at + 32 * one).replace(day=1)
            days = [at + n * one for n in range((after - at).days)]
            cells = " ".join(link(f"/calendar/{d:%Y/%m/%d}/", str(d.day)) for d in days)
            months = [(f"/calendar/{d:%Y/%m}/", f"{d:%B %Y}") for d in (before, after)]
            years = [(f"/calendar/{n}/{month:02}/", str(n)) for n in (year - 1, year + 1)]
            week = (f"/calendar/?week={at:%Y-%m-%d}", "Week view")
            return self._trap("calendar", f"{at:%B %Y}", cells + items([*months, *years, week]))
        step = 7 * one if given else one
        where = "/calendar/?week={:%Y-%m-%d}" if given else "/calendar/{:%Y/%m/%d}/"
        ways = [(where.format(d), f"{d:%d %B %Y}") for d in (at - step, at + step)]
        ways.append((f"/calendar/{at:%Y/%m}/", f"{at:%B %Y}"))
        text = f"<p>No events on {at:%A, %d %B %Y}. Come back later, or choose another day.</p>"
        return self._trap("calendar", f"Events of {at:%d %B %Y}", text + items(ways))

    def _growth(self, path: str, query: Query) -> Reply:
        """Return a page of a template whose relative links lack a slash: each step makes the path
        longer."""
        last = path.strip("/").split("/")[-1]
        names = ("start", "setup", "use", "help")
        text = self.prose.paragraphs(12, 12, "guide", last if last in names else "")
        ways = [(f"guide/{name}/", name.capitalize()) for name in names] + [("guide/", "Contents")]
        return self._trap("growth", "Guide", text + items(ways))

    def _with_session(self, page: int, way: int) -> str:
        """Return a link to page ``page`` of the portal, with a new session."""
        token = f"{self._session.getrandbits(128):032x}"
        if way == 0:
            return f"/portal/(S({token[:24]}))/page-{page}.aspx"
        if way == 1:
            return f"/portal/page-{page}.jsp;jsessionid={token.upper()}.node{page % 3}"
        return f"/portal/page.php?id={page}&PHPSESSID={token[:26]}"

    def _portal(self, path: str, query: Query) -> Reply:
        """Return one of twenty pages; a client without a cookie gets a new session in each link."""
        name = path.split(";")[0].rpartition("/")[2]
        page = number(query.get("id", name.partition("-")[2].partition(".")[0]), 0)
        text = self.prose.paragraphs(10, 20, "portal", page)
        shown = [n % 20 for n in (page + 1, page + 2, page + 7, page * 3, page + 13)]
        ways = [(self._with_session(n, n % 3), self.prose.title("portal", n)) for n in shown]
        title = self.prose.title("portal", page)
        return self._trap("session", title, text + items(ways), "session", f"portal {page}")

    def _soft404(self, path: str, query: Query) -> Reply:
        """Return 200 for every name, with ten more names."""
        name = path.rpartition("/")[2]
        words = [self.prose.word(name, n) for n in range(20)]
        shown = [f"{a}-{b}" for a, b in zip(words[::2], words[1::2], strict=True)]
        asked = escape(name.replace("-", " "))
        text = (
            f"<p>Sorry, we could not find a page for “{asked}”. It may have been moved or deleted."
            " Please check the address, or try one of these:</p>"
        )
        ways = [(f"/archive/{name[:4]}-{one}", one.replace("-", " ")) for one in shown]
        return self._trap("soft404", "Page not found", text + items(ways))

    def _equal(self, path: str, query: Query) -> Reply:
        """Return the same text for every name; only its links differ."""
        chance = self.prose.chance("equal", path)
        names = [f"{chance.choice(SECTIONS)}-{chance.randint(1, 10**6)}" for _ in range(8)]
        text = self.prose.paragraphs(20, 20, "equal")
        ways = [(f"/go/{name}", "More like this") for name in names]
        return self._trap("equal", "Tip of the day", text + items(ways))

    def _facets(self, path: str, query: Query) -> Reply:
        """Return some of forty articles; each facet can be added, changed, left out, in any
        order."""
        chance = self.prose.chance("facets", tuple(sorted(query.items())))
        found = sorted(self._articles)[:40]
        shown = chance.sample(found, chance.randint(0, 8))
        ways = []
        for facet, values in FACETS.items():
            without = {name: value for name, value in query.items() if name != facet}
            if facet in query:
                ways.append((f"/find?{urlencode(without)}", f"remove {facet}"))
            ways += [
                (f"/find?{urlencode({**without, facet: value})}", f"{facet}: {value}")
                for value in values
                if query.get(facet) != value
            ]
        filters = " ".join(f"{quote_plus(n)}={escape(v)}" for n, v in query.items())
        title = f"{len(shown)} results for {filters}"
        text = self._teasers([(one, self._articles[one][0]) for one in shown])
        return self._trap("facets", title, items(ways) + text)
