"""Values of neighbouring rows, compared with those of NumPy and Dask."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pytest

import overshot

ROWS = 30_011
PADS: list[tuple[str, dict[str, Any]]] = [
    ("edge", {"mode": "edge"}),
    ("wrap", {"mode": "wrap"}),
    ("nan", {"constant_values": np.nan}),
    ("-2.5", {"constant_values": -2.5}),
]


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(1).normal(size=ROWS)


def shifted(x: np.ndarray, by: int, pad: dict[str, Any]) -> np.ndarray:
    width = [(abs(by), abs(by))] + [(0, 0)] * (x.ndim - 1)
    return np.pad(x, width, **pad)[abs(by) - by :][: len(x)]


@pytest.mark.parametrize(("border", "pad"), PADS)
@pytest.mark.parametrize("by", [1, -1, 7, -4096, 10_000])
def test_a_shift_is_a_padded_slice(x: np.ndarray, border: str, pad: dict[str, Any], by: int) -> None:
    y = overshot.evaluate(f"shift(x, {by}, {border})", x=x)
    np.testing.assert_array_equal(y, shifted(x, by, pad))


def test_a_shift_around_the_ends_is_roll(x: np.ndarray) -> None:
    np.testing.assert_array_equal(overshot.evaluate("shift(x, 5, wrap)", x=x), np.roll(x, 5))
    table = x[:30_000].reshape(3000, 10)
    np.testing.assert_array_equal(overshot.evaluate("shift(x, -3, wrap)", x=table), np.roll(table, -3, axis=0))


def test_a_difference_is_that_of_diff(x: np.ndarray) -> None:
    y = overshot.evaluate("diff(x, nan)", x=x)
    assert np.isnan(y[0])
    np.testing.assert_array_equal(y[1:], np.diff(x))
    np.testing.assert_array_equal(overshot.evaluate("diff(x, 0)", x=x), np.diff(x, prepend=0.0))


@pytest.mark.parametrize(("border", "pad"), PADS)
@pytest.mark.parametrize("rows", [1, 2, 9, 64, 256])
def test_windows_are_those_of_a_sliding_view(x: np.ndarray, border: str, pad: dict[str, Any], rows: int) -> None:
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, (rows, 0), **pad)[1:], rows)
    for name, function in [("min", np.min), ("max", np.max)]:
        y = overshot.evaluate(f"moving_{name}(x, {rows}, {border})", x=x)
        np.testing.assert_array_equal(y, function(windows, axis=1))
    # The oldest row first, as in a cumulative sum.
    sums = np.add.accumulate(windows, axis=1)[:, -1]
    np.testing.assert_array_equal(overshot.evaluate(f"moving_sum(x, {rows}, {border})", x=x), sums)
    np.testing.assert_array_equal(overshot.evaluate(f"moving_mean(x, {rows}, {border})", x=x), sums / rows)


class Stencils:
    """Random stencils: the text of one, and what `map_overlap` runs on each block, which has rows around it.

    Both make the same operations in the same order and with the same dtypes, so their values are equal to the bit.
    """

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.dtype = np.dtype(self.random.choice(["i4", "i8", "f4", "f8"]))

    def border(self) -> tuple[str, Any]:
        whole = int(self.random.integers(-9, 9))
        number = whole / 2 if self.dtype.kind == "f" else whole
        borders: list[tuple[str, Any]] = [("edge", "nearest"), ("wrap", "periodic"), (str(number), number)]
        if self.dtype.kind == "f":
            borders.append(("nan", np.nan))
        return borders[self.random.integers(len(borders))]

    def weight(self) -> Any:
        return self.random.integers(-5, 6).item() if self.dtype.kind == "i" else self.random.normal()

    def stencil(self, of: str, border: str) -> tuple[str, int, Callable[[np.ndarray], np.ndarray]]:
        """Returns the text, how many rows it reads on each side, and the function of a block."""
        kind = self.random.integers(4)
        # A sum of 32-bit numbers has another dtype.
        if kind == 0 and self.dtype.itemsize == 8:
            rows = int(self.random.integers(1, 40))
            return f"moving_sum({of}, {rows}, {border})", rows, self.window(np.add, rows)
        if kind == 1:
            rows = int(self.random.integers(1, 40))
            return f"moving_max({of}, {rows}, {border})", rows, self.window(np.maximum, rows)
        if kind == 2:
            return f"diff({of}, {border})", 1, lambda block: block - np.roll(block, 1, axis=0)
        steps = self.random.integers(-20, 21, size=self.random.integers(1, 6)).tolist()
        terms = [(by, self.weight()) for by in steps]
        text = " + ".join(f"({weight!r}) * shift({of}, {by}, {border})" for by, weight in terms)

        def of_block(block: np.ndarray) -> np.ndarray:
            return reduce(np.add, [weight * np.roll(block, by, axis=0) for by, weight in terms])

        return f"({text})", max(1, *(abs(by) for by in steps)), of_block

    @staticmethod
    def window(function: np.ufunc, rows: int) -> Callable[[np.ndarray], np.ndarray]:
        return lambda block: reduce(function, [np.roll(block, by, axis=0) for by in reversed(range(rows))])


@pytest.mark.parametrize("seed", range(200))
def test_stencils_are_those_of_map_overlap(seed: int) -> None:
    da = pytest.importorskip("dask.array")
    stencils = Stencils(seed)
    random = stencils.random
    rows = int(random.integers(200, 5000))
    shape = (rows, 3) if random.integers(3) == 0 else (rows,)
    x = (100 * random.normal(size=shape)).astype(stencils.dtype)
    blocks = da.from_array(x, chunks=(int(random.integers(90, 2000)), *shape[1:]))
    text = "x"
    for _ in range(random.integers(1, 3)):
        border, boundary = stencils.border()
        text, depth, function = stencils.stencil(text, border)
        around = {axis: 0 if axis else depth for axis in range(x.ndim)}
        blocks = da.map_overlap(
            function, blocks, depth=around, boundary={0: boundary}, dtype=x.dtype, meta=np.empty((0,) * x.ndim, x.dtype)
        )
    y = overshot.evaluate(text, x=x)
    expected = blocks.compute(scheduler="synchronous")
    assert y.dtype == expected.dtype
    np.testing.assert_array_equal(y, expected, err_msg=text)


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "u8", "f4", "f8"])
def test_dtypes_are_those_of_where_and_of_sum(dtype: str) -> None:
    x = np.array([0, 1, 1, 0, 1], dtype)
    y = overshot.evaluate("shift(x, 1, edge)", x=x)
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y, x[[0, 0, 1, 2, 3]])
    y = overshot.evaluate("moving_sum(x, 3, edge)", x=x)
    assert y.dtype == x.sum().dtype
    np.testing.assert_array_equal(y, [0, 1, 2, 2, 2])
    if dtype in ("i4", "f4"):
        assert overshot.evaluate("shift(x, 1, 0.5)", x=x).dtype == ("f8" if dtype == "i4" else "f4")


def test_kept_rows_and_passes(x: np.ndarray) -> None:
    before = x[np.maximum(np.arange(ROWS) - 1, 0)]
    np.testing.assert_array_equal(overshot.evaluate("x[x > shift(x, 1, edge)]", x=x), x[x > before])
    mean = overshot.evaluate("mean(x)", x=x)
    np.testing.assert_array_equal(overshot.evaluate("shift(x - mean(x), 1, edge)", x=x), before - mean)


@pytest.mark.parametrize("text", ["shift(x, 1)", "shift(x, 1.5, edge)", "diff(x, mirror)", "shift(x[x > 0], 1, edge)"])
def test_what_is_not_known_is_refused(x: np.ndarray, text: str) -> None:
    with pytest.raises(ValueError, match="shift|border"):
        overshot.evaluate(text, x=x)
