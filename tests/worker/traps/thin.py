"""Sites whose pages have almost no text but are worth a request, and traps on no list.

They do not depend on how the judge works: the reader came for the little that a page has – a name,
a price, a picture, one character.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.worker.traps.pages import Answer, Site, good, page, prose, words


def _word(*key: object, language: str = "en") -> str:
    found, weights = words(language)
    return random.Random(repr(key)).choices(found, cum_weights=weights)[0]


def _name(n: int) -> str:
    return f"{_word('first', n).title()} {_word('last', n * 7).title()}"


def _home(path: str, there: Sequence[str]) -> Answer | None:
    if path == "/about.html":
        return page("good", "About", prose("about"), [])
    return page("good", "Welcome", prose("home"), there) if path == "/" else None


def genealogy(people: int = 400) -> Site:
    """/person/7: a name and two years; it links to parents, children and a spouse."""

    def site(path: str, query: dict[str, str]) -> Answer | None:
        if (found := _home(path, ["/person/1"])) is not None:
            return found
        n = int(path.rsplit("/", 1)[1])
        if not 1 <= n <= people:
            return None
        near = [m for m in (n // 2, 2 * n, 2 * n + 1, n ^ 1) if 1 <= m <= people]
        facts = ["Born", f"{1500 + n}", "Died", f"{1560 + n}", "Parents", "Children", "Spouse"]
        return page("good", _name(n), facts, [f"/person/{m}" for m in near])

    return site


def thesaurus(terms: int = 500) -> Site:
    """/term/word: a word, and links to its broader and narrower ones."""
    names = list(dict.fromkeys(_word("term", n) + _word("end", n) for n in range(terms)))

    def site(path: str, query: dict[str, str]) -> Answer | None:
        if (found := _home(path, [f"/term/{names[0]}"])) is not None:
            return found
        name = path.rsplit("/", 1)[1]
        if name not in names:
            return None
        n = names.index(name)
        near = [m for m in ((n - 1) // 4, *range(4 * n + 1, 4 * n + 5)) if 0 <= m < len(names)]
        there = [f"/term/{names[m]}" for m in near]
        return page("good", name, ["Broader term", "Narrower terms", "See also"], there)

    return site


def stubs(articles: int = 300) -> Site:
    """/wiki/Title: the sentence of all stubs, with the name of the thing in it."""
    names = list(dict.fromkeys(f"{_name(n).replace(' ', '_')}" for n in range(articles)))

    def site(path: str, query: dict[str, str]) -> Answer | None:
        if (found := _home(path, [f"/wiki/{names[0]}"])) is not None:
            return found
        name = path.rsplit("/", 1)[1]
        if name not in names:
            return None
        n = names.index(name)
        there = [f"/wiki/{names[m]}" for m in (2 * n + 1, 2 * n + 2) if m < len(names)]
        text = ["This article is a stub. You can help by expanding it."]
        return page("good", name.replace("_", " "), text, there)

    return site


def characters(count: int = 500) -> Site:
    """/zi/1234: one Chinese character and its reading; it links to the next ones by radical."""

    def site(path: str, query: dict[str, str]) -> Answer | None:
        if (found := _home(path, ["/zi/0"])) is not None:
            return found
        n = int(path.rsplit("/", 1)[1])
        if n >= count:
            return None
        there = [f"/zi/{m}" for m in (3 * n + 1, 3 * n + 2, 3 * n + 3, n + 1) if m < count]
        reading = random.Random(n).choice(["ma", "shi", "li", "zhang", "wen", "guo"])
        return page("good", chr(0x4E00 + 7 * n), ["字", "拼音", reading, "部首", "笔画"], there)

    return site


def prices(items: int = 400) -> Site:
    """/item/7: a short name and a price; it links to four others."""

    def site(path: str, query: dict[str, str]) -> Answer | None:
        if (found := _home(path, ["/item/0"])) is not None:
            return found
        n = int(path.rsplit("/", 1)[1])
        if n >= items:
            return None
        there = [f"/item/{m}" for m in (2 * n + 1, 2 * n + 2, n - 1) if 0 <= m < items]
        return page(
            "good", f"{_word('thing', n)} {_word('of', n)}", ["Price", f"{n * 3}.99"], there
        )

    return site


def table(stations: int = 400) -> Site:
    """/station/7: a table with short words in its cells."""

    def site(path: str, query: dict[str, str]) -> Answer | None:
        if (found := _home(path, ["/station/0"])) is not None:
            return found
        n = int(path.rsplit("/", 1)[1])
        if n >= stations:
            return None
        there = [f"/station/{m}" for m in (n + 1, n - 1, n + 20) if 0 <= m < stations]
        cells = ["Name", _name(n), "Line", f"U{n % 9}", "Lift", ("yes", "no")[n % 2]]
        return page("good", "Station", cells, there)

    return site


def pictures(count: int = 300) -> Site:
    """/photo/7: a picture, with links to the next and the last one."""

    def site(path: str, query: dict[str, str]) -> Answer | None:
        if (found := _home(path, ["/photo/0"])) is not None:
            return found
        n = int(path.rsplit("/", 1)[1])
        if n >= count:
            return None
        there = [f"/photo/{m}" for m in (n + 1, n - 1) if 0 <= m < count]
        return page("good", "Photo", [], there, images=(f"/files/{n}.jpg",))

    return site


def hubs(subjects: int = 360) -> Site:
    """/subjects/a/b/c/: a heading, and links to the subjects below it."""

    def site(path: str, query: dict[str, str]) -> Answer | None:
        if (found := _home(path, ["/subjects/"])) is not None:
            return found
        parts = path.strip("/").split("/")
        if parts[0] != "subjects" or len(parts) > 5:
            return None
        there = [f"{path}{_word(path, n)}-{n}/" for n in range(4)] if len(parts) < 5 else []
        return page("good", parts[-1].rsplit("-", 1)[0], [], there)

    return site


def tags(posts: int = 300) -> Site:
    """Posts that only their tags link to; the lists of the tags have only titles, as links."""
    names = [f"{_word('tag', n)}{n}" for n in range(60)]

    def site(path: str, query: dict[str, str]) -> Answer | None:
        if (found := _home(path, [f"/tag/{one}/" for one in names])) is not None:
            return found
        parts = path.strip("/").split("/")
        if parts[0] == "tag":
            mine = range(names.index(parts[1]), posts, len(names))
            return page("good", f"Posts tagged {parts[1]}", [], [f"/post/{n}" for n in mine])
        n = int(parts[1])
        return page("good", f"Post {n}", prose(n, 60), [f"/tag/{names[n % len(names)]}/"])

    return site


def filters(items: int = 240) -> Site:
    """Products that appear under one choice of two properties, and nowhere else."""
    colors, sizes = [f"c{n}" for n in range(12)], [f"s{n}" for n in range(10)]

    def site(path: str, query: dict[str, str]) -> Answer | None:
        if (found := _home(path, ["/find"])) is not None:
            return found
        if path == "/find":
            there = [f"/find?color={c}" for c in colors] if "color" not in query else []
            if "color" in query and "size" not in query:
                there = [f"/find?color={query['color']}&size={s}" for s in sizes]
            if "size" in query:
                first = colors.index(query["color"]) * 20 + sizes.index(query["size"]) * 2
                there = [f"/product/{first}", f"/product/{first + 1}"]
            return page("good", "Find products", ["Choose one"], there)
        n = int(path.rsplit("/", 1)[1])
        return page("good", f"Product {n}", prose(("p", n), 40), ["/find"])

    return site


def late_text(count: int = 300) -> Site:
    """/case/7: forty paragraphs that all pages have, then a sentence of its own."""
    shared = prose("law", 800)

    def site(path: str, query: dict[str, str]) -> Answer | None:
        if (found := _home(path, ["/case/0"])) is not None:
            return found
        n = int(path.rsplit("/", 1)[1])
        if n >= count:
            return None
        there = [f"/case/{m}" for m in (2 * n + 1, 2 * n + 2) if m < count]
        return page("good", "Case", [*shared, *prose(("case", n), 20)], there)

    return site


def forms(count: int = 300) -> Site:
    """/form/7: one word of its own in a sentence that all pages have."""

    def site(path: str, query: dict[str, str]) -> Answer | None:
        if (found := _home(path, ["/form/0"])) is not None:
            return found
        n = int(path.rsplit("/", 1)[1])
        if n >= count:
            return None
        there = [f"/form/{m}" for m in (2 * n + 1, 2 * n + 2) if m < count]
        text = [
            f"The word that stands here is {_word('form', n)}{_word(n)}, and it is declined so."
        ]
        return page("good", "Form", text, there)

    return site


# -- traps without a name


def _beside(name: str, trap: Site, start: str) -> Site:
    main = good(200, links=(start,))

    def site(path: str, query: dict[str, str]) -> Answer | None:
        return (trap if path.strip("/").split("/")[0] == name else main)(path, query)

    return site


def tokens() -> Site:
    """/club?zx=…: each link has a new value of a parameter whose name no session has."""

    def trap(path: str, query: dict[str, str]) -> Answer | None:
        chance = random.Random(repr(query))
        there = [f"/club?zx={chance.randbytes(6).hex()}" for _ in range(8)]
        return page("trap token", "Club", prose("club"), there)

    return _beside("club", trap, "/club?zx=000000000000")


def token_folders() -> Site:
    """/s/…/list: as ``tokens``, with the value as a folder."""

    def trap(path: str, query: dict[str, str]) -> Answer | None:
        chance = random.Random(path)
        last = path.rsplit("/", 1)[1]
        there = [f"/s/{chance.randbytes(6).hex()}/{one}" for one in ("list", "team", "join")]
        return page("trap token folder", last, prose(last), there)

    return _beside("s", trap, "/s/000000000000/list")


def facet_folders() -> Site:
    """/by/red/large/…: choices as folders, in any order."""
    values = ["red", "blue", "green", "small", "large", "acme", "zenith", "new", "used", "sale"]

    def trap(path: str, query: dict[str, str]) -> Answer | None:
        chosen = path.strip("/").split("/")[1:]
        chance = random.Random(repr(sorted(chosen)))
        names = [f"Product {prose(('product', n), 6)[0]}" for n in range(40)]
        shown = chance.sample(names, max(2, 20 // (1 + len(chosen))))
        there = [f"{path.rstrip('/')}/{one}" for one in values if one not in chosen]
        return page("trap facet folder", "Find", shown, there)

    return _beside("by", trap, "/by")


def soft_missing() -> Site:
    """/pages/…: every page is missing, and links to three further names."""

    def trap(path: str, query: dict[str, str]) -> Answer | None:
        chance = random.Random(path)
        there = [
            f"/pages/{_word('x', chance.random())}-{_word('y', chance.random())}" for _ in "abc"
        ]
        return page("trap missing", "Page not found", ["It may have moved. Try these."], there)

    return _beside("pages", trap, "/pages/start")


HONEST: dict[str, Site] = {
    "genealogy": genealogy(), "thesaurus": thesaurus(), "stubs": stubs(),
    "characters": characters(), "prices": prices(), "table": table(), "pictures": pictures(),
    "hubs": hubs(), "tags": tags(), "filters": filters(), "late text": late_text(),
    "forms": forms(),
}  # fmt: skip
NAMELESS: dict[str, Site] = {
    "tokens": tokens(), "token folders": token_folders(), "facet folders": facet_folders(),
    "soft missing": soft_missing(),
}  # fmt: skip
