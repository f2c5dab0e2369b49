"""Pages of sites that are only functions: the text in blocks, and the links."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import count
from urllib.parse import parse_qsl, urljoin, urlsplit
from zlib import crc32

ORIGIN = "https://site.example"


@dataclass
class Answer:
    """A page; requests are counted by ``kind``: "trap…", or a kind of wanted page."""

    kind: str
    blocks: list[str]
    links: list[str]
    generator: str = ""
    canonical: str = ""
    images: tuple[str, ...] = ()
    redirect: str = ""
    title: str = ""


Site = Callable[[str, dict[str, str]], Answer | None]
"""A function that makes a page from a path and the parameters of a query; None means 404."""


_SYLLABLES = [a + b for a in "bcdfghklmnprstvwz" for b in ("a", "e", "i", "o", "u", "an", "er")]


@cache
def words(language: str) -> tuple[list[str], list[float]]:
    """Return a vocabulary, and how often each word comes."""
    chance = random.Random(language)
    if language == "en":
        found = ["".join(chance.choices(_SYLLABLES, k=chance.randint(1, 4))) for _ in range(3000)]
    elif language == "zh":
        found = [chr(0x4E00 + n) for n in chance.sample(range(0x5000), 2500)]
    else:
        found = ["".join(chr(chance.randrange(0x0E01, 0x0E2F)) for _ in range(3))
                 for _ in range(1500)]  # fmt: skip
    weights = [1 / (rank + 10) for rank in range(len(found))]
    for i in range(1, len(weights)):
        weights[i] += weights[i - 1]
    return found, weights


def prose(key: object, count: int = 120, language: str = "en") -> list[str]:
    """Make some paragraphs that depend only on ``key``."""
    chance = random.Random(repr(key))
    found, weights = words(language)
    picked = chance.choices(found, cum_weights=weights, k=count)
    glue = " " if language == "en" else ""
    return [glue.join(picked[i : i + 40]) + "." for i in range(0, count, 40)]


def page(
    kind: str, title: str, text: Iterable[str], links: Iterable[str], **more: object
) -> Answer:
    """Make a page with the parts that all pages of a site have: a menu and a foot."""
    menu = ["Home", "News", "Shop", "About us", "Contact", "Search this site", "Log in"]
    foot = ["All rights reserved by the makers of this site.", "Imprint", "Privacy", "Terms of use"]
    return Answer(
        kind,
        [*menu, title, *text, *foot],
        ["/", "/about.html", *links],
        title=title,
        **more,  # type: ignore[arg-type]
    )


# -- a site, and traps beside it


def good(articles: int = 300, language: str = "en", links: tuple[str, ...] = ()) -> Site:
    """Return a site of sections with paged lists of articles; its home also links to ``links``."""
    sections = 6

    def site(path: str, query: dict[str, str]) -> Answer | None:
        if path == "/":
            there = [f"/{name}/" for name in ("news", "blog", "docs", "help", "jobs", "press")]
            return page("good", "Welcome", prose("home"), [*there, *links])
        if path == "/about.html":
            return page("good", "About", prose("about"), [])
        parts = path.strip("/").split("/")
        names = ["news", "blog", "docs", "help", "jobs", "press"]
        if parts[0] not in names:
            return None
        section, number = parts[0], names.index(parts[0])
        mine = [n for n in range(articles) if n % sections == number]
        if len(parts) == 1:
            at = int(query.get("page", "1"))
            shown = mine[(at - 1) * 10 : at * 10]
            if not shown:
                return None
            teasers = [prose(n, 10, language)[0] for n in shown]
            there = [f"/{section}/article-{n}.html" for n in shown]
            return page(
                "good", section, teasers, [*there, f"/{section}/?page={at + 1}"]
                if mine[at * 10 :] else there,
            )  # fmt: skip
        n = int(parts[1].removeprefix("article-").removesuffix(".html"))
        near = [f"/{section}/article-{m}.html" for m in (n - sections, n + sections) if m in mine]
        return page("good", f"Article {n}", prose(n, 160, language), near)

    return site


def calendar(path: str, query: dict[str, str]) -> Answer | None:
    """/calendar/2026/5/14: months and days without end and without entries."""
    parts = [int(part) for part in path.strip("/").split("/")[1:] or ["2026", "11"]]
    months = "January February March April May June July August September October November December"
    year, month = parts[0], parts[1]
    name = f"{months.split()[month - 1]} {year}"
    before = f"/calendar/{year - (month == 1)}/{(month - 2) % 12 + 1}/"
    after = f"/calendar/{year + (month == 12)}/{month % 12 + 1}/"
    if len(parts) == 3:
        return page(
            "trap calendar", f"{name}, {parts[2]}", ["No events on this day."], [before, after]
        )
    days = [f"/calendar/{year}/{month}/{day}/" for day in range(1, 29)]
    grid = ["Mo", "Tu", "We", "Th", "Fr", "Sa", "Su", *map(str, range(1, 29))]
    return page("trap calendar", name, [*grid, "No events this month"], [before, after, *days])


def events(path: str, query: dict[str, str]) -> Answer | None:
    """/events?month=5&year=2026: each month links to the next one, without end."""
    year, month = int(query.get("year", "2026")), int(query.get("month", "11"))
    there = [
        f"/events?month={month % 12 + 1}&year={year + (month == 12)}",
        f"/events?month={(month - 2) % 12 + 1}&year={year - (month == 1)}",
    ]
    return page("trap events", f"Events of {month}/{year}", ["There are none."], there)


def growth(path: str, query: dict[str, str]) -> Answer | None:
    """/browse/…: each folder has folders with random names."""
    chance = random.Random(path)
    there = [f"{path.rstrip('/')}/{chance.choice(_SYLLABLES)}{chance.choice(_SYLLABLES)}/"
             for _ in range(5)]  # fmt: skip
    return page("trap growth", "Folder", ["This folder has folders."], there)


def sessions(path: str, query: dict[str, str]) -> Answer | None:
    """/member/7?sid=…: each page links to all twelve, with a new id."""
    number = int(path.strip("/").split("/")[1])
    chance = random.Random(f"{path}{query}")
    there = [f"/member/{n}?sid={chance.randbytes(8).hex()}" for n in range(12)]
    kind = "good member" if not query.get("_again") else "trap sessions"
    return page(kind, f"Member {number}", prose(("member", number)), there)


def soft_404(path: str, query: dict[str, str]) -> Answer | None:
    """/old/…: every page says "not found" and has relative links."""
    there = [urljoin(ORIGIN + path, name) for name in ("contact/", "team/", "history/", "jobs/")]
    text = [f"Sorry, we could not find {path} on this server.", "Try the search."]
    return page("trap soft 404", "Not found", text, there)


def equal(path: str, query: dict[str, str]) -> Answer | None:
    """/item/123: all pages are the same, with ten links to others."""
    chance = random.Random(path)
    there = [f"/item/{chance.randrange(10**6)}" for _ in range(10)]
    text = ["This item is out of stock.", "See other items", *[f"Item {one[6:]}" for one in there]]
    return page("trap equal", "Item", text, there)


_FACETS = {
    "color": ("red", "blue", "green", "black"),
    "size": ("s", "m", "l", "xl"),
    "brand": ("acme", "zenith", "orbit"),
    "sort": ("price", "name", "date"),
}


def facets(path: str, query: dict[str, str]) -> Answer | None:
    """/finder?color=red&size=m: products by any choice of four properties."""
    chosen = {name: value for name, value in query.items() if name in _FACETS}
    chance = random.Random(repr(sorted(chosen.items())))
    names = [f"Product {prose(('product', n), 6)[0]}" for n in range(40)]
    shown = chance.sample(names, max(2, 24 // (1 + len(chosen))))
    there = []
    for name, values in _FACETS.items():
        for value in values:
            other = {**chosen, name: value}
            there.append("/finder?" + "&".join(f"{k}={v}" for k, v in other.items()))
    return page("trap facets", "Find products", [f"{len(shown)} products", *shown], there)


def six_traps(articles: int = 300, language: str = "en") -> Site:
    """Return the good site, with all of these traps beside it."""
    begins = (
        "/calendar/2026/11/", "/events", "/browse/", "/member/1?sid=0123456789abcdef", "/old/",
        "/item/1", "/finder",
    )  # fmt: skip
    main = good(articles, language, begins)
    others = {
        "calendar": calendar, "events": events, "browse": growth, "member": sessions,
        "old": soft_404, "item": equal, "finder": facets,
    }  # fmt: skip

    def site(path: str, query: dict[str, str]) -> Answer | None:
        return others.get(path.strip("/").split("/")[0], main)(path, query)

    return site


# -- software


def wiki(content: int = 60, private: int = 30, marked: bool = True) -> Site:
    """Return a wiki like MediaWiki, as a user sees it after logging in."""
    names = [f"Topic_{n}" for n in range(content)] + [f"Private:Note_{n}" for n in range(private)]
    generator = "MediaWiki 1.39.7" if marked else ""

    def tools(name: str) -> list[str]:
        start = f"/index.php?title={name}"
        return [
            f"{start}&action=edit", f"{start}&action=history", f"{start}&action=info",
            f"{start}&oldid={crc32(name.encode()) % 1000}", f"{start}&printable=yes",
            f"/index.php/Special:WhatLinksHere/{name}", f"{start}&action=delete",
            f"/index.php/Special:RecentChangesLinked/{name}", f"{start}&action=watch",
            f"/index.php/Special:MovePage/{name}", "/index.php/Special:RecentChanges",
            "/index.php/Special:SpecialPages", "/index.php/Special:Random",
            "/index.php/Special:Preferences", "/index.php/Special:Upload",
        ]  # fmt: skip

    def site(path: str, query: dict[str, str]) -> Answer | None:
        name = query.get("title", "") or path.removeprefix("/index.php").strip("/") or "Main_Page"
        view = query.get("action") or next(
            (one for one in ("oldid", "diff", "printable") if one in query), ""
        )
        where = names.index(name) if name in names else -1
        if view == "history":
            there = [f"/index.php?title={name}&oldid={where * 50 + n}" for n in range(20)]
            there += [f"/index.php?title={name}&diff={where * 50 + n}&oldid={where * 50 + n - 1}"
                      for n in range(1, 20)]  # fmt: skip
            there += [f"/index.php?title={name}&action=history&limit={n}" for n in (20, 50, 500)]
            rows = [f"cur prev 1{n}:00, {n} May 2024 Admin talk contribs 1,2{n}0 bytes"
                    for n in range(20)]  # fmt: skip
            return page("trap history", f"History of {name}", rows, tools(name) + there,
                        generator=generator)  # fmt: skip
        if view:
            text = [f"{view} of {name}", *prose(name, 150)]
            return page(f"trap {view}", name, text, tools(name), generator=generator)
        if name.startswith("Special:"):
            kind = name.partition(":")[2].split("/")[0]
            if kind == "AllPages":
                return page("index", "All pages", [n.replace("_", " ") for n in names],
                            [f"/index.php/{n}" for n in names], generator=generator)  # fmt: skip
            if kind == "SpecialPages":
                there = [
                    "/index.php/Special:AllPages",
                    "/index.php/Special:Log",
                    "/index.php/Special:NewPages",
                    "/index.php/Special:Contributions/Admin",
                ]
                return page("index", "Special pages", ["List of special pages"], there,
                            generator=generator)  # fmt: skip
            there = [f"{path}?limit={n}&offset={m}" for n in (20, 50, 100) for m in (0, 20, 40)]
            return page(f"trap Special:{kind}", kind, ["There are no entries."], there,
                        generator=generator)  # fmt: skip
        if name == "Main_Page":
            there = [f"/index.php/{n}" for n in names[:8]]
            return page("content", name, prose(name), [*there, *tools(name)], generator=generator)
        if where < 0:
            return None
        chance = random.Random(name)
        there = [f"/index.php/{names[(where + 1) % len(names)]}",
                 *(f"/index.php/{chance.choice(names)}" for _ in range(4))]  # fmt: skip
        kind = "private" if where >= content else "content"
        return page(kind, name, prose(name, 150), [*there, *tools(name)], generator=generator)

    return site


def board(topics: int = 150) -> Site:
    """Return a forum like phpBB, without its mark."""

    def pages_of(topic: int) -> int:
        return 1 + topic % 4

    def site(path: str, query: dict[str, str]) -> Answer | None:
        if path in ("/", "/index.php"):
            there = [f"/viewforum.php?f={f}" for f in range(8)]
            there += ["/search.php?search_id=newposts", "/ucp.php?mode=login", "/memberlist.php"]
            return page("content", "Board index", prose("board"), there)
        if path == "/viewforum.php":
            forum, start = int(query.get("f", "0")), int(query.get("start", "0"))
            mine = [t for t in range(topics) if t % 8 == forum]
            if "sk" in query:
                mine = sorted(
                    mine, key=lambda t: crc32(repr((t, query["sk"], query.get("sd"))).encode())
                )
            shown = mine[start : start + 10]
            there = [f"/viewtopic.php?f={forum}&t={t}" for t in shown]
            there += [f"/memberlist.php?mode=viewprofile&u={t % 40}" for t in shown]
            there += [f"/viewforum.php?f={forum}&sk={sk}&sd={sd}&st={st}"
                      for sk in "atrsv" for sd in "ad" for st in (0, 1, 7, 14, 30)]  # fmt: skip
            there += [f"/posting.php?mode=post&f={forum}"]
            if mine[start + 10 :]:
                there.append(f"/viewforum.php?f={forum}&start={start + 10}")
            kind = "trap sort" if "sk" in query else "content"
            return page(kind, f"Forum {forum}", [prose(("t", t), 8)[0] for t in shown], there)
        if path == "/viewtopic.php":
            if "p" in query and "t" not in query:
                query = {**query, "t": str(int(query["p"]) // 100), "start": "0"}
                post = True
            else:
                post = False
            topic, start = int(query["t"]), int(query.get("start", "0"))
            if start >= pages_of(topic) * 10:
                start = 0
            posts = [f"{topic}-{start + n}" for n in range(10)]
            text = [line for one in posts for line in prose(one, 40)]
            base = f"/viewtopic.php?f={topic % 8}&t={topic}"
            there = [f"{base}&start={10 * n}" for n in range(1, pages_of(topic))]
            there += [f"{base}&view=print", f"{base}&view=next", f"{base}&view=previous"]
            there += [f"/viewtopic.php?p={topic * 100 + start + n}" for n in range(10)]
            there += [f"/posting.php?mode=quote&f={topic % 8}&p={topic * 100 + start + n}"
                      for n in range(10)]  # fmt: skip
            there += [f"/posting.php?mode=reply&f={topic % 8}&t={topic}",
                      f"/report.php?f={topic % 8}&p={topic * 100 + start}"]  # fmt: skip
            there += [f"/memberlist.php?mode=viewprofile&u={(topic + n) % 40}" for n in range(3)]
            if post or "view" in query:
                return page("trap view", f"Topic {topic}", text, there)
            return page("content", f"Topic {topic}", text, there)
        if path == "/memberlist.php" and "u" in query:
            user = query["u"]
            there = [
                f"/search.php?author_id={user}&sr=posts",
                f"/ucp.php?i=pm&mode=compose&u={user}",
            ]
            return page(
                "content", f"Viewing profile – user{user}", prose(("user", user), 12), there
            )
        if path == "/memberlist.php":
            there = [f"/memberlist.php?sk={sk}&sd={sd}&start={n}"
                     for sk in "abcd" for sd in "ad" for n in (0, 25)]  # fmt: skip
            there += [f"/memberlist.php?mode=viewprofile&u={u}" for u in range(40)]
            kind = "trap sort" if "sk" in query else "content"
            return page(kind, "Members", [f"user{u}" for u in range(40)], there)
        if path in ("/posting.php", "/ucp.php", "/report.php"):
            text = ["You must log in to post.", "Username:", "Password:", "I forgot my password"]
            return page(
                "trap login", "Login", text, ["/ucp.php?mode=login", "/ucp.php?mode=register"]
            )
        if path == "/search.php":
            return page("trap search", "Search", ["No suitable matches were found."], [])
        return None

    return site


def discussions(topics: int = 120) -> Site:
    """Return a forum like Discourse, without its mark: each post has a URL that shows the whole
    topic."""

    def site(path: str, query: dict[str, str]) -> Answer | None:
        parts = path.strip("/").split("/")
        if path == "/" or parts[0] in ("latest", "top", "c"):
            at = int(query.get("page", "0"))
            mine = [t for t in range(topics) if parts[0] != "c" or t % 5 == int(parts[-1])]
            if "order" in query:
                chance = random.Random(repr(query.get("order")) + repr(query.get("ascending")))
                chance.shuffle(mine)
            shown = mine[at * 12 : at * 12 + 12]
            there = [f"/t/topic-{prose(t, 2)[0].strip('.').replace(' ', '-')}/{t}" for t in shown]
            there += [f"/c/cat{n}/{n}" for n in range(5)] + ["/latest", "/top"]
            there += [f"{path}?order={o}&ascending={a}" for o in ("posts", "views", "activity")
                      for a in ("true", "false")]  # fmt: skip
            if mine[at * 12 + 12 :]:
                more = f"&order={query['order']}" if "order" in query else ""
                there.append(f"{path}?page={at + 1}{more}")
            kind = "trap order" if "order" in query else "content"
            return page(kind, "Topics", [prose(t, 8)[0] for t in shown], there)
        if parts[0] == "t":
            topic = int(parts[2])
            count = 5 + topic % 20
            there = ["/".join(["", *parts[:3], str(n)]) for n in range(1, count)]
            there += [f"/u/user{(topic + n) % 30}" for n in range(4)]
            text = [line for n in range(count) for line in prose((topic, n), 40)]
            kind = "trap post" if len(parts) > 3 else "content"
            return page(kind, f"Topic {topic}", text, there,
                        canonical=ORIGIN + "/" + "/".join(parts[:3]))  # fmt: skip
        if parts[0] == "u":
            if len(parts) > 2:
                return page("trap activity", parts[1], ["Nothing here yet."], [])
            there = [f"{path}/{tab}" for tab in ("summary", "activity", "badges")]
            return page("content", parts[1], prose(parts[1], 20), there)
        return None

    return site


def shop(products: int = 200) -> Site:
    """Return a shop: lists by category with filters and orders, and products with links to a
    cart."""
    colors, orders = ("red", "blue", "green", "white"), ("price-asc", "price-desc", "newest")

    def site(path: str, query: dict[str, str]) -> Answer | None:
        parts = path.strip("/").split("/")
        if path == "/":
            return page("content", "Shop", prose("shop"), [f"/category/{c}" for c in range(6)])
        if parts[0] == "category":
            category, at = int(parts[1]), int(query.get("page", "1"))
            mine = [p for p in range(products) if p % 6 == category]
            if "color" in query:
                mine = [p for p in mine if colors[p % 4] == query["color"]]
            if "sort" in query:
                mine.sort(key=lambda p: crc32(f"{p} {query['sort']}".encode()))
            shown = mine[(at - 1) * 8 : at * 8]
            if not shown:
                return None
            rest = {k: v for k, v in query.items() if k in ("color", "sort", "view", "per_page")}
            choices = [{**rest, "color": c} for c in colors] + [{**rest, "sort": o} for o in orders]
            choices += [{**rest, "view": v} for v in ("grid", "list")]
            choices += [{**rest, "per_page": v} for v in ("8", "16")]
            if mine[at * 8 :]:
                choices.append({**rest, "page": str(at + 1)})
            there = [f"{path}?" + "&".join(f"{k}={v}" for k, v in one.items()) for one in choices]
            for p in shown:
                there += [f"/product/{p}", f"/cart/add?product={p}&back={category}",
                          f"/wishlist/add/{p}", f"/compare?add={p}"]  # fmt: skip
            kind = "trap filter" if rest else "content"
            return page(kind, f"Category {category}", [prose(("p", p), 8)[0] for p in shown], there)
        if parts[0] == "product":
            p = int(parts[1])
            there = [f"/product/{(p + 6 * n) % products}" for n in range(1, 4)]
            there += [f"/product/{p}?color={c}" for c in colors]
            there += [f"/product/{p}?tab={t}" for t in ("reviews", "shipping")]
            there += [f"/cart/add?product={p}", f"/wishlist/add/{p}", f"/compare?add={p}"]
            kind = "trap variant" if query else "content"
            return page(kind, f"Product {p}", prose(("p", p), 60), there)
        if parts[0] in ("cart", "wishlist", "compare"):
            return page("trap cart", "Please log in", ["You need an account for this."], [])
        return None

    return site


# -- sites that look like traps and are none


def reference(classes: int = 400) -> Site:
    """Documentation of an API: pages with similar texts, and pages with almost no text."""

    def name(n: int) -> str:
        return "".join(one.title() for one in prose(("c", n), 2)[0].strip(".").split()) + str(n)

    def site(path: str, query: dict[str, str]) -> Answer | None:
        if path in ("/", "/allclasses.html"):
            there = [f"/api/p{n}/package-summary.html" for n in range(classes // 20)]
            if path != "/":
                there = [f"/api/p{n // 20}/{name(n)}.html" for n in range(classes)]
            return page("content", "API", ["All packages"], [*there, "/allclasses.html"])
        parts = path.strip("/").split("/")
        package = int(parts[1][1:])
        mine = range(package * 20, package * 20 + 20)
        if parts[-1].startswith("package-"):
            there = [f"/api/p{package}/{name(n)}.html" for n in mine]
            others = [f"/api/p{package}/package-{one}.html" for one in ("tree", "use", "summary")]
            text = [f"Class {name(n)}" for n in mine]
            return page("content", f"Package p{package}", text, [*there, *others])
        found = next((n for n in mine if name(n) == parts[-1].removesuffix(".html")), -1)
        if found < 0:
            return None
        if "class-use" in parts:
            text = [f"Uses of Class p{package}.{name(found)}",
                    f"No usage of p{package}.{name(found)}"]  # fmt: skip
            return page("content", "Uses", text, [f"/api/p{package}/{name(found)}.html"])
        methods = [f"public void {w}(int index)" for w in prose(found, 6)[0].split()]
        text = [
            f"Class {name(found)}",
            *methods,
            "Methods declared in class Object",
            "clone, equals, finalize, getClass, hashCode, notify, notifyAll, toString, wait",
        ]
        there = [f"/api/p{package}/class-use/{name(found)}.html",
                 f"/api/p{(package + 1) % (classes // 20)}/package-summary.html",
                 *(f"/api/p{package}/{name(n)}.html" for n in list(mine)[:3])]  # fmt: skip
        return page("content", name(found), text, there)

    return site


def manual(parts: int = 60, chapters: int = 15) -> Site:
    """Documentation in many folders: their indexes, which are only links, come before all
    chapters."""

    def site(path: str, query: dict[str, str]) -> Answer | None:
        if path == "/":
            return page("content", "Manual", [], [f"/{part}/index.html" for part in names])
        part, _, name = path[1:].partition("/")
        if name == "index.html":
            there = [f"/{part}/{one}.html" for one in words("en")[0][: 2 * chapters : 2]]
            return page("content", f"Part {part}", [], there)
        return page("content", name, prose(path, 60), ["index.html"])

    names = list(dict.fromkeys(words("en")[0][1 : 4 * parts : 2]))[:parts]
    return site


def archive(articles: int = 1000) -> Site:
    """Articles by date: the pages of years, months and days are only links."""

    def date(n: int) -> tuple[int, int, int]:
        return 1998 + n % 27, 1 + n // 27 % 12, 1 + n // 324 % 28

    def site(path: str, query: dict[str, str]) -> Answer | None:
        parts = path.strip("/").split("/")
        dates = [date(n) for n in range(articles)]
        if path == "/":
            return page("content", "Archive", [], [f"/{y}/" for y in range(1998, 2025)])
        if len(parts) < 4:
            given = tuple(map(int, parts))
            depth = len(given)
            below = sorted({d[: depth + 1] for d in dates if d[:depth] == given})
            if not below:
                return None
            there = ["/" + "/".join(map(str, one)) + "/" for one in below]
            if depth == 3:
                there = ["/" + "/".join(map(str, given)) + f"/story-{n}" for n, d in
                         enumerate(dates) if d == given]  # fmt: skip
                after = (given[0], given[1], given[2] + 1)
                if after in dates:
                    there.append("/" + "/".join(map(str, after)) + "/")
            return page("content", "Archive of " + path, list(there), there)
        return page("content", "Story", prose(path, 60), [])

    return site


def catalogue(items: int = 800) -> Site:
    """Items with ids; each links to the next ones and has little text of its own."""

    def site(path: str, query: dict[str, str]) -> Answer | None:
        if path == "/":
            return page("content", "Catalogue", ["All items"], ["/item.php?id=1000"])
        n = int(query["id"]) - 1000
        there = [f"/item.php?id={1000 + m}" for m in (n + 1, 2 * n + 1, 2 * n + 2) if m < items]
        text = [f"No. {n + 1000}", "Weight 0.5 kg, in stock, delivered in two days",
                *prose(("item", n), 14), "Add to cart"]  # fmt: skip
        return page("content", "Item", text, there)

    return site


def forum(topics: int = 60, language: str = "en") -> Site:
    """Return a forum with page numbers: each page links only to the next one."""

    def site(path: str, query: dict[str, str]) -> Answer | None:
        if path == "/":
            return page("content", "Forum", [], [f"/forum?page={n}" for n in range(1, 7)])
        at = int(query.get("page", "1"))
        if path == "/forum":
            shown = range((at - 1) * 10, min(at * 10, topics))
            text = [prose(t, 6, language)[0] for t in shown]
            return page("content", "Forum", text, [f"/topic/{t}" for t in shown])
        topic = int(path.split("/")[2])
        if at > 1 + topic % 30:
            return None
        text = [line for n in range(5) for line in prose((topic, at, n), 20, language)]
        there = [f"/topic/{topic}?page={at + 1}"] if at < 1 + topic % 30 else []
        return page("content", f"Topic {topic}", text, [*there, f"/topic/{topic}?page=1"])

    return site


def photos(count: int = 300) -> Site:
    """Photos in a row, without text."""

    def site(path: str, query: dict[str, str]) -> Answer | None:
        n = 0 if path == "/" else int(path.split("/")[2])
        there = [f"/photo/{n + 1}"] if n < count else []
        return page("content", f"Photo {n}", ["Next photo"], there, images=(f"/img/{n}.jpg",))

    return site


def weather(days: int = 300) -> Site:
    """Return a page of measurements for each day, with a link to the next day."""

    def site(path: str, query: dict[str, str]) -> Answer | None:
        n = 0 if path == "/" else int(path.split("/")[2])
        chance = random.Random(n)
        rows = [f"{chance.uniform(-9, 35):.2f}" for _ in range(24)]
        there = [f"/day/{n + 1}"] if n < days else []
        return page("content", f"Day {n}", ["Temperature", *rows], there)

    return site


def screws(items: int = 400, figures: int = 3, listed: bool = False) -> Site:
    """Articles in lists of twenty; their pages differ only in whole numbers.

    Each page has ``figures`` numbers beside the one in its URL; if ``listed``, so have the lists.
    """

    def facts(n: int) -> list[str]:
        chance = random.Random(n)
        return [f"{chance.randint(2, 90)} EUR", f"{chance.randint(10, 200)} mm long",
                f"Stock: {chance.randint(0, 4000)}"][:figures]  # fmt: skip

    def site(path: str, query: dict[str, str]) -> Answer | None:
        if path == "/":
            at = int(query.get("page", "1"))
            shown = range((at - 1) * 20, min(at * 20, items))
            there = [f"/screw/{1000 + 7 * n}" for n in shown]
            more = [f"/?page={at + 1}"] if at * 20 < items else []
            said = [fact for n in shown for fact in facts(1000 + 7 * n)] if listed else []
            return page("content", "Screws", [f"Page {at}", *said], [*there, *more])
        n = int(path.split("/")[2])
        return page("content", f"Screw {n}", ["Of the best steel", *facts(n)], ["/"])

    return site


def days(number: int = 400, chain: bool = True) -> Site:
    """Return the weather of each day in whole numbers.

    Months link to days; in a ``chain``, the first day of each month links only to the next.
    """

    def site(path: str, query: dict[str, str]) -> Answer | None:
        parts = path.strip("/").split("/")
        if path == "/":
            there = [f"/weather/{m}/" + "1" * chain for m in range(-(-number // 30))]
            return page("content", "Weather", [], there)
        month = int(parts[1])
        if len(parts) == 2:
            there = [f"/weather/{month}/{d}" for d in range(1, 31) if 30 * month + d <= number]
            return page("content", "Month", [], there)
        day = int(parts[2])
        chance = random.Random(path)
        said = [f"{what} {chance.randint(low, 2 * low)}" for what, low in
                (("Pressure", 990), ("Wind", 18), ("Rain", 30), ("Sun", 200))]  # fmt: skip
        if day > 30 or 30 * month + day > number:
            return None
        ways = [f"/weather/{month}/{one}" for one in (day - 1, day + 1) if 1 <= one <= 30]
        ways = [one for one in ways if 30 * month + int(one.rpartition("/")[2]) <= number]
        return page("content", f"Day {day}", said, ways if chain else [])

    return site


def with_clock(inner: Site) -> Site:
    """Add the number of the visitor and the time to each page of a site."""
    asked = count(1)

    def site(path: str, query: dict[str, str]) -> Answer | None:
        answer = inner(path, query)
        if answer is not None:
            n = next(asked)
            clock = f"You are visitor {40_000 + 3 * n}; it is {n // 60 % 24}:{n % 60}, {n} queries"
            answer.blocks.append(clock)
        return answer

    return site


def split(url: str) -> tuple[str, dict[str, str]]:
    """Return the path and the parameters of a URL."""
    parts = urlsplit(url)
    return parts.path, dict(parse_qsl(parts.query))
