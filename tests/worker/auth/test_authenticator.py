"""When the authenticator logs in and for whom, on a vault of dictionaries and a site that
counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import gevent
import pytest
from gevent.event import Event

from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.errors import InvalidConfig, Unavailable
from greencrawl.schema.records import (
    Crawl,
    CrawlOptions,
    Failure,
    FailureKind,
    Fetched,
    Session,
    auth,
)
from greencrawl.worker.auth import account, logins
from greencrawl.worker.auth.authenticator import Authenticator
from greencrawl.worker.auth.base import Grant, LoginFailed, LoginRefused, Verdict
from greencrawl.worker.auth.kinds.basic import Basic
from greencrawl.worker.auth.logins import LoginParts
from greencrawl.worker.crawls import context_of
from greencrawl.worker.session.backoff import AWAY_PATIENCE_SECONDS, AWAY_REST_SECONDS
from greencrawl.worker.session.fetcher import Visit, VisitOver
from greencrawl.worker.session.held import HeldSession

ENTRY = auth.Form(name="shop", hosts=("http://shop.test",), login_url="http://shop.test/login")
PAGE = "http://shop.test/p"


class Claim:
    def __init__(self, vault: Vault, count: int) -> None:
        self.vault, self.count = vault, count

    def renew(self) -> bool:
        self.vault.answer()
        return self.vault.holder is self

    def put(self, grant: Grant) -> bool:
        self.vault.answer()
        if self.vault.holder is not self:
            return False
        self.vault.kept = grant
        self.vault.claims = 0
        return True

    def __enter__(self) -> Claim:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.vault.holder is self:
            self.vault.holder = None


class Vault:
    """One name's vault, like ``greencrawl.worker.auth.state.vault.Vault``."""

    def __init__(self) -> None:
        self.kept: Grant | None = None
        self.holder: Claim | None = None
        self.claims = 0
        self.away = False

    def answer(self) -> None:
        gevent.sleep(0)
        if self.away:
            raise Unavailable("its Redis node is away")

    def read(self, name: str) -> Grant | None:
        self.answer()
        return self.kept

    def claim(self, name: str) -> Claim | None:
        self.answer()
        if self.holder is not None:
            return None
        self.claims += 1
        self.holder = Claim(self, self.claims)
        return self.holder

    def resume(self) -> None:
        raise AssertionError("this vault outlives no process")


@dataclass
class Secrets:
    values: dict[str, str] = field(default_factory=lambda: {"username": "ann", "password": "1"})

    def of(self, entry: auth.Auth) -> Mapping[str, str]:
        if not self.values:
            raise InvalidConfig([("GREENCRAWL_AUTH_SHOP_PASSWORD", "is not set")])
        return self.values

    def digest(self, entry: auth.Auth) -> str:
        return str(sorted(self.values.items()))


class Site:
    """A site with one login; it accepts ``token``.

    It answers a page with ``in`` if it accepts the token that was sent, otherwise with the login
    page.
    """

    def __init__(self) -> None:
        self.token = "none"
        self.logins: list[str] = []
        self.pages: list[tuple[str, str]] = []
        self.closed: set[str] = set()
        self.sent: dict[str, str] = {}
        self.packs: list[bool] = []
        self.during_login: Callable[[], None] = lambda: None
        self.slow: dict[str, Event] = {}
        self.seconds: int | None = None

    def fetch(
        self, url: str, headers: Mapping[str, str], *, pack: bool, **_: Any
    ) -> Fetched | Failure:
        self.packs.append(pack)
        gevent.sleep(0.001)
        token = headers.get("x-token", "")
        self.sent = dict(headers)
        self.pages.append((url, token))
        if url in self.slow:
            self.slow.pop(url).wait()
        inside = token == self.token and url not in self.closed
        return Fetched(url, 200, {}, b"inside" if inside else b"please log in")

    def log_in(self, account: str) -> str:
        self.logins.append(account)
        gevent.sleep(0.01)
        self.during_login()
        self.token = f"t{len(self.logins)}"
        return self.token


