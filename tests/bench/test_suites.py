"""The table of a suite: how many cases each reader gets right, and whether ours reaches its
goal."""

from __future__ import annotations

from bench.suites.table import Figure, text, tried


def raises(case: int) -> bool:
    if case > 2:
        raise ValueError(case)
    return True


def test_a_case_counts_as_wrong_if_the_library_raises_an_error() -> None:
    found = tried("odd", [1, 2, 3], lambda case: case % 2 == 1, {"a": raises}, 3, str)
    assert (found.of, found.ours, found.others, found.wrong) == (3, 2, {"a": 2}, ["2"])
    assert not found.reached


def test_the_table_names_the_best_other_library_and_each_missed_goal() -> None:
    short = Figure("one", 2000, 1500, {"a": 3, "b": 1400}, 1600, ["x", "y"])
    enough = Figure("two", 10, 10, {"c": 1}, 10)
    lines = text([short, enough], 1).splitlines()
    assert lines[0] == "| suite | ours | best library | of | at least | a | b | c |"
    assert lines[2] == "| one | 1,500 | 1,400 (b) | 2,000 | 1,600 MISSED | 3 | 1,400 |  |"
    assert lines[3] == "| two | 10 | 1 (c) | 10 | 10 |  |  | 1 |"
    assert lines[4:] == ["", "one: wrong here 2", "  x"]
