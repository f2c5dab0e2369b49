"""A crawl of a site with directives: what it keeps, tells and exports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from greencrawl.cli.main import main
from greencrawl.store import open_store
from greencrawl.worker.link_checker import MAX_REDIRECTS
from tests.support.archive import Archive, check
from tests.support.effort import by_night
from tests.support.redis_server import RedisServer
from tests.support.shared_system import shared_system
from tests.support.site_server import Answer, Request, SiteServer
from tests.support.sites import HTML
from tests.support.system import System

SECRET = "words that are not to be kept"
SAID = {
    "/plain": ("", {}),
    "/noindex": ("<meta name=robots content='NOINDEX; follow'>", {}),
    "/none": ("", {"X-Robots-Tag": "none"}),
    "/over": ("", {"X-Robots-Tag": "unavailable_after: Monday, 05-Jan-26 10:00:00 GMT"}),
    "/later": ("", {"X-Robots-Tag": "unavailable_after: 25 Jun 2099 15:00:00 PST"}),
    "/others": ("<meta name=otherbot content=none>", {"X-Robots-Tag": "otherbot: noindex"}),
    "/two": ("", {"X-Robots-Tag": "otherbot: nofollow", "x-robots-tag": "noindex"}),
    "/file.pdf": ("", {"X-Robots-Tag": "greencrawl: noindex", "Content-Type": "application/pdf"}),
}
"""Path → (elements, headers) of each page."""
WITHHELD = {"/noindex", "/none", "/over", "/two", "/file.pdf"}
LEADS = SAID.keys() - {"/none", "/file.pdf"}
"""The links of these pages are followed."""


def site(request: Request) -> Answer:
    path = request.target
    if path == "/":
        return Answer(body="".join(f"<a href={to}>x</a>" for to in SAID).encode(), headers=HTML)
    if path.startswith("/below/"):
        return Answer(body=b"<p>below", headers=HTML)
    if path not in SAID:
        return Answer(404)
    head, headers = SAID[path]
    body = f"<title>{SECRET}</title>{head}<p>{SECRET}<a href=/below{path}>x</a>"
    return Answer(body=body.encode(), headers={**HTML, **headers})


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A system that keeps bodies in SQL."""
    with shared_system(tmp_path_factory.mktemp("shared"), processes=2) as system:
        yield system