class TokenKind:
    logs_in = True

    def __init__(self, site: Site, entry: auth.Auth, secrets: Mapping[str, str]) -> None:
        self.site, self.entry = site, entry
        self.account = secrets["username"]
        self.password = secrets["password"]
        self.renewed: list[Grant | None] = []

    def log_in(self, session: Any, old: Grant | None) -> Grant:
        if self.password == "wrong":
            self.site.logins.append(self.account)
            raise LoginRefused("the site says: no such password")
        made = Grant(account="", generation=0, made_ms=0)
        made.headers["x-token"] = self.site.log_in(f"{self.account} {old and old.generation}")
        if self.site.seconds is not None:
            made.expires_ms = epoch_ms() + self.site.seconds * 1000
        return made

    def prove(
        self, url: str, headers: Mapping[str, str], grant: Grant | None
    ) -> tuple[str, dict[str, str]]:
        return url, {**headers, **(grant.headers if grant else {})}

    def judge(self, fetched: Fetched, grant: Grant | None) -> Verdict:
        return "in" if fetched.body == b"inside" else "out"


class Errands:
    def __init__(self) -> None:
        self.served = 0
        self.answer: Fetched | Failure = Fetched("", 200, {}, b"")

    def send(self, visit: Visit, *request: Any) -> Fetched | Failure:
        return self.answer

    def serve(self, visit: Visit) -> int:
        self.served += 1
        return 0


class World:
    def __init__(self) -> None:
        self.vault, self.secrets = Vault(), Secrets()
        self.site, self.errands = Site(), Errands()
        self.stopping = Event()
        self.now = 1000.0
        self.kind: Callable[..., Any] = TokenKind

    def authenticator(self) -> Authenticator:
        return Authenticator(
            lambda: LoginParts(self.vault, self.errands),
            self.secrets,
            make=lambda entry, secrets: self.kind(self.site, entry, secrets),
            stopping=self.stopping,
            clock=lambda: self.now,
        )

    def visit(self, host: str = "shop.test") -> Visit:
        options = CrawlOptions(delay=0.0, auth=(ENTRY,))
        crawl = Crawl(id=1, name="t", state="active", options=options, roots=(host,))
        session = Session(
            session=f"1/{host}", token="00000000000000aa", crawl=1, revision=1, host=host, ttl=60,
            delay=0.0, floor=0.0, robots_known=True, tasks=(),
        )  # fmt: skip
        return Visit(HeldSession(session, 1e12), context_of(crawl), self.site, self.stopping)


def get(
    authenticator: Authenticator, visit: Visit, url: str, headers: Mapping[str, str]
) -> Fetched | Failure:
    return authenticator.get(
        visit, url, headers, lambda kind, answer, grant: kind.judge(answer, grant)
    )


@pytest.fixture
def world() -> World:
    return World()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    with gevent.Timeout(seconds):
        yield


def test_credentials_are_sent_with_pages_of_the_entry_and_to_no_other_origin(world: World) -> None:
    authenticator = world.authenticator()
    answer = get(authenticator, world.visit(), PAGE, {"a": "b"})
    assert isinstance(answer, Fetched)
    assert answer.body == b"inside"
    assert world.site.sent == {"a": "b", "x-token": "t1"}
    for url in ("https://shop.test/p", "http://shop.test:81/p", "http://www.shop.test/p"):
        get(authenticator, world.visit(), url, {"a": "b"})
        assert world.site.sent == {"a": "b"}


def test_an_answer_may_stay_packed_only_if_no_credentials_were_sent(world: World) -> None:
    authenticator, visit = world.authenticator(), world.visit()
    visit.least_cap = 10**7
    get(authenticator, visit, PAGE, {})
    get(authenticator, visit, "https://shop.test/p", {})
    visit.least_cap = 0
    get(authenticator, visit, "https://shop.test/p", {})
    assert world.site.packs == [False, True, False]


def test_many_pages_of_several_processes_wait_for_one_login(world: World) -> None:
    keepers = [world.authenticator() for _ in range(4)]
    with within(10):
        flying = [
            gevent.spawn(get, authenticator, world.visit(), f"{PAGE}{i}", {})
            for authenticator in keepers
            for i in range(25)
        ]
        answers = [page.get() for page in flying]
    assert world.site.logins == ["ann None"]
    assert [answer.body for answer in answers] == [b"inside"] * 100
    assert world.errands.served > 0, "who waits sends what others need of the host"


