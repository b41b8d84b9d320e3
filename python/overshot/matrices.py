"""Products of tables larger than a GPU's memory, and what follows from them: covariances, principal components and
least squares.

The rows are read once or twice, as `evaluate` reads them; what is left is a small matrix, which NumPy solves. A table
is an array of NumPy, a memory map, a file or a path, with the shape `(n, d)`. All functions take the keyword arguments
of `evaluate`, such as `device="cuda"` and `device_memory="2GiB"`.

>>> import numpy as np, overshot as ov
>>> x = np.arange(12.0).reshape(6, 2)
>>> ov.matrices.gram(x)
array([[220., 250.],
       [250., 286.]])
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from overshot._engine import evaluate

__all__ = ["LinearModel", "PrincipalComponents", "covariance", "gram", "linear", "pca"]


class PrincipalComponents(NamedTuple):
    """What `pca` found: the directions in which the rows vary most."""

    #: A direction in each row, of length 1, with the largest variance first. Its largest element is positive.
    components: np.ndarray
    #: The variance along each of them.
    variance: np.ndarray
    #: The mean of the rows, from which directions are counted.
    mean: np.ndarray


class LinearModel(NamedTuple):
    """What `linear` found: `t` is about `x @ weights + intercept`."""

    weights: np.ndarray
    intercept: float


def gram(x: Any, /, **options: Any) -> np.ndarray:
    """The products of all columns with all columns, `x.T @ x`, of the dtype of `x`: `float32` or `float64`."""
    products: np.ndarray = evaluate("x.T @ x", {"x": x}, **options)
    return products


def covariance(x: Any, /, *, ddof: int = 1, **options: Any) -> np.ndarray:
    """The covariance of the columns, as `np.cov(x, rowvar=False, ddof=ddof)`, as `float64`. It takes two passes: the
    means are subtracted before the products, so that columns with a large mean lose no digits."""
    return _moments(x, options, ddof)[1]


def pca(x: Any, count: int, /, **options: Any) -> PrincipalComponents:
    """The first `count` principal components, exactly, through the covariance of the columns. It is for tables with up
    to some thousand columns."""
    mean, variance = _moments(x, options, 1)
    if not 1 <= count <= len(mean):
        raise ValueError(f"there are from 1 to {len(mean)} components, and not {count}")
    values, vectors = np.linalg.eigh(variance)
    components = vectors.T[::-1][:count]
    largest = np.take_along_axis(components, np.abs(components).argmax(axis=1, keepdims=True), axis=1)
    return PrincipalComponents(components * np.sign(largest), np.maximum(values[::-1][:count], 0), mean)


def linear(x: Any, t: Any, /, *, ridge: float = 0.0, intercept: bool = True, **options: Any) -> LinearModel:
    """Least squares: the weights for which `x @ weights + intercept` is closest to `t`, of the shape `(n,)`. `ridge` is
    the penalty for the squares of the weights, but not for the intercept. Computed as `float64`.

    Raises `numpy.linalg.LinAlgError` if the columns depend on each other, so that there are many such weights; a small
    `ridge` chooses one.
    """
    if ridge < 0:
        raise ValueError(f"the penalty `ridge` is not negative, as {ridge} is")
    if isinstance(t, np.ndarray) and t.ndim == 1:
        t = t[:, None]
    if intercept:
        text = "m = mean(f64(x), axis=0); k = mean(f64(t)); u = f64(x) - m; v = f64(t) - k; g = u.T @ u; b = u.T @ v"
    else:
        text = "u = f64(x); g = u.T @ u; b = u.T @ f64(t)"
    found = evaluate(text, {"x": x, "t": t}, **options)
    products = found["g"] + ridge * np.eye(len(found["g"]))
    weights = np.linalg.solve(products, found["b"].reshape(-1))
    shift = float(found["k"] - found["m"] @ weights) if intercept else 0.0
    return LinearModel(weights, shift)


def _moments(x: Any, options: dict[str, Any], ddof: int) -> tuple[np.ndarray, np.ndarray]:
    """The means and the covariance of the columns."""
    found = evaluate("m = mean(f64(x), axis=0); u = f64(x) - m; g = u.T @ u", {"x": x}, **options)
    rows = found.report.rows
    if rows <= ddof:
        raise ValueError(f"{rows} rows have no covariance with ddof={ddof}")
    return found["m"], found["g"] / (rows - ddof)
