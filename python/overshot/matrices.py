"""Products of tables larger than a GPU's memory, and what follows from them: covariances, principal components,
regressions, clusters and nearest neighbours.

The rows are read once or a few times, as `evaluate` reads them; what is left is small, and the cores compute it. A
table has the shape `(n, d)`: an array of NumPy or on a GPU, a memory map, a file or a path. All functions take the
keyword arguments of `Options`, such as `device="cuda"` and `device_memory="2GiB"`; or, with `engine=`, they run on an
engine of your own, and `x` may be one of its resident arrays.

>>> import numpy as np, overshot as ov
>>> x = np.arange(12.0).reshape(6, 2)
>>> ov.matrices.gram(x)
array([[220., 250.],
       [250., 286.]])

Tables with another shape, and numbers that have no meaning, are a `ValueError`; for others see `evaluate`.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np

from overshot import _core
from overshot._columns import column
from overshot._engine import Engine, _shared, log_notes
from overshot._outputs import finished, resolve
from overshot._progress import Progress, shown
from overshot._settings import Size

__all__ = [
    "Assignment",
    "Clusters",
    "LinearModel",
    "LogisticModel",
    "Neighbors",
    "Options",
    "PrincipalComponents",
    "assign",
    "covariance",
    "gram",
    "kmeans",
    "linear",
    "logistic",
    "nearest",
    "pca",
    "project",
]


class Options(TypedDict, total=False):
    """Where and how the passes over the rows run. All but the last four are those of `Engine`."""

    device: str
    device_memory: Size | None
    pinned_memory: Size | None
    chunk: Size | None
    workers: int | None
    #: An engine of your own, in place of the settings above.
    engine: Engine | None
    #: `"full"`, or `"bf16x3"` or `"tf32"` for products of `float32` on tensor cores; see `evaluate`.
    precision: str
    #: Shows a line for each pass, or is called with the finished rows of the pass and all rows.
    progress: bool | Callable[[int, int], object]
    #: Is called with the report of each job, which is one pass over the rows or has several, on another thread. An
    #: exception that it raises ends the run.
    each_pass: Callable[[_core.Report], object] | None


class LinearModel(NamedTuple):
    """What `linear` found: `t` is about `x @ weights + intercept`."""

    weights: np.ndarray
    intercept: float


class LogisticModel(NamedTuple):
    """What `logistic` found: `t` is 1 with the probability `1 / (1 + exp(-(x @ weights + intercept)))`."""

    weights: np.ndarray
    intercept: float
    #: The number of passes after the first one, which finds the means.
    iterations: int
    #: Whether the last step was as small as the tolerance asks.
    converged: bool


class PrincipalComponents(NamedTuple):
    """What `pca` found: the directions in which the rows vary most."""

    #: A direction in each row, of length 1, with the largest variance first. Its largest element is positive.
    components: np.ndarray
    #: The variance along each of them.
    variance: np.ndarray
    #: The mean of the rows, from which directions are counted.
    mean: np.ndarray
    #: By how much the space of the components turned in the last iteration, the sine of an angle; 0 if they are exact.
    turn: float = 0.0


class Clusters(NamedTuple):
    """What `kmeans` found. All but the centers is about the nearest center of each row."""

    #: A center in each row.
    centers: np.ndarray
    #: The sum of the squared distances of all rows from their centers.
    inertia: float
    #: The number of rows of each center.
    counts: np.ndarray
    #: The number of the center of each row, if `labels` asks for them.
    labels: np.ndarray | None
    #: How many times the centers were computed.
    iterations: int
    #: Whether the centers moved no more than the tolerance in the last iteration.
    converged: bool


class Assignment(NamedTuple):
    """What `assign` found: for each row, the number of the nearest center, and the distance from it."""

    labels: np.ndarray
    distances: np.ndarray


class Neighbors(NamedTuple):
    """What `nearest` found: in each row, the neighbours of a query, the nearest one first."""

    #: The numbers of rows of the base; -1 if there are too few rows that are finite.
    indices: np.ndarray
    #: Their distances from the query, as `float64`; infinite where there is no row.
    distances: np.ndarray


def gram(x: Any, /, **options: Unpack[Options]) -> np.ndarray:
    """The products of all columns with all columns, `x.T @ x`, of the dtype of `x`: `float32` or `float64`."""
    with _Run(options, x=x) as run:
        return run.core.gram(run.x)


def covariance(x: Any, /, *, ddof: int = 1, **options: Unpack[Options]) -> np.ndarray:
    """The covariance of the columns, as `np.cov(x, rowvar=False, ddof=ddof)`, as `float64`. It takes two passes: the
    means are subtracted before the products, so that columns with a large mean lose no digits."""
    with _Run(options, x=x) as run:
        return run.core.covariance(run.x, _count("ddof", ddof))


def linear(
    x: Any, t: Any, /, *, ridge: float = 0.0, intercept: bool = True, **options: Unpack[Options]
) -> LinearModel:
    """Least squares: the weights for which `x @ weights + intercept` is closest to `t`, of the shape `(n,)`. `ridge` is
    the penalty for the squares of the weights, but not for the intercept. Computed as `float64`.

    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> model = ov.matrices.linear(x, np.array([1.0, 3.0, 5.0]))
    >>> model.weights.round(9), round(model.intercept, 9)
    (array([2.]), 1.0)

    Raises `numpy.linalg.LinAlgError` if the columns depend on each other, so that there are many such weights; a small
    `ridge` chooses one.
    """
    with _Run(options, x=x, t=t) as run:
        return LinearModel(*run.core.linear(run.x, run.inputs[1][1], ridge, intercept))


def logistic(
    x: Any,
    t: Any,
    /,
    *,
    penalty: float = 0.0,
    tolerance: float = 1e-8,
    iterations: int = 25,
    **options: Unpack[Options],
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
    with _Run(options, x=x, t=t) as run:
        steps = _count("iterations", iterations)
        return LogisticModel(*run.core.logistic(run.x, run.inputs[1][1], penalty, tolerance, steps))


def pca(
    x: Any,
    count: int,
    /,
    *,
    method: str = "auto",
    tolerance: float = 1e-6,
    iterations: int = 12,
    seed: int = 0,
    **options: Unpack[Options],
) -> PrincipalComponents:
    """The first `count` principal components, as `float64`.

    >>> x = np.array([[0.0, 0], [3, 4], [6, 8]])
    >>> found = ov.matrices.pca(x, 1)
    >>> found.components.round(9), found.variance.round(9)
    (array([[0.6, 0.8]]), array([25.]))

    `method="exact"` takes two passes, and computes the covariance of all columns: of `d` columns, it has `d * d`
    elements. `method="randomized"` takes a pass for the means, and at most `iterations` passes that multiply the
    covariance by `count + 10` directions, the first of which are drawn with `seed`. The components are the best ones
    in the space of all directions so far (a block Krylov method), so that a few passes are enough. It ends when this
    space of components turns by less than `tolerance`, the sine of an angle, and warns if it does not. If the variance
    along the next component is nearly the same as along the last one, leave that one out, or give more iterations.
    `auto` is exact up to 4096 columns.
    """
    with _Run(options, x=x) as run:
        count, steps, seed = _count("count", count), _count("iterations", iterations), _count("seed", seed)
        found = PrincipalComponents(*run.core.pca(run.x, count, method, tolerance, steps, seed))
    if found.turn > tolerance:
        warnings.warn(
            f"the components still turned by {found.turn:.1e} in the last of {iterations} iterations: give more of "
            "them, or leave out components whose variances are close to those of others",
            RuntimeWarning,
            stacklevel=2,
        )
    return found


def project(x: Any, components: Any, /, *, out: Any = None, **options: Unpack[Options]) -> np.ndarray:
    """The coordinates of each row along some directions: `(x - mean) @ components.T` for what `pca` returned, and
    `x @ components.T` for an array of directions, as `float64`.

    >>> x = np.array([[0.0, 0], [3, 4], [6, 8]])
    >>> ov.matrices.project(x, ov.matrices.pca(x, 1)).round(9)
    array([[-5.],
           [ 0.],
           [ 5.]])

    `out="y.npy"` writes a file, as in `evaluate`.
    """
    directions, mean = components, None
    if isinstance(components, PrincipalComponents):
        directions, mean = components.components, np.ascontiguousarray(components.mean, np.float64)
    with _Run(options, x=x) as run:
        outputs = run.outputs(["y"], {"y": out})
        written = run.core.project(run.x, _points("components", directions), mean, outputs)
        found: np.ndarray = run.finished(written)["y"]
        return found


def kmeans(
    x: Any,
    count_or_start: Any,
    /,
    *,
    iterations: int = 20,
    tolerance: float = 0.0,
    seed: int = 0,
    labels: Any = False,
    **options: Unpack[Options],
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

    With `labels=True` the labels are a new array; `labels` may also be an array or a path, as outputs of `evaluate`.

    Products have the dtype of `x`, `float32` or `float64`; sums, centers and the inertia are `float64`. With
    `precision="tf32"` or `"bf16x3"`, GPUs find the nearest centers of `float32` rows on tensor cores.
    """
    start = _points("centers", count_or_start) if np.ndim(count_or_start) else _count("count", count_or_start)
    steps, seed = _count("iterations", iterations), _count("seed", seed)
    with _Run(options, x=x) as run:
        wanted = {} if labels is False or labels is None else {"labels": None if labels is True else labels}
        outputs = run.outputs(list(wanted), wanted)
        found = run.core.kmeans(run.x, start, steps, tolerance, seed, outputs)
        centers, inertia, counts, done, converged, written = found
        return Clusters(centers, inertia, counts, run.finished(written).get("labels"), done, converged)


