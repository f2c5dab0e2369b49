"""A shop with addresses like Magento's: layered navigation, orders, currencies, carts, reviews.

Content is each product and each page of its reviews; the plain pages of categories lead to them.
All else shows the same in another order or currency, with a session, or is a button.
"""

from __future__ import annotations

import base64
import random
from html import escape
from urllib.parse import urlencode

from bench.traps.kinds.sites import Layout, Query, Reply, Site, items, link, missing, number
from bench.traps.kinds.text import slug

CATEGORIES = ("women", "men", "kids", "home", "garden", "sports")
KINDS = ("shirts", "shoes", "bags", "lamps")
PRODUCTS = 432
A_PAGE = 12
REVIEWS_A_PAGE = 10
FACETS = {
    "color": ("49", "50", "53", "56", "58"),
    "size": ("166", "167", "168", "169"),
    "manufacturer": ("11", "12", "13", "14", "15"),
    "price": ("0-50", "50-100", "100-150", "150-200"),
    "material": ("33", "38", "142"),
    "new": ("1",),
    "sale": ("1",),
}
VIEWS = {
    "product_list_order": ("name", "price", "position"),
    "product_list_dir": ("asc", "desc"),
    "product_list_mode": ("list", "grid"),
    "product_list_limit": ("24", "36"),
}
CURRENCIES = ("EUR", "USD", "GBP")
BUTTONS = ("checkout", "wishlist", "customer", "sendfriend", "sales", "newsletter", "directory")
HEAVY = 0.06
"""Share of the products that are popular."""


