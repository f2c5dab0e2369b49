"""A blog with the addresses of WordPress: an answer to each comment, feeds, shares, short links.

Each article is content, and so are its pages of comments if it has several. The lists of articles
lead to it; archives by category, tag, author and month have the same lists again: each may be
fetched once.
"""

from __future__ import annotations

import datetime
from urllib.parse import quote

from bench.traps.kinds.sites import Layout, Query, Reply, Site, items, link, missing, number, pager
from bench.traps.kinds.text import slug

POSTS = 320
A_PAGE = 10
COMMENTS_A_PAGE = 20
CATEGORIES = 8
TAGS = 50
AUTHORS = 5
SHARES = ("facebook", "twitter", "linkedin", "reddit", "pinterest")


class WordPress(Site):
    """``/2021/05/title/``, ``/category/x/page/2/``, ``?replytocom=12`` and their like."""

    name = "blog like WordPress"

    def __init__(self, seed: object, posts: int = POSTS) -> None:
        super().__init__(seed)
        chance = self.prose.chance("posts")
        begin = datetime.date(2016, 1, 1)
        days = sorted((chance.randrange(9 * 365) for _ in range(posts)), reverse=True)
        self._dates = [begin + datetime.timedelta(days=day) for day in days]
        self._titles = [self.prose.title("post", n) for n in range(posts)]
        self._paths = [
            f"/{at:%Y/%m}/{slug(title)}-{n}/"
            for n, (at, title) in enumerate(zip(self._dates, self._titles, strict=True))
        ]
        self._comments = [min(int(chance.expovariate(1 / 6)), 90) for _ in range(posts)]
        self._post = {path: n for n, path in enumerate(self._paths)}
        self._lists: dict[str, list[int]] = {"/": list(range(posts))}
        for n, at in enumerate(self._dates):
            under = [
                f"/category/{slug(self.prose.word('category', chance.randrange(CATEGORIES)))}/"
            ]
            under += [f"/tag/{slug(self.prose.word('tag', t))}-{t}/" for t in self._tags(n)]
            under += [f"/author/{slug(self._author(n))}/", f"/{at:%Y/%m}/", f"/{at:%Y}/"]
            for one in under:
                self._lists.setdefault(one, []).append(n)
        self.content = {f"post {n} 1" for n in range(posts)} | {
            f"post {n} {page}" for n in range(posts) for page in range(1, self._pages(n) + 1)
        }

    def _tags(self, n: int) -> list[int]:
        return self.prose.chance("tags", n).sample(range(TAGS), 3)

    def _author(self, n: int) -> str:
        return self.prose.person("author", n % AUTHORS)

    def _pages(self, n: int) -> int:
        return max(1, -(-self._comments[n] // COMMENTS_A_PAGE))

    def reply(self, path: str, query: Query) -> Reply:
        """Return an article, a list, or what WordPress shows for all other paths."""
        if "feed" in path.split("/") or query.get("feed"):
            titles = "".join(f"<item><title>{one}</title></item>" for one in self._titles[:10])
            body = f'<rss version="2.0"><channel>{titles}</channel></rss>'
            return Reply("trap", "feed", body=body, mime="application/rss+xml; charset=utf-8")
        if path.startswith(("/wp-login.php", "/wp-admin")):
            form = '<form method="post"><input name="log"><input type="password" name="pwd"></form>'
            return Reply("trap", "login", body=self._page("Log In", form))
        if path.startswith(("/wp-json", "/xmlrpc.php")):
            text = self.prose.text(10, path)
            return Reply("trap", "wp-json", body=f'{{"html": "{text}"}}', mime="application/json")
        if path == "/" and number(query.get("p", "")) > 0:
            return self._short(number(query["p"]) - 1)
        if path == "/" and "s" in query:
            chance = self.prose.chance("search", query["s"])
            main = self._excerpts(chance.sample(range(len(self._titles)), 5))
            return Reply("trap", "search", body=self._page("Search results", main))
        where, comments = _cut(path, "comment-page-")
        if where in self._post:
            return self._article(self._post[where], comments, query)
        if path.rstrip("/").endswith(("/trackback", "/amp", "/print", "/attachment")):
            where = path.rstrip("/").rpartition("/")[0] + "/"
            kind = path.rstrip("/").rpartition("/")[2]
            n = self._post.get(where)
            text = self.prose.paragraphs(12, 45, "post", n) if n is not None else ""
            return Reply("trap", kind, body=f"<title>{kind}</title>{text}") if text else missing()
        where, _, page = path.partition("page/")
        return self._list(where, number(page.strip("/"), 1), query)

    def _short(self, n: int) -> Reply:
        if not 0 <= n < len(self._paths):
            return missing()
        return Reply("trap", "short link", status=301, location=self._paths[n])

    def _article(self, n: int, page: int, query: Query) -> Reply:
        page = page or self._pages(n)  # the newest comments are on the article itself
        if not 0 < page <= self._pages(n):
            return missing()
        path, first = self._paths[n], (page - 1) * COMMENTS_A_PAGE
        main = self.prose.paragraphs(12, 45, "post", n)
        shares = [f"{path}?share={one}&nb=1" for one in SHARES]
        main += " ".join(link(one, one.partition("=")[2].partition("&")[0]) for one in shares)
        for i in range(first, min(first + COMMENTS_A_PAGE, self._comments[n])):
            number_of = n * 100 + i
            answer = link(f"{path}?replytocom={number_of}#respond", "Reply")
            place = "" if page == self._pages(n) else f"comment-page-{page}/"
            place = f"{path}{place}#comment-{number_of}"
            text = self.prose.paragraphs(1, 6, "comment", number_of)
            main += f"<div>{link(place, self.prose.person(number_of))} {answer}{text}</div>\n"
        ways = [
            (path if one == self._pages(n) else f"{path}comment-page-{one}/", f"Comments {one}")
            for one in range(1, self._pages(n) + 1)
        ]
        for m, name in ((n - 1, "Next"), (n + 1, "Previous")):
            if 0 <= m < len(self._paths):
                ways.append((self._paths[m], f"{name}: {self._titles[m]}"))
        ways += [(f"{path}{one}/", one) for one in ("feed", "trackback", "amp", "print")]
        ways += [(f"/?p={n + 1}", "Short link"), (f"/wp-json/wp/v2/posts/{n + 1}", "JSON")]
        ways += [(one, one) for one, posts in self._lists.items() if n in posts and one != "/"]
        ways.append((f"/wp-login.php?redirect_to={quote(path, safe='')}", "Log in to reply"))
        dress = "comment-page" if page == self._pages(n) and "replytocom" not in query else ""
        dress = next(iter(query), dress)
        body = self._page(self._titles[n], main + items(ways), path)
        return Reply("content", "article", f"post {n} {page}", body, dress)

    def _list(self, where: str, page: int, query: Query) -> Reply:
        posts = self._lists.get(where, [])
        shown = posts[(page - 1) * A_PAGE : page * A_PAGE] if page > 0 else []
        if not shown:
            return missing()
        ways = [(f"{where}page/{page + 1}/", "Older posts")] if len(posts) > page * A_PAGE else []
        ways += [(where if page == 2 else f"{where}page/{page - 1}/", "Newer")] if page > 1 else []
        ways.append((f"{where}feed/", "Feed"))
        body = self._page(f"Posts of {where}", self._excerpts(shown) + pager(ways))
        return Reply("index", "list", f"{where} {page}", body, next(iter(query), ""))

    def _excerpts(self, shown: list[int]) -> str:
        return "".join(
            f"<h2>{link(self._paths[n], self._titles[n])}</h2>{self.prose.text(3, 'excerpt', n)}<p>"
            f"{link(self._paths[n] + '#more', 'Read on')} "
            f"{link(self._paths[n] + '#respond', f'{self._comments[n]} comments')}</p>\n"
            for n in shown
        )

    def _page(self, title: str, main: str, path: str = "") -> str:
        months = sorted({one for one in self._lists if one.count("/") == 3 and one[1:5].isdigit()})
        groups = [one for one in self._lists if one.startswith("/category/")]
        aside = items((one, one.strip("/")) for one in [*groups, *months[-24:]])
        aside += items((f"/?s={self.prose.word('cloud', n)}", "…") for n in range(3))
        head = f'<link rel="canonical" href="{path}">' if path else ""
        menu = [("/", "Home"), ("/feed/", "RSS"), ("/comments/feed/", "Comments RSS")]
        menu += [("/wp-login.php", "Log in"), ("/wp-login.php?action=register", "Register")]
        return Layout("A Blog", menu, "Proudly powered by a blog").page(title, main, aside, head)


def _cut(path: str, mark: str) -> tuple[str, int]:
    """Return a path without its last part, and the number in that part if it begins with ``mark``,
    else 0."""
    where, found, rest = path.partition(mark)
    return (where, number(rest.strip("/"), -1)) if found else (path, 0)
