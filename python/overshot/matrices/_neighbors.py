"""Nearest neighbours, exactly."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from overshot.matrices._tables import dtype_of_products, mapped, run, table

#: Queries that are searched in one pass.
_QUERIES = 1024
#: Rows that NumPy searches before the first pass. Each pass has three times as many rows as all before it.
_FIRST = 65_536
#: Elements of the largest arrays that NumPy computes on the way.
_ELEMENTS = 1 << 22

#: The numbers of rows that may be near to a query. Comparisons with NaN are false, so such rows are among them.
_PASS = "u = {cast}(x) - m; e = ((u * u) @ v) - 2 * (u @ q.T); y = index()[any(~(e > b), axis=1)]"


class Neighbors(NamedTuple):
    """What `nearest` found: in each row, the neighbours of a query, the nearest one first."""

    #: The numbers of rows of the base; -1 if there are too few rows that are finite.
    indices: np.ndarray
    #: Their distances from the query, as `float64`.
    distances: np.ndarray


def nearest(base: Any, queries: Any, count: int, /, **options: Any) -> Neighbors:
    """The `count` rows of `base` that are nearest to each of the queries, an array of the shape `(q, d)`. They are
    exact: distances are computed as `float64` from differences, and of rows at the same distance the first one counts.

    >>> base = np.array([[0.0, 0], [3, 4], [6, 8], [0, 1]])
    >>> ov.matrices.nearest(base, np.array([[0.0, 0.0]]), 3)
    Neighbors(indices=array([[0, 3, 1]]), distances=array([[0., 1., 5.]]))

    `base` is an array, a memory map, or the path of a `.npy` file. It is read once for each 1024 queries, beginning
    with few rows, whose neighbours tell for the next rows how near a row must be. A row that is near enough for any
    query, with a margin for the rounding of products, is compared by NumPy. Rows with NaN or infinities are no
    neighbours.
    """
    if "precision" in options:
        raise TypeError("neighbours are exact, so they have full precision: leave out precision=")
    rows = mapped(table("base", base))
    if not isinstance(rows, np.ndarray):
        raise TypeError("base is an array, a memory map or the path of a .npy file, of which rows can be taken")
    wanted = np.asarray(queries, np.float64)
    if wanted.ndim != 2 or wanted.shape[1] != rows.shape[1]:
        raise ValueError(f"queries have the shape (q, {rows.shape[1]}), as rows of base have, and not {wanted.shape}")
    if not np.isfinite(wanted).all():
        raise ValueError("queries are infinite or NaN")
    if not 1 <= count <= len(rows):
        raise ValueError(f"there are from 1 to {len(rows)} neighbours, and not {count}")
    indices = np.empty((len(wanted), count), np.int64)
    distances = np.empty((len(wanted), count))
    for first in range(0, len(wanted), _QUERIES):
        batch = slice(first, first + _QUERIES)
        best = _search(rows, wanted[batch], count, options)
        indices[batch], distances[batch] = best.indices, np.sqrt(best.squares)
    return Neighbors(indices, distances)


def _search(rows: np.ndarray, queries: np.ndarray, count: int, options: dict[str, Any]) -> _Best:
    """The neighbours of some queries."""
    first = min(len(rows), _FIRST)
    best = _Best(queries, count, _middle(rows[:first], dtype_of_products(rows)))
    best.add(rows, np.arange(first))
    while first < len(rows):
        block = rows[first : 4 * first]
        best.add(rows, first + _near(block, best, options))
        first += len(block)
    return best


def _middle(rows: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """A point in the middle of the rows. Distances are computed from squared norms, which should be small."""
    with np.errstate(invalid="ignore", over="ignore"):
        mean = rows.mean(axis=0, dtype=np.float64).astype(dtype)
    return np.where(np.isfinite(mean), mean, 0).astype(dtype)


def _near(block: np.ndarray, best: _Best, options: dict[str, Any]) -> np.ndarray:
    """The numbers of the rows of a block that may be nearer to a query than its neighbours so far."""
    dtype, width = best.middle.dtype, block.shape[1]
    norms = (best.queries**2).sum(axis=1)
    # Sums of so many products, in any order, and all other roundings are less than this times the squared norms of
    # the row and the query away from the exact value.
    margin = (2 * width + 16) * float(np.finfo(dtype).eps)
    bound = best.squares[:, -1] - norms * (1 - margin) + 8 * width * float(np.finfo(dtype).tiny)
    # A squared norm may overflow although the distance is less than a bound like this.
    bound = np.where(best.squares[:, -1] > np.finfo(dtype).max / 16, np.inf, bound)
    with np.errstate(over="ignore"):
        names = {
            "x": block,
            "m": best.middle,
            "v": np.full((width, 1), 1 - margin, dtype),
            "q": best.queries.astype(dtype),
            "b": np.nextafter(bound.astype(dtype), dtype.type(np.inf)),
        }
    found: np.ndarray = run(_PASS.format(cast="f32" if dtype == np.float32 else "f64"), names, options)["y"]
    return found


class _Best:
    """The neighbours of some queries so far: their numbers, and their squared distances in ascending order."""

    def __init__(self, queries: np.ndarray, count: int, middle: np.ndarray) -> None:
        self.exact = queries
        self.middle = middle
        #: Counted from the middle.
        self.queries = queries - middle
        self.indices = np.full((len(queries), count), -1, np.int64)
        self.squares = np.full((len(queries), count), np.inf)

    def add(self, rows: np.ndarray, numbers: np.ndarray) -> None:
        """Compares the rows with these ascending numbers."""
        step = max(min(4096, _ELEMENTS // max(self.queries.shape)), 1)
        for first in range(0, len(numbers), step):
            own = numbers[first : first + step]
            some = rows[own].astype(np.float64)
            row, query = self._candidates(some)
            squares = self._squares(some, row, query)
            is_finite = np.isfinite(squares)
            self._merge(query[is_finite], own[row[is_finite]], squares[is_finite])

    def _candidates(self, some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pairs of a row and a query that may be neighbours."""
        near = some - self.middle
        norms, own = (near**2).sum(axis=1, keepdims=True), (self.queries**2).sum(axis=1)
        margin = (2 * near.shape[1] + 16) * float(np.finfo(np.float64).eps) * (norms + own)
        with np.errstate(invalid="ignore"):
            squares = norms - 2 * (near @ self.queries.T) + own
            # The last neighbour is not farther than that of these rows alone.
            count = self.squares.shape[1]
            least, most = squares - margin, self.squares[:, -1]
            if count <= len(some):
                most = np.minimum(most, np.partition(squares + margin, count - 1, axis=0)[count - 1])
            row, query = np.nonzero(~(least > most))
        return row, query

    def _squares(self, some: np.ndarray, row: np.ndarray, query: np.ndarray) -> np.ndarray:
        """The squared distance of each pair."""
        squares, step = np.empty(len(row)), max(_ELEMENTS // some.shape[1], 1)
        for first in range(0, len(row), step):
            own = slice(first, first + step)
            squares[own] = ((some[row[own]] - self.exact[query[own]]) ** 2).sum(axis=1)
        return squares

    def _merge(self, query: np.ndarray, numbers: np.ndarray, squares: np.ndarray) -> None:
        """Puts pairs among the neighbours, in order of queries, distances and numbers."""
        queries, count = self.squares.shape
        query = np.concatenate([np.repeat(np.arange(queries), count), query])
        numbers = np.concatenate([self.indices.reshape(-1), numbers])
        squares = np.concatenate([self.squares.reshape(-1), squares])
        order = np.lexsort((numbers, squares, query))
        firsts = np.searchsorted(query[order], np.arange(queries))
        kept = order[firsts[:, None] + np.arange(count)]
        self.indices, self.squares = numbers[kept], squares[kept]