class Shop(Site):
    """Categories under ``/women/shirts.html``, products under ``/blue-shirt-12.html``."""

    name = "shop like Magento"

    def __init__(self, seed: object, products: int = PRODUCTS) -> None:
        super().__init__(seed)
        chance = self.prose.chance("products")
        self._sessions = random.Random(repr((seed, "SID")))
        self._lists = [f"/{c}/{kind}.html" for c in CATEGORIES for kind in KINDS]
        self._titles, self._paths, self._of, self._reviews = [], [], [], []
        for n in range(products):
            title = self._title(n)
            self._titles.append(title)
            self._paths.append(f"/{slug(title)}-{1000 + n}.html")
            self._of.append(n % len(self._lists))
            many = chance.random() < HEAVY
            self._reviews.append(chance.randint(15, 60) if many else int(chance.expovariate(0.4)))
        self._product = {path: n for n, path in enumerate(self._paths)}
        self.content = {f"product {n}" for n in range(products)} | {
            f"reviews {n} {page}"
            for n in range(products)
            for page in range(1, -(-self._reviews[n] // REVIEWS_A_PAGE) + 1)
        }

    def _title(self, n: int) -> str:
        words = self.prose.title("product", n).split()[:5]
        return " ".join(word.strip(",") for word in words)

    def reply(self, path: str, query: Query) -> Reply:
        """Return a category, a product, reviews, or the result of a button."""
        dress = "sid" if "SID" in query else "view" if set(VIEWS) & query.keys() else ""
        if "___store" in query or "currency" in query:
            dress = "currency"
        if path == "/":
            return Reply("index", "home", "/", self._home(path), dress)
        if path in self._product:
            n = self._product[path]
            return Reply("content", "product", f"product {n}", self._product_page(n), dress)
        if path in self._lists:
            return self._category(self._lists.index(path), query, dress)
        parts = path.strip("/").split("/")
        if path.removesuffix(".html").strip("/") in CATEGORIES:
            return self._top(parts[0].removesuffix(".html"), query, dress)
        if parts[0] == "review" and len(parts) > 4:
            return self._reviews_page(number(parts[4]), query, dress)
        if parts[0] in ("about", "shipping", "returns", "terms"):
            text = self.prose.paragraphs(20, 40, parts[0])
            return Reply("side", "about", parts[0], self._page(parts[0], text, path), dress)
        if parts[0] in (*BUTTONS, "catalog", "catalogsearch"):
            return self._button(parts, query)
        return missing()

    # -- pages with a purpose

    def _home(self, path: str) -> str:
        chance = self.prose.chance("home")
        shown = chance.sample(range(len(self._titles)), 8)
        return self._page("Welcome", "".join(map(self._tile, shown)), path)

    def _top(self, name: str, query: Query, dress: str) -> Reply:
        main = items((one, one.split("/")[2]) for one in self._lists if f"/{name}/" in one)
        if set(FACETS) & query.keys():
            return Reply("trap", "facets", body=self._page(name, main, f"/{name}.html"))
        main += self._layers(f"/{name}.html", query)
        return Reply("index", "category", name, self._page(name, main, f"/{name}.html"), dress)

    def _category(self, number_of: int, query: Query, dress: str) -> Reply:
        path, page = self._lists[number_of], max(number(query.get("p", "1"), 1), 1)
        products = [n for n, of in enumerate(self._of) if of == number_of]
        facets = {name: query[name] for name in FACETS if name in query}
        chance = self.prose.chance("facets", path, tuple(sorted(facets.items())))
        for name in facets:
            products = [n for n in products if chance.random() < (0.8 if name == "new" else 0.6)]
        if "product_list_order" in query:
            chance.shuffle(products)
        each = number(query.get("product_list_limit", ""), A_PAGE)
        pages = max(1, -(-len(products) // each))
        if page > pages:  # Magento shows the last page for any number beyond it
            page, dress = pages, dress or "beyond"
        shown = products[(page - 1) * each : page * each]
        main = "".join(map(self._tile, shown)) or "<p>We can't find products for that.</p>"
        kept = {name: value for name, value in query.items() if name != "p"}
        ways = [
            (f"{path}?{urlencode({**kept, 'p': n})}" if n > 1 else _with(path, kept), f"Page {n}")
            for n in range(1, pages + 1)
        ]
        for name, values in VIEWS.items():
            ways += [(_with(path, {**query, name: value}), value) for value in values]
        main = self._layers(path, query) + main + items(ways)
        body = self._page(path[1:-5], main, path)
        if facets:
            return Reply("trap", "facets", body=body)
        return Reply("index", "category", f"{path} {page}", body, dress)

    def _layers(self, path: str, query: Query) -> str:
        """Return the layered navigation: each facet that is not chosen yet, and links to remove
        chosen ones."""
        ways = []
        for facet, values in FACETS.items():
            others = {name: value for name, value in query.items() if name not in (facet, "p")}
            if facet in query:
                ways.append((_with(path, others), f"Remove {facet}"))
                continue
            ways += [(_with(path, {**others, facet: one}), f"{facet} {one}") for one in values]
        return items(ways)

    def _product_page(self, n: int) -> str:
        path, chance = self._paths[n], self.prose.chance("price", n)
        price = chance.randint(5, 300)
        facts = "".join(
            f"<tr><th>{name}</th><td>{chance.choice(values)}</td></tr>"
            for name, values in FACETS.items()
        )
        text = self.prose.paragraphs(5, 16, "product", n)
        near = [m for m in range(n - 72, n + 73, 24) if 0 <= m < len(self._titles) and m != n]
        main = (
            f'<p class="price">{price}.99</p>{self._buttons(n)}{text}<table>{facts}</table>'
            f"<p>Free returns within 30 days. Delivery in 2 to 4 working days.</p>"
        )
        if self._reviews[n]:
            main += f"<p>{link(self._review(n), f'{self._reviews[n]} reviews')}</p>"
        return self._page(self._titles[n], main + "".join(map(self._tile, near[:4])), path)

    def _review(self, n: int) -> str:
        return f"/review/product/list/id/{1000 + n}/category/{3 + self._of[n]}/"

    def _reviews_page(self, product: int, query: Query, dress: str) -> Reply:
        n, page = product - 1000, number(query.get("p", "1"), 1)
        if not 0 <= n < len(self._titles) or not self._reviews[n]:
            return missing()
        pages = -(-self._reviews[n] // REVIEWS_A_PAGE)
        page = min(max(page, 1), pages)
        if {"limit", "order", "dir"} & query.keys():
            dress = dress or "view"
        path, first = self._review(n), (page - 1) * REVIEWS_A_PAGE
        shown = range(first, min(first + REVIEWS_A_PAGE, self._reviews[n]))
        main = "".join(
            f"<div><h3>{self.prose.title('review', n, i)}</h3>{'★' * (1 + (n + i) % 5)}"
            f"{self.prose.paragraphs(1, 6, 'review', n, i)}"
            f"<p>by {self.prose.person('review', n, i)}</p></div>\n"
            for i in shown
        )
        ways = [
            (_with(path, {"p": str(one)} if one > 1 else {}), f"Page {one}")
            for one in range(1, pages + 1)
        ]
        ways += [(_with(path, {"limit": one}), one) for one in ("20", "50")]
        ways += [(_with(path, {"order": "rating", "dir": one}), one) for one in ("asc", "desc")]
        ways.append((self._paths[n], "Back to the product"))
        body = self._page(f"Reviews of {self._titles[n]}", main + items(ways), path)
        return Reply("content", "reviews", f"reviews {n} {page}", body, dress)

    # -- buttons

    def _tile(self, n: int) -> str:
        price = self.prose.chance("price", n).randint(5, 300)
        name = link(self._paths[n], self._titles[n])
        return f"<div class=item>{name} <b>{price}.99</b>{self._buttons(n)}</div>\n"

    def _buttons(self, n: int) -> str:
        back = base64.b64encode(f"http://localhost{self._paths[n]}".encode()).decode()
        uenc, product = back.replace("=", ","), 1000 + n
        key = f"{self._sessions.getrandbits(64):016x}"
        ways = (
            (f"/checkout/cart/add/uenc/{uenc}/product/{product}/form_key/{key}/", "Add to Cart"),
            (f"/wishlist/index/add/product/{product}/form_key/{key}/", "Wish list"),
            (f"/catalog/product_compare/add/product/{product}/uenc/{uenc}/", "Compare"),
            (f"/sendfriend/product/send/id/{product}/", "E-mail a friend"),
        )
        return " ".join(link(href, text) for href, text in ways)

    def _button(self, parts: list[str], query: Query) -> Reply:
        kind = {"catalog": "compare", "catalogsearch": "search"}.get(parts[0], parts[0])
        if kind == "directory":
            return Reply("trap", "currency", status=302, location="/")
        text = "<p>You have no items in your shopping cart.</p>"
        if kind in ("customer", "wishlist", "sendfriend", "sales"):
            text = '<form method="post"><input name="email"><input type="password"></form>'
        if kind == "search":
            chance = self.prose.chance("search", query.get("q", ""))
            text = "".join(map(self._tile, chance.sample(range(len(self._titles)), 8)))
        return Reply("trap", kind, body=self._page(kind, text, "/" + "/".join(parts)))

    def _page(self, title: str, main: str, path: str) -> str:
        referer = base64.b64encode(f"http://localhost{path}".encode()).decode().replace("=", ",")
        sid = f"{self._sessions.getrandbits(104):026x}"
        menu = [(f"/{one}.html", one.capitalize()) for one in CATEGORIES]
        menu += [(one, one[1:-5]) for one in self._lists]
        menu += [
            ("/checkout/cart/", "Cart"),
            (f"/customer/account/login/referer/{referer}/", "Sign in"),
            (f"{path}?SID={sid}", "Reload"),
            (f"/catalogsearch/result/?q={slug(title)}", "Search"),
        ]
        menu += [
            (f"/directory/currency/switch/currency/{one}/uenc/{referer}/", one)
            for one in CURRENCIES
        ]
        menu += [(f"{path}?___store={one}&___from_store=default", one) for one in ("de", "fr")]
        menu += [(f"/{one}/", one.capitalize()) for one in ("about", "shipping", "returns")]
        layout = Layout("The Corner Shop", menu, f"{escape(title)} · all prices with tax")
        return layout.page(title, main)


def _with(path: str, query: Query) -> str:
    return f"{path}?{urlencode(query)}" if query else path
