"""Many rules and wildcards: the same verdicts as rule by rule, within bounds of work."""

from __future__ import annotations

import gc
import random
import re
import time
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greencrawl.worker.process.steps import Steps, T
from greencrawl.worker.robots import matching, parser
from greencrawl.worker.robots.parser import MAX_BODY_BYTES, parse
from tests.support.effort import cases, examples

Rule = tuple[bool, str]

LETTERS = st.sampled_from(["a", "b", "ab", "abc", "/", "*", "?", "x=1&", "/aa/b", "abcdefgh"])
PATHS = st.lists(LETTERS, max_size=6).map("".join)
RULES = st.lists(
    st.tuples(st.booleans(), st.builds("{}{}".format, PATHS, st.sampled_from(["", "$"])))
)
URLS = st.lists(LETTERS.filter(lambda letter: letter != "*"), max_size=30).map("".join)


def body_of(rules: list[Rule]) -> bytes:
    lines = [f"{'Allow' if allow else 'Disallow'}: /{path}" for allow, path in rules]
    return "\n".join(["User-agent: *", *lines]).encode()


def plain(rules: list[Rule], path: str) -> bool:
    """Decide rule by rule, as RFC 9309 says, whether a URL's path is allowed."""
    best = (0, True)
    for allow, written in rules:
        pattern = re.sub(r"\*+", "*", f"/{written}")
        ends = pattern.endswith("$")
        parts = [re.escape(part) for part in pattern.removesuffix("$").split("*")]
        if re.match(".*".join(parts) + ("$" if ends else ""), path):
            best = max(best, (len(pattern), allow))
    return best[1]


def fast(rules: list[Rule], path: str) -> bool:
    return parse(body_of(rules)).allowed(f"http://h{path}", "bot")


@settings(max_examples=examples(60, 3000))
@given(RULES, URLS)
def test_compiled_rules_decide_as_rules_tried_one_by_one(rules: list[Rule], url: str) -> None:
    assert fast(rules, f"/{url}") is plain(rules, f"/{url}")


@settings(max_examples=examples(60, 3000))
@given(st.integers(0, 10**9), st.sampled_from([3, 40, 200]))
def test_many_wildcards_decide_as_tried_one_by_one(seed: int, count: int) -> None:
    """This tests the path that counts its work; a few rules do not need it."""
    made = random.Random(seed)
    words = ["a", "b", "ab", "ba", "aab", "shop", "?sort=", "&dir=", ".gif", "/", "aaaa", "abcabd"]

    def path(stars: bool) -> str:
        pieces = made.choices([*words, "*"] if stars else words, k=made.randint(1, 8))
        return "".join(pieces) + made.choice(["", "*", "$"] if stars else [""])

    rules = [(made.random() < 0.4, path(True)) for _ in range(count)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "BUDGET", 1)
        patch.setattr(matching, "_LONG", 1e-9)
        patch.setattr(matching, "_FEW", made.choice([0, 16]))
        compiled = parse(body_of(rules)).of("bot")
        for _ in range(5):
            url = f"/{path(False)}"
            assert (compiled.forbids(f"http://h{url}") is None) is plain(rules, url), url


@settings(max_examples=examples(60, 3000))
@given(RULES, URLS, st.sampled_from([0, 300, 1000]), st.integers(0, 3), st.integers(0, 5))
def test_bounds_of_matching_allow_no_url_that_the_rules_forbid(
    rules: list[Rule], url: str, budget: int, wildcards: int, stars: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "BUDGET", budget)
        patch.setattr(matching, "MAX_WILDCARDS", wildcards)
        patch.setattr(matching, "MAX_STARS", stars)
        assert not fast(rules, f"/{url}") or plain(rules, f"/{url}")


def test_wildcard_beyond_the_bound_is_read_up_to_its_star() -> None:
    rules = [(False, f"x*{number:04}") for number in range(matching.MAX_WILDCARDS)]
    body = body_of([*rules, (False, "y*z"), (True, "y*zz"), (False, "x*0001")])
    found = parse(body)
    assert found.allowed("http://h/xa", "bot")
    assert not found.allowed("http://h/xa0001", "bot")
    assert not found.allowed("http://h/yzz", "bot")
    line = found.line_for("http://h/y", "bot")
    assert line == f"Disallow: /y*z (read up to *: over {matching.MAX_WILDCARDS} wildcards)"


