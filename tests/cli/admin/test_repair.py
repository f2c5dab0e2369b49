"""How ``greencrawl repair`` shows the progress of a node."""

from __future__ import annotations

import pytest

from greencrawl.cli.admin.repair import line
from greencrawl.schema.records import NodeRepair


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (
            NodeRepair(node="redis://a", phase="links", done=1500, total=6000, seconds=3.0),
            "redis://a: links 25%, 1,500 of 6,000 rows, 500/s",
        ),
        (NodeRepair(node="redis://a", phase="none"), "redis://a: none, 0 of 0 rows, 0/s"),
        (
            NodeRepair(node="redis://a", phase="seeds", detail="disk\x1b full"),
            "redis://a: seeds, 0 of 0 rows, 0/s, waits: disk  full",
        ),
    ],
)
def test_a_line_of_repair_shows_phase_share_rate_and_why_the_node_waits(
    node: NodeRepair, said: str
) -> None:
    assert line(node) == said
