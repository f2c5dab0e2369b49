"""Packed trees: they name their source, and broken ones are refused."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greencrawl.worker.extract.main.text import MODEL
from greencrawl.worker.extract.page import tree_of
from greencrawl.worker.extract.text import compiled
from greencrawl.worker.extract.train.packed import packed

if compiled is None:
    pytest.skip("nothing was compiled", allow_module_level=True)
module: ModuleType = compiled

HOPELESS = -3.5
"""A block whose sum is below this after a quarter of the trees is given up, as in trees.c."""

NAMES, DIGEST = module.main_features()
PAGE = "".join(f"<p>{'word ' * i}<li><a href=/{i}>{'link ' * i}</a>" for i in range(1, 40))
ROOT = tree_of(PAGE.encode())[0]


def leaf(value: float) -> dict[str, Any]:
    return {"leaf_value": value}


def node(
    feature: int, threshold: float, less: dict[str, Any], more: dict[str, Any]
) -> dict[str, Any]:
    return {
        "split_feature": feature, "threshold": threshold, "left_child": less, "right_child": more
    }  # fmt: skip


TREES = st.recursive(
    st.builds(leaf, st.floats(-2, 2)),
    lambda inner: st.builds(
        node, st.integers(0, len(NAMES) - 1), st.integers(0, 254), inner, inner
    ),
    max_leaves=24,
)


def said(tree: dict[str, Any], row: bytes) -> float:
    while "leaf_value" not in tree:
        less = row[tree["split_feature"]] <= tree["threshold"]
        tree = tree["left_child" if less else "right_child"]
    return float(tree["leaf_value"])


@given(trees=st.lists(TREES, max_size=9), bias=st.sampled_from([-7.0, -4.0, -1.0, 0.0, 2.5]))
def test_scores_are_those_of_the_trees(trees: list[dict[str, Any]], bias: float) -> None:
    model = module.main_model(packed(trees, DIGEST, 1, bias))
    blocks, rows = module.main_blocks(ROOT, model)
    width = len(NAMES)
    assert len(rows) == width * len(blocks)
    for i, block in enumerate(blocks):
        row = rows[i * width : (i + 1) * width]
        raw = bias + sum(said(tree, row) for tree in trees[: len(trees) // 4])
        if raw >= HOPELESS:
            raw += sum(said(tree, row) for tree in trees[len(trees) // 4 :])
        assert block[4] == pytest.approx(1 / (1 + math.exp(-raw)), abs=2e-3)


def test_a_tree_with_too_many_leaves_cannot_be_packed() -> None:
    tree = leaf(0)
    for _ in range(128):
        tree = node(0, 1, tree, leaf(1))
    with pytest.raises(ValueError, match="more than 128 leaves"):
        packed([tree], DIGEST)


def test_a_model_of_other_features_is_refused() -> None:
    with pytest.raises(ValueError, match="other features"):
        module.main_model(packed([], DIGEST ^ 1))


@pytest.mark.parametrize(
    "broken", [b"", b"GCM2", MODEL.read_bytes()[:-1], MODEL.read_bytes() + b"x"]
)
def test_a_model_cut_short_or_too_long_is_refused(broken: bytes) -> None:
    with pytest.raises(ValueError):
        module.main_model(broken)


@given(
    changes=st.lists(st.tuples(st.integers(22, 400), st.integers(0, 255)), min_size=1, max_size=9)
)
def test_a_broken_model_is_refused_or_can_be_used(changes: list[tuple[int, int]]) -> None:
    data = bytearray(MODEL.read_bytes())
    for at, value in changes:
        data[at] = value
    try:
        model = module.main_model(bytes(data))
    except ValueError:
        return
    assert all(0 <= block[4] <= 1 for block in module.main_blocks(ROOT, model)[0])


def test_the_package_has_a_model_of_at_most_60_kilobytes() -> None:
    assert len(MODEL.read_bytes()) <= 60_000
    assert module.main_model(MODEL.read_bytes()) is not None


@given(probabilities=st.lists(st.sampled_from([-3.0, -1.0, 0.0, 1.0, 3.0]), min_size=3, max_size=3))
def test_the_chosen_blocks_have_the_highest_expected_f1(
    probabilities: list[float],
) -> None:
    """The best of all choices by the formula: twice the hits, over what is taken plus all there
    is."""
    sizes = (5, 20, 80)
    root, _ = tree_of(
        "".join(f"<h{i}>{chr(97 + i) * n}</h{i}>" for i, n in enumerate(sizes, 1)).encode()
    )
    first, second, third = probabilities
    heading = NAMES.index("heading")
    tree = node(heading, 1, leaf(first), node(heading, 2, leaf(second), leaf(third)))
    blocks, _ = module.main_blocks(root, module.main_model(packed([tree], DIGEST)))
    scores = [block[4] for block in blocks]

    def expected(chosen: list[int]) -> float:
        hit = sum(scores[i] * sizes[i] for i in chosen)
        everything = sum(score * size for score, size in zip(scores, sizes, strict=True))
        return 2 * hit / (sum(sizes[i] for i in chosen) + everything)

    choices = [[i for i in range(3) if mask >> i & 1] for mask in range(1, 8)]
    found = [i for i, block in enumerate(blocks) if block[5]]
    assert expected(found) == pytest.approx(max(map(expected, choices)), abs=1e-3)


OFFER = '{"@type": "Product", "offers": {"@type": "Offer", "price": "1"}}'
SOLD = {
    "nothing is said": ("", 2),
    "a product, by OpenGraph": ("<meta property=og:type content=product>", 1),
    "a group of products": ("<meta property=og:type content=product.group>", 2),
    "a product with an offer": (OFFER, 1),
    "a product without one": ('{"@type": "Product", "name": "Tea"}', 2),
    "an event with an offer": (OFFER.replace("Product", "Event"), 2),
    "a list of products": (f"[{', '.join([OFFER] * 20)}]", 2),
}


@pytest.mark.parametrize("what", SOLD)
def test_fewer_blocks_are_chosen_on_a_page_that_sells_one_product(what: str) -> None:
    said, taken = SOLD[what]
    head = said if said.startswith("<") else f"<script type='application/ld+json'>{said}</script>"
    texts = [f"{word} {'word ' * 60}".strip() for word in ("one", "other")]
    root = tree_of(f"<title>T</title>{head}<p>{texts[0]}</p><div>{texts[1]}</div>".encode())[0]
    tree = node(NAMES.index("p"), 0, leaf(0.0), leaf(2.0))
    model = module.main_model(packed([tree], DIGEST, 0.8))
    assert module.main_text(root, model, None, False).split("\n\n") == texts[:taken]
