"""Trees as packed tables; ``main/trees.c`` reads and documents them."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from typing import Any

LARGEST = 30_000
"""The largest value of a leaf, in steps: it needs both bytes of a leaf."""


def packed(
    trees: Iterable[dict[str, Any]], digest: int, recall: float = 1.0, bias: float = 0.0
) -> bytes:
    """Return a model from LightGBM's ``tree_structure`` objects, made for features with that
    digest.

    ``recall``: how many times as much recall counts as precision when blocks are chosen. Raises
    ValueError for a tree of more than 128 leaves.
    """
    shapes = [_shape(tree) for tree in trees]
    most = max((abs(value) for _, values in shapes for value in values), default=0.0)
    unit = LARGEST / max(most, 0.01)
    head = struct.pack("<4sIHfff", b"GCM2", digest, len(shapes), unit, bias, recall)
    return head + b"".join(
        bytes([len(nodes)])
        + b"".join(struct.pack("<H3B", *node) for node in nodes)
        + b"".join(struct.pack("<h", round(value * unit)) for value in values)
        for nodes, values in shapes
    )


def _shape(tree: dict[str, Any]) -> tuple[list[list[int]], list[float]]:
    """Return the nodes in order, and the values of the leaves. A node is a feature, a threshold,
    the next node if the feature is at most that, and the next node if it is more."""
    nodes: list[list[int]] = []
    values: list[float] = []

    def lay(node: dict[str, Any]) -> int:
        if "leaf_value" in node:
            values.append(float(node["leaf_value"]))
            return 128 + len(values) - 1
        place = len(nodes)
        if place > 126:
            raise ValueError("a tree has more than 128 leaves")
        threshold = min(255, max(0, math.floor(float(node["threshold"]))))
        nodes.append([int(node["split_feature"]), threshold, 0, 0])
        nodes[place][2] = lay(node["left_child"])
        nodes[place][3] = lay(node["right_child"])
        return place

    lay(tree)
    return nodes, values