def test_wildcard_of_too_many_stars_is_read_up_to_its_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(matching, "MAX_STARS", 5)
    rules = [(False, "a*b*c"), (False, "d*e*f"), (False, "g*h*i"), (True, "g*h*j"), (False, "k*l")]
    found = parse(body_of(rules))
    assert found.line_for("http://h/g", "bot") is not None, "with it there would be six"
    assert not found.allowed("http://h/ghj", "bot")
    assert found.allowed("http://h/d", "bot")
    assert found.allowed("http://h/k", "bot"), "what was cut off counts no more"
    assert not found.allowed("http://h/kl", "bot")


@pytest.mark.parametrize("count", cases([50, 1500], [300]))
@pytest.mark.parametrize("length", cases([80, 2000], [400, 1000]))
def test_budget_suffices_for_wildcards_as_sites_have_them(count: int, length: int) -> None:
    made = random.Random(count)
    words = ["shop", "list", "cart", "user", "search", "print", "sort", "color", "tag", "login"]
    shapes = ["*?{}=", "*&{}=", "*/{}/", "*.{}$", "{}/*/edit", "*/{}-*/all"]

    def rule(number: int) -> Rule:
        word = made.choice(words) + (str(number) if count > 60 else "")
        return made.random() < 0.2, made.choice(shapes).format(word)

    rules = [rule(number) for number in range(count)]
    compiled = parse(body_of(rules)).of("bot")
    for _ in range(20):
        url = f"/{made.choice(words)}/{made.choice(words)}{made.randint(0, 99)}?"
        while len(url) < length:
            url += f"{made.choice(words)}{made.randint(0, 99)}={made.getrandbits(30):x}&"
        decides_exactly(compiled, rules, url[:2000])


def decides_exactly(compiled: matching.Group, rules: list[Rule], url: str) -> None:
    assert (compiled.forbids(f"http://h{url}") is None) is plain(rules, url)
    assert "too many" not in (compiled.line_for(f"http://h{url}") or "")


ABC = "abcdefghijklmnopqrstuvwxyz"
SITES = {
    "parameters of a letter": [f"*{mark}{letter}=" for mark in "?&;" for letter in ABC],
    "folders of two letters": [f"*/{one}{two}/" for one in "abcdefghij" for two in ABC],
    "letters": [f"*{mark}" for mark in "?&;=%~"] + [f"a/*{mark}" for mark in ABC],
    "languages": [
        f"*/{one}{two}/{page}" for one in "abcde" for two in ABC for page in ("cart", "checkout")
    ],
    "folders": [f"{folder}*{mark}{letter}=" for folder in ("", "shop/", "shop/women/")
                for mark in "?&" for letter in ABC],
    "parameters": [f"*?*{word}{n}=" for n in range(100) for word in ("filter", "sort", "page")],
    "facets": [f"shop/*/{word}{n}/*" for n in range(150) for word in ("colour", "size")],
    "many shapes": [f"{first}*{mark}{letter}{second}" for first in ("", "shop/")
                    for mark in "?&/-" for letter in ABC for second in ("", "id=")],
}  # fmt: skip
PARTS = {
    "folders": "nice-shoes/size-40-colour-red/",
    "parameters": "shoes?q=nice+shoes&size=40&colour=red;sort=up&page=2&",
    "short parameters": "x?zz=1&yy=2&",
    "cart": "kl/cart/checkout?step=2/" + "nice-shoes/size-40-colour-red/" * 10,
}


