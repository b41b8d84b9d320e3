"""`overshot.numexpr` against NumExpr: its own tests, and generated expressions, if it is installed."""

import importlib.util
import itertools
import os
import re
import shutil
import subprocess
import sys
import threading
import weakref
import xml.etree.ElementTree
from pathlib import Path

import numpy as np
import pytest
from conftest import DEVICES

import overshot as ov
import overshot.numexpr as ne

PACKAGE = Path(ov.__file__).parent.parent
INSTALLED = importlib.util.find_spec("numexpr")
needs_numexpr = pytest.mark.skipif(INSTALLED is None, reason="NumExpr is not installed: pip install numexpr")

# Tests of NumExpr's own file that are not meant to pass, and why.
COMPLEX = "complex numbers are not supported"
STRINGS = "strings are not supported"
MACHINE = "looks at the program of NumExpr's virtual machine, or at its internal tree; there is none"
EXCEPTIONS = {
    r"test_expressions\[(?=.*\b([bcde]|a2)\b).*-complex": COMPLEX,
    r"test_expressions\[a \+ conj\(": COMPLEX + ", and conj makes them of real ones",
    r"test_evaluate::test_complex_(expr|tan)$": COMPLEX,
    r"test_evaluate::test_(bool_funcs|sign_round)$": COMPLEX + ", which come last in it",
    r"test_evaluate::test_sanitize$": COMPLEX + ", which come last in it",
    r"test_numexpr2?::test_str_contains_": STRINGS,
    r"test_strings::": STRINGS,
    r"test_numexpr2?::test_reductions$": MACHINE + "; its reductions are in test_reductions below",
    r"test_numexpr2?::test_r0_reuse$": MACHINE,
    r"test_evaluate::test_(disassemble|constant_deduplication|nan_constant|f32_constant)$": MACHINE,
}

# NumExpr's name for this package, in the process of its tests and in those that they start.
REPLACEMENT = """
import sys, types
import overshot.numexpr
internals = types.ModuleType("numexpr.expressions")
internals.ConstantNode = None
sys.modules["numexpr.expressions"] = internals
for name in ("numexpr", "numexpr.utils", "numexpr.necompiler"):
    sys.modules[name] = overshot.numexpr
"""

rng = np.random.default_rng(11)


def run_foreign(folder, file, replacement, name):
    """Runs a test file in a process of its own, in which a module is replaced; returns the outcome of every test."""
    (folder / f"{name}.py").write_text(replacement)
    shutil.copy(file, folder / "test_foreign.py")
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider", "--import-mode=importlib"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("NUMEXPR_", "OMP_"))}
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), str(PACKAGE)])
    done = subprocess.run(
        [*command, "--junitxml=outcomes.xml", "test_foreign.py"], cwd=folder, env=environment, capture_output=True
    )
    assert done.returncode in (0, 1), done.stdout.decode() + done.stderr.decode()
    outcomes = {}
    for case in xml.etree.ElementTree.parse(folder / "outcomes.xml").iter("testcase"):
        bad = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        outcomes[f"{case.get('classname').split('.')[-1]}::{case.get('name')}"] = bad[0] if bad else "passed"
    return outcomes


@needs_numexpr
def test_numexprs_own_tests_pass(tmp_path):
    file = Path(INSTALLED.origin).parent / "tests" / "test_numexpr.py"
    if not file.exists():
        pytest.skip("this NumExpr was installed without its tests")
    outcomes = run_foreign(tmp_path, file, REPLACEMENT, "numexpr")
    assert len(outcomes) > 5000

    excepted = {name: next((e for e in EXCEPTIONS if re.search(e, name)), None) for name in outcomes}
    assert set(excepted.values()) == {None, *EXCEPTIONS}, "an exception names no test"
    passing = [name for name in outcomes if excepted[name] and outcomes[name] == "passed"]
    assert not passing, "these are listed as exceptions, but pass"
    assert not [(name, outcomes[name]) for name in outcomes if not excepted[name] and outcomes[name] != "passed"]

    # All that is neither complex nor a string counts, with the exceptions for other reasons.
    counted = [name for name in outcomes if not excepted[name] or EXCEPTIONS[excepted[name]].startswith(MACHINE)]
    rate = sum(outcomes[name] == "passed" for name in counted) / len(counted)
    print(f"{len(outcomes)} tests, {len(counted)} counted, {rate:.2%} pass")
    assert rate >= 0.95


