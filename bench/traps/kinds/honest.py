"""Three sites that look like traps and are not: all their content must be found."""

from __future__ import annotations

import datetime

from bench.traps.kinds.sites import Layout, Query, Reply, Site, items, link, missing, number, pager
from bench.traps.kinds.text import slug

SIZE = 5000
YEARS = 14


class Archive(Site):
    """Articles under their days: ``/2019/05/07/title/``, with pages of years, months and days.

    Months of odd years link to their articles, months of even years only to their days. No page
    links to a day without an article, and such a day is a 404.
    """

    name = "archive by date"

    def __init__(self, seed: object, size: int = SIZE, first: int = 2010) -> None:
        super().__init__(seed)
        chance = self.prose.chance("days")
        begin = datetime.date(first, 1, 1)
        days = sorted(chance.randrange(YEARS * 365) for _ in range(size))
        self._articles: dict[str, str] = {}
        self._lists: dict[str, list[str]] = {}
        self._order: list[str] = []
        for n, day in enumerate(days):
            at = begin + datetime.timedelta(days=day)
            title = self.prose.title(n)
            where = f"/{at:%Y/%m/%d}/"
            path = f"{where}{slug(title)}/"
            if path in self._articles:
                path = f"{where}{slug(title)}-{n}/"
            self._articles[path] = title
            self._order.append(path)
            self._lists.setdefault(where, []).append(path)
            month = path if at.year % 2 else where
            for to, what in ((f"/{at:%Y/%m}/", month), (f"/{at:%Y}/", f"/{at:%Y/%m}/")):
                shown = self._lists.setdefault(to, [])
                if what not in shown:
                    shown.append(what)
        self._place = {path: n for n, path in enumerate(self._order)}
        self._years = sorted({f"/{path[1:5]}/" for path in self._order})
        self.content = set(self._articles)

    def reply(self, path: str, query: Query) -> Reply:
        """Return the start page, a year, a month (in pages), a day, or an article."""
        if path == "/":
            return Reply(
                "index", "home", path, self._page("Archive", items(self._named(self._years)))
            )
        if path in self._articles:
            n, title = self._place[path], self._articles[path]
            text = self.prose.paragraphs(8, 30, n)
            near = [self._order[m] for m in (n - 1, n + 1) if 0 <= m < len(self._order)]
            text += pager((one, self._articles[one]) for one in near)
            return Reply("content", "article", path, self._page(title, text, path))
        where, _, page = path.partition("page/")
        shown, at = self._lists.get(where), number(page.strip("/") or "1")
        if shown is None or not 0 < at <= -(-len(shown) // 10):
            return missing()
        ways = [(f"{where}page/{at + 1}/", "Older")] if at * 10 < len(shown) else []
        ways += [(f"{where}page/{at - 1}/" if at > 2 else where, "Newer")] if at > 1 else []
        main = items(self._named(shown[(at - 1) * 10 : at * 10])) + pager(ways)
        return Reply("index", "list", path, self._page(f"Archive of {path}", main, where))

    def _named(self, paths: list[str]) -> list[tuple[str, str]]:
        return [(path, self._articles.get(path, path.strip("/"))) for path in paths]

    def _page(self, title: str, main: str, path: str = "/") -> str:
        parts = path.strip("/").split("/")[:3]
        menu = [
            ("/" + "/".join(parts[: n + 1]) + "/", part) for n, part in enumerate(parts) if part
        ]
        aside = items(self._named(self._years))
        return Layout("The Chronicle", menu, "© The Chronicle").page(title, main, aside)


class Catalogue(Site):
    """Things with numbers, whose pages share a long text and differ in two or three sentences.

    ``by`` is "path" (``/item/104223``) or "query" (``/item.php?id=104223&cat=7``).
    """

    def __init__(self, seed: object, size: int = SIZE, by: str = "path") -> None:
        self.name = f"catalogue with ids ({by})"
        super().__init__(seed)
        chance = self.prose.chance("ids")
        self._by, number_of = by, 100_000
        self._ids: list[int] = []
        for _ in range(size):
            number_of += chance.randint(1, 17)
            self._ids.append(number_of)
        self._template = self.prose.paragraphs(30, 30, "template")
        self.content = {f"item {one}" for one in self._ids}
        self._known = set(self._ids)

    def reply(self, path: str, query: Query) -> Reply:
        """Return a list of fifty things, or one thing."""
        if path in ("/", "/list"):
            return self._list(number(query.get("page", "1")), path, query)
        asked = number(query.get("id", "") if self._by == "query" else path.rpartition("/")[2])
        if asked not in self._known:
            return missing()
        return Reply("content", "item", f"item {asked}", self._item(asked))

    def _list(self, page: int, path: str, query: Query) -> Reply:
        pages = -(-len(self._ids) // 50)
        if not 0 < page <= pages:
            return missing()
        shown = self._ids[(page - 1) * 50 : page * 50]
        main = items((self._href(one), f"No. {one}: {self.prose.title(one)}") for one in shown)
        near = [n for n in (1, page - 1, page + 1, page + 10, pages) if 0 < n <= pages]
        main += pager((f"/list?page={n}", str(n)) for n in near)
        key = "/" if path == "/" and not query else f"/list {page}"
        return Reply("index", "list", key, self._page(f"Catalogue, page {page}", main))

    def _href(self, item: int) -> str:
        return f"/item/{item}" if self._by == "path" else f"/item.php?id={item}&cat={item % 12}"

    def _item(self, item: int) -> str:
        chance = self.prose.chance("facts", item)
        facts = (
            f"<p>Item no. {item}, {chance.randint(1800, 1990)}, {self.prose.person(item)}. "
            f"{self.prose.text(chance.randint(2, 3), item)}</p>"
            f"<table><tr><th>Height</th><td>{chance.randint(3, 240)} cm</td></tr>"
            f"<tr><th>Width</th><td>{chance.randint(3, 240)} cm</td></tr></table>"
        )
        near = [self._ids[(item * 7 + n) % len(self._ids)] for n in (1, 2, 3)]
        ways = items((self._href(one), f"No. {one}") for one in near)
        return self._page(self.prose.title(item), facts + self._template + ways)

    def _page(self, title: str, main: str) -> str:
        menu = [("/", "Start"), ("/list?page=1", "All things")]
        return Layout("The Museum", menu, self.prose.text(3, "footer")).page(title, main)


class Pages(Site):
    """A forum as XenForo writes it: ``/threads/slug.12/page-7``, some threads of many pages."""

    name = "forum with page numbers"

    def __init__(self, seed: object, threads: int = 120, most: int = 150) -> None:
        super().__init__(seed)
        chance = self.prose.chance("threads")
        self._titles = [self.prose.title(n) for n in range(threads)]
        lengths = (min(int(chance.paretovariate(0.7)), most) for _ in range(threads))
        self._count = [most, *lengths][:threads]
        self._where = [f"/threads/{slug(title)}.{n + 1}/" for n, title in enumerate(self._titles)]
        self.content = {
            f"{self._where[n]} {page}"
            for n in range(threads)
            for page in range(1, self._count[n] + 1)
        }

    def reply(self, path: str, query: Query) -> Reply:
        """Return the list of threads, in pages, or a page of a thread."""
        parts = path.strip("/").split("/")
        page = number(parts[-1].removeprefix("page-"), 1) if "page-" in path else 1
        if path == "/" or parts[0] == "forum":
            shown = range((page - 1) * 20, min(page * 20, len(self._titles)))
            ways = [(f"/forum/page-{page + 1}", "Next")] if page * 20 < len(self._titles) else []
            main = "".join(self._row(n) for n in shown) + pager(ways)
            key = f"forum {page if path != '/' else '/'}"
            return Reply("index", "list", key, self._page(f"Threads, page {page}", main))
        n = number(parts[1].rpartition(".")[2]) - 1 if parts[0] == "threads" and parts[1:] else -1
        if not 0 <= n < len(self._titles) or not 0 < page <= self._count[n]:
            return missing()
        main = "".join(self._post(n, page, i) for i in range(15))
        main += self._pager(n, page)
        title = f"{self._titles[n]} | Page {page}"
        return Reply("content", "page", f"{self._where[n]} {page}", self._page(title, main))

    def _row(self, n: int) -> str:
        last = self._href(n, self._count[n])
        return f"<p>{link(self._where[n], self._titles[n])} {link(last, 'last page')}</p>\n"

    def _href(self, n: int, page: int) -> str:
        return self._where[n] + (f"page-{page}" if page > 1 else "")

    def _post(self, n: int, page: int, i: int) -> str:
        key = (n, page, i)
        text = self.prose.paragraphs(1, 9, "post", *key)
        return f"<article><b>{self.prose.person(*key)}</b>{text}<p>#{page * 15 + i}</p></article>"

    def _pager(self, n: int, page: int) -> str:
        near = [
            m
            for m in (page - 2, page - 1, page + 1, page + 2, self._count[n])
            if 0 < m <= self._count[n]
        ]
        return pager((self._href(n, m), str(m)) for m in dict.fromkeys(near))

    def _page(self, title: str, main: str) -> str:
        return Layout("Talk", [("/", "Home"), ("/forum/page-1", "Threads")], "Talk").page(
            title, main
        )
