"""Rows 8 to 15 of ``make faults``: network, machine, pages and hosts around the processes."""

from __future__ import annotations

from bench.faults import machine, network, pages
from tests.support.faultrig import Row

ROWS: dict[int, Row] = {**network.ROWS, **machine.ROWS, **pages.ROWS}