BLOSC2 = os.environ.get("OVERSHOT_BLOSC2_TESTS", "")


@pytest.mark.skipif(not BLOSC2, reason="OVERSHOT_BLOSC2_TESTS is not set to the folder `tests` of Blosc2's source")
def test_blosc2s_tests_of_evaluate_pass(tmp_path):
    """Blosc2's `evaluate` has the arguments of NumExpr's, and arrays and outputs of its own, which are converted."""
    (tmp_path / "conftest.py").write_text("import replaced")
    replacement = "import blosc2, overshot.numexpr\nblosc2.evaluate = overshot.numexpr.evaluate"
    outcomes = run_foreign(tmp_path, Path(BLOSC2) / "ndarray" / "test_evaluate.py", replacement, "replaced")
    # There are no exceptions. Before NumPy 2.1, those of `cumulative_sum` skip themselves.
    allowed = {"passed"} if hasattr(np, "cumulative_sum") else {"passed", "skipped"}
    assert len(outcomes) >= (16 if hasattr(np, "cumulative_sum") else 14), outcomes
    assert set(outcomes.values()) <= allowed, outcomes


@pytest.fixture(params=DEVICES)
def evaluate(request):
    """`evaluate` on the cores, and on the emulated device, which has its own memory and small chunks."""
    with ov.Engine(request.param, chunk=None if request.param == "cpu" else "64KiB") as engine:
        ne.use_engine(engine)
        yield ne.evaluate
        ne.use_engine(None)


def array_of(dtype, size=1000):
    if dtype == "?":
        return rng.random(size) < 0.5
    if dtype[0] == "f":
        return rng.normal(size=size).astype(dtype) * 3
    return rng.integers(0 if dtype[0] == "u" else -9, 10, size).astype(dtype)


DTYPES = ["?", "i4", "i8", "f4", "f8"]
OF_ONE = """sqrt sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh log log1p log10 log2 exp expm1
abs ceil floor round trunc sign copy ones_like isnan isfinite isinf signbit real imag""".split()
OF_TWO = "arctan2 fmod hypot nextafter copysign maximum minimum".split()
OPERATORS = "+ - * / // % ** << >> & | ^ == != < <= > >=".split()
OPERATIONS = [f"{name}(a)" for name in OF_ONE]
OPERATIONS += ["-a", "~a", "+a", "a.real", "where(a > 1, 2, 3.5)", "where(a != 0, a, 1)"]
OPERATIONS += [f"a {sign} {value}" for sign in OPERATORS for value in ("2", "-3.5", "True", "0")]
OPERATIONS += [f"a {sign} 3000000000" for sign in OPERATORS if sign != "**"]  # Powers that overflow are undefined in C.
OPERATIONS += [f"{value} {sign} a" for sign in OPERATORS for value in ("3", "2.5", "False")]
OPERATIONS += [f"a ** {value}" for value in (0, 0.5, 1, 3, 7, -2.5, 2.3)]
OPERATIONS += [f"(a + 0.25) ** {value}" for value in (-1, -1.0, 20, -50, 60.0)]
OF_PAIRS = [f"{name}(a, b)" for name in OF_TWO] + [f"a {sign} b" for sign in OPERATORS] + ["where(a > b, a, b)"]
COMPOUND = [
    "2*a + 3*b", "(a - b) * (a + b) - a", "where((a > b) & (b != 0), a, 2 * b)", "abs(a) + a**2 - b", "a*b/2 + 1",
    "((a + 1) > (b - 1)) | ~(a < 3)", "sqrt(abs(a)) * 2", "a + (1 < 2)", "a*True - b*3.0 + 2**40", "-a + (3 // 2) * b",
    "(a > 0) * (b > 0) + (a < b)", "where(True, a, b + c)", "1 + 1", "a.imag + b", "a % 7 // 2 + b",
]  # fmt: skip


