"""Moments of the columns, and least squares from them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from overshot.matrices._tables import per_row, run


class LinearModel(NamedTuple):
    """What `linear` found: `t` is about `x @ weights + intercept`."""

    weights: np.ndarray
    intercept: float


def gram(x: Any, /, **options: Any) -> np.ndarray:
    """The products of all columns with all columns, `x.T @ x`, of the dtype of `x`: `float32` or `float64`."""
    products: np.ndarray = run("x.T @ x", {"x": x}, options)
    return products


def covariance(x: Any, /, *, ddof: int = 1, **options: Any) -> np.ndarray:
    """The covariance of the columns, as `np.cov(x, rowvar=False, ddof=ddof)`, as `float64`. It takes two passes: the
    means are subtracted before the products, so that columns with a large mean lose no digits."""
    return moments(x, options, ddof)[1]


def linear(x: Any, t: Any, /, *, ridge: float = 0.0, intercept: bool = True, **options: Any) -> LinearModel:
    """Least squares: the weights for which `x @ weights + intercept` is closest to `t`, of the shape `(n,)`. `ridge` is
    the penalty for the squares of the weights, but not for the intercept. Computed as `float64`.

    Raises `numpy.linalg.LinAlgError` if the columns depend on each other, so that there are many such weights; a small
    `ridge` chooses one.
    """
    if ridge < 0:
        raise ValueError(f"the penalty `ridge` is not negative, as {ridge} is")
    if intercept:
        text = "m = mean(f64(x), axis=0); k = mean(f64(t)); u = f64(x) - m; v = f64(t) - k; g = u.T @ u; b = u.T @ v"
    else:
        text = "u = f64(x); g = u.T @ u; b = u.T @ f64(t)"
    found = run(text, {"x": x, "t": per_row("t", t)}, options)
    products = found["g"] + ridge * np.eye(len(found["g"]))
    weights = np.linalg.solve(products, found["b"].reshape(-1))
    shift = float(found["k"] - found["m"] @ weights) if intercept else 0.0
    return LinearModel(weights, shift)


def moments(x: Any, options: dict[str, Any], ddof: int) -> tuple[np.ndarray, np.ndarray]:
    """The means and the covariance of the columns."""
    found = run("m = mean(f64(x), axis=0); u = f64(x) - m; g = u.T @ u", {"x": x}, options)
    rows = found.report.rows
    if rows <= ddof:
        raise ValueError(f"{rows} rows have no covariance with ddof={ddof}")
    return found["m"], found["g"] / (rows - ddof)
