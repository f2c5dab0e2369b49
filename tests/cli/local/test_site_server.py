"""The shipped site: its server's answers, and its content."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from greencrawl.cli.local.site_server import Site, serve


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
def root(site: Site) -> Iterator[str]:
    with serve(site) as url:
        yield url


def get(root: str, target: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(urlsplit(root).netloc, timeout=5)
    connection.request(method, target)
    answer = connection.getresponse()
    headers = {name.lower(): value for name, value in answer.getheaders()}
    body = answer.read()
    connection.close()
    return answer.status, headers, body


def test_folder_is_served_by_its_index(root: str) -> None:
    assert get(root, "/")[2] == get(root, "/index.html")[2]
    assert get(root, "/plants/")[0] == 200
    assert get(root, "/plants")[0] == 404


_SERVES_IN_ASCII = """
import sys
from greencrawl.cli.local.site_server import Site
assert sys.getfilesystemencoding() != "utf-8", "another locale was wanted"
answers = [Site().answer(path, "")[0] for path in ("/zh/%E8%8C%B6.html", "/zh/%FF.html")]
print(answers)
"""


def test_a_file_with_a_name_beyond_ascii_is_served_in_every_locale(root: str) -> None:
    assert get(root, "/zh/%E8%8C%B6.html")[0] == 200
    environ = os.environ | {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-c", _SERVES_IN_ASCII],
        env=environ, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.stdout == "['200 OK', '404 Not Found']\n", done.stderr


def test_moved_page_redirects_to_one_that_exists(root: str) -> None:
    status, headers, _ = get(root, "/old-catalogue.html")
    assert status == 301
    assert get(root, headers["location"])[0] == 200


def test_a_gbk_page_declares_gbk_and_is_encoded_in_it(root: str) -> None:
    _, headers, body = get(root, "/zh/search-form.html")
    assert headers["content-type"] == "text/html; charset=gbk"
    assert "温室" in body.decode("gbk")
    with pytest.raises(UnicodeDecodeError):
        body.decode("utf-8")


@pytest.mark.parametrize("query", ["q=%CE%C2%CA%D2", "q=%E6%B8%A9%E5%AE%A4"])
def test_search_reads_its_term_in_gbk_and_in_utf8(root: str, query: str) -> None:
    assert "没有找到“温室”" in get(root, f"/zh/search?{query}")[2].decode()


def test_search_term_cannot_inject_markup(root: str) -> None:
    assert b"<script>" not in get(root, "/zh/search?q=%3Cscript%3E")[2]


@pytest.mark.parametrize(
    "target",
    ["/../README.md", "/%2e%2e/README.md", "/..%2fREADME.md", "/x%00.html", "//etc/passwd"],
)
def test_files_outside_the_site_are_not_served(root: str, target: str) -> None:
    assert get(root, target)[0] == 404


def test_page_with_a_chinese_name_is_found(root: str) -> None:
    assert get(root, "/zh/%E8%8C%B6.html")[0] == 200


def test_a_head_answer_has_the_length_and_no_body(root: str) -> None:
    status, headers, body = get(root, "/about.html", "HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 100


def test_request_targets_are_logged_as_they_arrived(site: Site, root: str) -> None:
    get(root, "/zh/search?q=%CE%C2%CA%D2")
    assert site.requests == ["/zh/search?q=%CE%C2%CA%D2"]