def test_a_lost_login_is_renewed_once_for_many_pages_and_no_login_page_is_returned(
    world: World,
) -> None:
    keepers = [world.authenticator() for _ in range(3)]
    for authenticator in keepers:
        get(authenticator, world.visit(), PAGE, {})
    world.site.token = "killed"
    with within(10):
        flying = [
            gevent.spawn(get, authenticator, world.visit(), f"{PAGE}{i}", {})
            for authenticator in keepers
            for i in range(20)
        ]
        answers = [page.get() for page in flying]
    assert world.site.logins == ["ann None", "ann 1"]
    assert [answer.body for answer in answers] == [b"inside"] * 60


def test_other_pages_wait_for_a_new_login_after_one_page_showed_that_the_old_is_void(
    world: World,
) -> None:
    authenticator = world.authenticator()
    get(authenticator, world.visit(), PAGE, {})
    world.site.token = "killed"
    flying: list[gevent.Greenlet[..., Any]] = []

    def meanwhile() -> None:
        world.site.during_login = lambda: None
        flying.append(gevent.spawn(get, authenticator, world.visit(), f"{PAGE}2", {}))
        gevent.sleep(0.05)

    world.site.during_login = meanwhile
    with within(10):
        get(authenticator, world.visit(), f"{PAGE}1", {})
        assert flying[0].get().body == b"inside"
    assert [token for url, token in world.site.pages if url == f"{PAGE}2"] == ["t2"]


def test_a_late_answer_to_an_older_login_does_not_make_a_void_login_valid(world: World) -> None:
    authenticator, answered = world.authenticator(), Event()
    get(authenticator, world.visit(), PAGE, {})
    world.site.slow = {f"{PAGE}late": answered}
    flying = [gevent.spawn(get, authenticator, world.visit(), f"{PAGE}late", {})]
    gevent.idle()
    world.site.token = "killed"
    get(authenticator, world.visit(), f"{PAGE}1", {})
    world.site.token = "killed again"

    def meanwhile() -> None:
        world.site.during_login = lambda: None
        answered.set()
        gevent.sleep(0.01)
        flying.append(gevent.spawn(get, authenticator, world.visit(), f"{PAGE}2", {}))
        gevent.sleep(0.01)

    world.site.during_login = meanwhile
    with within(10):
        get(authenticator, world.visit(), f"{PAGE}3", {})
        assert [page.get().body for page in flying] == [b"inside"] * 2
    asked = [(url.removeprefix(PAGE), token) for url, token in world.site.pages]
    assert [token for url, token in asked if url == "late"] == ["t1", "t3"]
    assert [token for url, token in asked if url == "2"] == ["t3"], "t2 was known to be void"


def test_the_keeper_stops_logging_in_to_a_site_that_ends_each_login_after_a_page(
    world: World,
) -> None:
    authenticator = world.authenticator()
    answers = []
    for i in range(100):
        answers.append(get(authenticator, world.visit(), f"{PAGE}{i}", {}))
        world.site.token = "ended"
    assert 1 < len(world.site.logins) <= account.SHORT_LIVES + 1
    kinds = {answer.kind for answer in answers if isinstance(answer, Failure)}
    assert kinds == {FailureKind.LOGGED_OUT}
    assert not any(isinstance(one, Fetched) and one.body != b"inside" for one in answers)


def test_the_keeper_logs_in_once_after_the_vault_lost_its_grant(world: World) -> None:
    authenticator = world.authenticator()
    get(authenticator, world.visit(), PAGE, {})
    world.site.token, world.vault.kept = "killed", None
    for i in range(5):
        assert isinstance(get(authenticator, world.visit(), f"{PAGE}{i}", {}), Fetched)
    assert len(world.site.logins) == 2


