"""Live display: rate, texts, terminal and plain output."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console, RenderableType

from greencrawl.cli.commands import status
from greencrawl.cli.ui import display
from greencrawl.schema.records import (
    Alert,
    CrawlStats,
    HookCount,
    HookRefusal,
    HostState,
    NodeAway,
    NodeFull,
    Stats,
)

STATS = CrawlStats(
    crawl="example",
    state="active",
    stored=1200,
    waiting=34,
    leased=5,
    later=6,
    dead=2,
    bytes=1_500_000,
    hosts=3,
    failures={"timeout": 1, "gone": 3},
)
HOSTS = (
    HostState(host="slow.example", partition=0, latency=1.25),
    HostState(host="new.example", partition=0),
)


class Hands:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_failures_of_a_hook_are_shown_by_message_the_most_frequent_first() -> None:
    hooks = (
        HookCount("on_page", "KeyError: 'price'", 1200),
        HookCount("links", "E: \x1b[2J", 1),
        *(HookCount("request", f"E{n}", 1) for n in range(4)),
    )
    said = (
        "on_page on 1,200 pages (KeyError: 'price'), links on 1 page (E:  [2J), "
        "request on 1 page (E0), 3 other messages"
    )
    assert display.hooks_text(hooks) == said
    stats = msgspec.structs.replace(STATS, hooks=hooks)
    assert display.line(stats, 0.0, 1.0).endswith(f"; hook failed: {said}")
    assert said in _text(display.panel(stats, 0.0, 1.0, HOSTS), 400)


def test_status_shows_alerts_that_are_open() -> None:
    one = Alert(kind="disk_full", subject="m", text="A disk\x1b of m is full.", since_ms=0)
    shown = _text(status.table(Stats((STATS,), alerts=(one,))), 400)
    said = "alert: A disk  of m is full. (disk_full, since 1970-01-01 00:00:00 UTC)"
    assert said in shown


def test_the_number_of_rewritten_links_is_shown_if_there_are_any() -> None:
    assert "rewritten" not in display.line(STATS, 0.0, 1.0)
    assert "rewritten" not in _text(status.table(Stats((STATS,))), 400)
    stats = msgspec.structs.replace(STATS, rewritten=1200)
    assert display.line(stats, 0.0, 1.0).endswith("; links rewritten: 1,200")
    assert "links rewritten by normalise: 1,200" in _text(display.panel(stats, 0, 1, HOSTS), 400)
    assert "example: links rewritten by normalise: 1,200" in _text(
        status.table(Stats((stats,))), 400
    )


def test_the_number_of_postponed_sessions_is_shown_if_there_are_any() -> None:
    assert "put off" not in display.line(STATS, 0.0, 1.0)
    assert "put off" not in _text(status.table(Stats((STATS,))), 400)
    stats = msgspec.structs.replace(STATS, put_off={"look_up": 2, "slow": 1200, "unheard_of": 1})
    said = (
        "put off: 1,203 sessions, their URLs went back (too many slow hosts 1,200, "
        "slow DNS look-ups 2, unheard_of 1)"
    )
    assert display.line(stats, 0.0, 1.0).endswith(f"; {said}")
    assert said in _text(display.panel(stats, 0, 1, HOSTS), 400)
    assert f"example: {said}" in _text(status.table(Stats((stats,))), 400)


def test_status_says_whether_it_counts_tries_or_urls_without_a_page() -> None:
    stats = msgspec.structs.replace(STATS, failures={"timeout": 3})
    assert "example: failed tries: timeout 3" in _text(status.table(Stats((stats,))), 400)
    of_store = _text(status.table(Stats((stats,)), whole=False), 400)
    assert "example: not stored: timeout 3" in of_store
    counted = msgspec.structs.replace(stats, final_states={"gone": 1})
    assert "example: not stored: gone 1" in _text(status.table(Stats((counted,))), 400)


def test_pages_whose_content_is_not_kept_are_shown_apart_from_failures() -> None:
    assert "not kept" not in display.line(STATS, 0.0, 1.0)
    assert "not kept" not in _text(status.table(Stats((STATS,))), 400)
    stats = msgspec.structs.replace(STATS, failures={"noindex": 1200, "noai": 1, "timeout": 3})
    said = "content not kept: noindex 1,200, noai 1"
    line = display.line(stats, 0.0, 1.0)
    assert line.endswith(f"failed tries: timeout 3; {said}")
    panel = _text(display.panel(stats, 0.0, 1.0, HOSTS), 400)
    assert "failed tries: timeout 3" in panel
    assert said in panel
    table = _text(status.table(Stats((stats,))), 400)
    assert f"example: {said}" in table
    assert table.count("noindex") == 1


def test_workers_that_cannot_import_a_hook_are_named() -> None:
    refused = tuple(HookRefusal(f"w-{n}", "one", "own", "E: \x1b x") for n in range(5))
    stats = msgspec.structs.replace(STATS, refused=refused[:1])
    assert display.refused_text(STATS) == ""
    assert display.refused_text(stats) == "worker w-0 on machine one does not take hook own: E:   x"
    said = display.refused_text(msgspec.structs.replace(stats, refused=refused, stuck=True))
    assert said.startswith("no worker can take the crawl")
    assert said.endswith("nor can 2 others")
    shown = " ".join(_text(status.table(Stats((stats,))), 400).split())
    assert "example: worker w-0 on machine one does not take hook own: E: x" in shown


def _text(shown: RenderableType, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    with console.capture() as capture:
        console.print(shown)
    return capture.get()


def test_rate_is_the_mean_over_the_last_ten_seconds() -> None:
    hands = Hands()
    rate = display.Rate(hands)
    assert rate.update(50) == 0.0
    for second in range(1, 21):
        hands.now = 100.0 + second
        shown = rate.update(50 + (0 if second < 10 else (second - 9) * 4))
    assert shown == pytest.approx(4.0, rel=0.1)


def test_rate_never_falls_below_zero_when_a_counter_is_rebuilt() -> None:
    hands = Hands()
    rate = display.Rate(hands)
    rate.update(100)
    hands.now += 1
    assert rate.update(10) == 0.0


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2e9, "2.0 GB"), (3e15, "3000.0 TB")],
)
def test_a_size_is_shown_with_a_unit(count: float, text: str) -> None:
    assert display.size(count) == text


@pytest.mark.parametrize(("seconds", "text"), [(7.9, "0:07"), (754, "12:34"), (3723, "1:02:03")])
def test_a_duration_is_shown_in_hours_minutes_and_seconds(seconds: float, text: str) -> None:
    assert display.duration(seconds) == text


def test_a_progress_line_shows_every_counter() -> None:
    text = display.line(STATS, 12.34, 65)
    for part in ("1:05", "1,200 pages", "34 waiting", "5 in flight", "6 to retry", "12.3 pages/s"):
        assert part in text
    assert text.endswith("failed tries: gone 3, timeout 1")


def test_hosts_without_a_measured_latency_are_not_called_slow() -> None:
    assert display.slowest_text(HOSTS) == "slow.example 1.25 s"
    assert display.slowest_text(()) == "none yet"


def test_control_characters_of_foreign_servers_do_not_reach_the_terminal() -> None:
    assert display.printable("a\x1b[31m\tb\n中") == "a [31m b 中"


def test_without_a_terminal_a_line_is_printed_every_few_seconds() -> None:
    hands, out = Hands(), io.StringIO()
    with display.Display(Console(file=out, force_terminal=False), hands) as shown:
        shown.show(STATS)
        hands.now += 1
        shown.show(STATS)
        assert out.getvalue().count("pages stored") == 1
        hands.now += display.PLAIN_SECONDS
        shown.show(STATS)
        assert out.getvalue().count("pages stored") == 2
        shown.note("waiting [Errno 111]")
        shown.note("waiting [Errno 111]")
    assert out.getvalue().count("waiting [Errno 111]") == 1


def test_on_a_terminal_the_panel_shows_counts_hosts_and_note() -> None:
    hands, out = Hands(), io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    with display.Display(console, hands) as shown:
        shown.note("the broker died and was started again")
        shown.show(STATS, HOSTS)
    text = out.getvalue()
    for part in ("crawl example", "1,200", "slow.example 1.25 s", "the broker died", "gone 3"):
        assert part in text


def test_a_note_is_shown_on_a_terminal_before_any_counts_arrive() -> None:
    out = io.StringIO()
    with display.Display(Console(file=out, force_terminal=True, width=100), Hands()) as shown:
        shown.note("waiting for the broker")
        assert "waiting for the broker" in out.getvalue()
        shown.show(STATS)
        shown.note("it has not answered for 10 s")
        assert "it has not answered for 10 s" in out.getvalue()


def test_counts_are_marked_as_a_minimum_while_a_node_is_away() -> None:
    one = CrawlStats(crawl="a", state="active", reason="", stored=1234, waiting=3)
    away = (NodeAway("redis://b", 1, "Redis at redis://b is away"),)
    for nodes, marked in (((), False), (away, True)):
        out = io.StringIO()
        Console(file=out, width=160).print(status.table(Stats((one,), away=nodes)))
        assert "1,234" in out.getvalue()
        assert (">=1,234" in out.getvalue()) is marked


@pytest.mark.parametrize("parked", [0, 7])
def test_the_status_table_fits_into_80_columns(parked: int) -> None:
    one = CrawlStats(
        crawl="docs.example.org", state="done", reason="finished", stored=12_345, waiting=345,
        parked=parked, bytes=123_456_789, failures={"timeout": 1, "gone": 3},
    )  # fmt: skip
    out = io.StringIO()
    Console(file=out, width=80).print(status.table(Stats((one,))))
    said = out.getvalue()
    assert "…" not in said
    for part in ("12,345", "345", "123.5 MB", "in flight", "failed tries: gone 3, timeout 1"):
        assert part in said
    assert ("parked" in said) is bool(parked)


def test_status_shows_a_question_mark_for_counts_of_redis_if_redis_is_not_asked() -> None:
    for reason, marks in (("", 3), ("max_pages", 3), ("finished", 0)):
        one = CrawlStats(crawl="a", state="done", reason=reason, stored=5)
        out = io.StringIO()
        Console(file=out, width=80).print(status.table(Stats((one,)), whole=False))
        assert out.getvalue().count("?") == marks


def test_status_says_that_no_worker_takes_urls_and_that_two_hosts_share_an_id() -> None:
    waits = CrawlStats(crawl="a", state="active", reason="", waiting=3)
    text = display.workers_text
    assert text(Stats((waits,))) == "", "not known"
    assert text(Stats((waits,), workers=2)) == ""
    assert "no worker takes URLs" in text(Stats((waits,), workers=0))
    for quiet in ({"leased": 1}, {"state": "paused"}, {"waiting": 0}):
        other = msgspec.structs.replace(waits, **quiet)
        assert text(Stats((other,), workers=0)) == ""
    both = text(Stats((waits,), workers=0, claimed_twice=("w-0", "w-1")))
    assert both.startswith("no worker takes URLs")
    assert "worker id claimed twice: w; give" in both


def test_status_names_a_full_node_and_what_to_set() -> None:
    for used, near in ((900_000, "near"), (2_200_000, "at")):
        full = NodeFull("redis://10.0.0.7:6379", used, 1_000_000)
        out = io.StringIO()
        Console(file=out, width=240).print(status.table(Stats((), full=(full,))))
        assert f"Redis at redis://10.0.0.7:6379 is {near} its memory limit: it" in out.getvalue()
        assert f"{used / 1000:.1f} kB" in out.getvalue() or "2.2 MB of 1.0 MB" in out.getvalue()
        assert "set its maxmemory higher" in out.getvalue()


def test_hosts_that_rest_after_a_crash_are_reported_once_without_a_terminal() -> None:
    assert display.rest_text(Stats(())) == ""
    one = Stats((), rest_hosts=1, rest_seconds=0.2)
    assert display.rest_text(one) == "1 host rests for 1 s after a crash"
    out = io.StringIO()
    with display.Display(Console(file=out)) as shown:
        for seconds in (41.2, 40.1):
            text = display.rest_text(Stats((), rest_hosts=3, rest_seconds=seconds))
            shown.note(text, "crash")
        shown.note("")
        shown.note("another")
    assert out.getvalue().splitlines() == ["3 hosts rest for 41 s after a crash", "another"]
