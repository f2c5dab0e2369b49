"""A Chinese forum with the addresses of Discuz!: rewritten ones and those of scripts, side by side.

``thread-12-3-1.html`` is page 3 of thread 12. The last number says which page of the forum linked
to it. ``forum.php?mod=viewthread&tid=12&page=3&extra=…`` is the same page. Content is each page of
each thread.
"""

from __future__ import annotations

from urllib.parse import urlencode

from bench.traps.kinds.sites import Layout, Query, Reply, Site, link, missing, number

FORUMS = 6
THREADS = 200
POSTS_A_PAGE = 10
THREADS_A_PAGE = 20
USERS = 120


class Discuz(Site):
    """``forum-f-page.html``, ``thread-t-page-from.html`` and the scripts behind them."""

    name = "Chinese forum like Discuz!"
    start = "/forum.php"

    def __init__(self, seed: object, threads: int = THREADS) -> None:
        super().__init__(seed, chinese=True)
        chance = self.prose.chance("threads")
        self._names = [self.prose.word("forum", n) + "讨论区" for n in range(FORUMS)]
        self._titles = [self.prose.title("thread", n) for n in range(threads)]
        self._forum = [chance.randrange(FORUMS) for _ in range(threads)]
        self._posts = [1 + min(int(chance.expovariate(1 / 12)), 80) for _ in range(threads)]
        self.content = {
            f"thread {t} {page}"
            for t in range(threads)
            for page in range(1, -(-self._posts[t] // POSTS_A_PAGE) + 1)
        }

    def reply(self, path: str, query: Query) -> Reply:
        """Return a page under its short address or under the address of its script."""
        name = path.strip("/")
        if name in ("", "forum.php", "index.php") and "mod" not in query:
            dress = "gid" if query else ""
            return Reply("index", "board", "board", self._board(), dress)
        parts = name.removesuffix(".html").split("-")
        if parts[0] == "forum" and len(parts) == 3:
            return self._list(number(parts[1]) - 1, number(parts[2], 1), query)
        if parts[0] == "thread" and len(parts) == 4:
            came = number(parts[3], 1)
            return self._thread(number(parts[1]) - 1, number(parts[2], 1), "from", came)
        mod = query.get("mod", "")
        if name == "forum.php" and mod == "forumdisplay":
            return self._list(
                number(query.get("fid", "")) - 1, number(query.get("page", "1")), query
            )
        if name == "forum.php" and mod == "viewthread":
            kept = query.keys() - {"mod", "tid", "page"}
            dress = sorted(kept)[0] if kept else "script"
            page = number(query.get("page", "1"), 1)
            return self._thread(number(query.get("tid", "")) - 1, page, dress)
        if parts[0] in ("space", "home.php", "member.php", "misc.php", "search.php", "forum.php"):
            return self._other(name.partition(".")[0].partition("-")[0], mod)
        return missing()

    def _board(self) -> str:
        rows = "".join(
            f"<h2>{link(f'/forum-{n + 1}-1.html', name)}</h2>{self.prose.text(2, 'about', n)}"
            for n, name in enumerate(self._names)
        )
        return self._page("论坛首页", rows)

    def _list(self, forum: int, page: int, query: Query) -> Reply:
        if not 0 <= forum < FORUMS:
            return missing()
        threads = [t for t, of in enumerate(self._forum) if of == forum]
        pages = -(-len(threads) // THREADS_A_PAGE)
        page = min(max(page, 1), pages)
        extra = query.keys() - {"mod", "fid", "page"}
        dress = sorted(extra)[0] if extra else "script" if query else ""
        if "orderby" in query:
            self.prose.chance(query["orderby"]).shuffle(threads)
        rows = "".join(
            f"<li>{link(f'/thread-{t + 1}-1-{page}.html', self._titles[t])} {self._user(t)}"
            f" {self._pages(t, page)}"
            f" {link(_script('redirect', tid=t + 1, goto='lastpost'), '最后')}"
            "</li>\n"
            for t in threads[(page - 1) * THREADS_A_PAGE : page * THREADS_A_PAGE]
        )
        ways = [link(f"/forum-{forum + 1}-{n}.html", str(n)) for n in range(1, pages + 1)]
        ways += [
            link(_script("forumdisplay", fid=forum + 1, filter=one, orderby=by), f"{one} {by}")
            for one in ("author", "lastpost", "heat", "digest")
            for by in ("dateline", "replies", "views")
        ]
        ways += [
            link(
                _script("forumdisplay", fid=forum + 1, filter="dateline", dateline=days), str(days)
            )
            for days in (86400, 172800, 604800, 2592000)
        ]
        ways.append(link(_script("post", action="newthread", fid=forum + 1), "发帖"))
        body = self._page(self._names[forum], f"<ul>{rows}</ul><p>{' '.join(ways)}</p>")
        return Reply("index", "forum", f"forum {forum} {page}", body, dress)

    def _pages(self, t: int, came_from: int) -> str:
        pages = range(2, -(-self._posts[t] // POSTS_A_PAGE) + 1)
        return " ".join(link(f"/thread-{t + 1}-{n}-{came_from}.html", str(n)) for n in pages)

    def _thread(self, t: int, page: int, dress: str, came_from: int = 1) -> Reply:
        if not 0 <= t < len(self._titles):
            return missing()
        page = min(max(page, 1), -(-self._posts[t] // POSTS_A_PAGE))
        first = (page - 1) * POSTS_A_PAGE
        main = ""
        for i in range(first, min(first + POSTS_A_PAGE, self._posts[t])):
            pid = t * 100 + i
            ways = [
                link(
                    _script("viewthread", tid=t + 1, page=page, authorid=pid % USERS), "只看该作者"
                ),
                link(_script("post", action="reply", tid=t + 1, repquote=pid), "回复"),
                link(f"/misc.php?mod=report&rtype=post&rid={pid}&tid={t + 1}", "举报"),
                link(_script("redirect", goto="findpost", ptid=t + 1, pid=pid), f"{i + 1}楼"),
            ]
            text = self.prose.paragraphs(2, 10, "post", t, i)
            main += f"<div id=pid{pid}>{self._user(pid)} {' '.join(ways)}{text}</div>\n"
        ways = [
            link(_script("viewthread", tid=t + 1, extra="page=1", ordertype=1), "倒序浏览"),
            link(_script("viewthread", tid=t + 1, action="printable"), "打印"),
            link(_script("redirect", tid=t + 1, goto="nextnewset"), "下一主题"),
            link(_script("redirect", tid=t + 1, goto="nextoldset"), "上一主题"),
            link(f"/forum-{self._forum[t] + 1}-1.html", "返回列表"),
            link(f"/home.php?mod=spacecp&ac=favorite&type=thread&id={t + 1}", "收藏"),
            link(f"/thread-{t + 1}-1-{came_from}.html", "1"),
        ]
        main += f"<p>{self._pages(t, came_from)} {' '.join(ways)}</p>"
        body = self._page(self._titles[t], main)
        return Reply("content", "thread", f"thread {t} {page}", body, dress)

    def _user(self, n: int) -> str:
        uid = self.prose.chance("by", n).randrange(USERS)
        name = self.prose.person("user", uid)
        return link(f"/space-uid-{uid + 1}.html", name) + link(
            f"/home.php?mod=spacecp&ac=pm&op=showmsg&touid={uid + 1}", "发消息"
        )

    def _other(self, name: str, mod: str) -> Reply:
        if mod == "redirect":
            return Reply("trap", "redirect", body=self._page("提示信息", "<p>没有找到主题。</p>"))
        if name == "space":
            text = "<p>抱歉，您需要先登录才能查看该用户的资料。</p>"
        else:
            text = "<p>您需要先登录才能继续本操作。</p>"
        form = '<form method="post">用户名 <input name="username"><input type="password"></form>'
        return Reply("trap", mod or name, body=self._page("提示信息", text + form))

    def _page(self, title: str, main: str) -> str:
        menu = [
            ("/forum.php", "论坛"),
            ("/member.php?mod=logging&action=login", "登录"),
            ("/member.php?mod=register", "注册"),
            ("/search.php?mod=forum&adv=yes", "搜索"),
            ("/misc.php?mod=ranklist", "排行榜"),
            (_script("guide", view="hot"), "导读"),
            ("/home.php?mod=space&do=friend", "好友"),
        ]
        menu += [(f"/forum-{n + 1}-1.html", name) for n, name in enumerate(self._names)]
        return Layout("本地论坛", menu, "本站内容由会员发表", "zh").page(title, main)


def _script(mod: str, **query: object) -> str:
    return "/forum.php?" + urlencode({"mod": mod, **query})
