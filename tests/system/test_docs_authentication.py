"""The beginning of ``docs/authentication.md`` is true: it makes a login in ten lines."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from gevent.pywsgi import WSGIServer

from tests.support.checkout import ROOT

DOCS = (ROOT / "docs" / "authentication.md").read_text(encoding="utf-8")
NAME, PASSWORD, COOKIE = "ann", "a-pass=word&more", "sid=a-cookie-of-a-member"


class Members:
    """Pages for users who logged in; the login is a plain POST, as in the example."""

    def __init__(self) -> None:
        self.logins: list[str] = []

    def __call__(self, environ: dict[str, Any], start: Callable[..., object]) -> Iterable[bytes]:
        path, headers = environ["PATH_INFO"], [("Content-Type", "text/html; charset=utf-8")]
        status, body = "200 OK", "<title>Stranger</title><a href='/login'>log in</a>"
        if path == "/login" and environ["REQUEST_METHOD"] == "POST":
            given = parse_qs(environ["wsgi.input"].read().decode())
            good = given == {"user": [NAME], "pass": [PASSWORD]}
            self.logins.append("in" if good else "refused")
            body = "Welcome" if good else "No."
            headers += [("Set-Cookie", f"{COOKIE}; Path=/")] if good else []
        elif path.startswith("/members/") and COOKIE in environ.get("HTTP_COOKIE", ""):
            links = "".join(f"<a href='/members/{n}'>{n}</a>" for n in range(5))
            body = f"<title>Member</title>{links}<a href='/members/logout'>out</a>"
        elif path.startswith("/members/"):
            status, headers = "302 Found", [("Location", "/login")]
        elif path == "/robots.txt":
            status = "404 Not Found"
        start(status, headers)
        return [body.encode()]


def block(language: str, beginning: str) -> str:
    """Return the first code block of a language that begins like this."""
    blocks: list[str] = re.findall(rf"```{language}\n(.*?)```", DOCS, re.DOTALL)
    return next(code for code in blocks if code.lstrip().startswith(beginning))


def test_the_documented_login_class_of_ten_lines_logs_in_and_crawls(tmp_path: Path) -> None:
    python, toml = block("python", "from greencrawl.worker.auth"), block("toml", "seeds")
    assert len([line for line in python.splitlines() if line]) <= 10
    site = Members()
    server = WSGIServer(("127.0.0.1", 0), site, log=None)
    server.start()
    origin = f"http://127.0.0.1:{server.server_port}"
    written = toml.replace("https://example.org", origin).replace('"example.org"', f'"{origin}"')
    (tmp_path / "mysite.py").write_text(python)
    (tmp_path / "mysite.toml").write_text(written)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GREENCRAWL_")}
    environ = {
        **kept,
        "PYTHONPATH": str(ROOT / "src"),
        "GREENCRAWL_ALLOW_NETWORKS": "127.0.0.0/8",
        "GREENCRAWL_AUTH_MYSITE_USERNAME": NAME,
    }

    def command(*arguments: str, password: str = PASSWORD) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "greencrawl.cli", *arguments],
            cwd=tmp_path,
            env={**environ, "GREENCRAWL_AUTH_MYSITE_PASSWORD": password},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    try:
        code, said = command("login", "mysite", "mysite.toml", password="not-that-one")
        assert (code, "wrong name or password" in said) == (1, True), said
        code, said = command("login", "mysite", "mysite.toml")
        assert (code, f"in: auth mysite as {NAME}" in said) == (0, True), said
        # To users without a login the site answers everything with a page, also /sitemap.xml.
        given = ("--delay", "0", "--processes", "2", "--sitemaps", "off")
        code, said = command("crawl", "mysite.toml", *given)
        assert code == 0, said
        assert site.logins == ["refused", "in"], "the crawl uses what the command got"
        code, said = command("login", "mysite")
        assert (code, f"in: auth mysite as {NAME}" in said) == (0, True), said
    finally:
        server.stop(timeout=1)
    assert site.logins == ["refused", "in", "in"]
    out = tmp_path / "pages.jsonl"
    code, said = command("export", "mysite", "-o", str(out))
    assert code == 0, said
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    pages = [row for row in rows if "title" in row]
    skipped = [(row["url"], row["state"], row["kind"]) for row in rows if "title" not in row]
    assert skipped == [(f"{origin}/members/logout", "excluded", "action")]
    assert {page["title"] for page in pages} == {"Member"}
    assert {page["url"] for page in pages} == {
        f"{origin}/members/{path}" for path in ("", *range(5))
    }