PAIRS = [(rules, part) for rules in SITES for part in PARTS]
BY_DAY = [pair for n, pair in enumerate(PAIRS) if n % len(PARTS) == n // len(PARTS) % len(PARTS)]
"""These pairs have each site once, and each part twice."""


@pytest.mark.parametrize(
    ("rules", "part"), cases(BY_DAY, [pair for pair in PAIRS if pair not in BY_DAY])
)
def test_urls_of_up_to_2000_octets_are_decided_exactly(rules: str, part: str) -> None:
    """The bound is counted work; each takes up to 0.1 ms."""
    written = [(False, path) for path in SITES[rules]]
    compiled = parse(body_of(written)).of("bot")
    for length in range(40, 2001, 140):
        url = ("/shop/women/" + PARTS[part] * 200)[:length]
        decides_exactly(compiled, written, url)


# --- hostile files ---------------------------------------------------------------------------


def filled(line: Callable[[int], str]) -> bytes:
    """Make a file with as many lines as are read of one."""
    lines, size = ["User-agent: *"], 14
    while size < MAX_BODY_BYTES:
        lines.append(line(len(lines)))
        size += len(lines[-1]) + 1
    return "\n".join(lines).encode()[:MAX_BODY_BYTES]


def some(letters: str, length: int, seed: int) -> str:
    return "".join(random.Random(seed).choices(letters, k=length))


HOSTILE = {
    "plain": filled(lambda n: f"Disallow: /p{n * 7919 % 99991}x"),
    "wildcards": filled(lambda n: f"Disallow: /*a{n % 26}*b{n}"),
    "beginnings of their own": filled(lambda n: f"Disallow: /{n}*a*b"),
    "letters": filled(lambda n: "Disallow: *" + "*".join(some("abcdef", 5, n))),
    "same letter": filled(lambda n: "Disallow: *" + "*".join(["a" * (n % 7 + 1)] * 5) + "*b"),
    "short": filled(lambda n: f"allow:*{n:x}"),
    "two letters": body_of([(False, f"*{some('ab', 12, n)}*z") for n in range(2000)]),
    "two letters, few": body_of([(False, f"*{some('ab', 9, n)}*z") for n in range(60)]),
    "long pieces": body_of([(False, "*" + "a" * 500 + "b" + "a" * n) for n in range(500)]),
    "one rule of stars": b"User-agent: *\nDisallow: /" + b"*a" * 255_000 + b"b",
    "one long rule": b"User-agent: *\nDisallow: /" + b"%41" * 170_000,
    "each within the next": filled(lambda n: "Disallow: /" + "a" * n),
    "wildcards within": filled(lambda n: "Disallow: /" + "a" * n + "*b"),
    "empty lines": b"\n" * MAX_BODY_BYTES,
    "one comment": b"#" + b"x" * MAX_BODY_BYTES,
    "agents": filled(lambda n: f"User-agent: a{n}"),
}
WORST = [
    "wildcards",
    "letters",
    "short",
    "one rule of stars",
    "one long rule",
    "each within the next",
]
TARGETS = [
    "/shop/list12?sort=3&dir=up",
    "/" + "a" * 70,
    "/" + "ab" * 40 + "!",
    "/" + "abcdef" * 12,
    "/" + "a" * 1990 + "b",
    "/" + "ab" * 1000,
    "/" + some("ab", 2000, 1),
    "/list?" + "&".join(f"{some('cdefgh', 5, n)}={n}" for n in range(190)),
]


@pytest.mark.parametrize("name", HOSTILE)
def test_the_decision_on_a_url_costs_little_with_any_robots_txt(name: str) -> None:
    """It takes up to 0.15 ms here; without the bounds it would take 1 to 100 ms."""
    group = parse(HOSTILE[name]).of("bot")
    for path in TARGETS:
        took = []
        for _ in range(20):
            began = time.thread_time()
            group.forbids(f"http://example.org{path}")
            took.append(time.thread_time() - began)
        assert min(took) < 0.000_4, path[:30]


@pytest.mark.parametrize("name", cases(WORST, [name for name in HOSTILE if name not in WORST]))
def test_hostile_file_is_compiled_in_slices_and_stays_small(name: str) -> None:
    slices = []

    def taken(steps: Steps[T]) -> T:
        while True:
            began = time.thread_time()
            try:
                next(steps)
            except StopIteration as end:
                made: T = end.value
                return made
            finally:
                slices.append(time.thread_time() - began)

    gc.disable()  # its pauses grow with the tests' memory
    try:
        rules = taken(parser.parse_steps(HOSTILE[name]))
        taken(rules.of_steps("bot"))
    finally:
        gc.enable()
    assert max(slices) < 0.05
    assert sum(slices) < 1.0
    tracemalloc.start()
    try:
        rules = parse(HOSTILE[name])
        rules.of("bot")
        size = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert size < 8_000_000
    assert size < 1.3 * rules.bytes + 10_000
