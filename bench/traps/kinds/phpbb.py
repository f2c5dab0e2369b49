"""A forum with the addresses of phpBB: a visitor without a cookie gets a session in every link.

Content is each page of each topic. Lists of forums lead to it. Such a forum also has topics under
the address of each post, print views, lists in other orders, members, forms for posts and searches,
reports, feeds.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from html import escape
from urllib.parse import urlencode

from bench.traps.kinds.sites import Layout, Query, Reply, Site, link, missing, number

FORUMS = 9
TOPICS = 270
POSTS_A_PAGE = 10
TOPICS_A_PAGE = 25
MEMBERS = 240
LIST_ORDERS = ("a", "r", "s", "t", "v")
MEMBER_ORDERS = ("a", "c", "d", "l", "m")


class PhpBB(Site):
    """``index.php``, ``viewforum.php``, ``viewtopic.php`` and what they link to."""

    name = "forum like phpBB"
    start = "/index.php"

    def __init__(self, seed: object, topics: int = TOPICS) -> None:
        super().__init__(seed)
        chance = self.prose.chance("topics")
        self._sessions = random.Random(repr((seed, "sid")))
        self._forum = [chance.randrange(FORUMS) for _ in range(topics)]
        self._replies = [min(int(chance.expovariate(1 / 11)), 70) for _ in range(topics)]
        self._first = [1]  # number of a topic's first post
        for replies in self._replies:
            self._first.append(self._first[-1] + replies + 1)
        self._topic_of = {
            post: topic
            for topic in range(topics)
            for post in range(self._first[topic], self._first[topic + 1])
        }
        self._names = [self.prose.title("forum", n) for n in range(FORUMS)]
        self._titles = [self.prose.title("topic", n) for n in range(topics)]
        self.content = {
            f"topic {topic} {start}"
            for topic in range(topics)
            for start in range(0, self._replies[topic] + 1, POSTS_A_PAGE)
        }
        self._scripts: dict[str, Callable[[Query], Reply]] = {
            "": self._board,
            "index.php": self._board,
            "viewforum.php": self._viewforum,
            "viewtopic.php": self._viewtopic,
            "memberlist.php": self._members,
            "posting.php": lambda query: self._login("posting"),
            "ucp.php": self._account,
            "search.php": self._search,
            "viewonline.php": self._online,
            "report.php": lambda query: self._login("report"),
            "mcp.php": lambda query: self._login("mcp"),
            "app.php": self._app,
        }

    def reply(self, path: str, query: Query) -> Reply:
        """Return the page of any script, with the session with which it was called, or none."""
        parts = path.strip("/").split("/")
        if parts[0] == "app.php":
            query = {**query, "route": "/".join(parts[1:])}
        script = self._scripts.get(parts[0])
        return script(query) if script else missing()

    # -- what is worth something

    def _board(self, query: Query) -> Reply:
        rows = "".join(
            f"<h3>{self._a('viewforum.php', self._names[n], f=n + 1)}</h3>"
            f"<p>{self.prose.text(1, 'about', n)}</p>{self._last(n)}"
            for n in range(FORUMS)
        )
        if "mark" in query:
            return Reply("trap", "mark", body=self._page("Mark forums read", rows))
        return Reply("index", "board", "board", self._page("Board index", rows), _dress(query))

    def _last(self, forum: int) -> str:
        topics = self._topics(forum)
        if not topics:
            return ""
        post = self._first[topics[0] + 1] - 1
        return f"<p>Last post {self._a('viewtopic.php', 'View', '#p', p=post)}</p>"

    def _topics(self, forum: int) -> list[int]:
        return [topic for topic, of in enumerate(self._forum) if of == forum][::-1]

    def _viewforum(self, query: Query) -> Reply:
        forum, start = number(query.get("f", "")) - 1, number(query.get("start", "0"))
        if not 0 <= forum < FORUMS or start % TOPICS_A_PAGE:
            return missing()
        topics = self._topics(forum)
        dress = _dress(query, "sk", "sd", "st", "hash", "mark", "watch")
        if dress == "sort":
            topics = sorted(topics, key=lambda n: self.prose.title("topic", n))
        rows = ""
        for topic in topics[start : start + TOPICS_A_PAGE]:
            last = self._first[topic + 1] - 1
            rows += f"<li>{self._a('viewtopic.php', self._titles[topic], t=topic + 1)} "
            rows += self._starts(topic, "viewtopic.php", t=topic + 1)
            rows += f" by {self._member(topic)}, {self._replies[topic]} replies, last post "
            rows += self._a("viewtopic.php", "View", "#p", p=last) + "</li>"
        more = [
            self._a("viewforum.php", str(n + 1), f=forum + 1, start=n * TOPICS_A_PAGE)
            for n in range(-(-len(topics) // TOPICS_A_PAGE))
        ]
        orders = [
            self._a("viewforum.php", f"by {key}", f=forum + 1, sk=key, sd=way, st=0)
            for key in LIST_ORDERS
            for way in "ad"
        ]
        tools = self._a("posting.php", "New Topic", mode="post", f=forum + 1)
        tools += self._a(
            "viewforum.php", "Mark read", f=forum + 1, mark="topics", hash=self._hash()
        )
        main = f"{tools}<ul>{rows}</ul><p>{' '.join(more)}</p><p>Sort: {' '.join(orders)}</p>"
        body = self._page(self._names[forum], main)
        return Reply("index", "forum", f"forum {forum} {start}", body, dress)

    def _viewtopic(self, query: Query) -> Reply:
        post = number(query.get("p", ""))
        topic = self._topic_of.get(post, number(query.get("t", "")) - 1)
        if not 0 <= topic < len(self._titles):
            return missing()
        view = query.get("view", "")
        if view in ("next", "previous"):
            topic = (topic + (1 if view == "next" else -1)) % len(self._titles)
        start = number(query.get("start", "0"), 0)
        if "p" in query:
            start = (post - self._first[topic]) // POSTS_A_PAGE * POSTS_A_PAGE
        start = min(start, self._replies[topic]) // POSTS_A_PAGE * POSTS_A_PAGE
        dress = "post" if "p" in query else view or _dress(query, "sk", "sd", "st", "hilit", "f")
        printed = view == "print"
        posts = range(self._first[topic] + start, self._first[topic + 1])[:POSTS_A_PAGE]
        main = "".join(self._post(one, topic, printed) for one in posts)
        if not printed:
            main += self._below(topic)
        head = f'<link rel="canonical" href="/viewtopic.php?t={topic + 1}'
        head += (f"&amp;start={start}" if start else "") + '">'
        body = self._page(self._titles[topic], main, head)
        return Reply("content", "topic", f"topic {topic} {start}", body, dress)

    def _post(self, post: int, topic: int, printed: bool) -> str:
        text = self.prose.paragraphs(2, 14, "post", post)
        member = self.prose.chance("by", post).randrange(MEMBERS)
        if printed:
            return f"<div class=post><b>{self.prose.person('member', member)}</b>{text}</div>"
        if post % 6 == 5:
            quoted = self.prose.text(2, "post", post - 1)
            text = f"<blockquote><cite>{escape(quoted)}</cite></blockquote>{text}"
        buttons = [
            self._a("posting.php", "Quote", mode="quote", p=post),
            self._a("report.php", "Report", p=post),
            self._a("viewtopic.php", f"Post {post}", f"#p{post}", p=post),
        ]
        return (
            f'<div class="post" id="p{post}"><p>{self._member(member)} » {" ".join(buttons)}</p>'
            f"{text}<p class=signature>{self.prose.text(1, 'signature', member)}</p></div>\n"
        )

    def _below(self, topic: int) -> str:
        shown = [
            self._a("viewtopic.php", name, "", t=topic + 1, **more)
            for name, more in (
                ("Print view", {"view": "print"}),
                ("Previous topic", {"view": "previous"}),
                ("Next topic", {"view": "next"}),
                ("Sort by author", {"sk": "a", "sd": "a", "st": "0"}),
                ("Sort by subject", {"sk": "s", "sd": "d", "st": "0"}),
                ("Last 7 days", {"sk": "t", "sd": "a", "st": "7"}),
            )
        ]
        shown.append(self._a("posting.php", "Post Reply", mode="reply", t=topic + 1))
        shown.append(self._a("ucp.php", "E-mail friend", mode="email", t=topic + 1))
        forum = self._forum[topic]
        shown.append(self._a("viewforum.php", f"Return to {self._names[forum]}", f=forum + 1))
        return f"<p>{self._starts(topic, 'viewtopic.php', t=topic + 1)}</p><p>{' '.join(shown)}</p>"

    def _starts(self, topic: int, script: str, **query: object) -> str:
        starts = range(0, self._replies[topic] + 1, POSTS_A_PAGE)
        return " ".join(
            self._a(script, str(n + 1), "", **query, **({"start": start} if start else {}))
            for n, start in enumerate(starts)
            if len(starts) > 1
        )

    # -- what is not

    def _login(self, kind: str) -> Reply:
        fields = "".join(f"<label>{name} <input name={name}></label>" for name in ("username",))
        fields += '<label>Password <input type="password" name="password"></label>'
        text = f'<p>You need to login in order to do this.</p><form method="post">{fields}</form>'
        return Reply("trap", kind, body=self._page("Login", text))

    def _account(self, query: Query) -> Reply:
        if query.get("mode") in ("terms", "privacy"):
            text = self.prose.paragraphs(12, 12, "terms", query["mode"])
            return Reply("side", "terms", query["mode"], self._page("Terms", text), _dress(query))
        return self._login("ucp")

    def _members(self, query: Query) -> Reply:
        if query.get("mode") in ("viewprofile", "email", "contactadmin"):
            return self._login("profile")
        start = number(query.get("start", "0"), 0)
        shown = range(start, min(start + 25, MEMBERS))
        rows = [f"{self._member(n)} joined {2005 + n % 20}" for n in shown]
        ways = [
            self._a("memberlist.php", f"{key}{way}", mode="", sk=key, sd=way)
            for key in MEMBER_ORDERS
            for way in "ad"
        ]
        ways += [self._a("memberlist.php", c, first_char=c) for c in "abcdefghijklmnopqrstuvwxyz"]
        ways += [
            self._a("memberlist.php", str(n + 1), mode="", start=n * 25, **_kept(query, "sk", "sd"))
            for n in range(-(-MEMBERS // 25))
        ]
        main = "<ul><li>" + "</li><li>".join(rows) + f"</li></ul><p>{' '.join(ways)}</p>"
        return Reply("trap", "memberlist", body=self._page("Members", main))

    def _search(self, query: Query) -> Reply:
        chance = self.prose.chance("search", tuple(sorted(_kept(query, "search_id", "author_id"))))
        start = number(query.get("start", "0"), 0)
        shown = [chance.randrange(len(self._titles)) for _ in range(10)]
        words = self.prose.word(start)
        rows = [
            self._a("viewtopic.php", self._titles[n], f=self._forum[n] + 1, t=n + 1, hilit=words)
            for n in shown
        ]
        kept = _kept(query, "search_id", "author_id", "sr")
        ways = [
            self._a("search.php", "Next", start=start + 10, **kept),
            self._a("search.php", "As topics", sr="topics", **_kept(kept, "search_id")),
        ]
        main = "<p>" + "</p><p>".join(rows) + f"</p><p>{' '.join(ways)}</p>"
        return Reply("trap", "search", body=self._page("Search found more than 1000 matches", main))

    def _online(self, query: Query) -> Reply:
        ways = [self._a("viewonline.php", f"{a}{b}", sk=a, sd=b, sg=1) for a in "abc" for b in "ad"]
        main = f"<p>There are 0 registered users and 1 guest online.</p><p>{' '.join(ways)}</p>"
        return Reply("trap", "online", body=self._page("Who is online", main))

    def _app(self, query: Query) -> Reply:
        route = query["route"]
        if route in ("help/faq", "help/bbcode"):
            text = self.prose.paragraphs(60, 60, route)
            return Reply("side", "help", route, self._page("Help", text), _dress(query))
        if not route.startswith("feed"):
            return missing()
        titles = "".join(
            f"<entry><title>{escape(one)}</title></entry>" for one in self._titles[:15]
        )
        feed = f'<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom">{titles}</feed>'
        return Reply("trap", "feed", body=feed, mime="application/atom+xml; charset=utf-8")

    # -- links

    def _a(self, script: str, text: str, fragment: str = "", /, **query: object) -> str:
        sid = f"{self._sessions.getrandbits(128):032x}"
        return link(f"/{script}?{urlencode({**query, 'sid': sid})}{fragment}", text)

    def _hash(self) -> str:
        return f"{self._sessions.getrandbits(32):08x}"

    def _member(self, n: int) -> str:
        u = n % MEMBERS + 2
        return self._a(
            "memberlist.php", self.prose.person("member", u - 2), mode="viewprofile", u=u
        )

    def _page(self, title: str, main: str, head: str = "") -> str:
        top = [
            self._a("index.php", "Board index"),
            self._a("search.php", "Unanswered topics", search_id="unanswered"),
            self._a("search.php", "Active topics", search_id="active_topics"),
            self._a("search.php", "Search"),
            self._a("memberlist.php", "Members"),
            self._a("app.php/help/faq", "FAQ"),
            self._a("ucp.php", "Login", mode="login", redirect="index.php"),
            self._a("ucp.php", "Register", mode="register"),
            self._a("ucp.php", "Terms", mode="terms"),
            self._a("ucp.php", "Delete cookies", mode="delete_cookies"),
            self._a("viewonline.php", "Who is online"),
            self._a("index.php", "Mark forums read", hash=self._hash(), mark="forums"),
            self._a("app.php/feed", "Feed"),
        ]
        top += [self._a("viewforum.php", name, f=n + 1) for n, name in enumerate(self._names)]
        line = '<p class="linklist">' + " | ".join(top) + "</p>"
        return Layout("Our Board", [], "Powered by a forum").page(title, line + main, "", head)


def _dress(query: Query, *orders: str) -> str:
    """Return the part of ``query`` that changes no content: an order, or the session."""
    if {"mark", "watch"} & query.keys():
        return "mark"
    if set(orders) & query.keys():
        return "sort"
    return "sid" if "sid" in query else ""


def _kept(query: Query, *names: str) -> dict[str, str]:
    return {name: query[name] for name in names if name in query}