def test_a_page_fails_alone_if_it_asks_for_a_login_even_after_a_new_login(world: World) -> None:
    authenticator = world.authenticator()
    world.site.closed = {f"{PAGE}{i}" for i in range(100)}
    failure = get(authenticator, world.visit(), f"{PAGE}0", {})
    assert isinstance(failure, Failure)
    assert failure.kind == FailureKind.LOGGED_OUT
    assert len(world.site.logins) == 2
    for i in range(1, 100):
        failure = get(authenticator, world.visit(), f"{PAGE}{i}", {})
        assert isinstance(failure, Failure)
        assert isinstance(get(authenticator, world.visit(), PAGE, {}), Fetched)
    assert len(world.site.logins) == 2, "they do not make it log in again and again"
    world.now += account.PATIENCE_SECONDS
    get(authenticator, world.visit(), f"{PAGE}1", {})
    assert len(world.site.logins) == 3
    world.now += account.PATIENCE_SECONDS
    get(authenticator, world.visit(), f"{PAGE}1", {})
    assert len(world.site.logins) == 3, "the wait doubles"


def test_the_keeper_logs_in_again_if_many_pages_in_a_row_ask_for_a_login(world: World) -> None:
    authenticator = world.authenticator()
    world.site.closed = {f"{PAGE}0"}
    for _ in range(8):  # by now it waits long for a single page
        get(authenticator, world.visit(), f"{PAGE}0", {})
        world.now += account.PATIENCE_MOST_SECONDS
    get(authenticator, world.visit(), f"{PAGE}0", {})
    world.now += account.PATIENCE_SECONDS * 10
    assert isinstance(get(authenticator, world.visit(), PAGE, {}), Fetched)
    made = len(world.site.logins)
    world.site.token = "killed"
    answers = [
        get(authenticator, world.visit(), f"{PAGE}{i}", {})
        for i in range(1, account.OUTS_IN_A_ROW + 1)
    ]
    assert [isinstance(answer, Failure) for answer in answers[:-1]] == [True] * (len(answers) - 1)
    assert isinstance(answers[-1], Fetched)
    assert len(world.site.logins) == made + 1


def test_a_refused_login_blocks_all_workers_until_the_secrets_change(world: World) -> None:
    world.secrets.values["password"] = "wrong"
    keepers = [world.authenticator() for _ in range(2)]
    with within(10):
        flying = [
            gevent.spawn(get, authenticator, world.visit(), PAGE, {})
            for authenticator in keepers
            for _ in range(9)
        ]
        failures = [page.get() for page in flying]
    assert len(world.site.logins) == 1
    assert {(failure.kind, failure.requests) for failure in failures} == {(FailureKind.LOGIN, 0)}
    assert all("no such password" in failure.detail for failure in failures)
    assert all(3590 < failure.retry_after <= 3600 for failure in failures)
    assert not world.site.pages
    world.secrets.values["password"] = "right"
    assert isinstance(get(keepers[0], world.visit(), PAGE, {}), Fetched)


def test_each_refusal_in_a_row_waits_twice_as_long(world: World) -> None:
    world.secrets.values["password"] = "wrong"
    waits = []
    for _ in range(7):
        failure = get(world.authenticator(), world.visit(), PAGE, {})
        assert isinstance(failure, Failure)
        waits.append(failure.retry_after)
        assert world.vault.kept is not None
        world.vault.kept.until_ms = epoch_ms() - 1
    assert waits == [3600, 7200, 14400, 28800, 57600, 86400, 86400]


def test_missing_secrets_are_a_failure_that_is_not_shared_with_other_machines(world: World) -> None:
    world.secrets.values.clear()
    failure = get(world.authenticator(), world.visit(), PAGE, {})
    assert isinstance(failure, Failure)
    assert failure.kind == FailureKind.LOGIN
    assert "GREENCRAWL_AUTH_SHOP_PASSWORD" in failure.detail
    assert world.vault.kept is None


class PlainKind(TokenKind):
    """A kind that needs only the secrets."""

    logs_in = False

    def prove(
        self, url: str, headers: Mapping[str, str], grant: Grant | None
    ) -> tuple[str, dict[str, str]]:
        return url, {**headers, "x-token": self.password}


