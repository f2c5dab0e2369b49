"""The division of rows among statements."""

from __future__ import annotations

import pytest

from greencrawl.store.sqlite.batches import ROWS, STEP, marks, padded, parts, values


def test_rows_are_divided_in_order_into_few_parts_of_few_sizes() -> None:
    sizes = set()
    for count in range(5 * ROWS):
        rows = list(range(count))
        found = [list(part) for part in parts(rows)]
        assert [row for part in found for row in part] == rows
        assert len(found) <= count // ROWS + 2
        sizes |= {len(part) for part in found}
    assert sizes == {*range(1, STEP), *range(STEP, ROWS + 1, STEP)}


@pytest.mark.parametrize("count", [0, 1, STEP - 1, STEP, STEP + 1, 3 * STEP])
def test_a_padded_list_of_numbers_asks_for_no_other_row(count: int) -> None:
    asked = padded(list(range(count)))
    assert len(asked) % STEP == 0
    assert asked[:count] == list(range(count))
    assert set(asked) == set(range(count))


def test_statements_have_a_mark_for_each_value() -> None:
    assert marks(3) == "?, ?, ?"
    assert values("a, b", 2) == "(?, ?), (?, ?)"
    assert values("a, b", 2, stamped=True) == "(?1, ?, ?), (?1, ?, ?)"