def same(text, names, **options):
    """Compares an expression with NumExpr: the dtype and the values, within 2 ulp."""
    import numexpr

    with np.errstate(all="ignore"):
        try:
            expected = numexpr.evaluate(text, names, {}, **options)
        except (NotImplementedError, TypeError, ValueError, OverflowError):
            return False
    result = ne.evaluate(text, names, {}, **options)
    what = f"{text} of {[f'{name} {value.dtype}' for name, value in names.items()]} {options}"
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape), what
    if result.dtype.kind == "f":
        np.testing.assert_array_equal(np.isnan(result), np.isnan(expected), what)
        with np.errstate(all="ignore"):
            near = abs(result - expected) <= 2 * np.spacing(abs(expected))
        assert (near | (result == expected) | np.isnan(expected)).all(), what
    else:
        np.testing.assert_array_equal(result, expected, what)
    return True


@needs_numexpr
@pytest.mark.parametrize("dtype", [*DTYPES, "i1", "u2", "u4", "f2", ">f8"])
def test_operations_are_those_of_numexpr(dtype):
    a = array_of(dtype.replace(">", "")).astype(dtype)
    options = ("none", "moderate", "aggressive")
    assert sum(same(text, {"a": a}, optimization=how) for text in OPERATIONS for how in options) > 200


@needs_numexpr
@pytest.mark.parametrize("pair", list(itertools.product(DTYPES, DTYPES)), ids="-".join)
def test_operations_of_two_are_those_of_numexpr(pair):
    # NumExpr divides integers by zero for negative powers.
    names = {"a": array_of(pair[0]), "b": abs(array_of(pair[1]))}
    assert sum(same(text, names) for text in OF_PAIRS) >= 15
    for text in COMPOUND:
        same(text, {**names, "c": array_of("f8")})


@needs_numexpr
def test_functions_of_constants_are_those_of_numexpr():
    constants = ("True", "1 > 2", "0", "2.5", "isnan(1.0)", "3000000000")
    # What `copy` and `ones_like` of constants are, NumExpr cannot say.
    texts = [f"{name}({value})" for name in OF_ONE for value in constants if name not in ("copy", "ones_like", "imag")]
    texts += [f"{name}({value}, True)" for name in OF_TWO for value in constants]
    texts += [
        f"({left}) {sign} ({right})"
        for sign in OPERATORS
        for left, right in itertools.product(("True", "2", "2.5", "isnan(1.0)", "sqrt(True)", "sqrt(4)"), repeat=2)
    ]
    texts += ["+isnan(1.0)", "log(isinf(0))"]
    wanted = [f"a * ({text})" for text in texts] + ["isinf(2.0) < a", "a ** isinf(1.0)", "where(sqrt(True), a, 1)"]
    for dtype in ("i4", "f4", "f8"):
        done = sum(same(text, {"a": array_of(dtype)}) for text in wanted)
        assert done > 0.6 * len(wanted), done


@needs_numexpr
def test_generated_integer_expressions_are_those_of_numexpr():
    """Trees of any depth, of operations that are exact."""
    names = {name: array_of(dtype) for name, dtype in zip("abcdef", ["i1", "u2", "i4", "u4", "i8", "?"], strict=True)}

    def tree(depth):
        if depth == 0 or rng.random() < 0.2:
            return str(rng.choice([*names, "2", "-3", "2**33", "7"]))
        if rng.random() < 0.15:
            return f"where({tree(depth - 1)} > {tree(depth - 1)}, {tree(depth - 1)}, {tree(depth - 1)})"
        return f"({tree(depth - 1)} {rng.choice(['+', '-', '*', '&', '|', '^', '<=', '=='])} {tree(depth - 1)})"

    assert sum(same(tree(depth), names) for depth in (2, 3, 4, 5) for _ in range(100)) > 200


REDUCED = [("i1", "int32"), ("i4", "int32"), ("u4", "int64"), ("i8", "int64"), ("f4", "float32"), ("f8", "float64")]


