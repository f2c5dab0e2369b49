"""Logins by a form: the page at ``login_url`` is read, its form filled in and sent.

The name and the password are sent only to an origin that the entry names, or to that of
``login_url``. This also holds for redirects that repeat the request. No form except the login form
is ever sent.
"""

from __future__ import annotations

from collections.abc import Mapping

import requests

from greencrawl.schema.errors import InvalidUrl
from greencrawl.schema.net.origins import Origins, is_root
from greencrawl.schema.net.urls import canonicalise, origin_of
from greencrawl.schema.records import Failure, FailureKind, Fetched
from greencrawl.schema.records.auth import Form
from greencrawl.schema.text.patterns import Pattern
from greencrawl.worker.auth.base import Grant, LoginFailed, LoginRefused, Verdict
from greencrawl.worker.auth.cookies import CookieStore, Signs, collected
from greencrawl.worker.auth.kinds import form_page
from greencrawl.worker.auth.kinds.form_page import Known
from greencrawl.worker.auth.kinds.form_page.complaint import complaint, shortened
from greencrawl.worker.auth.kinds.form_page.document import Document
from greencrawl.worker.auth.kinds.form_page.filling import filled
from greencrawl.worker.auth.kinds.form_page.login_form import LoginForm, field_names, login_form
from greencrawl.worker.auth.transport import refusals
from greencrawl.worker.extract.hostile import TooExpensive
from greencrawl.worker.extract.media import is_html
from greencrawl.worker.retry import REDIRECTS, classify

_REDIRECTS = 10
_FINAL = frozenset({FailureKind.GONE, FailureKind.FORBIDDEN, FailureKind.CLIENT_ERROR})


