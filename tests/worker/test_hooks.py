"""The user's own functions: loading, calling, and bad behaviour."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest

from examples import prices
from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.records import Crawl, CrawlOptions, Fetched, Link, Page, Task
from greencrawl.worker.crawls import context_of
from greencrawl.worker.extract.main.library import Extracted, readable
from greencrawl.worker.hooks import ITEM_BYTES, MOST_ITEMS, HookError, Hooks, load
from greencrawl.worker.kernels.http import read
from greencrawl.worker.kernels.reading import Reading
from tests.support.checkout import ROOT

PAGE = Page(url="http://h/", links=[Link("http://h/a"), Link("http://h/b")])
FETCHED = Fetched("http://h/", 200, {}, b"")
TASK = Task(1, "http://h/")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make the current directory a place from which a user's module is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_hook_module_of_the_current_directory_is_found(folder: Path) -> None:
    (folder / "shop").mkdir()
    (folder / "shop" / "own.py").write_text("def on_page(page, fetched): return {'u': page.url}\n")
    hooks = load("shop.own")
    assert hooks.page_fields(PAGE, FETCHED) == {"u": "http://h/"}
    assert hooks.links is None


def test_pages_and_headers_stay_unchanged_without_a_hook_module() -> None:
    hooks = load("")
    assert hooks.page_fields(PAGE, FETCHED) is None
    assert hooks.chosen_links(PAGE) is PAGE.links
    headers = {"accept": "*/*"}
    assert hooks.request_headers(TASK, headers) is headers


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import nothing_of_that_name", "cannot import 'broken': ModuleNotFoundError"),
        ("1/0", "ZeroDivisionError"),
        ("raise SystemExit(2)", "SystemExit: 2"),
        ("def other(): ...", "has none of on_page, items, links, request"),
        ("on_page = 3", "on_page is not a function"),
        ("def on_page(page): ...", "on_page must take 2 arguments"),
        ("def links(page, links, more): ...", "links must take 2 arguments"),
        ("def items(page, fetched): ...", "items must take one argument"),
        ("async def on_page(page, fetched): ...", "not a coroutine"),
        ("async def items(page): yield {}", "not a coroutine"),
        ("def links(page, links): yield 1", "not a generator"),
    ],
)
def test_a_bad_hook_module_is_refused_at_start(folder: Path, source: str, said: str) -> None:
    (folder / "broken.py").write_text(source)
    with pytest.raises(InvalidConfig) as caught:
        load("broken")
    assert said in str(caught.value)
    assert caught.value.problems[0][0] == "hook"


def test_a_missing_hook_module_is_refused_at_start_with_where_it_was_looked_for(
    folder: Path,
) -> None:
    with pytest.raises(InvalidConfig, match=r"cannot import 'no\.such'") as caught:
        load("no.such")
    assert f"modules are looked for in {folder} and among" in str(caught.value)
    with pytest.raises(InvalidConfig) as caught:
        load("json.nothing")
    assert "looked for" in str(caught.value)
    (folder / "mine.py").write_text("import nothing_of_that_name")
    with pytest.raises(InvalidConfig) as caught:
        load("mine")
    assert "looked for" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "named"),
    [("x.py", "x"), ("./own/x.py", "own.x"), ("own/x", "own.x"), ("/srv/x.py", "")],
)
def test_a_hook_given_as_a_file_is_refused_with_its_name_for_import(
    folder: Path, given: str, named: str
) -> None:
    file = f"{named.replace('.', '/')}.py"
    name = f": {named}, in the folder that has {file}" if named else ""
    with pytest.raises(InvalidConfig) as caught:
        load(given)
    assert caught.value.problems == [
        ("hook", f"there is no file {given} here; hook takes a module's name{name}")
    ]
    if named:
        (folder / "own").mkdir(exist_ok=True)
        (folder / file).touch()
        with pytest.raises(InvalidConfig) as caught:
            load(given)
        assert caught.value.problems == [
            ("hook", f"{given} is a file; hook takes a module's name{name}")
        ]


OLD_IMPORTS = [
    ("import worker", "worker"),
    ("from worker.auth import Login", "worker"),
    ("from schema.records import Page", "schema"),
    ("import store", "store"),
    ("import broker.client", "broker"),
    ("import cli", "cli"),
]


@pytest.mark.parametrize(("source", "name"), OLD_IMPORTS)
@pytest.mark.parametrize("where", ["checkout", "installed"])
def test_the_error_of_an_import_by_an_old_name_tells_the_new_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch, where: str, source: str, name: str
) -> None:
    """A checkout has a folder of that name; elsewhere nothing is found."""
    others = [path for path in sys.path if Path(path or ".").resolve() not in (ROOT, folder)]
    monkeypatch.setattr(sys, "path", [*others, str(ROOT)] if where == "checkout" else others)
    (folder / "older.py").write_text(f"{source}\ndef on_page(page, fetched): ...\n")
    with pytest.raises(InvalidConfig) as caught:
        load("older")
    kind = "ImportError" if where == "checkout" else "ModuleNotFoundError"
    assert f"cannot import 'older': {kind}: " in str(caught.value)
    assert f"`{name}` is called `greencrawl.{name}` now" in str(caught.value)


def test_a_hook_may_import_another_distribution_that_has_an_old_name(folder: Path) -> None:
    (folder / "other").mkdir()
    (folder / "other" / "schema.py").write_text("NAME = 'theirs'\n")
    sys.path.insert(0, str(folder / "other"))
    source = "def on_page(page, fetched): return {'schema': schema.NAME}\n"
    (folder / "theirs.py").write_text(f"import schema\n{source}")
    assert load("theirs").page_fields(PAGE, FETCHED) == {"schema": "theirs"}
    (folder / "ours.py").write_text(f"from schema.records import Page\n{source}")
    with pytest.raises(InvalidConfig, match=r"`schema` is called `greencrawl\.schema` now"):
        load("ours")


def raising(*_: Any) -> Any:
    raise KeyError("price")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (raising, "on_page: KeyError: 'price'"),
        (lambda *_: [1], "must return a dict or None, not list"),
        (lambda *_: {"f": object()}, "TypeError"),
        (lambda *_: {"f": float}, "TypeError"),
    ],
)
def test_bad_fields_are_an_error_that_names_the_function(function: Any, said: str) -> None:
    with pytest.raises(HookError, match=said.replace("(", r"\(")):
        Hooks(on_page=function).page_fields(PAGE, FETCHED)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), gevent.Timeout(1)])
def test_exit_of_a_hook_is_an_error_of_the_hook(error: BaseException) -> None:
    def leave(*_: Any) -> Any:
        raise error

    hooks = Hooks(on_page=leave, links=leave, request=leave)
    with pytest.raises(HookError, match="on_page: "):
        hooks.page_fields(PAGE, FETCHED)
    with pytest.raises(HookError, match="links: "):
        hooks.chosen_links(PAGE)
    with pytest.raises(HookError, match="request: "):
        hooks.request_headers(TASK, {})


def test_changes_that_a_hook_makes_to_its_arguments_have_no_effect() -> None:
    def vandal(page: Page, fetched: Any) -> Any:
        page.title = page.text = None  # type: ignore[assignment]
        page.links[0].url = "javascript:alert(1)"
        page.links.append(3)  # type: ignore[arg-type]
        if isinstance(fetched, Fetched):
            fetched.body = None  # type: ignore[assignment]
            fetched.headers["x"] = fetched.request["x"] = "y"
            return {}
        raise ValueError

    page = Page(url="http://h/", title="T", links=[Link("http://h/a")])
    fetched = Fetched("http://h/", 200, {}, b"b")
    hooks = Hooks(on_page=vandal, links=vandal)
    assert hooks.page_fields(page, fetched) == {}
    with pytest.raises(HookError):
        hooks.chosen_links(page)
    assert page == Page(url="http://h/", title="T", links=[Link("http://h/a")])
    assert fetched == Fetched("http://h/", 200, {}, b"b")


def test_fields_are_copied_when_a_hook_returns_them() -> None:
    """For example, all pages share one dict, and the next call changes it before the first is
    stored."""
    shared: dict[str, Any] = {"seen": [1]}
    fields = Hooks(on_page=lambda *_: shared).page_fields(PAGE, FETCHED)
    shared["seen"].append(object())
    assert fields == {"seen": [1]}


ODDITIES = [{"n": 1, "text": "茶\0", "nothing": float("nan")}, {}]


@pytest.mark.parametrize(
    "function",
    [lambda page: iter(ODDITIES), lambda page: ODDITIES, lambda page: tuple(ODDITIES)],
)
def test_records_are_yielded_or_returned(function: Any) -> None:
    items = Hooks(items=function).page_items(PAGE)
    assert json.loads(items) == [{"n": 1, "text": "茶\0", "nothing": None}, {}]


@pytest.mark.parametrize("function", [None, lambda page: None, lambda page: []])
def test_no_records_are_stored_if_a_hook_yields_none(function: Any) -> None:
    assert Hooks(items=function).page_items(PAGE) == b""


def test_records_are_copied_when_a_hook_yields_them() -> None:
    """For example, one dict is filled again for each record."""

    def filled(page: Page) -> Iterator[dict[str, int]]:
        one: dict[str, int] = {}
        for one["n"] in range(3):
            yield one

    assert json.loads(Hooks(items=filled).page_items(PAGE)) == [{"n": 0}, {"n": 1}, {"n": 2}]


def late(page: Page) -> Iterator[dict[str, str]]:
    yield {"url": page.url}
    raise KeyError("price")


LONG = {"text": "x" * ITEM_BYTES}
SHORTER = {"text": "x" * (ITEM_BYTES - 20)}


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (late, "items: KeyError: 'price'"),
        (lambda page: {"n": 1}, "must yield dicts, not str"),
        (lambda page: [[1]], "must yield dicts, not list"),
        (lambda page: [{"f": object()}], "TypeError"),
        (lambda page: 3, "TypeError"),
        (lambda page: [{"t": "\ud800"}], "UnicodeEncodeError"),
        (lambda page: [LONG], "ValueError: a record of more than 65,536 bytes"),
        (lambda page: itertools.repeat({}), "ValueError: more than 5,000 records"),
        (lambda page: itertools.repeat(SHORTER), "4,194,304 bytes of JSON on a page"),
    ],
)
def test_bad_or_too_many_records_are_an_error_and_none_is_kept(function: Any, said: str) -> None:
    with pytest.raises(HookError, match=re.escape(said)):
        Hooks(items=function).page_items(PAGE)


def test_records_up_to_the_bounds_of_number_and_length_are_kept() -> None:
    assert len(json.loads(Hooks(items=lambda page: [{}] * MOST_ITEMS).page_items(PAGE))) == 5000
    assert len(Hooks(items=lambda page: [SHORTER] * 63).page_items(PAGE)) > 4_000_000


TREE = """<html><title>Tea</title><script type="application/ld+json">{"@type": "Product"}</script>
<ul><li class=tea data-n=1>Green <b>tea</b> <i>€ 3.20</i><li class=tea>Mint <i>€ 4</i></ul>"""


def read_by(**functions: Any) -> Reading:
    crawl = Crawl(id=1, name="t", state="active", options=CrawlOptions(), roots=("h",))
    context = dataclasses.replace(context_of(crawl), hooks=Hooks(**functions))
    fetched = Fetched("http://h/", 200, {"content-type": "text/html"}, TREE.encode())
    return read(context, Task(1, "http://h/"), fetched)


def test_hook_functions_select_in_the_page_as_in_scrapy() -> None:
    def items(page: Extracted) -> Iterator[dict[str, Any]]:
        for tea in page.css("li.tea"):
            yield {
                "name": tea.xpath("normalize-space(text())").get(),
                "price": tea.css("i::text").re_first(r"[\d.]+"),
                "number": tea.attrib.get("data-n"),
            }

    def on_page(page: Extracted, fetched: Fetched) -> dict[str, Any]:
        return {
            "title": page.css("title::text").get(),
            "prices": page.xpath("//i/text()").getall(),
            "cheap": page.xpath("//i[contains(text(), $price)]", price="3.20").get(),
            "kinds": [one["@type"] for one in page.jsonld],
        }

    reading = read_by(on_page=on_page, items=items, links=lambda page, links: [])
    assert reading.problems == {}
    assert reading.fields == {
        "title": "Tea",
        "prices": ["€ 3.20", "€ 4"],
        "cheap": "<i>€ 3.20</i>",
        "kinds": ["Product"],
    }
    assert json.loads(reading.items) == [
        {"name": "Green", "price": "3.20", "number": "1"},
        {"name": "Mint", "price": "4", "number": None},
    ]


def test_the_tree_of_a_page_is_there_only_while_hook_functions_run() -> None:
    seen: list[Extracted] = []
    kept: list[Any] = []

    def on_page(page: Extracted, fetched: Fetched) -> None:
        seen.append(page)
        kept.append(page.css("li"))

    def items(page: Extracted) -> Iterator[dict[str, str]]:
        seen.append(page)
        yield {"main": page.main, "markdown": page.markdown, "author": page.author}

    reading = read_by(on_page=on_page, items=items)
    assert reading.problems == {}
    assert [page.title for page in seen] == ["Tea", "Tea"]
    for page in seen:
        with pytest.raises(RuntimeError, match="only while the hook runs"):
            page.css("li")
        with pytest.raises(RuntimeError, match="only while the hook runs"):
            page.jsonld  # noqa: B018
    assert len(kept[0].getall()) == 2, "what was selected stays"


def test_an_invalid_selector_is_an_error_of_the_hook() -> None:
    reading = read_by(
        on_page=lambda page, fetched: {"x": page.xpath("//[").get()},
        items=lambda page: [{"x": page.css("li[").get()}],
    )
    assert "ValueError: XPath error" in reading.problems["on_page"]
    assert "Error: " in reading.problems["items"]
    assert reading.links == []


def test_selectors_find_nothing_in_a_page_that_is_no_html() -> None:
    with readable(Page(url="http://h/"), None) as page:
        assert (page.css("a").getall(), page.xpath("//a").get()) == ([], None)
        assert (page.main, page.markdown, page.jsonld, page.author) == ("", "", [], "")


def test_parsel_is_not_loaded_for_a_hook_that_does_not_select() -> None:
    program = """
