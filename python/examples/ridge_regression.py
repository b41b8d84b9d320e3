"""Ridge regression of a file, with a penalty that is chosen on other rows.

python python/examples/ridge_regression.py [ROWS]
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import overshot as ov

ROWS, COLUMNS = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000, 40

with tempfile.TemporaryDirectory(dir=".") as folder:
    # Columns that nearly depend on each other, so that least squares without a penalty give wild weights.
    random = np.random.default_rng(1)
    path = Path(folder) / "x.npy"
    x = np.lib.format.open_memmap(path, "w+", "f4", (ROWS, COLUMNS))
    mixed = random.normal(size=(5, COLUMNS))
    for first in range(0, ROWS, 100_000):
        block = x[first : first + 100_000]
        block[:] = random.normal(size=(len(block), 5)) @ mixed + 1e-3 * random.normal(size=block.shape)
    weights = mixed.sum(axis=0) / 100
    t = x @ weights + 2 + random.normal(size=ROWS)

    fitted, other = slice(0, ROWS // 2), slice(ROWS // 2, ROWS)
    errors = {}
    for ridge in (0.0, 1.0, 100.0, 1e7):
        model = ov.matrices.linear(x[fitted], t[fitted], ridge=ridge)
        # Predictions and their error in one pass over the other rows: nothing is stored.
        names = {"x": x[other], "w": model.weights, "b": model.intercept, "t": t[other]}
        errors[ridge] = float(ov.evaluate("r = f64(x) @ w + b - t; mean(r * r)", names)["mean(r * r)"])
        print(f"ridge {ridge:g}: error {errors[ridge]:.6f}, largest weight {np.abs(model.weights).max():.3f}")
    best = min(errors, key=errors.get)
    print("best:", best)

    # The noise has the variance 1, which no model goes below.
    assert 0 < best < 1e7 and abs(errors[best] - 1) < 0.02 and errors[1e7] > errors[best]
    # The normal equations, written plainly.
    model = ov.matrices.linear(path, t, ridge=best)
    u = x - x.mean(axis=0, dtype="f8")
    expected = np.linalg.solve(u.T @ u + best * np.eye(COLUMNS), u.T @ (t - t.mean()))
    np.testing.assert_allclose(model.weights, expected, atol=1e-6)
