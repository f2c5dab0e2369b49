"""The file of orders: what a worker reads from it, whatever happened to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from greencrawl.schema.records import NodeOptions
from greencrawl.worker.orders.kept import KeptOrders, OrdersFile

ORDERS = KeptOrders(3, NodeOptions(processes=4, drain=False))


def test_orders_that_one_process_writes_are_read_by_others(tmp_path: Path) -> None:
    path = tmp_path / "w.orders"
    one, other = OrdersFile(path), OrdersFile(path)
    assert other.read() == KeptOrders()
    one.write(ORDERS)
    assert other.read() == ORDERS
    one.write(KeptOrders(4))
    assert other.read() == KeptOrders(4)
    path.unlink()
    assert other.read() == KeptOrders(), "an operator has thrown it away"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"{", b'{"revision":1,"options":{"later":1}}', b"\xff"])
def test_a_damaged_file_of_orders_leaves_known_orders_in_force_and_is_written_anew(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "w.orders"
    file = OrdersFile(path)
    file.write(ORDERS)
    path.write_bytes(content)
    assert file.read() == ORDERS
    assert OrdersFile(path).read() == KeptOrders()
    file.write(ORDERS)
    assert OrdersFile(path).read() == ORDERS


def test_a_folder_that_takes_no_file_of_orders_is_only_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = OrdersFile(tmp_path / "missing" / "w.orders")
    file.write(ORDERS)
    assert "orders_not_kept" in capsys.readouterr().err
