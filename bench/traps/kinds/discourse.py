"""A forum with the addresses of Discourse: each topic also by post, as JSON, for print, as a feed.

Content is each page of each topic as it is without scripts (``/t/slug/id?page=n``). The plain lists
lead to it. Tags and members are ``side`` pages. Lists in other orders and periods repeat the plain
lists.
"""

from __future__ import annotations

import json
from html import escape
from urllib.parse import urlencode

from bench.traps.kinds.sites import Layout, Query, Reply, Site, link, missing, number
from bench.traps.kinds.text import slug

CATEGORIES = 8
TOPICS = 260
POSTS_A_PAGE = 20
TOPICS_A_PAGE = 30
USERS = 150
TAGS = 40
ORDERS = ("default", "created", "activity", "views", "posts", "category", "likes", "op_likes")
PERIODS = ("all", "yearly", "quarterly", "monthly", "weekly", "daily")
FILTERS = ("latest", "top", "new", "unread", "hot")
JSON = "application/json; charset=utf-8"
_NOISE = ("order", "ascending", "period", "u", "ac", "no_definitions", "filter", "status")


class Discourse(Site):
    """``/latest``, ``/c/…``, ``/t/…``, ``/u/…``, ``/tag/…`` and their twins."""

    name = "forum like Discourse"

    def __init__(self, seed: object, topics: int = TOPICS) -> None:
        super().__init__(seed)
        chance = self.prose.chance("topics")
        self._titles = [self.prose.title("topic", n) for n in range(topics)]
        self._replies = [min(int(chance.expovariate(1 / 18)), 130) for _ in range(topics)]
        self._category = [chance.randrange(CATEGORIES) for _ in range(topics)]
        self._tags = [chance.sample(range(TAGS), chance.randint(0, 3)) for _ in range(topics)]
        self._first = [1]
        for replies in self._replies:
            self._first.append(self._first[-1] + replies + 1)
        self._category_slug = [slug(self.prose.word("category", n)) for n in range(CATEGORIES)]
        self._tag_name = [f"{self.prose.word('tag', n)}-{n}" for n in range(TAGS)]
        self.content = {
            f"topic {n} {page}"
            for n in range(topics)
            for page in range(1, self._pages(self._replies[n] + 1, POSTS_A_PAGE) + 1)
        }

    @staticmethod
    def _pages(count: int, each: int) -> int:
        return max(1, -(-count // each))

    def reply(self, path: str, query: Query) -> Reply:
        """Return any page; one whose path ends in .json is the twin of a page."""
        parts = [part for part in path.split("/") if part]
        first = parts[0] if parts else "latest"
        if path.endswith((".json", ".rss")) or parts[0:1] == ["raw"]:
            return self._twin(path)
        if first in FILTERS:
            return self._list("all", first, query, range(len(self._titles)))
        if first == "categories":
            return self._categories(query)
        if first == "c":
            return self._of_category(parts, query)
        if first == "t":
            return self._topic(parts, query)
        if first in ("tag", "tags"):
            return self._tag(parts, query)
        if first in ("u", "g", "badges"):
            return self._user(parts)
        if first in ("about", "faq", "tos", "privacy"):
            body = self._page(first, self.prose.paragraphs(20, 40, first))
            return Reply("side", "about", first, body, _dress(query))
        if first in ("login", "signup", "search", "new-topic", "session", "p", "posts", "filter"):
            return self._way(first, parts, query)
        return missing()

    # -- lists

    def _list(self, of: str, filtered: str, query: Query, topics: range | list[int]) -> Reply:
        page = number(query.get("page", "0"), 0)
        dress = _dress(query) or ("" if filtered == "latest" else filtered)
        order = sorted(topics, reverse=query.get("ascending") != "true")
        if dress:
            self.prose.chance(dress, tuple(sorted(query.items()))).shuffle(order)
        shown = order[page * TOPICS_A_PAGE :][:TOPICS_A_PAGE]
        here = _place(of, filtered)
        kept = {name: value for name, value in query.items() if name in _NOISE}
        rows = [self._row(n) for n in shown]
        ways = []
        if (page + 1) * TOPICS_A_PAGE < len(order):
            ways.append(link(f"{here}?{urlencode({**kept, 'page': page + 1})}", "Next Page →"))
        if page:
            before = {**kept, **({"page": page - 1} if page > 1 else {})}
            ways.append(link(f"{here}?{urlencode(before)}" if before else here, "← Previous"))
        ways += [
            link(f"{here}?{urlencode({'ascending': up, 'order': one})}", one)
            for one in ORDERS
            for up in ("true", "false")
        ]
        ways += [
            link(f"{_place(of, 'top')}?period={period}", f"Top {period}") for period in PERIODS
        ]
        ways += [link(_place(of, one), one.capitalize()) for one in FILTERS if one != "latest"]
        ways.append(link(f"{here}?status=open&filter={shown[0] if shown else 0}", "Open"))
        body = self._page(f"{of} topics", f"<table>{''.join(rows)}</table><p>{' '.join(ways)}</p>")
        return Reply("index", "list", f"list {of} {page}", body, dress)

    def _row(self, n: int) -> str:
        where = f"/t/{slug(self._titles[n])}/{n + 10}"
        tags = " ".join(link(f"/tag/{self._tag_name[t]}", self._tag_name[t]) for t in self._tags[n])
        category = self._category_slug[self._category[n]]
        last = self._replies[n] + 1
        people = " ".join(self._person(self._first[n] + i) for i in range(min(last, 4)))
        return (
            f"<tr><td>{link(where, self._titles[n])} {link(f'/c/{category}/{n % 8 + 1}', category)}"
            f" {tags}</td><td>{people}</td><td>{last - 1}</td>"
            f"<td>{link(f'{where}/{last}', 'last reply')}</td></tr>\n"
        )

    def _categories(self, query: Query) -> Reply:
        rows = "".join(
            f"<h2>{link(f'/c/{one}/{n + 1}', one)}</h2><p>{self.prose.text(2, 'about', n)}</p>"
            for n, one in enumerate(self._category_slug)
        )
        return Reply("index", "list", "categories", self._page("Categories", rows), _dress(query))

    def _of_category(self, parts: list[str], query: Query) -> Reply:
        known = len(parts) > 1 and parts[1] in self._category_slug
        if not known:
            return missing()
        category = self._category_slug.index(parts[1])
        topics = [n for n, of in enumerate(self._category) if of == category]
        filtered = parts[4] if len(parts) > 4 else "latest"
        return self._list(f"/c/{parts[1]}/{category + 1}", filtered, query, topics)

    def _tag(self, parts: list[str], query: Query) -> Reply:
        if parts[-1] not in self._tag_name:
            ways = " ".join(link(f"/tag/{name}", name) for name in self._tag_name)
            return Reply("index", "list", "tags", self._page("Tags", ways), _dress(query))
        tag = self._tag_name.index(parts[-1])
        topics = [n for n, of in enumerate(self._tags) if tag in of]
        found = self._list(f"/tag/{parts[-1]}", "latest", query, topics)
        if parts[0] == "tags":  # of a category and a tag
            return Reply("trap", "tag of category", body=found.body)
        return Reply("side", "tag", found.key, found.body, found.dress)

    # -- topics

    def _topic(self, parts: list[str], query: Query) -> Reply:
        numbers = [number(part) for part in parts[1:] if number(part) >= 0]
        n = numbers[0] - 10 if numbers else -1
        if not 0 <= n < len(self._titles):
            return missing()
        page, dress = number(query.get("page", "1"), 1), _dress(query)
        if len(numbers) > 1:
            page, dress = (min(numbers[1], self._replies[n] + 1) - 1) // POSTS_A_PAGE + 1, "post"
        if parts[-1] == "print":
            return Reply("trap", "print", body=self._page(self._titles[n], self._posts(n, page)))
        count = self._pages(self._replies[n] + 1, POSTS_A_PAGE)
        if not 1 <= page <= count:
            return missing()
        where = f"/t/{slug(self._titles[n])}/{n + 10}"
        main = self._posts(n, page)
        ways = [(f"{where}?page={page + 1}", "next page →")] if page < count else []
        if page > 1:
            ways.append((where if page == 2 else f"{where}?page={page - 1}", "← previous page"))
        ways += [(f"{where}/print", "Print"), (f"{where}.json", "JSON"), (f"{where}.rss", "RSS")]
        ways.append((f"{where}?u={slug(self.prose.person('user', page % USERS))}", "Share"))
        ways += [(f"/raw/{n + 10}", "Raw"), (f"/new-topic?title={n}&reply_to={n + 10}", "Reply")]
        suggested = self.prose.chance("seen", n).sample(range(len(self._titles)), 5)
        seen = "".join(self._row(m) for m in suggested)
        links = " ".join(link(href, text) for href, text in ways)
        head = f'<link rel="canonical" href="{where}' + (f"?page={page}" if page > 1 else "") + '">'
        body = self._page(
            self._titles[n], f"{main}<p>{links}</p><h3>Suggested</h3><table>{seen}</table>", head
        )
        return Reply("content", "topic", f"topic {n} {page}", body, dress)

    def _posts(self, n: int, page: int) -> str:
        first = (page - 1) * POSTS_A_PAGE
        where = f"/t/{slug(self._titles[n])}/{n + 10}"
        shown = []
        for i in range(first, min(first + POSTS_A_PAGE, self._replies[n] + 1)):
            post = self._first[n] + i
            text = self.prose.paragraphs(2, 12, "post", post)
            ways = f"{link(f'{where}/{i + 1}', f'#{i + 1}')} "
            if i % 5 == 3:
                ways += link(f"/posts/{post}.json", "replies") + link(f"/p/{post}", "link")
            shown.append(f"<div id=post_{i + 1}>{self._person(post)} {ways}{text}</div>\n")
        return "".join(shown)

    # -- the rest

    def _person(self, post: int) -> str:
        user = self.prose.person("user", self.prose.chance("by", post).randrange(USERS))
        return link(f"/u/{slug(user)}", user)

    def _user(self, parts: list[str]) -> Reply:
        if len(parts) < 2 or parts[0] != "u" or len(parts) > 2:
            text = f"<p>{self.prose.text(2, parts)}</p>"
            return Reply("trap", f"/{parts[0]}/ beside", body=self._page("Activity", text))
        ways = " ".join(
            link(f"/u/{parts[1]}/{one}", one)
            for one in ("summary", "activity", "activity/topics", "activity/replies", "badges")
        )
        ways += link(f"/u/{parts[1]}.json", "JSON") + link("/g/trust_level_1", "Group")
        ways += link("/badges/9/autobiographer", "Badge")
        text = f"<p>{self.prose.text(2, parts[1])}</p><p>{ways}</p>"
        return Reply("side", "user", f"user {parts[1]}", self._page(parts[1], text))

    def _twin(self, path: str) -> Reply:
        numbers = [number(part.partition(".")[0]) for part in path.split("/")]
        n = next((one for one in numbers if one >= 0), 10) - 10
        text = self._posts(n, 1) if 0 <= n < len(self._titles) else self.prose.text(9, path)
        if path.endswith(".rss"):
            feed = (
                f'<?xml version="1.0"?><rss version="2.0"><channel>{escape(text)}</channel></rss>'
            )
            return Reply("trap", "feed", body=feed, mime="application/rss+xml; charset=utf-8")
        if path.endswith(".json"):
            body = json.dumps({"id": path, "post_stream": {"posts": [{"cooked": text}]}})
            return Reply("trap", "JSON", body=body, mime=JSON)
        return Reply("trap", "raw", body=text, mime="text/plain; charset=utf-8")

    def _way(self, first: str, parts: list[str], query: Query) -> Reply:
        if first == "p" and len(parts) > 1:
            post = number(parts[1])
            n = max(i for i, at in enumerate(self._first) if at <= max(post, 1))
            n = min(n, len(self._titles) - 1)
            where = f"/t/{slug(self._titles[n])}/{n + 10}/{post - self._first[n] + 1}"
            return Reply("trap", "redirect", status=302, location=where)
        text = "<p>Log in to go on.</p>" if first != "search" else self.prose.text(4, query)
        return Reply("trap", first, body=self._page(first, text))

    def _page(self, title: str, main: str, head: str = "") -> str:
        menu = [
            ("/latest", "Latest"),
            ("/top", "Top"),
            ("/categories", "Categories"),
            ("/tags", "Tags"),
            ("/about", "About"),
            ("/faq", "FAQ"),
            ("/login", "Log in"),
            ("/signup", "Sign up"),
            (f"/search?q={slug(title)}", "Search"),
            ("/latest.rss", "RSS"),
        ]
        menu += [(f"/c/{one}/{n + 1}", one) for n, one in enumerate(self._category_slug)]
        return Layout("Our Community", menu, "Powered by a forum").page(title, main, "", head)


def _place(of: str, filtered: str) -> str:
    if of == "all":
        return f"/{filtered}"
    if of.startswith("/tag/"):
        return of if filtered == "latest" else f"{of}?filter={filtered}"
    return of if filtered == "latest" else f"{of}/l/{filtered}"


def _dress(query: Query) -> str:
    found = [name for name in _NOISE if name in query]
    return {"u": "share"}.get(found[0], "order") if found else ""
