"""Rows 8 to 15 of ``make faults``: network, machine, pages and hosts around the processes."""

from __future__ import annotations

from bench import faults_machine, faults_network, faults_pages
from tests.support.faultrig import Row

ROWS: dict[int, Row] = {**faults_network.ROWS, **faults_machine.ROWS, **faults_pages.ROWS}