@pytest.mark.parametrize(("dtype", "expected"), REDUCED)
@pytest.mark.parametrize("name", ["sum", "min", "max", "prod"])
def test_reductions(evaluate, name, dtype, expected):
    y = array_of(dtype, 24).reshape(2, 3, 4)
    for axis in (None, 0, 1, 2):
        result = evaluate(f"{name}(y + 1, axis={axis})")
        assert isinstance(result, np.ndarray) and result.dtype == expected
        values = y.astype(expected) + np.ones((), expected)
        own = {"dtype": expected} if name in ("sum", "prod") else {}
        np.testing.assert_allclose(result, getattr(np, name)(values, axis, **own), 1e-4, 1e-4)
    out = np.empty((2, 4))
    assert evaluate(f"{name}(y, 1)", out=out, casting="same_kind") is out
    np.testing.assert_array_equal(out, evaluate(f"{name}(y, axis=1)"))


@pytest.mark.parametrize(("dtype", "expected"), REDUCED)
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cumulative_sum", "cumulative_prod"])
def test_running_sums_and_products(evaluate, name, dtype, expected):
    y = array_of(dtype, 24).reshape(2, 3, 4)
    function = np.cumsum if name.endswith("sum") else np.cumprod
    values = y.astype(expected) + np.ones((), expected)
    for axis in (0, 1, 2):
        result = evaluate(f"{name}(y + 1, axis={axis})")
        assert result.dtype == expected
        np.testing.assert_allclose(result, function(values, axis, dtype=expected), 1e-4, 1e-4)
    np.testing.assert_allclose(evaluate(f"{name}(y + 1)", {"y": y[0, 0]}), function(values[0, 0], dtype=expected), 1e-4)
    if name.startswith("cumulative"):
        with pytest.raises(ValueError, match=rf"{name} of 3 dimensions needs an axis, as in {name}\(a, axis=0\)"):
            evaluate(f"{name}(y)")
    else:
        np.testing.assert_allclose(evaluate(f"{name}(y + 1)"), function(values, dtype=expected), 1e-4, 1e-4)
    assert evaluate(f"{name}(y > 0, axis=0)").dtype == np.int64


def test_the_output_may_be_named_in_the_text(evaluate):
    a, total = np.arange(6.0).reshape(2, 3), np.zeros(2)
    assert evaluate("sum(a * 2, axis=1, out=total)") is total and list(total) == [6, 24]
    np.testing.assert_array_equal(ne.re_evaluate({"a": a + 1}), [12, 30])
    assert total[0] == 12
    running = np.zeros((2, 3))
    assert evaluate("cumsum(a, axis=1, out=running)", casting="safe") is running and running[1, 2] == 12
    with pytest.raises(ValueError, match="the output is given twice: as an argument, and as 'total' in the text"):
        evaluate("sum(a, axis=1, out=total)", out=total)
    with pytest.raises(KeyError, match="missing"):
        evaluate("sum(a, out=missing)")
    with pytest.raises(TypeError, match="does not take these arguments"):
        evaluate("sum(a, out=total) + 1")


def test_extremes_ignore_nan_and_sums_of_bools_count(evaluate):
    x = np.array([[np.nan, 2, 1], [np.nan, np.inf, np.nan]])
    assert (evaluate("min(x)"), evaluate("max(x)")) == (1, np.inf)
    assert np.isnan(evaluate("min(x)", {"x": x[:, 0]})) and evaluate("min(x)", {"x": x[1]}) == np.inf
    np.testing.assert_array_equal(evaluate("max(x, axis=0)"), [np.nan, np.inf, 1])
    assert evaluate("sum(x > 1)") == 2 and evaluate("sum(x > 1, axis=0)").dtype == np.int64
    assert evaluate("sum(x)", {"x": 3.0}) == 3 and evaluate("sum(x)", {"x": x[:0]}) == 0
    with pytest.raises(ValueError, match="no elements"):
        evaluate("min(x)", {"x": x[:0]})


