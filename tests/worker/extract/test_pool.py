"""The memory pool for the trees of pages; a process has one, so each test starts its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from greencrawl.worker.extract.compile import compile
from tests.support.checkout import ROOT
from tests.support.effort import examples

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no compiler")

BEGIN = """
import gc, random, threading
from pathlib import Path
from lxml import etree
from greencrawl.worker.extract import page
from greencrawl.worker.extract.text import compiled, text_of

BEGIN
parse = page._parse
warm = compiled.chunks()

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
"""


@pytest.fixture(scope="module")
def compiled_at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compiled")
    assert compile(folder, "-O0") == ""
    return folder


def run(folder: Path, program: str, begin: str = "assert page.pool_trees()") -> str:
    root = ROOT
    command = [sys.executable, "-c", BEGIN.replace("BEGIN", begin) + program]
    paths = f"{folder}:{root / 'src'}:{sysconfig.get_path('purelib')}"
    done = subprocess.run(
        command, env={"PYTHONPATH": paths}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_tree_takes_chunks_of_the_pool_and_gives_them_back(compiled_at: Path) -> None:
    program = """
tree = parse(b"<p class=a>word</p>" * 5000)
held = compiled.chunks()
assert text_of(tree) == " ".join(["word"] * 5000)
del tree
again = parse(b"<p class=a>word</p>" * 5000)
print(warm, held > 3, compiled.chunks() == held)
del again
print(compiled.chunks())
"""
    assert run(compiled_at, program).split() == ["0", "True", "True", "0"]


def test_trees_in_the_pool_at_the_same_time_do_not_change_each_other(compiled_at: Path) -> None:
    program = (
        f"TURNS = {examples(1000, 4000)}"
        + """
chance = random.Random(1)
trees = []
for turn in range(TURNS):
    if len(trees) > 60 or (trees and chance.random() < 0.4):
        tree, words = trees.pop(chance.randrange(len(trees)))
        assert text_of(tree) == words, (text_of(tree), words)
    else:
        count = chance.randrange(200)
        words = [str(chance.random()) * chance.randrange(1, 30) for _ in range(count)]
        body = "".join(f"<p id='{word}'>{word} <b></b>" for word in words)
        tree = parse(b"<html><body>" + body.encode())
        tree.set("x", "y" * chance.randrange(400))  # not of the pool
        trees.append((tree, " ".join(words)))
del trees, tree
print(compiled.chunks())
"""
    )
    assert run(compiled_at, program) == "0"


def test_other_threads_may_parse_and_may_free(compiled_at: Path) -> None:
    program = """
def elsewhere(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

kept = []
elsewhere(lambda: kept.append(parse(b"<p>word" * 1000)))
assert text_of(kept[0]) == " ".join(["word"] * 1000)
print(compiled.chunks())
kept = [parse(b"<p>word" * 5000)]
print(compiled.chunks() > 3)
elsewhere(kept.clear)
print(compiled.chunks())
for _ in range(200):  # chunks that others emptied are used again
    kept = [parse(b"<p>word" * 5000)]
    elsewhere(kept.clear)
print(compiled.chunks())
answers = []
elsewhere(lambda: answers.append(page.pool_trees()))
print(answers, page.pool_trees())
"""
    found = run(compiled_at, program).split()
    assert found == ["0", "True", "0", "0", "[False]", "True"]


def test_a_page_larger_than_the_pool_is_parsed_and_its_memory_is_given_back(
    compiled_at: Path,
) -> None:
    program = """
before = resident()
tree = parse(b"<p><b>word</b>" * 200_000)
full, held = compiled.chunks(), resident() - before
assert text_of(tree[0][-1]) == "word"
del tree
left = resident() - before
print(full, compiled.chunks(), held > 60_000_000, left < held - 19_000_000)
"""
    assert run(compiled_at, program).split() == ["96", "0", "True", "True"]


def test_small_pages_reuse_the_memory_of_the_pool_after_a_large_page(compiled_at: Path) -> None:
    program = """
import resource

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(200):
        parse(b"<p>word" * 500)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
parse(b"<p><b>word</b>" * 30_000)
print(faults() < 200)
"""
    assert run(compiled_at, program) == "True"


def test_the_pool_does_not_change_trees_of_another_libxml2(compiled_at: Path) -> None:
    """lxml.objectify has a libxml2 of its own, which does not know the pool."""
    program = """
from lxml import html, objectify
for _ in range(50):
    ours = parse(b"<p>ours" * 200)
    theirs = objectify.fromstring("<a>" + "<b c='d'>1</b>" * 200 + "</a>")
    theirs.b[3] = "text"
    for name in range(100):
        setattr(theirs, f"name{name}", name)
    objectify.deannotate(theirs, cleanup_namespaces=True)
    plain = html.fromstring("<p>plain" * 200)
    plain[0].text = "x" * 500
    del ours, plain
    assert theirs.b[3] == "text" and theirs.name99 == 99
print(compiled.chunks())
"""
    assert run(compiled_at, program) == "0"


def test_the_pool_is_not_used_if_another_library_manages_the_memory(compiled_at: Path) -> None:
    program = """
print(compiled.pool("/no/such/library"), compiled.pool(etree.__file__))
"""
    assert run(compiled_at, program).split() == ["False", "True"]
    begin = """
import ctypes
libxml, libc = ctypes.CDLL(etree.__file__), ctypes.CDLL(None)
others = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda taken: None)
own, *rest = [
    ctypes.cast(getattr(libc, name), ctypes.c_void_p)
    for name in ("free", "malloc", "realloc", "strdup")
]
libxml.xmlMemSetup(others, *rest)
print(page.pool_trees())
libxml.xmlMemSetup(own, *rest)
assert page.pool_trees()
"""
    assert run(compiled_at, "", begin) == "False"


def test_pages_are_parsed_without_a_pool_if_the_part_in_c_is_missing(compiled_at: Path) -> None:
    program = """
page.compiled = None
print(page.pool_trees(), text_of(parse(b"<p>a")))
"""
    assert run(compiled_at, program).split() == ["False", "a"]


BOMB = """
import time
from greencrawl.worker.extract import TooExpensive
from greencrawl.worker.extract.page import outline

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
print(compiled.chunks())
"""
    assert run(compiled_at, BOMB + program) == "0"


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
    assert run(compiled_at, BOMB + program) == ""


def test_the_parse_of_a_tree_larger_than_the_pool_is_ended_if_others_would_wait(
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
print(len(found.texts) > 300_000, compiled.chunks())
"""
    assert run(compiled_at, BOMB + program) == "True 0"


def test_a_page_without_a_time_limit_loses_only_its_excess_attributes(
    compiled_at: Path,
) -> None:
    program = """
page, found = outline(b"<p>a" + hidden + b">b<a href=/x>c", "http://h/", "text/html")
print(page.text, found.urls)
"""
    assert run(compiled_at, BOMB + program) == "a bc ['http://h/x']"


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
