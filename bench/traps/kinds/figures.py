"""Sites whose pages have the same words and differ only in whole numbers; none is a trap."""

from __future__ import annotations

import datetime

from bench.traps.kinds.sites import Layout, Query, Reply, Site, items, link, missing, number, pager

SCREWS = 1200
PER_LIST = 40
FIRST, DAYS = datetime.date(2019, 1, 1), 730
LINES, STOPS = 24, 30


class Screws(Site):
    """A catalogue of screws in lists of forty: size, price, stock and a number of the article.

    ``by`` is "path" (``/screw/104223``) or "query" (``/screw.php?id=104223``).
    """

    def __init__(self, seed: object, size: int = SCREWS, by: str = "path") -> None:
        self.name = f"screws ({by})"
        super().__init__(seed)
        chance, article = self.prose.chance("articles"), 100_000
        self._by, self._articles = by, list[int]()
        for _ in range(size):
            article += chance.randint(1, 19)
            self._articles.append(article)
        self._known = set(self._articles)
        self.content = {f"screw {one}" for one in self._articles}
        self._layout = Layout("Screws", [("/", "All screws")], self.prose.text(2, "footer"))

    def reply(self, path: str, query: Query) -> Reply:
        """Return a list of screws, or one of them."""
        if path in ("/", "/screws"):
            return self._list(number(query.get("page", "1")), path)
        where = "/screw.php" if self._by == "query" else "/screw/"
        asked = number(query.get("id", "") if self._by == "query" else path.rpartition("/")[2])
        if asked not in self._known or not path.startswith(where):
            return missing()
        return Reply("content", "screw", f"screw {asked}", self._screw(asked))

    def _facts(self, article: int) -> tuple[str, int]:
        chance = self.prose.chance("screw", article)
        return f"Screw M{chance.randint(2, 12)} × {chance.randint(4, 120)}", chance.randint(2, 90)

    def _list(self, page: int, path: str) -> Reply:
        pages = -(-len(self._articles) // PER_LIST)
        if not 0 < page <= pages:
            return missing()
        shown = self._articles[(page - 1) * PER_LIST : page * PER_LIST]
        rows = ((one, *self._facts(one)) for one in shown)
        main = "".join(
            f"<p>{link(self._href(one), name)} {price} EUR</p>" for one, name, price in rows
        )
        near = [n for n in (1, page - 1, page + 1, pages) if 0 < n <= pages]
        main += pager((f"/screws?page={n}", str(n)) for n in dict.fromkeys(near))
        return Reply("index", "list", f"{path} {page}", self._layout.page(f"Page {page}", main))

    def _href(self, article: int) -> str:
        return f"/screw.php?id={article}" if self._by == "query" else f"/screw/{article}"

    def _screw(self, article: int) -> str:
        (name, price), chance = self._facts(article), self.prose.chance("stock", article)
        facts = {
            "Number": f"Article {article}",
            "Price": f"{price} EUR for {chance.choice((50, 100, 200))}",
            "In stock": f"{chance.randint(0, 900)} boxes",
        }
        rows = "".join(f"<tr><th>{what}</th><td>{said}</td></tr>" for what, said in facts.items())
        text = self.prose.paragraphs(3, 6, "delivery")
        return self._layout.page(name, f"<table>{rows}</table>{text}")


class Weather(Site):
    """The weather of each day of some years, at ``/2019/03/07/``.

    ``ways``: "lists" – years, months and days –, "both" – days lead to their neighbours, too – or
    "chain": the start page leads to the first day of each month, days to each other.
    """

    def __init__(self, seed: object, days: int = DAYS, ways: str = "both") -> None:
        self.name = f"weather by date ({ways})"
        super().__init__(seed)
        self._ways = ways
        dates = [FIRST + datetime.timedelta(days=n) for n in range(days)]
        self._days = {f"/{day:%Y/%m/%d}/": day for day in dates}
        self._order = list(self._days)
        self._lists: dict[str, dict[str, str]] = {}
        for path, day in self._days.items():
            month, year = f"/{day:%Y/%m}/", f"/{day:%Y}/"
            if ways == "chain":
                if day.day == 1:
                    self._lists.setdefault("/", {})[path] = f"{day:%B %Y}"
                continue
            self._lists.setdefault(month, {})[path] = str(day.day)
            self._lists.setdefault(year, {})[month] = f"{day:%B}"
            self._lists.setdefault("/", {})[year] = str(day.year)
        self.content = set(self._order)
        self._layout = Layout("Weather", [("/", "Start")], self.prose.text(2, "footer"))

    def reply(self, path: str, query: Query) -> Reply:
        """Return the start page, a year, a month, or a day."""
        if path in self._days:
            return Reply("content", "day", path, self._day(path))
        shown = self._lists.get(path)
        if shown is None:
            return missing()
        main = items(shown.items())
        return Reply("index", "list", path, self._layout.page(f"Weather {path}", main))

    def _day(self, path: str) -> str:
        chance, day = self.prose.chance("day", path), self._days[path]
        high = chance.randint(-4, 33)
        facts = {
            "Highest": f"{high} °C",
            "Lowest": f"{high - chance.randint(2, 14)} °C",
            "Rain": f"{max(chance.randint(-20, 30), 0)} mm",
            "Wind": f"{chance.randint(1, 80)} km/h",
            "Pressure": f"{chance.randint(980, 1040)} hPa",
        }
        rows = "".join(f"<tr><th>{what}</th><td>{said}</td></tr>" for what, said in facts.items())
        at = self._order.index(path)
        near = self._order[max(at - 1, 0) : at] + self._order[at + 1 : at + 2]
        ways = [] if self._ways == "lists" else [(one, one.strip("/")) for one in near]
        return self._layout.page(f"{day:%d %B %Y}", f"<table>{rows}</table>{pager(ways)}")


class Timetable(Site):
    """When trams leave: lines, their stops, and a page of hours and minutes for each stop."""

    name = "timetable"

    def __init__(self, seed: object, lines: int = LINES, stops: int = STOPS) -> None:
        super().__init__(seed)
        self._lines = {f"/line/{n}/": range(1, stops + 1) for n in range(1, lines + 1)}
        self.content = {f"{line}{stop}" for line, range_ in self._lines.items() for stop in range_}
        self._layout = Layout("Trams", [("/", "All lines")], self.prose.text(2, "footer"))

    def reply(self, path: str, query: Query) -> Reply:
        """Return all lines, the stops of a line, or the hours of a stop."""
        if path in self.content:
            return Reply("content", "stop", path, self._stop(path))
        if path != "/" and path not in self._lines:
            return missing()
        shown = list(self._lines) if path == "/" else [f"{path}{n}" for n in self._lines[path]]
        main = items((one, one.strip("/").replace("/", " ")) for one in shown)
        return Reply("index", "list", path, self._layout.page(f"Timetable {path}", main))

    def _stop(self, path: str) -> str:
        chance, rows = self.prose.chance("stop", path), ""
        for hour in range(chance.randint(4, 6), 24):
            minutes = sorted(chance.sample(range(60), chance.randint(2, 6)))
            rows += f"<tr><th>{hour}</th><td>{' '.join(f'{n:02}' for n in minutes)}</td></tr>"
        return self._layout.page("Departures", f"<table>{rows}</table>")