@pytest.mark.parametrize("bodies", ["sql", "warc"])
def test_a_page_that_may_not_be_kept_leaves_no_content_and_its_links_are_followed(
    tmp_path: Path,
    redis_server: RedisServer,
    shared: System,
    bodies: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "warc"
    where = f"warc:{folder}" if bodies == "warc" else "sql"
    with SiteServer(site) as server, ExitStack() as stack:
        system = shared
        if bodies == "warc":
            own = System(tmp_path, [redis_server.url], bodies=where)
            system = stack.enter_context(own).start()
        system.crawl([server.url("/")], delay=0, bodies="all")
        system.wait_done(60)
        stats = system.stats()
        said = {path: _why(system, server.url(path)) for path in SAID}
        base = server.url("").rstrip("/")
    assert stats["stored"] == 1 + len(SAID) + len(LEADS)
    assert stats["failures"] == {"noindex": 4, "unavailable_after": 1}
    store = open_store(f"sqlite:///{system.folder / 'data' / 'content.sqlite'}", where)
    number = store.crawl("test").id
    pages = {page.url.removeprefix(base): page for _, page in store.pages(number, detail="body")}
    assert {path for path in SAID if SECRET not in pages[path].text + str(pages[path].body)} == (
        WITHHELD
    )
    assert {path for path in SAID if pages[path].directives is None} == {"/plain", "/others"}
    assert {path for path in SAID if f"/below{path}" in pages} == LEADS
    for path in WITHHELD:
        page = pages[path]
        assert (page.title, page.fields, page.status) == ("", None, 200)
        assert page.digest
        assert page.headers["content-type"]
        assert "title, text and body are not kept" in said[path]
    assert "unavailable_after 2099-06-25 23:00:00 UTC" in said["/later"]
    assert "kept" not in said["/later"] + said["/plain"] + said["/others"]
    store.close()
    if bodies == "warc":
        files = sorted(folder.glob("*.warc.gz"))
        assert check(files) == ""
        archived = {url.removeprefix(base) for url in Archive(files).answers}
        assert archived == pages.keys() - WITHHELD
    lines = _exported(system.folder, where, capsys)
    assert {line["url"].removeprefix(base) for line in lines if _withheld(line)} == WITHHELD


FILE = [{"location": "/two$", "tdm-reservation": 0}, {"location": "/", "tdm-reservation": 1}]
POLICY = "https://p.example/policy.json"
TDM: dict[str, tuple[str, dict[str, str]]] = {
    "/reserved": (f"<meta name=tdm-policy content={POLICY}>", {}),
    "/open": ("<meta name=tdm-reservation content=0>", {}),
    "/header": ("", {"tdm-reservation": "0"}),
    "/two": ("", {}),
    "/noai": ("<meta name=robots content='noai'>", {"tdm-reservation": "0"}),
}


def tdm_site(request: Request) -> Answer:
    path = request.target
    if path == "/.well-known/tdmrep.json":
        return Answer(body=json.dumps(FILE).encode())
    if path == "/":
        return Answer(body="".join(f"<a href={to}>x</a>" for to in TDM).encode(), headers=HTML)
    if path not in TDM:
        return Answer(404)
    head, headers = TDM[path]
    return Answer(body=f"{head}<p>{SECRET}".encode(), headers={**HTML, **headers})


@pytest.mark.parametrize("tdm", ["record", "obey"])
def test_tdm_reservations_are_recorded_or_obeyed_as_the_option_says(
    shared: System, tdm: str
) -> None:
    with SiteServer(tdm_site, ("127.0.0.1", "127.0.0.2")) as server:
        seeds = [f"http://{address}:{server.port}/" for address in server.addresses]
        shared.crawl(seeds, tdm, delay=0, tdm=tdm)
        shared.wait_done(60, tdm)
        stats = shared.stats(tdm)
        said = _why(shared, f"{seeds[0]}reserved")
    files = [hit.address for hit in server.hits if "tdmrep" in hit.target]
    store = open_store(f"sqlite:///{shared.folder / 'data' / 'content.sqlite'}")
    pages = [page for _, page in store.pages(store.crawl(tdm).id)]
    store.close()
    assert len(pages) == 2 * (1 + len(TDM))
    withheld = {page.url.rpartition("/")[2] for page in pages if not page.text and page.links == []}
    if tdm == "record":
        assert files == []
        assert withheld == set()
        assert stats["failures"] == {}
        noted = {page.url.rpartition("/")[2] for page in pages if page.directives is not None}
        assert noted == {"open", "header", "noai"}, "a policy alone reserves nothing"
        return
    assert sorted(files) == ["127.0.0.1", "127.0.0.2"], "once an origin"
    assert withheld == {"reserved", "noai"}
    assert stats["failures"] == {"tdm_reservation": 4, "noai": 2}, "the first pages among them"
    assert f"rights of text and data mining are reserved, policy {POLICY}" in said


def test_a_page_waits_as_long_as_the_answer_for_tdmrep_json_asks(shared: System) -> None:
    def busy(request: Request) -> Answer:
        if request.target == "/.well-known/tdmrep.json":
            return Answer(503, headers={"Retry-After": "3"})
        return tdm_site(request)

    with SiteServer(busy) as server:
        shared.crawl([server.url("/")], "busy", delay=0, tdm="obey", depth=0)
        shared.wait_done(60, "busy")
        stats = shared.stats("busy")
    robots, file, page = sorted(server.hits, key=lambda hit: hit.arrived)
    assert (robots.target, file.target, page.target) == (
        "/robots.txt",
        "/.well-known/tdmrep.json",
        "/",
    )
    assert page.arrived - file.ended >= 2.9
    assert (stats["stored"], stats["failures"]) == (1, {})


WORDS = " ".join(f"word{n}" for n in range(60))
SHOP = {
    "/": (None, "".join(f"<a href={to}>x</a>" for to in (
        "/list", "/list?sort=price", "/list?page=2", "/about", "/print", "/x?1", "/x?2", "/out",
        "/a",
    ))),
    "/list": (None, f"<p>{WORDS}<a href=/item/1>i</a>"),
    "/list?sort=price": ("/list", f"<p>{' '.join(reversed(WORDS.split()))}<a href=/item/2>i</a>"),
    "/list?page=2": ("/list", "<p>the second page of the list, which is another one"),
    "/about": ("/", "<p>about us, on a site that names its home page everywhere"),
    "/print": ("/missing", f"<p>{WORDS} whose canonical URL is gone"),
    "/x?1": ("/x?2", f"<p>{WORDS} each names the other"),
    "/x?2": ("/x?1", f"<p>{WORDS} each names the other"),
    "/out": ("http://out.example/", f"<p>{WORDS} whose canonical URL is elsewhere"),
    "/a": ("/only-named", "<p>it leads to a page to which nothing else does"),
    "/only-named": ("/only-named", "<p>named as canonical"),
    "/item/1": (None, "<p>one"),
    "/item/2": (None, "<p>two"),
}  # fmt: skip


def shop(request: Request) -> Answer:
    if request.target not in SHOP:
        return Answer(404)
    canonical, body = SHOP[request.target]
    link = f'<link rel=canonical href="{canonical}">' if canonical else ""
    return Answer(body=f"<title>T</title>{link}{body}".encode(), headers=HTML)


@pytest.mark.parametrize("canonical", ["record", "fold"])
def test_copies_are_folded_if_the_option_says_so_and_no_unique_page_is_lost(
    shared: System, canonical: str
) -> None:
    name = f"copies-{canonical}"
    with SiteServer(shop) as server:
        shared.crawl([server.url("/")], name, delay=0, canonical=canonical)
        shared.wait_done(60, name)
        stats = shared.stats(name)
        said = _why(shared, server.url("/list?sort=price"))
        base = server.url("").rstrip("/")
    store = open_store(f"sqlite:///{shared.folder / 'data' / 'content.sqlite'}")
    number = store.crawl(name).id
    pages = {page.url.removeprefix(base): page for _, page in store.pages(number)}
    finals = {final.url.removeprefix(base) for _, final in store.finals(number)}
    store.close()
    folds = canonical == "fold"
    named = {"/only-named"} if folds else set()
    assert pages.keys() == SHOP.keys() - {"/only-named"} | named
    assert finals == ({"/missing"} if folds else set()), "what is named is looked at"
    copies = {path for path, page in pages.items() if page.directives is not None}
    assert copies == ({"/list?sort=price"} if folds else set())
    assert stats["failures"] == ({"copy": 1, "gone": 1} if folds else {})
    for path, (names, _) in SHOP.items():
        if path in pages:
            assert bool(pages[path].text) == (path not in copies)
            wanted = names and (names if names.startswith("http") else f"{base}{names}")
            assert pages[path].canonical == (wanted or "")
    assert f"its canonical URL is {base}/list" in said
    assert ("copy: title, text and body are not kept" in said) == folds


@by_night
def test_an_endless_chain_of_canonical_urls_ends(shared: System) -> None:
    def chain(request: Request) -> Answer:
        if not request.target.startswith("/p"):
            return Answer(404)
        number = int(request.target.removeprefix("/p"))
        link = f'<link rel=canonical href="/p{number + 1}">'
        return Answer(body=f"{link}<p>page {number}".encode(), headers=HTML)

    with SiteServer(chain) as server:
        shared.crawl([server.url("/p0")], "chain", delay=0, canonical="fold", depth=0)
        shared.wait_done(60, "chain")
        stats = shared.stats("chain")
    assert stats["stored"] == 1 + MAX_REDIRECTS


def _why(system: System, url: str) -> str:
    return str(json.dumps(system.call("GET", f"/v1/urls?url={quote(url, safe='')}")))


def _withheld(line: dict[str, Any]) -> bool:
    return bool((line["directives"] or {}).get("withheld"))


def _exported(
    folder: Path, bodies: str, capsys: pytest.CaptureFixture[str]
) -> list[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GREENCRAWL_BODIES", bodies)
        capsys.readouterr()
        main(["export", "test", "--data", str(folder / "data"), "--bodies", "--pages-only"])
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]