def test_shapes_are_broadcast_and_the_order_is_kept(evaluate):
    a, b, c = np.arange(24.0).reshape(2, 3, 4), np.arange(4, dtype="i2"), np.arange(3.0)[:, None]
    for x in (a, a[::-1, :, ::2].repeat(2, 2), np.asfortranarray(a), a.transpose(2, 0, 1).copy().transpose(1, 2, 0)):
        for order in "KCFA":
            result = evaluate("2 * x + b / (c + 1)", order=order)
            np.testing.assert_array_equal(result, 2 * x + b / (c + 1))
            if order != "A":
                assert result.strides == np.empty_like(x, order=order).strides
    assert evaluate("x * 2", {"x": np.asfortranarray(a)}, order="A").flags.f_contiguous
    assert evaluate("b + c").shape == (3, 4) and evaluate("b + 1", {"b": 2}).shape == ()
    assert evaluate("x + y", {"x": np.empty((0, 3)), "y": b[:3]}).shape == (0, 3)
    assert evaluate("ones_like(a) + 1")[1, 2, 3] == 2
    with pytest.raises(ValueError):
        evaluate("a + b", {"b": b[:3]}, {"a": a})


def test_outputs(evaluate):
    a = np.arange(12.0).reshape(3, 4)
    strided, other = (np.zeros((4, 3)).T, np.zeros((6, 8))[::2, ::2]), (np.zeros((3, 4), "f4"), np.zeros((2, 3, 4)))
    for out in (np.zeros((3, 4)), *strided, *other):
        assert evaluate("a + 1", out=out) is out
        np.testing.assert_array_equal(out, np.broadcast_to(a + 1, out.shape))
    x = np.arange(6.0)
    evaluate("x + y", {"x": x[1:], "y": x[:-1]}, out=x[1:])
    np.testing.assert_array_equal(x, [0, 1, 3, 5, 7, 9])
    with pytest.raises(TypeError, match="astype"):
        evaluate("a + 1", out=np.zeros((3, 4), "i4"))
    evaluate("a + 1.5", out=(i := np.zeros((3, 4), "i4")), casting="unsafe")
    assert i[0, 0] == 1
    with pytest.raises(TypeError, match="list"):
        evaluate("a + 1", out=[0] * 12)
    with pytest.raises(TypeError, match="safe"):
        evaluate("u + 1", {"u": np.ones(2, "u8")}, casting="safe")
    with pytest.raises(ValueError):
        evaluate("a + 1", out=np.zeros((3, 3)))


def test_reductions_are_not_broadcast_into_their_output(evaluate):
    a = np.arange(6.0).reshape(2, 3)
    for out in (np.zeros(()), np.zeros(1), np.zeros((1, 1))):
        assert evaluate("sum(a)", out=out) is out and out.item() == 15
    for shape in ((0,), (3,), (2, 3), (1, 2)):
        with pytest.raises(ValueError, match="out argument must have size 1 for a full reduction"):
            evaluate("sum(a)", out=np.zeros(shape))
    for shape in ((1, 3), (2, 3), (1,), ()):
        with pytest.raises(ValueError, match=r"out has the shape .*, and the reduction \(3,\)"):
            evaluate("min(a, axis=0)", out=np.zeros(shape))


def test_names_are_found_as_in_numexpr():
    e, pi, sum, índice = np.arange(3.0), np.ones(3), 2.0, 5
    np.testing.assert_array_equal(ne.evaluate("e + pi * sum + índice"), e + 7)
    np.testing.assert_array_equal(ne.evaluate("e + x", {"e": 1}, {"x": 2}), 3)
    with pytest.raises(KeyError, match="missing"):
        ne.evaluate("e + missing")
    assert isinstance(ne.validate("e + missing"), KeyError) and ne.validate("e + 1") is None
    np.testing.assert_array_equal(ne.re_evaluate(), e + 1)
    np.testing.assert_array_equal(ne.re_evaluate({"e": np.arange(2)}), [1, 2])


def test_arrays_do_not_live_longer():
    def use():
        x = np.arange(10.0)
        ne.evaluate("x + 1")
        kept = weakref.ref(x)
        del x
        return kept()

    assert use() is None


def test_every_thread_evaluates_its_own_expression_again():
    def work(k):
        for _ in range(20):
            ne.validate(f"x * {k}", {"x": np.arange(5)})
            barrier.wait()
            right.append((ne.re_evaluate({"x": np.arange(5)}) == np.arange(5) * k).all())

    barrier, right = threading.Barrier(4), []
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(right) == 80 and all(right)
    context = threading.Thread(target=lambda: pytest.raises(RuntimeError, ne.re_evaluate))
    context.start()
    context.join()


