"""Crawls behind logins, with real brokers, Redis, workers and sites.

The sites count what the tests claim: who asked, as whom, and with which session or token.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import stat
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from html import unescape
from pathlib import Path

import gevent
import requests

from greencrawl.schema.records import StoredPage
from greencrawl.store import open_store
from tests.support import lighttpd
from tests.support.checkout import ROOT
from tests.support.django_site.rig import EXPIRE, USERNAME, DjangoSite, LoggedRequest
from tests.support.effort import by_night, examples
from tests.support.leaks import environment, exported, in_files, in_redis, leaks, told
from tests.support.lighttpd import Lighttpd
from tests.support.oauth1_site import OAuth1Site
from tests.support.redis_server import RedisServer
from tests.support.site_server import Answer, Request, SiteServer
from tests.support.stored import read_stored
from tests.support.system import System, wait_until

Entry = dict[str, object]

PROCESSES = 4
SOME = examples(2, PROCESSES)
"""A few processes are enough where the test only needs several."""


# -- options of a crawl


def form_entry(site: DjangoSite, name: str, path: str, address: str = "") -> Entry:
    login_url = site.url(path, address)
    return {"kind": "form", "name": name, "hosts": [site.origin(address)], "login_url": login_url}


def admin_entry(site: DjangoSite, address: str = "") -> Entry:
    """Make an entry with the URL that a browser shows when the admin asks for a login."""
    return form_entry(site, "admin", "/admin/login/?next=/admin/", address)


def members_entry(site: DjangoSite, name: str = "club", address: str = "") -> Entry:
    return form_entry(site, name, "/members/login", address)


def secrets_of(site: DjangoSite, *names: str) -> dict[str, str]:
    """Return variables with the user's name and password, for entries of these names."""
    fields = {"username": USERNAME, "password": site.password}
    return {f"auth_{name}_{field}": value for name in names for field, value in fields.items()}


def own_entry(site: DjangoSite, address: str) -> Entry:
    return {
        "kind": "own",
        "name": "own",
        "hosts": [site.origin(address)],
        "login": "tests.support.own_login:Members",
        "login_url": site.url("/members/login", address),
    }


def api_entry(site: DjangoSite, hosts: Iterable[str], **more: object) -> Entry:
    return {
        "kind": "oauth2",
        "name": "api",
        "hosts": list(hosts),
        "token_url": site.url("/o/token/"),
        "scopes": ["read"],
    } | more


def source(site: DjangoSite, address: str = "") -> dict[str, str]:
    return {
        "url": site.url("/api/list", address),
        "items": "data[].href",
        "next": "meta.next",
        "cursor": "cursor",
    }


# -- results of a crawl


def stored_bodies(data: Path, name: str = "test", bodies: str = "sql") -> dict[str, bytes]:
    """Return URL → body of each page that was stored with 200."""
    store = open_store(f"sqlite:///{data / 'content.sqlite'}", bodies)
    try:
        crawl = store.crawl(name).id
        pages: list[StoredPage] = [page for _, page in store.pages(crawl, detail="body")]
    finally:
        store.close()
    return {page.url: page.body for page in pages if page.status == 200}


def login_pages(bodies: dict[str, bytes]) -> list[str]:
    """Return the pages that ask for a password."""
    return [url for url, body in bodies.items() if b'type="password"' in body]


def by_strangers(log: list[LoggedRequest], paths: tuple[str, ...]) -> list[str]:
    """Return the pages below ``paths``, except logins, that were asked for without a login."""
    logins = ("/admin/login/", "/members/login", "/o/")
    return [
        one.path
        for one in log
        if one.path.startswith(paths) and not one.path.startswith(logins) and not one.user
    ]


def articles(site: DjangoSite, path: str, address: str = "") -> set[str]:
    """Return the URLs of all articles; ``path`` contains {}."""
    return {site.url(path.format(n), address) for n in range(1, site.articles + 1)}


# -- all kinds of authentication in one crawl