def test_a_host_that_accepts_the_secrets_for_no_page_is_blocked(world: World) -> None:
    world.kind = PlainKind
    authenticator = world.authenticator()
    answers = [
        get(authenticator, world.visit(), f"{PAGE}{i}", {}) for i in range(account.REJECTIONS)
    ]
    assert [isinstance(answer, Fetched) for answer in answers[:-1]] == [True] * (len(answers) - 1)
    blocked = answers[-1]
    assert isinstance(blocked, Failure)
    assert (blocked.kind, blocked.retry_after) == (FailureKind.LOGIN, account.REFUSED_SECONDS)
    assert "http://shop.test accepts none of it" in blocked.detail


def test_a_page_that_refuses_secrets_that_others_accept_is_returned_unchanged(world: World) -> None:
    world.kind = PlainKind
    world.site.token = world.secrets.values["password"]
    world.site.closed = {f"{PAGE}{i}" for i in range(9)}
    authenticator = world.authenticator()
    assert isinstance(get(authenticator, world.visit(), PAGE, {}), Fetched)
    answers = [get(authenticator, world.visit(), f"{PAGE}{i}", {}) for i in range(9)]
    assert all(isinstance(answer, Fetched) for answer in answers)


class AwayKind(TokenKind):
    """Its login asks ``url``, and fails if that fails."""

    url = "http://shop.test/login"

    def log_in(self, session: Any, old: Grant | None) -> Grant:
        session.get(self.url)
        raise AssertionError("the request was to fail")


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("http://shop.test/login", FailureKind.UNAVAILABLE),
        ("http://id.test/login", FailureKind.LOGIN),
    ],
)
def test_a_failure_of_a_login_counts_for_the_host_that_failed(
    world: World, url: str, kind: FailureKind
) -> None:
    away = Failure(FailureKind.UNAVAILABLE, "HTTP 503", 503, 7.0)
    world.site.fetch = lambda *_, **__: away  # type: ignore[method-assign]
    world.errands.answer = away
    world.kind = type("Away", (AwayKind,), {"url": url})
    failure = get(world.authenticator(), world.visit(), PAGE, {})
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.retry_after) == (kind, 7.0)
    assert "login of auth shop" in failure.detail
    assert world.vault.kept is None
    assert world.vault.holder is None


@pytest.mark.parametrize("kind", [FailureKind.SERVER_ERROR, FailureKind.TIMEOUT])
def test_a_page_is_not_blamed_if_the_login_page_fails(world: World, kind: FailureKind) -> None:
    failed = Failure(kind, "x", 500)
    world.site.fetch = lambda *_, **__: failed  # type: ignore[method-assign]
    world.kind = AwayKind
    failure = get(world.authenticator(), world.visit(), PAGE, {})
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.requests) == (FailureKind.LOGIN, 0)
    assert str(kind) in failure.detail


def test_a_refusal_that_ends_years_ahead_is_ignored(world: World) -> None:
    world.secrets.values["password"] = "wrong"
    get(world.authenticator(), world.visit(), PAGE, {})
    assert world.vault.kept is not None
    world.vault.kept.until_ms += 365 * 86_400_000
    get(world.authenticator(), world.visit(), PAGE, {})
    assert len(world.site.logins) == 2


def test_an_unexpected_error_in_a_login_blocks_the_host(world: World) -> None:
    class Broken(TokenKind):
        def log_in(self, session: Any, old: Grant | None) -> Grant:
            self.site.logins.append("")
            raise KeyError("s3cret")

    world.kind = Broken
    failures = [get(world.authenticator(), world.visit(), f"{PAGE}{i}", {}) for i in range(3)]
    assert all(isinstance(f, Failure) and f.kind == FailureKind.LOGIN for f in failures)
    assert "s3cret" not in str(failures)
    assert len(world.site.logins) == 1


def test_the_password_of_an_origin_is_removed_from_an_answer_that_repeats_it(world: World) -> None:
    authenticator = Authenticator(
        lambda: LoginParts(world.vault, world.errands),
        world.secrets,
        Basic({"https://else.test": ("ann", "s3cret")}),
        make=lambda entry, secrets: world.kind(world.site, entry, secrets),
        stopping=world.stopping,
    )
    echo = world.site.fetch

    def fetch(url: str, headers: Mapping[str, str], **more: Any) -> Fetched | Failure:
        answer = echo(url, headers, **more)
        assert isinstance(answer, Fetched)
        answer.headers.update({f"x-{name}": value for name, value in headers.items()})
        return answer

    world.site.fetch = fetch  # type: ignore[method-assign]
    answer = get(authenticator, world.visit(), "https://else.test/", {"user-agent": "greencrawl"})
    assert isinstance(answer, Fetched)
    assert "authorization" in {name.lower() for name in world.site.sent}
    assert answer.headers == {"x-user-agent": "greencrawl"}


