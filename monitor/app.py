"""The application: it judges every request, and answers it by a row of the tables.

Headers of the answers let browsers run only our own scripts.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, quote

import falcon
import gevent
import msgspec
from markupsafe import Markup

from greencrawl.broker.service.service import Service
from greencrawl.broker.service.shared.crawl_actions import error_parts
from greencrawl.monitor.access import Access, NotAllowed, Session
from greencrawl.monitor.field_errors import field_errors
from greencrawl.monitor.figures import Figures
from greencrawl.monitor.page_request import (
    Action,
    ActionPage,
    File,
    Form,
    PageRequest,
    Redirect,
    View,
)
from greencrawl.monitor.rendering import DrawnPart, Pages, Templates
from greencrawl.monitor.shared import SECONDS, Shared
from greencrawl.monitor.static import Static
from greencrawl.monitor.views.table import ACTIONS, FILES, VIEWS
from greencrawl.monitor.words import Words, language_of, words
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.log import logger

log = logger("monitor")

HOME, LOG_IN = "/monitor/", "/monitor/login"
MOST_FORM_BYTES = 4 * 1024 * 1024
FORM_SECONDS = 30.0
FORM_FIELDS = 500
LOADED_SECONDS = 5.0
"""How old a part may be when a page is loaded: the page is shown without delay, and its script
asks for a new part. After a form, or if a person loads the page again, a part may be a second old,
as for scripts.
"""
REFUSED_SECONDS = 0.5
"""How long the answer to a log-in with a wrong token is delayed."""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; frame-ancestors 'none'; form-action 'self'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
    "Vary": "Accept-Language, Cookie",
}
"""Headers of every answer that has no value of its own for them."""
OPENER = ("Cross-Origin-Opener-Policy", "same-origin")
"""A header of the log-in page alone, where a token is typed in. A browser starts a process for a
page with this header, which doubles the time to a first paint. Other pages do not have it: a
foreign page that opens one of them can only close it or lead it elsewhere.
"""
FILE_HEADERS = {"Content-Security-Policy": "sandbox; default-src 'none'"}


class App:
    """The Monitor of one broker. ``wsgi`` is a WSGI application."""

    def __init__(self, service: Service, admin_token: str, view_token: str) -> None:
        self._service = service
        self._access = Access(admin_token, view_token)
        self._static = Static()
        self._shared = Shared()
        self._figures = Figures(service, self._shared)
        nav = [view for view in VIEWS if view.nav]
        self._templates = Templates(
            {"static": self._static.address, "icon": self._static.icon, "nav": nav}
        )
        self._pages = Pages(self._templates, self._shared, can_log_out=not self._access.open)
        self.wsgi = falcon.App(media_type="text/html; charset=utf-8", middleware=[_Headers()])
        self.wsgi.add_error_handler(Exception, self._on_error)
        self.wsgi.add_error_handler(falcon.HTTPError, self._on_error)
        routes: dict[str, dict[str, Callable[..., None]]] = {
            "/": {"on_get": _to_home},
            "/monitor": {"on_get": _to_home},
            LOG_IN: {"on_get": self._show_log_in, "on_post": self._log_in},
            "/monitor/logout": {"on_post": self._log_out},
            "/monitor/static/{version}/{name}": {"on_get": self._send_static},
        }
        for view in VIEWS:
            routes.setdefault(view.path, {})["on_get"] = self._viewer(view)
        for action in ACTIONS:
            routes.setdefault(action.path, {})["on_post"] = self._doer(action)
        for file in FILES:
            routes.setdefault(file.path, {})["on_get"] = self._sender(file)
        for path, methods in routes.items():
            if "on_get" in methods:
                methods["on_head"] = methods["on_get"]
            self.wsgi.add_route(path, SimpleNamespace(**methods))

    def stop(self) -> None:
        """End background work."""
        self._figures.stop()

    # -- pages

    def _viewer(self, view: View) -> Callable[..., None]:
        def on_get(request: falcon.Request, response: falcon.Response, **path: str) -> None:
            page = self._page_request(request, response, path)
            if page is None:
                return
            if view.admin and not page.session.may_change:
                raise NotAllowed("refused.view")
            part_only = page.query.get("part") == "1" and view.part is not None
            fresh = part_only or "said" in page.query or _reloads(request)
            seconds = SECONDS if fresh else LOADED_SECONDS
            if not part_only and self._pages.comes_later(view, page, seconds):
                response.stream = self._pages.in_two(view, page, seconds)
                return
            drawn = (
                self._pages.part(view, page, seconds) if view.part is not None else DrawnPart("")
            )
            if part_only:
                self._send(request, response, drawn.html, drawn.status, page.session)
                return
            html = self._pages.framed(view, page, Markup(drawn.html))  # our own templates made it
            self._send(request, response, html, drawn.status, page.session)

        return on_get

    # -- forms and files

    def _doer(self, action: Action) -> Callable[..., None]:
        def on_post(request: falcon.Request, response: falcon.Response, **path: str) -> None:
            page = self._page_request(request, response, path)
            if page is None:
                return
            form, token = _form(request)
            self._access.check_form(page.session, token)
            try:
                result = action.run(page, form)
            finally:
                self._shared.forget()
            if isinstance(result, Redirect):
                raise falcon.HTTPSeeOther(result.location)
            assert isinstance(result, ActionPage)
            html = self._pages.page(f"pages/{result.template}.html", page, None, result.data)
            self._send(request, response, html, result.status, page.session)

        return on_post

    def _sender(self, file: File) -> Callable[..., None]:
        def on_get(request: falcon.Request, response: falcon.Response, **path: str) -> None:
            page = self._page_request(request, response, path)
            if page is None:
                return
            download = file.run(page)
            response.content_type = "application/octet-stream"
            response.downloadable_as = download.name
            response.stream = download.chunks
            response.set_headers(FILE_HEADERS)

        return on_get

    def _send_static(
        self, request: falcon.Request, response: falcon.Response, version: str, name: str
    ) -> None:
        found = self._static.get(name)
        if found is None or version != self._static.version:
            raise falcon.HTTPNotFound
        response.data, response.content_type = found
        response.set_header("Cache-Control", "public, max-age=31536000, immutable")

    # -- the reader

    def _page_request(
        self, request: falcon.Request, response: falcon.Response, path: dict[str, str]
    ) -> PageRequest | None:
        """Return the request as pages see it; None if the answer is a redirect to the log-in."""
        self._access.check_place(request)
        session = self._access.session(request)
        if session is None:
            if request.params.get("part"):
                response.status = 401
                return None
            back = f"?next={quote(request.relative_uri)}" if request.method == "GET" else ""
            raise falcon.HTTPSeeOther(LOG_IN + back)
        self._figures.note_reader()
        return self._made_request(request, session, path)

    def _made_request(
        self, request: falcon.Request, session: Session, path: dict[str, str]
    ) -> PageRequest:
        query = {k: v if isinstance(v, str) else v[-1] for k, v in request.params.items()}
        return PageRequest(
            service=self._service, figures=self._figures, shared=self._shared,
            words=_words(request), session=session, now_ms=epoch_ms(), path=path, query=query,
        )  # fmt: skip

    def _known(self, request: falcon.Request) -> Session | None:
        """Return the session for an error page; None if the page must not show the menu."""
        try:
            self._access.check_place(request)
        except NotAllowed:
            return None
        return self._access.session(request)

    def _show_log_in(self, request: falcon.Request, response: falcon.Response) -> None:
        self._access.check_place(request)
        if self._access.session(request) is not None:
            raise falcon.HTTPSeeOther(HOME)
        self._ask_token(request, response, wrong=False)

    def _ask_token(
        self, request: falcon.Request, response: falcon.Response, *, wrong: bool
    ) -> None:
        data = {
            "wrong": wrong,
            "next": _local(request.params.get("next", "")),
            "form_token": self._access.log_in_token(),
            "may_change": False,
            "view": None,
        }
        html = self._templates.render("pages/login.html", _words(request), epoch_ms(), data)
        response.set_header(*OPENER)
        response.text, response.status = html, 403 if wrong else 200

    def _log_in(self, request: falcon.Request, response: falcon.Response) -> None:
        response.set_header(*OPENER)
        self._access.check_place(request)
        form, token = _form(request)
        self._access.check_token(self._access.log_in_token(), token)
        cookie = self._access.log_in(request, form.text("token"))
        if cookie is None:
            log.warning("log_in_refused", address=request.remote_addr)
            gevent.sleep(REFUSED_SECONDS)
            self._ask_token(request, response, wrong=True)
            return
        response.append_header("Set-Cookie", cookie)
        response.status, response.location = 303, _local(form.text("next"))

    def _log_out(self, request: falcon.Request, response: falcon.Response) -> None:
        self._access.check_place(request)
        session = self._access.session(request)
        _, token = _form(request)
        if session is not None:
            self._access.check_token(session.form_token, token)
        response.append_header("Set-Cookie", self._access.log_out(request))
        response.status, response.location = 303, LOG_IN

    # -- answers

    def _send(
        self,
        request: falcon.Request,
        response: falcon.Response,
        html: str,
        status: int,
        session: Session,
    ) -> None:
        body = self._pages.own(html, session)
        tag = f'"{sha256(body).hexdigest()[:24]}"'
        response.set_header("ETag", tag)
        if status == 200 and tag in (request.get_header("If-None-Match") or ""):
            response.status = 304
            return
        response.status, response.data = status, body

    def _on_error(
        self, request: falcon.Request, response: falcon.Response, error: Exception, _params: Any
    ) -> None:
        text = _words(request)
        fields: tuple[tuple[str, str], ...] = ()
        if isinstance(error, NotAllowed):
            status, detail = 403, text(error.word)
        elif (known := error_parts(error)) is not None:
            status, detail, fields = known
            detail = text("failed.missing") if isinstance(error, falcon.HTTPNotFound) else detail
            if isinstance(error, msgspec.ValidationError):
                fields = tuple(field_errors(text, error))
                detail = text("edit.wrong", n=len(fields))
        else:
            log.error("request_failed", method=request.method, path=request.path, exc_info=error)
            status, detail = 500, text("failed.broken")
        view = next((one for one in VIEWS if one.path == request.uri_template), None)
        session = self._known(request)
        data = {
            "status": status, "detail": detail, "fields": fields, "view": view, "notice": "",
            "may_change": False, "can_log_out": not self._access.open,
            "framed": session is not None,
            "again": request.method == "GET" and status >= 500,
        }  # fmt: skip
        html = self._templates.render("pages/failed.html", text, epoch_ms(), data)
        if session is not None:
            html = html.replace(self._templates.form_token, session.form_token)
        response.status, response.text = status, html


class _Headers:
    def process_response(
        self, request: falcon.Request, response: falcon.Response, _resource: Any, _done: bool
    ) -> None:
        for name, value in HEADERS.items():
            if response.get_header(name) is None:
                response.set_header(name, value)


def _reloads(request: falcon.Request) -> bool:
    """Return whether a person has loaded the page again, as browsers tell."""
    told = request.get_header("Cache-Control") or ""
    return "no-cache" in told or "max-age=0" in told


def _to_home(request: falcon.Request, response: falcon.Response) -> None:
    raise falcon.HTTPSeeOther(HOME)


def _words(request: falcon.Request) -> Words:
    return words(language_of(request.get_header("Accept-Language")))


def _local(path: Any) -> str:
    """Return a page of ours to go to; the first page for any other address."""
    known = isinstance(path, str) and path.startswith(HOME) and path.isascii()
    known = known and path.isprintable()
    return path if known and "\\" not in path else HOME


def _form(request: falcon.Request) -> tuple[Form, str]:
    """Return a form, and its token. Raises an error for a form that is too long, slow or
    invalid."""
    kind = (request.content_type or "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise falcon.HTTPUnsupportedMediaType(description="send a form")
    if not 0 <= (request.content_length or 0) <= MOST_FORM_BYTES:
        raise falcon.HTTPContentTooLarge(description=f"forms end at {MOST_FORM_BYTES} bytes")
    late = falcon.HTTPError(408, description="the form did not arrive in time")
    with gevent.Timeout(FORM_SECONDS, late):
        body = request.bounded_stream.read(MOST_FORM_BYTES)
    try:
        fields = parse_qs(
            body.decode(), keep_blank_values=True, strict_parsing=bool(body),
            max_num_fields=FORM_FIELDS,
        )  # fmt: skip
    except ValueError as error:
        raise falcon.HTTPBadRequest(description=f"no form: {error}") from error
    form = Form(fields)
    return form, form.text("form_token")