def test_four_processes_log_in_once_for_each_site_and_leave_no_secret_anywhere(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    warc = tmp_path / "warc"
    spread = [f"127.0.3.{n}" for n in range(1, 17)]  # the first pages of these hosts come at once
    addresses = ["127.0.0.1", "127.0.0.2", *spread]
    with (
        DjangoSite(tmp_path / "site", addresses=addresses, articles=12, sliding=True) as site,
        Lighttpd(tmp_path / "archive") as archive,
        OAuth1Site() as signed,
        System(
            tmp_path / "host",
            [redis_server.url],
            processes=PROCESSES,
            log_level="debug",
            bodies=f"warc:{warc}",
            secrets={
                **secrets_of(site, "admin"),
                **{f"auth_{way}_hosts": "*" for way in WAYS},
                "auth_api_client_id": site.machine_id,
                "auth_api_client_secret": site.machine_secret,
                "auth_signed_client_key": signed.client_key,
                "auth_signed_client_secret": signed.client_secret,
                "auth_signed_token": signed.token,
                "auth_signed_token_secret": signed.token_secret,
            },
        ) as system,
    ):
        credentials(system, dict.fromkeys(WAYS, (lighttpd.USERNAME, archive.password)))
        auth = [
            admin_entry(site),
            api_entry(site, map(site.origin, addresses)),
            {"kind": "oauth1", "name": "signed", "hosts": [signed.url("").rstrip("/")]},
            *(
                {"kind": kind, "name": way, "hosts": [archive.url(place, "")]}
                for way, (kind, place) in WAYS.items()
            ),
        ]
        first = [site.url("/api/items/1", address) for address in spread]
        seeds = [
            *first,
            site.url("/admin/"),
            signed.url(),
            *(archive.url(p) for _, p in WAYS.values()),
        ]
        system.start().crawl(
            seeds, delay=0, slots=4, auth=auth, sources=[source(site, "127.0.0.2")]
        )
        system.wait_done(60)
        log = site.log()
        secret = site.secrets() | signed.secrets() | {archive.password}
        urls = [site.url("/admin/"), site.url("/admin/logout/"), *seeds[-4:]]
        places = [*told(system, "test", urls), *exported(system, "test", tmp_path)]
        places += in_redis(redis_server.url)
        system.stop()
        archive.stop()
        bodies = stored_bodies(system.folder / "data", bodies=f"warc:{warc}")
        stored = read_stored(system.folder / "data")
        for folder in (system.folder, redis_server.folder, warc):
            places += in_files(folder)

    # The admin: its form with the token was sent once; all pages came by that one session.
    assert [one.status for one in site.logins()] == [302]
    assert articles(site, "/admin/django_site/article/{}/change/") <= bodies.keys()
    assert articles(site, "/admin/django_site/article/{}/history/") <= bodies.keys()
    assert login_pages(bodies) == []
    assert by_strangers(log, ("/admin/", "/api/")) == []
    assert len({one.session for one in log if one.user == USERNAME}) == 1
    assert any(b"/delete/" in body for body in bodies.values())
    forbidden = re.compile(r"/(delete|logout|password_change)/")
    assert [one.path for one in log if forbidden.search(one.path)] == []
    # OAuth 2.0: one token came from another host than the API's.
    assert [one.status for one in site.tokens()] == [200]
    items = {site.item_url(n, "127.0.0.2") for n in range(1, site.articles + 1)}
    assert items | set(first) <= bodies.keys()
    assert len({one.bearer for one in log if one.path.startswith("/api/")}) == 1
    # OAuth 1.0a: each request has a signature of its own.
    assert {signed.url(signed.page(n)) for n in range(1, signed.pages + 1)} <= bodies.keys()
    assert {one.status for one in signed.asked} == {200}
    assert len({one.nonce for one in signed.asked}) == len(signed.asked)
    # Basic is sent at once, Digest after one challenge to each process.
    files = {f"/{n}.html" for n in range(1, archive.pages + 1)} | {"/"}
    for _, place in WAYS.values():
        assert {archive.url(place, path) for path in files} <= bodies.keys(), place
    assert {status for path, status, _ in archive.answers("basic") if path in files} == {200}
    for algorithm in ("MD5", "SHA-256"):
        used = Counter((one["nonce"], one["nc"]) for one in archive.digests(algorithm))
        assert set(used.values()) == {1}
        refused = [path for path, status, _ in archive.answers(algorithm) if status == 401]
        assert len(refused) <= 2 * PROCESSES, refused
    assert stored.dead == set()
    # No secret can be read anywhere; public texts can.
    assert leaks(secret, places) == []
    assert_searched(leaks([site.url("/")[7:-1]], places))


WAYS = {
    "plain": ("basic", "basic"),
    "digest_md5": ("digest", "MD5"),
    "digest_sha": ("digest", "SHA-256"),
}
"""Entry's name → (kind, folder in lighttpd)."""


def credentials(system: System, pairs: dict[str, tuple[str, str]]) -> Path:
    """Write the worker's credentials file as a person does, and replace it in one step."""
    path = Path(system.variables["DATA"]) / "credentials.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_text(
        "".join(
            f"[{name}]\nusername = {json.dumps(username)}\n"
            f"password = {json.dumps(password, ensure_ascii=False)}\n"
            for name, (username, password) in pairs.items()
        )
    )
    return new.rename(path)