def assign(x: Any, centers: Any, /, *, out: Any = None, **options: Unpack[Options]) -> Assignment:
    """The nearest of some centers for each row, and the distance from it, in one pass. Of two centers at the same
    distance it is the first one. A row with NaN or infinities has the label -1.

    >>> ov.matrices.assign(np.array([[1.0, 1], [9, 9]]), np.array([[0.0, 0], [9, 8]]))
    Assignment(labels=array([0, 1]), distances=array([1.41421356, 1.        ]))

    Labels are computed in the dtype of `x`, `float32` or `float64`, so that they are those of `kmeans`, and distances
    as `float64`. Results go to files with `out={"labels": "labels.npy", "distances": "distances.npy"}`.
    """
    if out is not None and not isinstance(out, Mapping):
        raise TypeError("there are two outputs: pass out={'labels': array or path, 'distances': array or path}")
    with _Run(options, x=x) as run:
        outputs = run.outputs(["labels", "distances"], dict(out or {}))
        found = run.finished(run.core.assign(run.x, _points("centers", centers), outputs))
        return Assignment(found["labels"], found["distances"])


def nearest(base: Any, queries: Any, count: int, /, **options: Unpack[Options]) -> Neighbors:
    """The `count` rows of `base` that are nearest to each of the queries, an array of the shape `(q, d)`. They are
    exact: distances are computed as `float64` from differences, and of rows at the same distance the first one counts.

    >>> base = np.array([[0.0, 0], [3, 4], [6, 8], [0, 1]])
    >>> ov.matrices.nearest(base, np.array([[0.0, 0.0]]), 3)
    Neighbors(indices=array([[0, 3, 1]]), distances=array([[0., 1., 5.]]))

    `base` is read once for each 1024 queries, beginning with few rows, whose neighbours tell for the next rows how near
    a row must be. A row that is near enough for any query, with a margin for the rounding of products, is compared on
    the cores. Rows with NaN or infinities are no neighbours.
    """
    with _Run(options, base=base) as run:
        return Neighbors(*run.core.nearest(run.x, _points("queries", queries), _count("count", count)))