def test_an_error_of_requests_in_a_login_is_a_refusal_that_shows_no_url(world: World) -> None:
    class Astray(TokenKind):
        def log_in(self, session: Any, old: Grant | None) -> Grant:
            session.get("gopher://shop.test/?password=sesame")
            raise AssertionError("not reached")

    world.kind = Astray
    failure = get(world.authenticator(), world.visit(), PAGE, {})
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.retry_after) == (FailureKind.LOGIN, account.REFUSED_SECONDS)
    assert failure.detail == "auth shop: the login: InvalidSchema"


def test_no_page_is_requested_if_the_host_failed_while_its_session_waited(world: World) -> None:
    visit = world.visit()
    authenticator = world.authenticator()
    assert world.vault.claim("another's") is not None

    def serve(visit: Visit) -> int:
        visit.fail("rate_limited", 90.0)
        world.vault.holder = None
        return 1

    world.errands.serve = serve  # type: ignore[method-assign]
    with within(10), pytest.raises(VisitOver):
        get(authenticator, visit, PAGE, {})
    assert world.site.pages == []
    assert visit.report().block == 90


def test_a_login_whose_claim_was_lost_puts_nothing(world: World) -> None:
    def lose() -> None:
        world.vault.holder = Claim(world.vault, 1)

    world.site.during_login = lose
    failure = get(world.authenticator(), world.visit(), PAGE, {})
    assert isinstance(failure, Failure)
    assert failure.kind == FailureKind.LOGIN
    assert world.vault.kept is None


def test_a_login_that_kills_its_process_every_time_is_given_up(world: World) -> None:
    world.vault.claims = logins.DEATHS
    failure = get(world.authenticator(), world.visit(), PAGE, {})
    assert isinstance(failure, Failure)
    assert "died" in failure.detail
    assert not world.site.logins


def test_a_grant_is_renewed_before_it_expires_and_from_the_old_one(world: World) -> None:
    world.site.seconds = 1000
    authenticator = world.authenticator()
    get(authenticator, world.visit(), PAGE, {})
    assert world.vault.kept is not None
    world.vault.kept.made_ms -= 950_000  # a twentieth of its 1000 s is left
    world.vault.kept.expires_ms -= 950_000
    get(authenticator, world.visit(), PAGE, {})
    assert world.site.logins == ["ann None", "ann 1"]


def test_a_grant_with_more_than_a_minute_left_is_not_renewed_however_long_it_was_good(
    world: World,
) -> None:
    world.site.seconds = 1000
    authenticator = world.authenticator()
    get(authenticator, world.visit(), PAGE, {})
    assert world.vault.kept is not None
    world.vault.kept.made_ms -= 930_000  # 70 s are left, less than a tenth of its life
    world.vault.kept.expires_ms -= 930_000
    get(authenticator, world.visit(), PAGE, {})
    assert world.site.logins == ["ann None"]


def test_a_login_of_another_account_starts_without_the_old_grant(world: World) -> None:
    get(world.authenticator(), world.visit(), PAGE, {})
    world.secrets.values["username"] = "bob"
    get(world.authenticator(), world.visit(), PAGE, {})
    assert world.site.logins == ["ann None", "bob None"]


def test_a_login_keeps_its_learnt_state_until_the_secrets_change(
    world: World,
) -> None:
    made: list[TokenKind] = []

    class Noted(TokenKind):
        def log_in(self, session: Any, old: Grant | None) -> Grant:
            made.append(self)
            return super().log_in(session, old)

    world.kind = Noted
    authenticator = world.authenticator()
    for password in ("1", "1", "2"):
        world.secrets.values["password"] = password
        world.site.token = "killed"
        assert isinstance(get(authenticator, world.visit(), PAGE, {}), Fetched)
    assert [kind.password for kind in made] == ["1", "1", "2"]
    assert made[0] is made[1]


