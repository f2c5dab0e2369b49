"""Origins to which credentials belong."""

from __future__ import annotations

import pytest

from greencrawl.schema.net.origins import Origins, problem, same_page
from greencrawl.schema.net.urls import canonicalise


@pytest.mark.parametrize(
    ("pattern", "url", "held"),
    [
        ("example.org", "https://example.org/x", True),
        ("EXAMPLE.org:443", "https://example.org/", True),
        ("example.org", "http://example.org/", False),
        ("example.org", "https://example.org:8443/", False),
        ("example.org", "https://www.example.org/", False),
        ("example.org", "https://example.org.evil.example/", False),
        ("example.org", "https://evil.example/https://example.org/", False),
        ("example.org", "https://evil.example/?https://example.org", False),
        ("example.org:8443", "https://example.org:8443/", True),
        ("example.org:8443", "https://example.org/", False),
        ("*.example.org", "https://a.b.example.org/", True),
        ("*.example.org", "https://example.org/", False),
        ("*.example.org", "https://badexample.org/", False),
        ("*.example.org", "http://a.example.org/", False),
        ("*.example.org", "https://a.example.org:8443/", False),
        ("*.example.org:8443", "https://a.example.org:8443/", True),
        ("http://example.org", "http://example.org/", True),
        ("http://example.org", "https://example.org/", False),
        ("http://*.example.org", "http://a.example.org/", True),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/", True),
        ("http://[::1]:8000", "http://[::1]:8000/", True),
        ("intranet", "https://intranet/", True),
        ("*.intranet", "https://wiki.intranet/", True),
        ("bücher.example", "https://xn--bcher-kva.example/", True),
    ],
)
def test_an_origin_matches_only_its_own_pattern(pattern: str, url: str, held: bool) -> None:
    assert problem(pattern) is None
    assert Origins([pattern]).hold(canonicalise(url)) is held


@pytest.mark.parametrize(
    "pattern",
    [
        "*",
        "*.*.org",
        "a.*.org",
        "*.org",
        "*.co.uk",
        "*.github.io",
        "*.10.0.0.1",
        "ftp://example.org",
        "example.org/path",
        "https://example.org/?a",
        "user@example.org",
        "https://user:pw@example.org",
        "example.org#a",
        "exa mple.org",
        " example.org",
        "example.org:99999",
        "",
    ],
)
def test_pattern_that_names_no_origin_is_refused(pattern: str) -> None:
    assert problem(pattern)
    with pytest.raises(ValueError):
        Origins([pattern])


@pytest.mark.parametrize(
    ("url", "login_url", "same"),
    [
        ("https://a.example/login?next=/x", "https://a.example/login", True),
        ("https://a.example/login/", "https://a.example/login", True),
        ("https://a.example/login2", "https://a.example/login", False),
        ("http://a.example/login", "https://a.example/login", False),
        ("https://b.example/login", "https://a.example/login", False),
        ("https://a.example/?page=login&to=/x", "https://a.example/?page=login", True),
        ("https://a.example/?page=home", "https://a.example/?page=login", False),
        ("https://a.example/login/?next=/x/1", "https://a.example/login/?next=/", True),
        ("https://a.example/login?to=https://a.example/x", "https://a.example/login?to=/", True),
        ("https://a.example/?page=home", "https://a.example/?next=/", False),
    ],
)
def test_a_login_page_is_recognised_with_any_additional_query(
    url: str, login_url: str, same: bool
) -> None:
    assert same_page(url, login_url) is same