def _count(name: str, value: Any) -> int:
    """An integer that is not negative."""
    found = operator.index(value)
    if found < 0:
        raise ValueError(f"{name} is {found}; give a number that is not negative")
    return found


def _points(name: str, values: Any) -> np.ndarray:
    """A small table as `float64`."""
    found = np.ascontiguousarray(values, np.float64)
    if found.ndim != 2:
        raise ValueError(f"{name} has the shape {found.shape}, and not (k, d); reshape it")
    return found


class _Run:
    """A call of an algorithm: its inputs, the engine, and its outputs."""

    def __init__(self, options: Options, **inputs: Any) -> None:
        given: Mapping[str, Any] = options
        names = [name for name in given if name not in Options.__annotations__]
        if names:
            raise TypeError(f"there is no option {names[0]!r}; there are {', '.join(Options.__annotations__)}")
        self.inputs = [(name, column(name, value)) for name, value in inputs.items()]
        self.x = self.inputs[0][1]
        settings = ("device", "device_memory", "pinned_memory", "chunk", "workers")
        own = {name: given[name] for name in settings if name in given}
        engine = given.get("engine")
        if engine is None:
            engine = _shared(**{"device": "auto", **dict.fromkeys(settings[1:]), **own})
        elif own:
            raise TypeError(f"the engine has its own settings: leave out {', '.join(own)}")
        self._show = shown(given.get("progress", False))
        opened, precision = engine._open(self.inputs, None, multiplies=True), given.get("precision", "full")
        self._each_pass = given.get("each_pass")
        self._noted: set[str] = set()
        self.core = _core.Matrices(opened, precision, self._show, self._told)
        self._outputs: list[tuple[str, Any]] = []
        self._copied: dict[str, Any] = {}

    def _told(self, report: _core.Report) -> None:
        """Logs the notes of the first pass that has them, and calls the function of the caller."""
        if not self._noted.issuperset(report.notes):
            self._noted.update(report.notes)
            log_notes(report)
        if self._each_pass is not None:
            self._each_pass(report)

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *_: object) -> None:
        # It knows this object, which has the table.
        del self.core
        if isinstance(self._show, Progress):
            self._show.close()

    def outputs(self, names: list[str], given: dict[str, Any]) -> list[tuple[str, Any]]:
        """The outputs with these names, as the core takes them."""
        self._outputs, self._copied = resolve(names, [], given, self.inputs)
        return self._outputs

    def finished(self, written: tuple[list[tuple[str, np.ndarray]], _core.Report]) -> dict[str, Any]:
        """The arrays and memory maps of what was written."""
        new, report = written
        return finished(self._outputs, self._copied, new, report)