class FormKind:
    """A login by a form, and the signs of a logout.

    Secrets: username, password. Raises ValueError for an entry that
    ``greencrawl.schema.net.scope.check_options`` would have refused.
    """

    logs_in = True

    def __init__(self, entry: Form, secrets: Mapping[str, str]) -> None:
        self.entry = entry
        self.account = secrets["username"]
        self._password = secrets["password"]
        self._origins = Origins(entry.hosts)
        self._login_url = canonicalise(entry.login_url)
        self._login_origin = f"{origin_of(self._login_url)}/"
        self._logged_in = Pattern(entry.logged_in) if entry.logged_in else None
        self._logged_out = Pattern(entry.logged_out) if entry.logged_out else None
        self._cookie_store = CookieStore(self._origins)
        self._signs = Signs()

    def __repr__(self) -> str:
        return f"FormKind({self.entry.name})"

    # -- with a grant

    def prove(
        self, url: str, headers: Mapping[str, str], grant: Grant | None
    ) -> tuple[str, dict[str, str]]:
        """Add the cookies to the request."""
        return url, self._cookie_store.prove(url, headers, grant)

    def judge(self, fetched: Fetched, grant: Grant | None) -> Verdict:
        """Return "out" if the answer shows a logout.

        The signs are: a 401; a redirect or refresh to the login page; its form; ``logged_out``
        matches; ``logged_in`` does not; or the answer deletes a cookie that the login set.
        """
        lost = self._cookie_store.lost(fetched, grant)
        return "out" if self._out(fetched, grant, _known(grant)) or lost else "in"

    def _out(self, fetched: Fetched, grant: Grant | None, known: Known) -> bool:
        if fetched.status == 401:
            return True
        if fetched.status in REDIRECTS:
            return self._leads_to_login(fetched, grant)
        if not 200 <= fetched.status < 300 and fetched.status != 403:
            return False
        if self._logged_in is not None or self._logged_out is not None:
            said = self._said(fetched)
            if said is not None:
                return said
        return form_page.asks_for_login(fetched, self._login_url, known)

    def _leads_to_login(self, fetched: Fetched, grant: Grant | None) -> bool:
        if not form_page.redirects_to(fetched, self._login_url):
            return False
        if not is_root(self._login_url) or "?" in fetched.location or grant is None:
            return True
        # If the login is on the start page, other redirects may lead there, too.
        return self._signs.hold("start page", fetched.url, grant)

    def _said(self, fetched: Fetched) -> bool | None:
        """Return whether the patterns show that we are logged out; None if they do not decide."""
        if not is_html(fetched.content_type, fetched.body[:1024]):
            return None
        text = form_page.text_of(fetched.body, fetched.content_type)
        if self._logged_out is not None and self._logged_out.found_in(text):
            return True
        if self._logged_in is None:
            return None
        return not (self._logged_in.found_in(text) or fetched.status == 403)

    # -- the login

    def log_in(self, session: requests.Session, old: Grant | None) -> Grant:
        """Read the login page, fill in its form, send it, and check that it worked.

        Raises LoginRefused with the message of the page, and LoginFailed.
        """
        try:
            with refusals(self.entry.login_url):
                return self._log_in(session)
        except TooExpensive:
            what = "a page of the login takes too much CPU to read"
            raise LoginRefused(f"{self.entry.login_url}: {what}") from None

    def _log_in(self, session: requests.Session) -> Grant:
        form, came_from = self._form(session)
        before = {(c.name, c.domain, c.path): c.value for c in session.cookies}
        known = Known(form.action, form.username, form.password)
        answer = self._submit(session, form, came_from)
        self._check(session, answer, known)
        cookies = collected(session.cookies)
        if not cookies:
            raise LoginRefused(
                f"{self.entry.login_url}: the form was sent, but the site set no cookie"
                f"{self._complaint(answer)}"
            )
        new = {c.name for c in session.cookies if before.get((c.name, c.domain, c.path)) != c.value}
        token = {
            # A site that keeps the cookie of the login page sets no new one.
            "login": sorted(new or {cookie.name for cookie in cookies}),
            "action": form.action,
            "username": form.username,
            "password": form.password,
        }
        return Grant(account=self.account, generation=0, made_ms=0, cookies=cookies, token=token)

    def _form(self, session: requests.Session) -> tuple[LoginForm, str]:
        """Return the login form, and the URL of its page."""
        fetched = as_fetched(session.get(self._login_url))
        entry = self.entry
        self._expect_page(fetched, "the login page")
        document = form_page.read(fetched.body, fetched.url, fetched.content_type)
        form = None
        if document is not None:
            form = login_form(document, entry.username_field, entry.password_field)
        if document is None or form is None:
            raise LoginRefused(f"{entry.login_url}: {self._without_form(document)}")
        if form.method != "post":
            raise LoginRefused(
                f"{entry.login_url}: the form would send the password in a URL (method GET), or "
                "JavaScript sends it: write a login of your own (kind = own)"
            )
        if not form.action or not self._trusted(form.action):
            where = origin_of(form.action) if form.action else "no web address"
            raise LoginRefused(
                f"{entry.login_url}: the form goes to {where}, which `hosts` does not name"
            )
        return form, fetched.url

    def _without_form(self, document: Document | None) -> str:
        if document is None:
            return "is no HTML page"
        names = ", ".join(map(repr, field_names(document)[:10])) or "none"
        if self.entry.username_field or self.entry.password_field:
            wanted = [self.entry.username_field, self.entry.password_field]
            given = " and ".join(repr(name) for name in wanted if name)
            return f"no form has a field {given} and a password; fields there: {names}"
        return (
            f"no form asks for a password (fields there: {names}); if JavaScript makes it, write a "
            "login of your own (kind = own)"
        )

    def _submit(self, session: requests.Session, form: LoginForm, came_from: str) -> Fetched:
        values = {**self.entry.fields, form.password: self._password}
        if form.username:
            values[form.username] = self.account
        kind, body = filled(form, values)
        origin = origin_of(came_from)
        same = origin == origin_of(form.action)
        headers = {
            "Content-Type": kind,
            "Referer": came_from if same else f"{origin}/",  # sites check Referer or Origin
            "Origin": origin,
        }
        return self._follow(session, "POST", form.action, headers, body)

    def _follow(
        self,
        session: requests.Session,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
    ) -> Fetched:
        """Send a request and follow its redirects to trusted origins; return the last answer."""
        for _ in range(_REDIRECTS + 1):
            fetched = as_fetched(
                session.request(
                    method, url, headers=headers, data=body or None, allow_redirects=False
                )
            )
            target = _target(fetched.url, fetched.location)
            if fetched.status not in REDIRECTS or target is None:
                return fetched
            if not self._trusted(target):
                if fetched.status in (307, 308) and method == "POST":
                    raise LoginRefused(
                        f"{self.entry.login_url}: the form leads on to {origin_of(target)}, which "
                        "`hosts` does not name: the password was not sent there"
                    )
                return fetched
            if fetched.status not in (307, 308):
                method, headers, body = "GET", {}, b""
            url = target
        raise LoginRefused(f"{self.entry.login_url}: more than {_REDIRECTS} redirects in a row")

    def _trusted(self, url: str) -> bool:
        return self._origins.hold(url) or url.startswith(self._login_origin)

    def _check(self, session: requests.Session, answer: Fetched, known: Known) -> None:
        """Raise LoginRefused unless we are logged in."""
        entry = self.entry
        if answer.status not in REDIRECTS:
            self._expect_page(answer, "the answer to the form")
        if not entry.check_url:
            if self._out(answer, None, known):
                raise self._refused(answer)
            return
        if form_page.asks_for_login(answer, self._login_url, known) and not self._shows_in(answer):
            raise self._refused(answer)
        url = canonicalise(entry.check_url)
        checked = as_fetched(session.get(url, allow_redirects=False))
        failure = classify(checked)
        if failure is not None and failure.kind not in _FINAL:
            raise LoginFailed(failure)
        target = _target(checked.url, checked.location)
        led_away = checked.status in REDIRECTS and target is not None
        if led_away or failure is not None or self._out(checked, None, known):
            what = f"leads to {target}" if led_away else f"is answered with HTTP {checked.status}"
            raise LoginRefused(
                f"{entry.login_url}: after the login, {entry.check_url} {shortened(what)}"
                f"{self._complaint(answer)}"
            )

    def _shows_in(self, fetched: Fetched) -> bool:
        return self._logged_in is not None and self._said(fetched) is False

    def _refused(self, answer: Fetched) -> LoginRefused:
        said = self._complaint(answer)
        if said:
            return LoginRefused(f"{self.entry.login_url}: not let in{said}")
        return LoginRefused(f"{self.entry.login_url}: not let in; the site asks to log in again")

    def _complaint(self, answer: Fetched) -> str:
        document = form_page.read(answer.body, answer.url, answer.content_type)
        said = complaint(document, (self.account, self._password))
        return f"; the page says: {said}" if said else ""

    def _expect_page(self, fetched: Fetched, what: str) -> None:
        """Raise LoginFailed if a later try may succeed, LoginRefused if it will not."""
        failure = classify(fetched)
        if failure is None:
            return
        if failure.kind not in _FINAL:
            raise LoginFailed(failure)
        raise LoginRefused(
            f"{self.entry.login_url}: {what} is HTTP {fetched.status}{self._complaint(fetched)}"
        )


def as_fetched(response: requests.Response) -> Fetched:
    """Return a response of a session as the record that the rest of the worker uses.

    Raises LoginFailed if its URL is not canonical.
    """
    url = response.url or ""
    try:
        url = canonicalise(url)
    except InvalidUrl as error:
        raise LoginFailed(Failure(FailureKind.REDIRECT, error.reason)) from None
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Fetched(url=url, status=response.status_code, headers=headers, body=response.content)


def _target(url: str, location: str) -> str | None:
    """Return where an answer from ``url`` redirects to, None if nowhere."""
    try:
        return canonicalise(location, url) if location else None
    except InvalidUrl:
        return None


def _known(grant: Grant | None) -> Known:
    token = {} if grant is None else grant.token
    return Known(*(str(token.get(key, "")) for key in ("action", "username", "password")))