def assert_searched(found: list[str]) -> None:
    """Check that the same search finds public texts everywhere."""
    text = "\n".join(found)
    for where in ("api /v1/crawls", "api /v1/pages", "export jsonl", "export warc", "redis gc:",
                  ".aof", "unpacked ", "table crawls", "table pages"):  # fmt: skip
        assert where in text, where


# -- sessions that end


def test_a_login_that_the_server_ended_is_renewed_once_and_no_login_page_is_stored(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    carried: list[dict[str, str]] = []

    def elsewhere(request: Request) -> Answer:
        carried.append(request.headers)
        return Answer(body=b"<title>Elsewhere</title>")

    places = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    club, own, admin = places
    with (
        SiteServer(elsewhere) as foreign,
        DjangoSite(
            tmp_path / "site", addresses=places, articles=60, foreign=foreign.url("/")
        ) as site,
        System(
            tmp_path / "host",
            [redis_server.url],
            processes=SOME,
            log_level="debug",
            secrets=secrets_of(site, "club", "own", "admin"),
        ) as system,
    ):
        system.start()
        members, begin = "/members/", "/admin/django_site/article/"
        crawl = partial(system.crawl, delay=0, slots=4)
        crawl([site.url(members, club)], "club", scope="any", auth=[members_entry(site)])
        crawl([site.url(members, own)], "own", scope="any", auth=[own_entry(site, own)])
        crawl([site.url(begin, admin)], "admin", scope="prefix", auth=[admin_entry(site, admin)])
        alive = set(places)

        def killed() -> bool:
            """Kill each host's session after some pages; return whether all have been killed."""
            pages = Counter(one.host.partition(":")[0] for one in site.log() if one.user)
            for address in [one for one in alive if pages[one] > 20]:
                assert site.kill_sessions(address) == 1
                alive.discard(address)
            return not alive

        wait_until(killed, 30, "pages of the first session of each host")
        for name in ("club", "own", "admin"):
            system.wait_done(60, name)
        log, secret = site.log(), site.secrets()
        found = [*told(system, "club", [site.url("/members/1")]), *in_redis(redis_server.url)]
        system.stop()
        for folder in (system.folder, redis_server.folder):
            found += in_files(folder)
    logins = [(one.host.partition(":")[0], one.status) for one in site.logins()]
    assert sorted(logins) == [(address, 302) for address in places for _ in range(2)]
    for name, address, paths in (
        ("club", club, ["/members/{}"]),
        ("own", own, ["/members/{}"]),
        ("admin", admin, [begin + "{}/change/", begin + "{}/history/"]),
    ):
        bodies = stored_bodies(system.folder / "data", name)
        for path in paths:
            assert articles(site, path, address) <= bodies.keys()
        assert login_pages(bodies) == []
        assert read_stored(system.folder / "data", name).dead == set()
    # Pages of a dead session were asked for again; the log shows that there were some.
    assert by_strangers(log, ("/members",)) != [] != by_strangers(log, ("/admin",))
    assert [one.path for one in log if "logout" in one.path or "delete" in one.path] == []
    assert len(carried) >= site.articles
    assert [one for one in carried if "cookie" in one or "authorization" in one] == []
    assert leaks(secret, found) == []


def test_an_expired_token_is_refreshed_once_while_a_hundred_pages_are_in_flight(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    hosts = [f"127.0.2.{n}" for n in range(1, 101)]
    with (
        DjangoSite(tmp_path / "site", articles=130, item_addresses=hosts) as site,
        System(
            tmp_path / "host",
            [redis_server.url],
            processes=SOME,
            log_level="debug",
            secrets={
                "auth_api_client_id": site.person_id,
                "auth_api_client_secret": site.person_secret,
            },
        ) as system,
    ):
        origins = [site.origin(), *map(site.origin, hosts)]
        entry = api_entry(site, origins, grant="code", authorize_url=site.url("/o/authorize/"))
        said = log_in_as_a_person(system, site, entry, tmp_path / "crawl.toml")
        assert [one.grant for one in site.tokens()] == ["authorization_code"]
        site.hold("/api/items/", 100, EXPIRE)
        system.start().crawl([], scope="any", delay=0, auth=[entry], sources=[source(site)])
        system.wait_done(60)
        log, secret = site.log(), site.secrets()
        places = [("greencrawl login", said), *told(system, "test", [site.item_url(1)])]
        places += in_redis(redis_server.url)
        system.stop()
        for folder in (system.folder, redis_server.folder):
            places += in_files(folder)
    assert site.held, "a hundred pages were in flight when the token expired"
    assert [one.status for one in log if one.held] == [401] * 100
    tokens = [(one.grant, one.status) for one in site.tokens()]
    assert tokens == [("authorization_code", 200), ("refresh_token", 200)]
    bodies = stored_bodies(system.folder / "data")
    assert {site.item_url(n) for n in range(1, site.articles + 1)} <= bodies.keys()
    assert read_stored(system.folder / "data").dead == set()
    assert len({one.bearer for one in log if one.status == 200 and one.bearer}) == 2
    assert leaks(secret, places) == []


def log_in_as_a_person(system: System, site: DjangoSite, entry: Entry, file: Path) -> bytes:
    """Run ``greencrawl login`` in a terminal and use the URL that it prints as a person would.

    Return all that it printed.
    """
    lines = [f'name = "test"\nseeds = ["{site.url("/")}"]\n[[auth]]\n']
    lines += [f"{name} = {json.dumps(value)}\n" for name, value in entry.items()]
    file.write_text("".join(lines))
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "greencrawl.cli", "login", str(entry["name"]), str(file)],
        cwd=ROOT,
        env={**environment(system), "BROWSER": "true"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    said = b""
    try:
        with gevent.Timeout(30):
            while (url := re.search(rb"http://\S+/o/authorize/\S+", said)) is None:
                line = process.stdout.readline()
                assert line, said
                said += line
            allow(site, url[0].decode())
            said += process.stdout.read()
        assert process.wait(10) == 0, said
    finally:
        process.kill()
        process.wait()
    return said


def allow(site: DjangoSite, url: str) -> None:
    """In a browser: log in, look at the question, say yes, and be redirected to the command."""
    browser = requests.Session()
    page = browser.get(url)
    assert "/accounts/login/" in page.url
    form = {"username": USERNAME, "password": site.password, **hidden(page.text)}
    page = browser.post(page.url, form)
    assert "/o/authorize/" in page.url
    page = browser.post(page.url, {**hidden(page.text), "allow": "Authorize"})
    assert page.status_code == 200, page.text


def hidden(page: str) -> dict[str, str]:
    """Return the hidden fields of a page's form."""
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page)
    return {name: unescape(value) for name, value in found}


# -- workers


@by_night
def test_two_workers_share_one_login_and_short_lived_tokens_through_the_frontier(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    key, life = secrets.token_urlsafe(32), 2
    addresses = ["127.0.0.1", "127.0.0.2"]
    with (
        DjangoSite(
            tmp_path / "site", addresses=addresses, articles=35, access_seconds=life
        ) as site,
        two_hosts(tmp_path, redis_server, site, key) as (first, second),
    ):
        api = api_entry(site, map(site.origin, addresses))
        first.crawl([], "api", delay=0.1, auth=[api], sources=[source(site, "127.0.0.2")])
        first.crawl([site.url("/members/")], delay=0, slots=4, auth=[members_entry(site)])
        first.wait_done(60)
        first.wait_done(60, "api")
        assert len(site.logins()) == 1
        # A host without files of its own goes on with the session that the frontier keeps.
        stop_worker(second)
        stop_worker(first)
        shutil.rmtree(second.folder / "data" / "logins", ignore_errors=True)
        second.start_worker()
        first.crawl([site.url("/members/")], "again", delay=0, auth=[members_entry(site)])
        first.wait_done(60, "again")
        assert len(site.logins()) == 1
        log, secret = site.log(), site.secrets() | {key}
        places = [*told(first, "test", [site.url("/members/1")]), *in_redis(redis_server.url)]
        second.stop()
        first.stop()
        for folder in (first.folder, second.folder, redis_server.folder):
            places += in_files(folder)
    assert by_strangers(log, ("/members",)) == []
    # A token is replaced when its time is over, not before, and for all hosts.
    asked = [one.time for one in log if one.path.startswith("/api/")]
    assert {one.status for one in site.tokens()} == {200}
    assert 2 <= len(site.tokens()) <= (max(asked) - min(asked)) / (0.8 * life) + 2
    items = {site.item_url(n, "127.0.0.2") for n in range(1, site.articles + 1)}
    assert items <= stored_bodies(first.folder / "data", "api").keys()
    assert read_stored(first.folder / "data", "api").dead == set()
    for name in ("test", "again"):
        bodies = stored_bodies(first.folder / "data", name)
        assert articles(site, "/members/{}") <= bodies.keys()
        assert login_pages(bodies) == []
    assert leaks(secret, places) == []


def stop_worker(system: System) -> None:
    """Stop the worker in order: afterwards nothing is leased."""
    assert system.worker is not None
    system.worker.terminate()
    assert system.worker.wait(30) == 0
    system.worker = None


@contextmanager
def two_hosts(
    folder: Path, redis_server: RedisServer, site: DjangoSite, key: str
) -> Iterator[tuple[System, System]]:
    """Start a broker, and two workers with two processes each that share Redis and the store."""
    secret = {
        **secrets_of(site, "club"),
        "auth_api_client_id": site.machine_id,
        "auth_api_client_secret": site.machine_secret,
        "session_key": key,
    }
    shared = f"sqlite:///{folder / 'first' / 'data' / 'content.sqlite'}"
    with System(
        folder / "first", [redis_server.url], processes=2, log_level="debug", secrets=secret,
        store=shared, worker_id="first",
    ) as first:  # fmt: skip
        first.start()
        with System(
            folder / "second", [redis_server.url], processes=2, log_level="debug", secrets=secret,
            store=shared, worker_id="second", broker=f"http://127.0.0.1:{first.port}",
        ) as second:  # fmt: skip
            second.start_worker()
            yield first, second


# -- the token file


@by_night
def test_the_file_of_a_login_is_always_whole_and_a_bad_one_is_named_and_replaced(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    hosts = {"whole": "127.0.0.1", "cut": "127.0.0.2", "shown": "127.0.0.3"}
    with (
        DjangoSite(tmp_path / "site", addresses=list(hosts.values()), articles=10) as site,
        System(
            tmp_path / "host",
            [redis_server.url],
            processes=SOME,
            log_level="debug",
            secrets=secrets_of(site, *hosts),
        ) as system,
    ):
        folder = system.folder / "data" / "logins"

        def crawl(name: str) -> dict[str, int]:
            """Crawl everything; return how often somebody logged in meanwhile, by entry."""
            before = len(site.logins())
            auth = [members_entry(site, entry, address) for entry, address in hosts.items()]
            seeds = [site.url("/members/", address) for address in hosts.values()]
            system.crawl(seeds, name, delay=0, slots=4, auth=auth)
            system.wait_done(60, name)
            bodies = stored_bodies(system.folder / "data", name)
            for address in hosts.values():
                assert articles(site, "/members/{}", address) <= bodies.keys()
            assert login_pages(bodies) == []
            made = Counter(one.host.partition(":")[0] for one in site.logins()[before:])
            return {entry: made[address] for entry, address in hosts.items()}

        with watched(folder) as seen:
            system.start()
            assert crawl("first") == {"whole": 1, "cut": 1, "shown": 1}
            site.kill_sessions()
            # They are written again while they are read.
            assert crawl("second") == {"whole": 1, "cut": 1, "shown": 1}
        assert seen.problems == []
        assert seen.looks > 10
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700

        # New processes know only what they find.
        stop_worker(system)
        files = {entry: next(folder.glob(f"{entry}-*.json")) for entry in hosts}
        content = files["cut"].read_bytes()
        files["cut"].write_bytes(content[: len(content) // 2])
        files["shown"].chmod(0o644)
        logged = (system.folder / "worker.log").stat().st_size
        system.start_worker()
        assert crawl("third") == {"whole": 0, "cut": 1, "shown": 1}
        said = (system.folder / "worker.log").read_bytes()[logged:].decode()
        for entry, file in files.items():
            assert (f"logins/{file.name}" in said) == (entry != "whole")
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            json.loads(file.read_bytes())
        system.stop()
        places = [*in_redis(redis_server.url)]
        for one in (system.folder, redis_server.folder):
            places += in_files(one)
    assert leaks(site.secrets(), places) == []


class Watch:
    """The results of many looks at a folder."""

    def __init__(self) -> None:
        self.looks = 0
        self.problems: list[str] = []


@contextmanager
def watched(folder: Path) -> Iterator[Watch]:
    """Read every login in ``folder`` all the time; each must be whole JSON that only its owner may
    read."""
    seen, over = Watch(), threading.Event()

    def look() -> None:
        while not over.is_set():
            for path in folder.glob("*.json"):
                seen.looks += 1
                mode = stat.S_IMODE(path.stat().st_mode)
                if mode != 0o600:
                    seen.problems.append(f"{path.name} has mode {mode:o}")
                try:
                    json.loads(path.read_bytes())
                except ValueError as error:
                    seen.problems.append(f"{path.name}: {error}")
            gevent.sleep(0.005)

    watcher = gevent.spawn(look)
    try:
        yield seen
    finally:
        over.set()
        watcher.get(timeout=10)


# -- a site that refuses the login


def test_a_refused_password_blocks_the_host_after_one_try_and_a_corrected_one_logs_in(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    wrong = f"wrong-{secrets.token_urlsafe(9)}"
    with (
        DjangoSite(tmp_path / "site", articles=20) as site,
        System(
            tmp_path / "host",
            [redis_server.url],
            processes=SOME,
            log_level="debug",
            auth_club_hosts="*",
        ) as system,
    ):
        credentials(system, {"club": (USERNAME, wrong)})
        url = site.url("/members/")
        host = url.split("/")[2]
        system.start().crawl([url], delay=0, slots=4, auth=[members_entry(site)])
        wait_until(site.logins, 30, "a login was tried")
        wait_until(
            lambda: system.call("GET", f"/v1/hosts/{host}")["blocked_in"] > 3000, 10, "blocked"
        )
        gevent.sleep(2)  # nobody tries again
        assert len(site.logins()) == 1
        assert by_strangers(site.log(), ("/members",)) == []
        why = str(system.call("GET", f"/v1/urls?url={url}"))
        assert "login" in why
        assert "Name or password is wrong" in why  # the site's own words
        places = [*told(system, "test", [url]), *in_redis(redis_server.url)]

        credentials(system, {"club": (USERNAME, site.password)})
        system.call("PATCH", f"/v1/hosts/{host}", {"block": 0})
        system.wait_done(60)
        secret = site.secrets() | {wrong}
        places += [*told(system, "test", [url]), *in_redis(redis_server.url)]
        system.stop()
        for folder in (system.folder, redis_server.folder):
            places += in_files(folder)
    assert [one.status for one in site.logins()] == [200, 302]
    bodies = stored_bodies(system.folder / "data")
    assert articles(site, "/members/{}") | {url} <= bodies.keys()
    assert login_pages(bodies) == []
    assert leaks(secret, places) == []
