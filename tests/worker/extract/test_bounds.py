"""Parses that are ended; a process can always do that or never, so each test starts its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from greencrawl.worker.extract.compile import compile
from tests.support.checkout import ROOT

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no compiler")

BEGIN = """
import threading, time
from lxml import etree
from greencrawl.worker.extract import TooExpensive, page
from greencrawl.worker.extract.page import outline
from greencrawl.worker.extract.text import compiled, text_of

BEGIN

def seconds(body, **how):
    before = time.thread_time()
    try:
        outline(body, "http://h/", "text/html", **how)
        told = ""
    except TooExpensive as error:
        told = f"after {error.spent:g}"
    return told, time.thread_time() - before

hidden = b"<p" + b"".join(b" a%x%s" % (n, b"='>'" if n % 500 == 0 else b"") for n in range(40_000))
hub = {"seconds": 0.1, "brief": True}
"""


@pytest.fixture(scope="module")
def compiled_at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compiled")
    assert compile(folder, "-O0") == ""
    return folder


def run(folder: Path, program: str, begin: str = "assert page.bound_parses()") -> str:
    root = ROOT
    command = [sys.executable, "-c", BEGIN.replace("BEGIN", begin) + program]
    paths = f"{folder}:{root / 'src'}:{sysconfig.get_path('purelib')}"
    done = subprocess.run(
        command, env={"PYTHONPATH": paths}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_only_the_parse_of_the_same_thread_is_ended(compiled_at: Path) -> None:
    """Another thread, such as a user's, uses the same libxml2 meanwhile."""
    program = """
small, failed = b"<p>" + b"<b>word</b>" * 500, []

def elsewhere():
    while not over:
        try:
            assert len(etree.fromstring(small, etree.HTMLParser())[0][0]) == 500
        except Exception as error:
            failed.append(error)

over = False
thread = threading.Thread(target=elsewhere)
thread.start()
for _ in range(3):
    assert seconds(hidden + b">", **hub)[0] == "after 0.1"
over = True
thread.join()
print(len(failed))
"""
    assert run(compiled_at, program) == "0"


def test_memory_comes_from_what_libxml2_used_before(compiled_at: Path) -> None:
    """Pieces of memory from an allocator that somebody else has set go back to that allocator."""
    begin = """
import ctypes
libxml, libc = ctypes.CDLL(etree.__file__), ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
taken = []

@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)
def malloc(size):
    taken.append(libc.malloc(size))
    return taken[-1]

@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def free(piece):
    freed.add(piece)
    libc.free(piece)

freed = set()
rest = [ctypes.cast(getattr(libc, name), ctypes.c_void_p) for name in ("realloc", "strdup")]
libxml.xmlMemSetup(free, malloc, *rest)
assert page.bound_parses()
"""
    program = """
tree = page._parse(b"<p>word" * 500, 1.0, True)
assert text_of(tree) == " ".join(["word"] * 500)
del tree
print(len(taken) > 1000, len(freed) > 1000)
libxml.xmlMemSetup(*(ctypes.cast(getattr(libc, name), ctypes.c_void_p) for name in
                     ("free", "malloc", "realloc", "strdup")))
"""
    assert run(compiled_at, program, begin) == "True True"


def test_parses_cannot_be_ended_if_libxml2_is_not_found_or_nothing_was_compiled(
    compiled_at: Path,
) -> None:
    program = """
print(compiled.watch("/no/such/library"), page.bound_parses(), page.stops())
page.compiled = None
print(page.bound_parses(), text_of(page._parse(b"<p>a")))
"""
    begin = "assert not page.stops()"
    assert run(compiled_at, program, begin).split() == ["False", "True", "True", "False", "a"]


def test_a_parse_that_takes_too_long_is_ended_and_the_next_page_is_read(compiled_at: Path) -> None:
    """The page takes a second of CPU for 290 KB: a tag of 40,000 attributes, some with ">" in
    them."""
    program = """
told, took = seconds(hidden + b">", **hub)
assert told == "after 0.1", told
assert took < 0.5, took
for _ in range(3):
    page, found = outline(b"<title>T</title><p>a<a href=/x>b", "http://h/", "text/html", **hub)
    assert (page.title, page.text, found.urls) == ("T", "ab", ["http://h/x"]), page
"""
    assert run(compiled_at, program) == ""


def test_the_parse_of_a_page_of_many_tags_with_attributes_is_ended(compiled_at: Path) -> None:
    program = """
tag = b"<p " + b" ".join(b"a%x" % n for n in range(1900)) + b">"
told, took = seconds(tag * 200, **hub)
assert told == "after 0.1", told
assert took < 0.5, took
told, took = seconds(b"<font><b>" * 300_000, **hub)
assert told == "after 0", "it would have to be flattened"
assert took < 0.5, took
"""
    assert run(compiled_at, program) == ""


def test_the_parse_of_a_large_tree_is_ended_if_others_would_wait(
    compiled_at: Path,
) -> None:
    """Ten megabytes of links would become about 400 MB of tree in a tenth of a second."""
    program = """
import resource
body = b"".join(b'<a href="/%x">x</a> ' % n for n in range(400_000))
most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
told, took = seconds(body, seconds=60.0, brief=True)
assert told == "after 60", told
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < most + 60_000
page, found = outline(b"<title>T</title><p>a<a href=/x>b", "http://h/", "text/html", **hub)
assert (page.title, page.text, found.urls) == ("T", "ab", ["http://h/x"]), page
page, found = outline(body[:8_000_000], "http://h/", "text/html", seconds=60.0)
print(len(found.texts) > 300_000)
"""
    assert run(compiled_at, program) == "True"


def test_a_page_without_a_time_limit_loses_only_its_excess_attributes(
    compiled_at: Path,
) -> None:
    program = """
page, found = outline(b"<p>a" + hidden + b">b<a href=/x>c", "http://h/", "text/html")
print(page.text, found.urls)
"""
    assert run(compiled_at, program) == "a bc ['http://h/x']"


def test_the_parse_of_a_login_page_has_a_time_limit(compiled_at: Path) -> None:
    program = """
from time import thread_time
from greencrawl.worker.auth.kinds import form_page
from greencrawl.worker.extract import TooExpensive
names = b"".join(b" a%x" % n for n in range(200_000))
body = b"<!--><p a='>'" + names + b">--><input type=password>"
began = thread_time()
try:
    form_page.read(body, "http://h/", "text/html")
except TooExpensive:
    print("ended", thread_time() - began < 1.5)
form_page.in_own_process()
form_page.OWN_PROCESS_SECONDS = 0.1
print(form_page.read(body, "http://h/", "text/html"))
print(form_page.read(b"<p>x" * 60_000, "http://h/", "text/html") is not None)
"""
    assert run(compiled_at, program).split("\n") == ["ended True", "None", "True"]