REFUSED = [
    ("z + 1", NotImplementedError, "complex numbers"),
    ("x + 2j", NotImplementedError, "complex numbers"),
    ("conj(x)", NotImplementedError, "complex numbers"),
    ("s == 'a'", NotImplementedError, "strings"),
    ("o + 1", ValueError, "object"),
    ("sum(x) + 1", RuntimeError, "last"),
    ("sum(x, axis=-1)", ValueError, "negative"),
    ("sum(x, axis=1)", ValueError, "out of bounds"),
    ("min(x > 1)", NotImplementedError, "min"),
    ("x and x", TypeError, "&"),
    ("0 < x < 1", TypeError, "&"),
    ("x @ x", TypeError, "unsupported"),
    ("(x, x)", TypeError, "tuple"),
    ("median(x)", TypeError, "median"),
    ("sqrt(x, x)", TypeError, "sqrt"),
    ("x & x", NotImplementedError, "double"),
    ("-(x > 1)", NotImplementedError, "bool"),
    ("where(x, 1, 2)", NotImplementedError, "!= 0"),
    ("n ** -1", ValueError, "Integers to negative"),
    ("n + 2**70", OverflowError, "64 bits"),
    ("x[0]", ValueError, "forbidden"),
    ("x.T", ValueError, "forbidden"),
    ("__name__", ValueError, "forbidden"),
    ("x +", SyntaxError, "invalid syntax"),
]


@pytest.mark.parametrize(("text", "error", "message"), REFUSED)
def test_errors_name_what_is_wrong(text, error, message):
    names = {"x": np.ones(3), "n": np.ones(3, int), "z": np.ones(3, complex), "s": np.array(["a"]), "o": np.array([{}])}
    with pytest.raises(error, match=message):
        ne.evaluate(text, names)
    assert isinstance(ne.validate(text, names), error) or message == "out of bounds"


def test_options_and_threads():
    with pytest.raises(ValueError, match="device"):
        ne.evaluate("1", device="cpu")
    with pytest.raises(ValueError, match="optimization"):
        ne.evaluate("1", optimization="more")
    with pytest.raises(ValueError, match="string"):
        ne.evaluate(1)
    with pytest.raises(ValueError, match="threads"):
        ne.set_num_threads(0)
    before = ne.set_num_threads(3)
    assert ne.get_num_threads() == 3 == ne.set_num_threads(before)
    ne.use_engine(None)
    assert ne.use_vml is False and ne.get_vml_version() is None


def test_compiled_expressions():
    a, b = np.arange(3.0), np.arange(3)
    f = ne.NumExpr("2.0 * a + 3 * b", [("b", np.int32), ("a", float)])
    assert f.input_names == ("b", "a") and f(b.astype("i2"), a.astype("f4")).dtype == np.float64
    with pytest.raises(TypeError, match="b from int64 to int32"):
        f(b, a)
    np.testing.assert_array_equal(f.run(b, a, casting="same_kind"), 2 * a + 3 * b)
    g = ne.NumExpr(-(2 * ne.E.a - 1) ** 2 / (ne.E.b + 1.0) >= 3 - ne.E.a)
    np.testing.assert_array_equal(g(a, b), -((2 * a - 1) ** 2) / (b + 1.0) >= 3 - a)
    assert "x0" in ne.disassemble(g)[-1]
    h = ne.NumExpr(np.sqrt(np.float64(2) * abs(ne.E.a)) + (-ne.E.a != 3))
    np.testing.assert_array_equal(h(a), np.sqrt(2 * a) + (-a != 3))
    with pytest.raises(ValueError, match="don't match"):
        ne.NumExpr("a + b", [("a", float)])


def test_long_and_deep_expressions():
    x = np.arange(5.0)
    np.testing.assert_array_equal(ne.evaluate(" + ".join(["x"] * 1000)), 1000 * x)
    np.testing.assert_array_equal(ne.evaluate("(" * 80 + "x" + " * 1.5 + 1)" * 80, {"x": x * 0}) > 0, True)
    np.testing.assert_array_equal(ne.evaluate("abs(" * 90 + "x" + ")" * 90), x)
