"""Intervals by resampling sites: pages of one site are similar, and count together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

DRAWS = 2000
PERCENT = (2.5, 97.5)

Figure = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def interval(
    values: NDArray[np.float64], sites: Sequence[str], figure: Figure
) -> tuple[float, float, float]:
    """Return a figure over all pages, and the ends of its interval of 95 %.

    ``values`` has a row of addends for each page; ``figure`` makes its value from their sums, and
    takes many such rows at once.
    """
    _, place = np.unique(np.array(sites), return_inverse=True)
    sums = np.zeros((place.max() + 1, values.shape[1]))
    np.add.at(sums, place, values)
    draws = np.random.default_rng(1).multinomial(
        len(sums), np.full(len(sums), 1 / len(sums)), DRAWS
    )
    low, high = np.percentile(figure(draws @ sums), PERCENT)
    return float(figure(sums.sum(axis=0)[None, :])[0]), float(low), float(high)


def mean(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean from sums of (value, 1)."""
    return np.asarray(sums[:, 0] / sums[:, 1])


def precision(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the precision from sums of (hit, missed, wrong)."""
    return np.asarray(sums[:, 0] / np.maximum(sums[:, 0] + sums[:, 2], 1))


def recall(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the recall from sums of (hit, missed, wrong)."""
    return np.asarray(sums[:, 0] / np.maximum(sums[:, 0] + sums[:, 1], 1))


def snippet_f1(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return F1 from sums of (hit, missed, wrong)."""
    return np.asarray(2 * sums[:, 0] / np.maximum(2 * sums[:, 0] + sums[:, 1] + sums[:, 2], 1))
