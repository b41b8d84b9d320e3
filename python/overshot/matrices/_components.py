"""Principal components."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

from overshot.matrices._moments import moments
from overshot.matrices._tables import run, table

#: The most columns for which the covariance of all columns is computed, unless the method is given.
_NARROW = 4096
#: Directions that are searched besides those that are wanted.
_MORE = 10


class PrincipalComponents(NamedTuple):
    """What `pca` found: the directions in which the rows vary most."""

    #: A direction in each row, of length 1, with the largest variance first. Its largest element is positive.
    components: np.ndarray
    #: The variance along each of them.
    variance: np.ndarray
    #: The mean of the rows, from which directions are counted.
    mean: np.ndarray


def pca(
    x: Any,
    count: int,
    /,
    *,
    method: str = "auto",
    tolerance: float = 1e-6,
    iterations: int = 12,
    seed: int = 0,
    **options: Any,
) -> PrincipalComponents:
    """The first `count` principal components, as `float64`.

    >>> x = np.array([[0.0, 0], [3, 4], [6, 8]])
    >>> found = ov.matrices.pca(x, 1)
    >>> found.components, found.variance
    (array([[0.6, 0.8]]), array([25.]))

    `method="exact"` takes two passes, and computes the covariance of all columns: of `d` columns, it has `d * d`
    elements. `method="randomized"` takes a pass for the means, and at most `iterations` passes that multiply the
    covariance by `count + 10` directions, the first of which are drawn with `seed`. The components are the best ones
    in the space of all directions so far (a block Krylov method), so that a few passes are enough. It ends when this
    space of components turns by less than `tolerance`, the sine of an angle, and warns if it does not. If the variance
    along the next component is nearly the same as along the last one, leave that one out, or give more iterations.
    `auto` is exact up to 4096 columns.
    """
    width = table("x", x).shape[1]
    if not 1 <= count <= width:
        raise ValueError(f"there are from 1 to {width} components, and not {count}")
    if method not in ("auto", "exact", "randomized"):
        raise ValueError(f"the method is 'auto', 'exact' or 'randomized', and not {method!r}")
    if method == "exact" or method == "auto" and width <= _NARROW:
        mean, products = moments(x, options, 1)
        values, vectors = np.linalg.eigh(products)
    else:
        values, vectors, mean = _krylov(x, count, tolerance, iterations, seed, options)
    components = vectors.T[::-1][:count]
    largest = np.take_along_axis(components, np.abs(components).argmax(axis=1, keepdims=True), axis=1)
    return PrincipalComponents(components * np.sign(largest), np.maximum(values[::-1][:count], 0), mean)


def project(x: Any, components: Any, /, **options: Any) -> np.ndarray:
    """The coordinates of each row along some directions: `(x - mean) @ components.T` for what `pca` returned, and
    `x @ components.T` for an array of directions, as `float64`.

    >>> x = np.array([[0.0, 0], [3, 4], [6, 8]])
    >>> ov.matrices.project(x, ov.matrices.pca(x, 1))
    array([[-5.],
           [ 0.],
           [ 5.]])

    `out="y.npy"` writes a file, as in `evaluate`.
    """
    if isinstance(components, PrincipalComponents):
        text, names = "(f64(x) - m) @ c.T", {"m": components.mean, "c": components.components}
    else:
        text, names = "f64(x) @ c.T", {"c": np.asarray(components, np.float64)}
    found: np.ndarray = run(text, {"x": x, **names}, options)
    return found


def _krylov(
    x: Any, count: int, tolerance: float, iterations: int, seed: int, options: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The variances along the last components, in ascending order, the components as columns, and the mean."""
    first = run("m = mean(f64(x), axis=0)", {"x": x}, options)
    mean, rows = first["m"], first.report.rows
    if rows < 2:
        raise ValueError(f"{rows} rows have no covariance with ddof=1")
    width = len(mean)
    # Orthonormal directions, and their products with the covariance.
    basis = products = np.empty((width, 0))
    values, vectors, turn = np.empty(0), np.empty((width, 0)), np.inf
    following = np.random.default_rng(seed).normal(size=(width, count + _MORE))
    for _ in range(max(iterations, 1)):
        block = _orthonormal(following, basis)
        found = run("u = f64(x) - m; z = u.T @ (u @ w)", {"x": x, "m": mean, "w": block}, options)
        following = found["z"] / (rows - 1)
        basis, products = np.hstack([basis, block]), np.hstack([products, following])
        inner = basis.T @ products
        values, places = np.linalg.eigh((inner + inner.T) / 2)
        before, vectors = vectors, basis @ places[:, -count:]
        turn = float(np.linalg.norm(before - vectors @ (vectors.T @ before), 2)) if before.size else np.inf
        if turn < tolerance or basis.shape[1] == width:
            break
    else:
        warnings.warn(
            f"the components still turned by {turn:.1e} in the last of {iterations} iterations: give more of them, or "
            "leave out components whose variances are close to those of others",
            RuntimeWarning,
            stacklevel=3,
        )
    return values, vectors, mean


def _orthonormal(directions: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Orthonormal directions that are orthogonal to a basis, too, as many as there are. What is left of directions
    within the basis is noise, which has to be made orthogonal again."""
    directions = directions[:, : basis.shape[0] - basis.shape[1]]
    for _ in range(3):
        directions = np.linalg.qr(directions - basis @ (basis.T @ directions))[0]
    return directions
