"""Generated graphs of lazy arrays, against the same operations of NumPy.

All values are whole numbers, so that results are exact, and rounding never decides what a mask keeps.
"""

import numpy as np
import pytest
from conftest import DEVICES

import overshot as ov

SHAPES = [(6, 4), (4,), (6,), (5, 6, 4), (1, 4), (6, 4)]

UNARY = [abs, np.negative, lambda x: np.floor(x / 2), lambda x: np.minimum(x, 5.0), lambda x: np.where(x > 1, x, -3.0)]
BINARY = [np.add, np.subtract, lambda x, y: x * y % 101, np.maximum, lambda x, y: np.where(x > y, x, y + 1)]
NUMBERS = [
    lambda x, kept: x.sum(keepdims=kept) % 101,
    lambda x, kept: np.floor(x.mean(keepdims=kept)),
    lambda x, kept: np.max(x, keepdims=kept) - np.min(x),
    lambda x, kept: np.floor(np.median(x)),
    lambda x, kept: (x.argmax() - np.count_nonzero(x, keepdims=kept)) * 1.0,
]
OF_AXES = [
    lambda x, axis, kept: x.sum(axis=axis, keepdims=kept) % 101,
    lambda x, axis, kept: np.floor(np.mean(x, axis=axis, keepdims=kept)),
    lambda x, axis, kept: x.min(axis=axis, keepdims=kept),
    lambda x, axis, kept: (x > 1).any(axis=axis, keepdims=kept) * 2.0,
    lambda x, axis, kept: x.argmax(axis=axis, keepdims=kept) * 1.0,
]
VIEWS = [
    lambda x: x[1:],
    lambda x: x[:-1],
    lambda x: x[::-1],
    lambda x: x[..., ::2],
    lambda x: x[0],
    lambda x: x[None],
    lambda x: x.T,
    lambda x: x.reshape(-1),
    lambda x: x[[0, -1]],
    lambda x: np.repeat(x, 2, axis=0),
    lambda x: np.tile(x, 2),
    lambda x: np.roll(x, 1, axis=0),
    lambda x: np.diff(x, axis=0),
    lambda x: np.cumsum(x) % 101,
    lambda x: np.tensordot(x, x, ([0], [0])) % 101,
]
KEPT = [
    lambda x, limit: x[x > limit],
    lambda x, limit: abs(x[x > limit]) + x[x > limit],
    lambda x, limit: x[x > limit].sum() % 101,
    lambda x, limit: x[(x > limit).reshape(len(x), -1).any(axis=1)],
    lambda x, limit: x[x > np.floor(x.mean())] * 2,
    lambda x, limit: x[x > limit] - x[x > limit].sum() % 7,
]


class Graph:
    """Lazy arrays, and the arrays of NumPy with their values."""

    def __init__(self, rng, device):
        self.rng, self.device = rng, device
        owns = [np.floor(rng.uniform(-5, 6, shape)) for shape in SHAPES]
        self.pairs = [(ov.array(own), own) for own in owns]

    def pick(self, fits=lambda own: True):
        fitting = [pair for pair in self.pairs if fits(pair[1])]
        # The newest are more probable, so that graphs become deep.
        weights = np.arange(1, len(fitting) + 1) ** 2.0
        return fitting[self.rng.choice(len(fitting), p=weights / weights.sum())]

    def any_of(self, functions):
        return functions[self.rng.integers(len(functions))]

    def operation(self):
        """Returns a function, and the pairs that it takes."""
        rng = self.rng
        kind, kept, limit = rng.integers(10), bool(rng.integers(2)), float(rng.integers(-2, 3))
        one = self.pick(lambda own: own.ndim and own.size)
        if kind < 3:
            other = self.pick(lambda own: can_be_broadcast(own.shape, one[1].shape))
            return self.any_of(BINARY), [one, other]
        if kind == 3:
            return self.any_of(UNARY), [self.pick()]
        if kind == 4:
            function = self.any_of(NUMBERS)
            return lambda x: function(x, kept), [one]
        if kind == 5:
            function, axis = self.any_of(OF_AXES), int(rng.integers(one[1].ndim))
            return lambda x: function(x, axis, kept), [one]
        if kind == 6:
            shape = (2, *one[1].shape)
            return lambda x: np.broadcast_to(x.max() if kept else x, shape), [one]
        if kind == 7:
            function = self.any_of(KEPT)
            return lambda x: function(x, limit), [one]
        return self.any_of(VIEWS), [one]

    def grow(self):
        function, operands = self.operation()
        own = np.asarray(function(*(own for _, own in operands)))
        if own.size > 500 or own.ndim > 4 or abs(own).max(initial=0) > 1e9:
            return
        self.pairs.append((function(*(lazy for lazy, _ in operands)), own))

    def compute(self):
        """Computes some of the newest, and sometimes asks for the shape of one before."""
        chosen = [self.pick() for _ in range(self.rng.integers(1, 5))]
        if self.rng.random() < 0.2:
            assert chosen[0][0].shape == chosen[0][1].shape
        values = ov.compute(*(lazy for lazy, _ in chosen), device=self.device)
        for value, (lazy, own) in zip(values, chosen, strict=True):
            np.testing.assert_array_equal(value, own, strict=True)
            assert lazy.shape == own.shape


def can_be_broadcast(shape, other):
    try:
        np.broadcast_shapes(shape, other)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("seed", range(300))
def test_graphs_have_the_values_of_numpy(seed):
    rng = np.random.default_rng(seed)
    graph = Graph(rng, DEVICES[seed % len(DEVICES)])
    for _ in range(rng.integers(3, 30)):
        graph.grow()
        if rng.random() < 0.1:
            graph.compute()
    graph.compute()