def test_sessions_give_up_their_places_if_the_vault_stays_away(world: World) -> None:
    authenticator, visits = world.authenticator(), [world.visit() for _ in range(10)]
    world.vault.away = True
    waiting = [gevent.spawn(get, authenticator, visit, PAGE, {}) for visit in visits]
    gevent.sleep(0.2)
    assert not any(one.ready() for one in waiting), "it may be back soon"
    world.now += AWAY_PATIENCE_SECONDS
    with within(5):
        gevent.joinall(waiting)
    assert all(isinstance(one.exception, VisitOver) for one in waiting)
    assert {(v.report().failed, v.report().block) for v in visits} == {("", AWAY_REST_SECONDS)}
    assert (world.site.logins, world.site.pages) == ([], [])
    world.vault.away = False
    assert isinstance(get(authenticator, world.visit(), PAGE, {}), Fetched)


def test_pages_wait_for_a_vault_that_is_away_only_for_a_moment(world: World) -> None:
    authenticator = world.authenticator()
    world.vault.away = True
    waiting = gevent.spawn(get, authenticator, world.visit(), PAGE, {})
    gevent.sleep(0.1)
    world.vault.away = False
    with within(5):
        assert isinstance(waiting.get(), Fetched)
    world.now += 1000
    world.vault.kept, world.site.token = None, "killed"
    world.vault.away = True
    waiting = gevent.spawn(get, authenticator, world.visit(), PAGE, {})
    gevent.sleep(0.1)
    assert not waiting.ready(), "an outage long ago counts for nothing"
    world.vault.away = False
    with within(5):
        assert isinstance(waiting.get(), Fetched)


@pytest.mark.parametrize("ended", ["put off", "stopped"])
def test_an_earlier_outage_of_the_vault_does_not_shorten_the_wait_in_a_later_one(
    world: World, ended: str
) -> None:
    authenticator, visit = world.authenticator(), world.visit()
    world.vault.away = True
    waiting = gevent.spawn(get, authenticator, visit, PAGE, {})
    gevent.sleep(0.1)
    if ended == "put off":
        world.now += AWAY_PATIENCE_SECONDS
    else:
        visit.held.ended = "its lease is over"
    with within(5), pytest.raises(VisitOver):
        waiting.get()
    world.now += AWAY_REST_SECONDS  # the same outage: its patience does not start again
    with within(5), pytest.raises(VisitOver):
        get(authenticator, world.visit(), PAGE, {})
    world.now += 3600
    waiting = gevent.spawn(get, authenticator, world.visit(), PAGE, {})
    gevent.sleep(0.1)
    assert not waiting.ready()
    world.vault.away = False
    with within(5):
        assert isinstance(waiting.get(), Fetched)


def test_a_process_uses_its_login_even_if_the_vault_cannot_keep_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logins, "AWAY_PATIENCE_SECONDS", 0.2)
    authenticator = world.authenticator()

    def leave() -> None:
        world.vault.away = True

    world.site.during_login = leave
    with within(5):
        for _ in range(3):
            answer = get(authenticator, world.visit(), PAGE, {})
            assert isinstance(answer, Fetched)
            assert answer.body == b"inside"
    assert world.site.logins == ["ann None"]


def test_a_page_stops_waiting_for_a_login_when_its_session_ends(world: World) -> None:
    world.vault.holder = Claim(world.vault, 1)
    visit = world.visit()
    waiting = gevent.spawn(get, world.authenticator(), visit, PAGE, {})
    gevent.sleep(0.1)
    assert not waiting.ready()
    visit.held.ended = "stop"
    with within(5), pytest.raises(VisitOver):
        waiting.get()


def test_no_request_is_sent_under_a_claim_that_was_lost(world: World) -> None:
    class Slow(AwayKind):
        def log_in(self, session: Any, old: Grant | None) -> Grant:
            world.vault.holder = None
            with pytest.raises(LoginFailed):
                session.get(self.url)
            raise LoginRefused("not this way")

    world.kind = Slow
    get(world.authenticator(), world.visit(), PAGE, {})
    assert not world.site.pages
