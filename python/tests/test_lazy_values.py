"""When lazy arrays read their inputs, and who may write to their values."""

import numpy as np
import pytest

import overshot as ov


def test_nobody_writes_to_what_is_computed_later():
    a = np.arange(4.0)
    y = ov.array(a) + 1
    for value in (np.asarray(y), ov.compute(y)[0], np.asarray(y[1:]), np.asarray(y.reshape(2, 2))):
        with pytest.raises(ValueError, match="read-only"):
            value *= 10
    np.array(y)[0] = 99
    np.testing.assert_array_equal(np.asarray(y * 2), (a + 1) * 2)


def test_the_caller_of_jit_owns_what_it_returns(tmp_path):
    a = np.arange(6.0).reshape(2, 3)
    for function in (
        lambda x: x * 2,
        lambda x: x.sum(axis=0)[1:],
        lambda x: x[x > 2],
        lambda x: (x * 2, x @ x.T),
        lambda x: {"y": x.cumsum()},
    ):
        returned = ov.jit(function)(a)
        values = returned.values() if isinstance(returned, dict) else returned
        for value in values if isinstance(returned, (dict, tuple)) else [returned]:
            value += 1
    np.testing.assert_array_equal(a.ravel(), np.arange(6.0))
    # As with NumPy, one element may be many, and a file stays as it is.
    assert not ov.jit(lambda x: np.broadcast_to(x.sum(axis=0), (4, 3)))(a).flags.writeable
    np.save(tmp_path / "a.npy", a)
    assert not ov.jit(lambda x: x.T)(ov.open(tmp_path / "a.npy")).flags.writeable
    # What exists outside of the function has other readers.
    outer = ov.array(a) + 1
    ov.compute(outer)
    assert not ov.jit(lambda: outer)().flags.writeable


def test_inputs_are_read_late_and_keys_are_not():
    a, mask, places = np.arange(4.0), np.array([True, False, True, False]), np.array([1])
    x = ov.array(a)
    kept, taken, sliced, doubled = x[mask], x[places], x[:2], x * 2
    mask[:], places[:], a[:] = True, 3, [4, 5, 6, 7]
    np.testing.assert_array_equal(np.asarray(kept), [4, 6])
    np.testing.assert_array_equal(np.asarray(sliced), [4, 5])
    np.testing.assert_array_equal(np.asarray(doubled), [8, 10, 12, 14])
    # NumPy copies the elements of places.
    np.testing.assert_array_equal(np.asarray(taken), [1])
