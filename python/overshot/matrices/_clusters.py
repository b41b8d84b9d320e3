"""Clusters of rows around centers: k-means."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from overshot.matrices._tables import dtype_of_products, run, some_rows, table

#: The most rows among which a start is searched.
_SAMPLE = 65_536


class Clusters(NamedTuple):
    """What `kmeans` found. All but the centers is about the nearest center of each row."""

    #: A center in each row.
    centers: np.ndarray
    #: The sum of the squared distances of all rows from their centers.
    inertia: float
    #: The number of rows of each center.
    counts: np.ndarray
    #: The number of the center of each row, if `labels=True`.
    labels: np.ndarray | None
    #: How many times the centers were computed.
    iterations: int
    #: Whether the centers moved no more than the tolerance in the last iteration.
    converged: bool


class Assignment(NamedTuple):
    """What `assign` found: for each row, the number of the nearest center, and the distance from it."""

    labels: np.ndarray
    distances: np.ndarray


class _Sums(NamedTuple):
    """What a pass finds, with rows and centers counted from `shift`."""

    counts: np.ndarray
    sums: np.ndarray
    squares: float
    shift: np.ndarray
    labels: np.ndarray | None


def kmeans(
    x: Any,
    count_or_start: Any,
    /,
    *,
    iterations: int = 20,
    tolerance: float = 0.0,
    seed: int = 0,
    labels: bool = False,
    **options: Any,
) -> Clusters:
    """Clusters of rows, each around the mean of its rows, by Lloyd's algorithm. An iteration is one pass over the rows.

    >>> x = np.array([[0.0, 0], [0, 1], [8, 8], [8, 9], [9, 8]])
    >>> found = ov.matrices.kmeans(x, x[:2], labels=True)
    >>> found.labels
    array([0, 0, 1, 1, 1])
    >>> found.centers[0], found.counts, round(found.inertia, 3)
    (array([0. , 0.5]), array([2, 3]), 1.833)

    The start is an array of centers, `(k, d)`, or their number. Then k-means++ takes rows that are far from each other
    for a start, among at most 65 536 rows that are drawn with `seed`: they, and so the result, are the same each time.
    Iterations end when the squared movements of the centers add up to no more than `tolerance` times the mean variance
    of the columns, as in scikit-learn, or after `iterations`. A center without rows stays where it is.

    Products have the dtype of `x`, `float32` or `float64`; sums, centers and the inertia are `float64`. With
    `precision="tf32"`, GPUs find the nearest centers of `float32` rows on tensor cores.
    """
    rows = table("x", x)
    if iterations < 1:
        raise ValueError(f"there is at least one iteration, and not {iterations}")
    centers = _start(rows, count_or_start, seed, options)
    # Rows are counted from the middle of the start, because differences of large squares lose digits. It stays the
    # same, so that centers whose rows stay the same do not move at all.
    shift = _middle(rows, centers)
    limit, converged, done = 0.0, False, 0
    while not converged and done < iterations:
        found = _pass(rows, centers, shift, options, with_squares=tolerance > 0 and not done)
        limit = tolerance * _variance(found) if tolerance > 0 and not done else limit
        moved = _means(found, centers)
        converged = bool(((moved - centers) ** 2).sum() <= limit)
        centers, done = moved, done + 1
    last = _pass(rows, centers, _middle(rows, centers), options, with_squares=True, with_labels=labels)
    return Clusters(centers, _inertia(last, centers), last.counts, last.labels, done, converged)


def assign(x: Any, centers: Any, /, **options: Any) -> Assignment:
    """The nearest of some centers for each row, and the distance from it, in one pass. Of two centers at the same
    distance it is the first one.

    >>> ov.matrices.assign(np.array([[1.0, 1], [9, 9]]), np.array([[0.0, 0], [9, 8]]))
    Assignment(labels=array([0, 1]), distances=array([1.41421356, 1.        ]))

    Labels are computed in the dtype of `x`, `float32` or `float64`, so that they are those of `kmeans`, and distances
    as `float64`. Results go to files with `out={"labels": "labels.npy", "distances": "distances.npy"}`.
    """
    rows = table("x", x)
    given = _given(rows, centers)
    names, cast = _inputs(rows, given, _middle(rows, given))
    squares = "e"
    if cast == "f32":
        near = given - names["m"]
        names.update(near=near, norms=(near**2).sum(axis=1))
        squares = "norms - 2 * (f64(u) @ near.T)"
    text = f"{_labels(cast, 'labels')}; f = {squares}"
    text += "; distances = sqrt(maximum((f64(u) * f64(u)) @ ones + min(f, axis=1), 0))"
    found = run(text, names, options)
    return Assignment(found["labels"], found["distances"])


def _start(rows: Any, count_or_start: Any, seed: int, options: dict[str, Any]) -> np.ndarray:
    """The centers that the first iteration begins with."""
    if np.ndim(count_or_start):
        return _given(rows, count_or_start)
    count, (all_rows, _) = int(count_or_start), rows.shape
    if not 1 <= count <= min(all_rows, _SAMPLE):
        raise ValueError(f"there are from 1 to {min(all_rows, _SAMPLE)} centers, and not {count}; or pass an array")
    random = np.random.default_rng(seed)
    is_small = all_rows <= _SAMPLE
    numbers = np.arange(all_rows) if is_small else np.sort(random.choice(all_rows, _SAMPLE, replace=False))
    sample = some_rows(rows, numbers, options).astype(np.float64)
    if not np.isfinite(sample).all():
        raise ValueError("x has rows that are infinite or NaN: fill them, or leave them out")
    centers: np.ndarray = sample[_far_apart(sample - sample.mean(axis=0), count, random)]
    return centers


def _far_apart(sample: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    """The numbers of the rows that k-means++ chooses. Each time it draws some rows, with a probability that is
    proportional to their squared distance from those chosen before, and takes the one that leaves the least inertia."""
    norms = (sample**2).sum(axis=1)
    trials = 2 + int(np.log(count))
    chosen = [int(random.integers(len(sample)))]
    left = np.full(len(sample), np.inf)
    while True:
        center = sample[chosen[-1]]
        left = np.minimum(left, np.maximum(norms - 2 * (sample @ center) + center @ center, 0))
        if len(chosen) == count:
            return np.array(chosen)
        places = np.searchsorted(np.cumsum(left), random.random(trials) * left.sum(), side="right")
        drawn = np.minimum(places, len(sample) - 1)
        squares = norms[:, None] - 2 * (sample @ sample[drawn].T) + norms[drawn]
        best = np.minimum(left[:, None], squares).sum(axis=0).argmin()
        chosen.append(int(drawn[best]))


def _given(rows: Any, centers: Any) -> np.ndarray:
    """Centers of the caller."""
    given = np.array(centers, np.float64)
    if given.ndim != 2 or given.shape[1] != rows.shape[1] or not len(given):
        raise ValueError(f"centers have the shape (k, {rows.shape[1]}), as rows of x have, and not {given.shape}")
    if not np.isfinite(given).all():
        raise ValueError("centers are infinite or NaN")
    return given


def _middle(rows: Any, centers: np.ndarray) -> np.ndarray:
    """The mean of the centers, in the dtype of products."""
    middle: np.ndarray = centers.mean(axis=0).astype(dtype_of_products(rows))
    return middle


def _inputs(rows: Any, centers: np.ndarray, shift: np.ndarray) -> tuple[dict[str, Any], str]:
    """The inputs of a pass over rows that are counted from `shift`, and the dtype of its products as a conversion."""
    near = centers - shift
    names = {"x": rows, "m": shift, "c": near.astype(shift.dtype), "h": (near**2).sum(axis=1).astype(shift.dtype)}
    return {**names, "ones": np.ones(rows.shape[1])}, "f32" if shift.dtype == np.float32 else "f64"


def _labels(cast: str, name: str) -> str:
    """The text that finds the nearest center of each row. The squared norm of the row is the same for all centers, so
    it is left out."""
    return f"u = {cast}(x) - m; e = h - 2 * (u @ c.T); {name} = argmin(e, axis=1)"


def _pass(
    rows: Any,
    centers: np.ndarray,
    shift: np.ndarray,
    options: dict[str, Any],
    *,
    with_squares: bool = False,
    with_labels: bool = False,
) -> _Sums:
    """Reads all rows once."""
    names, cast = _inputs(rows, centers, shift)
    count = len(centers)
    text = f"{_labels(cast, 'label')}; n = bincount(label, {count}); s = onehot(label, {count}).T @ f64(u)"
    if with_squares:
        # A product with ones is a sum within rows.
        text += "; squares = sum((f64(u) * f64(u)) @ ones)"
    else:
        del names["ones"]
    found = run(text, names, options, out={"label": None} if with_labels else None)
    if not np.isfinite(found["s"]).all():
        raise ValueError("x has rows that are infinite or NaN: fill them, or leave them out")
    squares = float(found["squares"]) if with_squares else np.nan
    return _Sums(found["n"], found["s"], squares, shift, found["label"] if with_labels else None)


def _means(found: _Sums, centers: np.ndarray) -> np.ndarray:
    """The means of the rows of each center; those without rows stay."""
    counts = found.counts[:, None]
    return np.where(counts > 0, found.shift + found.sums / np.maximum(counts, 1), centers)


def _variance(found: _Sums) -> float:
    """The mean of the variances of the columns."""
    rows, columns = max(int(found.counts.sum()), 1), found.sums.shape[1]
    mean = found.sums.sum(axis=0) / rows
    return float((found.squares / rows - mean @ mean) / columns)


def _inertia(found: _Sums, centers: np.ndarray) -> float:
    """The sum of the squared distances of the rows from their centers, all terms of which are `float64`."""
    near = centers - found.shift
    norms = (near**2).sum(axis=1)
    return max(float(found.squares - 2 * (near * found.sums).sum() + found.counts @ norms), 0.0)