import sys
from examples.prices import on_page
from greencrawl.schema.records import Crawl, CrawlOptions, Fetched, Task
from greencrawl.worker.crawls import context_of
from greencrawl.worker.kernels.http import read
options = CrawlOptions(hook="examples.prices")
context = context_of(Crawl(id=1, name="t", state="active", options=options, roots=("h",)))
body = b"<p>EUR 3"
reading = read(context, Task(1, "http://h/"), Fetched("http://h/", 200, {}, body))
print(reading.fields["count"], "parsel" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
    )  # fmt: skip
    assert done.stdout == "1 False\n", done.stderr


@pytest.mark.parametrize(
    "function",
    [
        raising,
        lambda *_: None,
        lambda *_: ["http://h/"],
        lambda *_: [Link(None)],  # type: ignore[arg-type]
        lambda *_: [Link("http://h/", rel=None)],  # type: ignore[arg-type]
        lambda *_: [Link("http://h/", score="high")],  # type: ignore[arg-type]
    ],
)
def test_bad_links_of_a_hook_are_an_error(function: Any) -> None:
    with pytest.raises(HookError, match="links: "):
        Hooks(links=function).chosen_links(PAGE)


def test_hook_that_empties_its_argument_leaves_the_page_alone() -> None:
    def empty(page: Page, links: list[Link]) -> list[Link]:
        links.clear()
        return links

    assert Hooks(links=empty).chosen_links(PAGE) == []
    assert len(PAGE.links) == 2


