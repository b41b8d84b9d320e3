"""Logistic regression."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from overshot.matrices._tables import per_row, run

#: One pass. `q` is at most 1, so nothing overflows, whatever `z` is. The Hessian is a product of rows with themselves,
#: which takes half of the multiplications of others, and `r` times `r` is `p * (1 - p)`.
_PASS = """
u = f64(x) - m; y = f64(t); z = u @ w + b; q = exp(-abs(z)); p = where(z < 0, q, 1) / (1 + q); r = sqrt(q) / (1 + q);
v = u * r; e = p - y;
hessian = v.T @ v; mixed = v.T @ r; weight = sum(r * r);
gradient = u.T @ e; rest = sum(e);
loss = sum(maximum(z, 0) - z * y + log1p(q))
"""


class LogisticModel(NamedTuple):
    """What `logistic` found: `t` is 1 with the probability `1 / (1 + exp(-(x @ weights + intercept)))`."""

    weights: np.ndarray
    intercept: float
    #: The number of passes.
    iterations: int
    #: Whether the weights changed no more than the tolerance at last.
    converged: bool


def logistic(
    x: Any, t: Any, /, *, penalty: float = 0.0, tolerance: float = 1e-8, iterations: int = 25, **options: Any
) -> LogisticModel:
    """Logistic regression: the weights with the largest likelihood of `t`, which has 0 or 1, or a bool, for each row.

    >>> x = np.array([[0.0], [1], [2], [3], [4], [5]])
    >>> model = ov.matrices.logistic(x, np.array([0, 0, 1, 0, 1, 1]))
    >>> model.weights.round(4), round(model.intercept, 4)
    (array([1.214]), -3.0351)

    `penalty` times half of the squares of the weights, but not of the intercept, is added to the negative logarithm of
    the likelihood; in scikit-learn it is `1 / C`. If some plane divides the classes, weights without a penalty grow
    without end, and the model has not converged.

    Newton's method: each iteration is one pass that computes the likelihood, its gradient and its Hessian, as
    `float64`, after one pass for the means. A step is halved until the likelihood does not fall. Iterations end when
    the next step is expected to gain at most `tolerance` times the logarithm of the likelihood, or `tolerance` if that
    is less; that step is taken, too.

    Raises `numpy.linalg.LinAlgError` if the columns depend on each other, so that there are many such weights.
    """
    if penalty < 0:
        raise ValueError(f"the penalty is not negative, as {penalty} is")
    if iterations < 1:
        raise ValueError(f"there is at least one iteration, and not {iterations}")
    names: dict[str, Any] = {"x": x, "t": per_row("t", t)}
    first = run("m = mean(f64(x), axis=0); k = mean(f64(t)); other = count((t != 0) & (t != 1))", names, options)
    if first["other"]:
        raise ValueError(f"t has {first['other']} values that are neither 0 nor 1")
    mean, share = first["m"], float(first["k"])
    if not 0 < share < 1:
        raise ValueError("all rows have the same value of t: a regression needs rows of both")
    # Columns are counted from their means, so that those with large means lose no digits. The last parameter is the
    # intercept.
    ridge = np.append(np.full(len(mean), float(penalty)), 0.0)
    best = trial = _Point(np.append(np.zeros(len(mean)), np.log(share / (1 - share))))
    names["m"] = mean
    step, converged, done = np.zeros(len(mean) + 1), False, 0
    while not converged and done < iterations:
        trial.measure(names, ridge, options)
        done += 1
        # Rounding may add a little to a loss that is the least one. NaN is no success.
        if done > 1 and not trial.loss <= best.loss + 1e-12 * abs(best.loss):
            step = step / 2
        else:
            best = trial
            step = -np.linalg.solve(best.hessian, best.gradient)
            gain = -float(best.gradient @ step) / 2
            converged = gain <= tolerance * min(best.loss, 1.0)
        trial = _Point(best.parameters + step)
    parameters = (trial if converged else best).parameters
    weights = parameters[:-1]
    return LogisticModel(weights, float(parameters[-1] - mean @ weights), done, converged)


class _Point:
    """Parameters, with what a pass finds for them."""

    parameters: np.ndarray
    loss: float
    gradient: np.ndarray
    hessian: np.ndarray

    def __init__(self, parameters: np.ndarray) -> None:
        self.parameters = parameters

    def measure(self, names: dict[str, Any], ridge: np.ndarray, options: dict[str, Any]) -> None:
        """Runs the pass. `ridge` has a penalty for each parameter."""
        weights, intercept = self.parameters[:-1], float(self.parameters[-1])
        found = run(_PASS, {**names, "w": weights[:, None], "b": intercept}, options)
        self.loss = float(found["loss"]) + float(ridge @ self.parameters**2) / 2
        self.gradient = np.append(found["gradient"], found["rest"]) + ridge * self.parameters
        mixed, corner = found["mixed"], np.array([[found["weight"]]])
        self.hessian = np.block([[found["hessian"], mixed], [mixed.T, corner]]) + np.diag(ridge)
