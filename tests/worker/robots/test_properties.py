"""Properties of robots.txt for arbitrary, nasty URLs."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from greencrawl.worker.robots.parser import parse

BEGINNINGS = st.sampled_from(["", "/", "http:", "http://example.org", "http://example.org/"])
PIECES = st.one_of(
    st.sampled_from(["/", "//", "A", "%41", "%2f", "%", "*", "%2A", "$", "é", "%c3%a9", "\udc80"]),
    st.sampled_from(["?", "@", ":8080", " ", "\n", "\x7f", "robots.txt"]),
    st.characters(codec="utf-8"),
)
RULES = parse(
    "User-agent: *\nDisallow: /A\nDisallow: /*$A\nDisallow: /é$\nDisallow: /%2A\n"
    "Allow: /AA\nDisallow: /?\n".encode()
)


@example("http://example.org/", "%41")
@example("http://example.org/", "*")
@example("http://example.org/", "$A")
@example("http://example.org/", "é")
@example("http://\ud800/", "A")
@given(BEGINNINGS, st.lists(PIECES, max_size=4).map("".join))
def test_a_fragment_of_a_url_changes_no_decision(beginning: str, rest: str) -> None:
    """URLs with fragments take the long path through the code, normal URLs a short one."""
    url = (beginning + rest).replace("#", "")
    assert RULES.line_for(url, "bot") == RULES.line_for(f"{url}#", "bot")
