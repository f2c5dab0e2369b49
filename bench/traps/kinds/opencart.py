"""A shop with addresses like OpenCart's: the query of ``index.php`` has the way to a thing.

A product has an address for each category on the way to it, for its maker and for the search that
found it. Content is each product; plain lists of categories and makers lead to them.
"""

from __future__ import annotations

import random
from urllib.parse import urlencode

from bench.traps.kinds.sites import Layout, Query, Reply, Site, items, link, missing, number

TOP = 5
BELOW = 4
PRODUCTS = 360
MAKERS = 24
TWICE = 0.15
"""Share of the products that are in two categories."""
A_PAGE = 15
SORTS = ("p.sort_order", "pd.name", "p.price", "rating", "p.model")
LIMITS = ("15", "25", "50", "75", "100")
FILTERS = 9


class OpenCart(Site):
    """``index.php?route=product/category&path=2_7`` and its like."""

    name = "shop like OpenCart"
    start = "/index.php?route=common/home"

    def __init__(self, seed: object, products: int = PRODUCTS) -> None:
        super().__init__(seed)
        chance = self.prose.chance("products")
        self._sessions = random.Random(repr((seed, "session")))
        self._titles = [self.prose.title("product", n) for n in range(products)]
        self._groups = [self.prose.word("group", n) for n in range(TOP + TOP * BELOW)]
        self._of = [
            chance.sample(range(TOP * BELOW), 1 + (chance.random() < TWICE)) for _ in self._titles
        ]
        self._maker = [chance.randrange(MAKERS) for _ in self._titles]
        self.content = {f"product {n}" for n in range(products)}

    def reply(self, path: str, query: Query) -> Reply:
        """Return the page of a route."""
        if path not in ("/", "/index.php"):
            return missing()
        route = query.get("route", "common/home")
        dress = "session" if {"token", "OCSESSID"} & query.keys() else ""
        if route == "common/home":
            return Reply("index", "home", "home", self._page("Home", self._tiles(range(9))), dress)
        if route == "product/category":
            return self._category(query, dress)
        if route == "product/product":
            return self._product(query, dress)
        if route == "product/manufacturer/info":
            maker = number(query.get("manufacturer_id", ""))
            found = [n for n, of in enumerate(self._maker) if of == maker]
            return self._list("maker", str(maker), found, query, dress)
        if route == "product/manufacturer":
            ways = items(
                (_to("product/manufacturer/info", manufacturer_id=n), self.prose.person("maker", n))
                for n in range(MAKERS)
            )
            return Reply("index", "makers", "makers", self._page("Makers", ways), dress)
        if route.startswith("information/"):
            text = self.prose.paragraphs(15, 30, query.get("information_id", ""))
            key = f"information {query.get('information_id', '')}"
            return Reply("side", "information", key, self._page("Information", text), dress)
        return self._button(route, query)

    def _category(self, query: Query, dress: str) -> Reply:
        groups = [number(part) for part in query.get("path", "").split("_")]
        if not all(0 < group <= len(self._groups) for group in groups):
            return missing()
        last = groups[-1] - 1
        if last < TOP:
            below = range(TOP + last * BELOW, TOP + (last + 1) * BELOW)
            main = items(
                (_to("product/category", path=f"{last + 1}_{n + 1}"), self._groups[n])
                for n in below
            )
            body = self._page(self._groups[last], main)
            return Reply("index", "category", f"category {last}", body, dress)
        found = [n for n, of in enumerate(self._of) if last - TOP in of]
        return self._list("category", query["path"], found, query, dress or self._way(groups))

    def _way(self, groups: list[int]) -> str:
        return "" if len(groups) == 2 else "path"

    def _list(self, kind: str, of: str, found: list[int], query: Query, dress: str) -> Reply:
        given = {k: v for k, v in query.items() if k in ("sort", "order", "limit", "filter")}
        for one in query.get("filter", "").split(","):
            if one:
                found = [n for n in found if (n + number(one, 0)) % 3]
        if "sort" in query:
            self.prose.chance(tuple(sorted(given.items()))).shuffle(found)
        each, page = number(query.get("limit", ""), A_PAGE), number(query.get("page", "1"), 1)
        shown = found[(page - 1) * each : page * each]
        route = "product/category" if kind == "category" else "product/manufacturer/info"
        base = {"path": of} if kind == "category" else {"manufacturer_id": of}
        ways = [
            (_to(route, **base, **given, **({"page": n} if n > 1 else {})), f"Page {n}")
            for n in range(1, -(-len(found) // each) + 1)
        ]
        limit = {k: v for k, v in given.items() if k in ("limit", "filter")}
        ways += [
            (_to(route, **base, sort=sort, order=order, **limit), f"{sort} {order}")
            for sort in SORTS
            for order in ("ASC", "DESC")
        ]
        order = {k: v for k, v in given.items() if k != "limit"}
        ways += [(_to(route, **base, **order, limit=one), f"{one} a page") for one in LIMITS]
        chosen = [one for one in query.get("filter", "").split(",") if one]
        if kind == "category":
            for n in map(str, range(1, FILTERS + 1)):
                now = [one for one in chosen if one != n] if n in chosen else [*chosen, n]
                ways.append((_to(route, **base, filter=",".join(now)), f"filter {n}"))
        body = self._page(f"{kind} {of}", self._tiles(shown, **base) + items(ways))
        if chosen:
            return Reply("trap", "filter", body=body)
        dress = dress or next(iter(given), "")
        key = of.rpartition("_")[2]
        if not shown:
            return Reply("trap", "beyond", body=body)
        return Reply("index", kind, f"{kind} {key} {page}", body, dress)

    def _product(self, query: Query, dress: str) -> Reply:
        n = number(query.get("product_id", "")) - 40
        if not 0 <= n < len(self._titles):
            return missing()
        text = self.prose.paragraphs(6, 18, "product", n)
        reviews = "".join(
            f"<h3>{self.prose.person('by', n, i)}</h3>{self.prose.paragraphs(1, 4, 'r', n, i)}"
            for i in range(n % 4)
        )
        ways = [
            (_to("product/product/review", product_id=n + 40, page=1), "Reviews"),
            (_to("product/manufacturer/info", manufacturer_id=self._maker[n]), "Its maker"),
            (_to("product/search", tag=self.prose.word("tag", n)), "More like it"),
        ]
        near = [(n + m) % len(self._titles) for m in (1, 20, 41)]
        main = text + reviews + items(ways) + self._tiles(near)
        extra = query.keys() - {"route", "product_id", "token", "OCSESSID"}
        dress = next(iter(sorted(extra)), dress)
        body = self._page(self._titles[n], main)
        return Reply("content", "product", f"product {n}", body, dress)

    def _tiles(self, shown: range | list[int], **base: object) -> str:
        return "".join(
            f"<div>{link(_to('product/product', **base, product_id=n + 40), self._titles[n])} "
            f"{link(_to('checkout/cart/add', product_id=n + 40), 'Add to Cart')} "
            f"{link(_to('account/wishlist/add', product_id=n + 40), 'Wish list')} "
            f"{link(_to('product/compare/add', product_id=n + 40), 'Compare')}"
            f"<p>{self.prose.text(1, 'product', n)}</p></div>\n"
            for n in shown
        )

    def _button(self, route: str, query: Query) -> Reply:
        kind = "/".join(route.split("/")[:2])
        main = "<p>Your shopping cart is empty!</p>"
        if route.startswith("account/"):
            main = '<form method="post"><input name="email"><input type="password"></form>'
        if route == "product/search":
            chance = self.prose.chance(tuple(sorted(query.items())))
            found = chance.sample(range(len(self._titles)), 6)
            words = query.get("tag") or query.get("search", "")
            page = number(query.get("page", "1"), 1)
            main = self._tiles(found, search=words)
            main += items([(_to(route, search=words, page=page + 1), "Next")])
        return Reply("trap", kind, body=self._page(kind, main))

    def _page(self, title: str, main: str) -> str:
        token = f"{self._sessions.getrandbits(104):026x}"
        menu = [
            (_to("common/home"), "Home"),
            (_to("common/home", OCSESSID=token), "Shop"),
            (_to("product/manufacturer"), "Makers"),
            (_to("product/search", search=title.split(" ")[0]), "Search"),
            (_to("account/login"), "Login"),
            (_to("account/register"), "Register"),
            (_to("account/wishlist"), "Wish list"),
            (_to("checkout/cart"), "Cart"),
            (_to("checkout/checkout"), "Checkout"),
            (_to("product/compare"), "Compare"),
        ]
        menu += [
            (_to("product/category", path=n + 1), name) for n, name in enumerate(self._groups[:TOP])
        ]
        menu += [
            (_to("information/information", information_id=n), f"About {n}") for n in (3, 4, 6)
        ]
        return Layout("Your Store", menu, "Powered by a shop").page(title, main)


def _to(route: str, **query: object) -> str:
    return "/index.php?" + urlencode({"route": route, **query}, safe="/,")
