"""Strings that strangers may put on their pages to have them run on ours."""

from __future__ import annotations

MARKS = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<img src='http://127.0.0.9:9/stolen'>",
    '"><svg onload=alert(1)>',
    "'><iframe srcdoc='<script>parent.alert(1)</script>'></iframe>",
    "</title><script>alert(1)</script>",
    "</textarea><script>alert(1)</script>",
    "<style>@import 'http://127.0.0.9:9/style'</style>",
    "<form action='http://127.0.0.9:9/'><button autofocus>",
    "<a href='javascript:alert(1)' id=lost>x</a>",
    "<base href='http://127.0.0.9:9/'>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.9:9/'>",
    "{{ 7*7 }}{% include 'layout.html' %}${7*7}",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "--><script>alert(1)</script><!--",
    "]]><script>alert(1)</script>",
    "\u202e\u2066<b onmouseover=alert(1)>",
    "'\";alert(1)//",
)
EVIL = "".join(MARKS)
"""All of them, for a place at which one string is shown."""