@pytest.mark.parametrize(
    "function",
    [raising, lambda *_: None, lambda *_: {"a": 1}, lambda *_: {"a": "b\r\nEvil: 1"}],
)
def test_bad_headers_of_a_hook_are_an_error(function: Any) -> None:
    with pytest.raises(HookError, match="request: "):
        Hooks(request=function).request_headers(TASK, {})


def test_headers_of_the_hook_are_sent() -> None:
    hooks = Hooks(request=lambda task, headers: {**headers, "cookie": task.url})
    assert hooks.request_headers(TASK, {"accept": "*/*"}) == {"accept": "*/*", "cookie": TASK.url}


def test_the_example_hook_finds_each_price_once() -> None:
    page = Page(url="http://h/", text="Tea € 3.20, was €4.00, again € 3.20; coffee 5,50 EUR")
    assert load("examples.prices").page_fields(page, FETCHED) == {
        "prices": ["€ 3.20", "€4.00", "5,50 EUR"],
        "count": 3,
        "status": 200,
    }


def test_the_example_hook_stores_nothing_for_a_page_without_a_price() -> None:
    assert prices.on_page(Page(url="http://h/", text="none"), FETCHED) is None


def test_the_texts_of_links_reach_a_hook_function_that_looks_at_them() -> None:
    crawl = Crawl(id=1, name="t", state="active", options=CrawlOptions(), roots=("h",))
    body = b'<a href="/a">the text</a>'
    fetched = Fetched("http://h/", 200, {"content-type": "text/html"}, body)
    seen: list[Link] = []

    def on_page(page: Page, _: Fetched) -> None:
        seen.extend(page.links)

    plain = context_of(crawl)
    looking = dataclasses.replace(plain, hooks=Hooks(on_page=on_page))
    found = [read(one, Task(1, "http://h/"), fetched).links for one in (plain, looking)]
    assert found[0] == found[1]
    assert [link.anchor for link in seen] == ["the text"]
