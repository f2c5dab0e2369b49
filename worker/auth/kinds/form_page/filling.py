"""Fills in a login form: what is sent."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping

from greencrawl.schema.text.encodings import encode_form, encode_text
from greencrawl.worker.auth.kinds.form_page.login_form import LoginForm


def filled(form: LoginForm, values: Mapping[str, str]) -> tuple[str, bytes]:
    """Return Content-Type and body of ``form`` with ``values`` in place of its own."""
    left = dict(values)
    pairs: list[tuple[str, str]] = []
    for name, value in form.values:
        if name in left:
            pairs.append((name, left.pop(name)))
        elif name not in values:
            pairs.append((name, value))
    pairs += left.items()
    if form.multipart:
        return _multipart(pairs, form.encoding)
    body = "&".join(
        f"{encode_form(_lines(name), form.encoding)}={encode_form(_lines(value), form.encoding)}"
        for name, value in pairs
    )
    return "application/x-www-form-urlencoded", body.encode("ascii")


def _multipart(pairs: Iterable[tuple[str, str]], encoding: str) -> tuple[str, bytes]:
    """RFC 7578, with names escaped as browsers do."""
    boundary = f"----{secrets.token_hex(16)}".encode()
    parts = bytearray()
    for name, value in pairs:
        shown = encode_text(_lines(name), encoding)
        for raw, escaped in ((b"\r", b"%0D"), (b"\n", b"%0A"), (b'"', b"%22")):
            shown = shown.replace(raw, escaped)
        parts += b'--%b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n' % (boundary, shown)
        parts += encode_text(_lines(value), encoding) + b"\r\n"
    parts += b"--%b--\r\n" % boundary
    return f"multipart/form-data; boundary={boundary.decode()}", bytes(parts)


def _lines(text: str) -> str:
    return re.sub(r"\r\n|\r|\n", "\r\n", text)
