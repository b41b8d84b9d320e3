"""Translates expressions of NumExpr to Overshot's language.

NumExpr has five kinds of numbers, and its own rules for the kind of every operation; Overshot follows NumPy. So the
kind of every value is inferred here, and written as a conversion wherever NumPy's rules would give another one.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

# In the order of promotion. `float` has 32 bits, as in NumExpr.
KINDS = ("bool", "int", "long", "float", "double")
DTYPES = {kind: np.dtype(name) for kind, name in zip(KINDS, ("bool", "i4", "i8", "f4", "f8"), strict=True)}
_CASTS = dict(zip(KINDS, ("bool", "i32", "i64", "f32", "f64"), strict=True))
_BITS, _INTEGERS, _NUMBERS, _FLOATS = KINDS[:3], KINDS[1:3], KINDS[1:], KINDS[3:]

_BINARY: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any], tuple[str, ...]]] = {
    ast.Add: ("+", operator.add, _NUMBERS),
    ast.Sub: ("-", operator.sub, _NUMBERS),
    ast.Mult: ("*", operator.mul, _NUMBERS),
    ast.Div: ("/", operator.truediv, _FLOATS),
    ast.FloorDiv: ("//", operator.floordiv, _NUMBERS),
    ast.Mod: ("%", operator.mod, _NUMBERS),
    ast.Pow: ("**", operator.pow, _NUMBERS),
    ast.LShift: ("<<", operator.lshift, _INTEGERS),
    ast.RShift: (">>", operator.rshift, _INTEGERS),
    ast.BitAnd: ("&", operator.and_, _BITS),
    ast.BitOr: ("|", operator.or_, _BITS),
    ast.BitXor: ("^", operator.xor, _BITS),
}
_COMPARISONS: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}


class _Function(NamedTuple):
    form: str
    least: str = "float"
    most: str = "double"
    result: str | None = None
    keeps_integers: bool = False


_ROUNDED_TO_FLOATS = "abs ceil floor sqrt exp expm1 log log10 log1p log2"
_TRIGONOMETRY = "sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh"

# What Overshot is asked for; integers become doubles, unless they are kept.
_FUNCTIONS: dict[str, _Function] = {
    **{name: _Function(f"{name}({{}})") for name in (_ROUNDED_TO_FLOATS + " " + _TRIGONOMETRY).split()},
    **{name: _Function(f"{name}({{}}, {{}})") for name in ("arctan2", "fmod")},
    **{name: _Function(f"{name}({{}}, {{}})", "double") for name in "hypot nextafter copysign maximum minimum".split()},
    **{name: _Function(f"{name}({{}})", result="bool") for name in "isnan isfinite isinf signbit".split()},
    **{name: _Function(f"{name}({{}})", "double", keeps_integers=True) for name in ("round", "sign")},
    "trunc": _Function("trunc({})", "double"),
    "copy": _Function("{}", "bool", keeps_integers=True),
    "real": _Function("{}", "double"),
}
REDUCTIONS = ("sum", "prod", "min", "max")
# Those of Blosc2, which NumExpr does not have. They keep all elements.
RUNNING = ("cumsum", "cumprod", "cumulative_sum", "cumulative_prod")
_LAST = (*REDUCTIONS, *RUNNING)
_NAMES = (*_FUNCTIONS, *_LAST, "where", "ones_like", "imag")
_REFUSED = {"complex": "complex numbers", "conj": "complex numbers", "contains": "strings"}
_BOOLEAN = (
    "`and`, `or`, `not`, `if` and chained comparisons are not supported in an expression; "
    "write '&' for 'and', '|' for 'or', '~' for 'not', and where(condition, a, b)"
)


class Value(NamedTuple):
    """A value for every row: its text, its kind, and how deep its text nests."""

    text: str
    kind: str
    depth: int = 0


class Reduction(NamedTuple):
    name: str
    value: Value
    axis: int | None


class Translation(NamedTuple):
    """Statements, the text of the value for every row, its kind, and the reduction of it."""

    statements: list[str]
    text: str
    kind: str
    reduction: str | None
    axis: int | None


def unsupported(what: str, name: str) -> NotImplementedError:
    remedy = "pass the real and the imaginary part as two arrays" if what[0] == "c" else "compare them with NumPy"
    return NotImplementedError(f"{name}: {what} are not supported; {remedy}")


def parse(text: str, sanitize: bool) -> tuple[ast.expr, tuple[str, ...], str | None]:
    """Returns the tree of an expression, the names of its variables, sorted, and that of its output.

    As in Blosc2, what comes last may name its output: `sum(a, axis=1, out=b)`.
    """
    # Nothing here is ever executed. These are errors because programs rely on it that NumExpr refuses them.
    if sanitize and re.search(r"[;:\[]", re.sub(r"'[^']*'|\"[^\"]*\"", "", text)):
        raise ValueError(f"expression {text!r} has forbidden control characters: one of ; : [")
    tree = ast.parse(text.strip(), "<expr>", "eval").body
    out = None
    match tree:
        case ast.Call(ast.Name(name), arguments, [*others, ast.keyword("out", ast.Name(target))]) if name in _LAST:
            tree, out = ast.Call(tree.func, arguments, others), target
    return tree, variables(tree, sanitize), out


def variables(tree: ast.expr, sanitize: bool = False) -> tuple[str, ...]:
    called = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr not in ("real", "imag"):
            raise (ValueError if sanitize else AttributeError)(f"the attribute {node.attr!r} is forbidden")
        if isinstance(node, ast.Name):
            if sanitize and re.fullmatch(r"__\w+__", node.id):
                raise ValueError(f"the name {node.id!r} is forbidden")
            if node not in called:
                names.add(node.id)
    return tuple(sorted(names))


def translate(tree: ast.expr, kinds: dict[str, tuple[str, str]], optimization: str) -> Translation:
    """Translates a tree. `kinds` has the text and the kind of each variable."""
    return _Translator(kinds, optimization).translate(tree)


# What functions of constants are for NumExpr, too, which asks NumPy: conditions, and floats if the constant is a bool.
_OF_BOOLS: tuple[type, ...] = (np.bool_, np.float16)
_OF_CONSTANTS: dict[type, str] = {np.int64: "long", np.float16: "float", np.float32: "float"}
_OF_CONSTANTS.update({np.float64: "double", float: "double"})


def kind_of(constant: Any) -> str:
    """Returns the kind of a constant. Integers of Python are `int` if they have 32 bits."""
    if isinstance(constant, (bool, np.bool_)):
        return "bool"
    if isinstance(constant, (int, np.integer)) and not isinstance(constant, np.int64):
        return "int" if -(2**31) <= constant < 2**31 else "long"
    found = _OF_CONSTANTS.get(type(constant))
    if found is not None:
        return found
    if isinstance(constant, (complex, np.complexfloating)):
        raise unsupported("complex numbers", repr(constant))
    if isinstance(constant, (str, bytes)):
        raise unsupported("strings", repr(constant))
    raise TypeError(f"unsupported expression type: {type(constant).__name__}")


def _literal(constant: Any, kind: str) -> str:
    if kind == "bool":
        return str(bool(constant))
    if kind in _INTEGERS:
        # Scalars of NumPy cannot be compared with all integers.
        constant = int(constant)
        if not -(2**63) <= constant < 2**63:
            raise OverflowError(f"{constant} does not fit in 64 bits; write it as a float: {constant}.0")
        text = str(constant)
    else:
        text = repr(float(DTYPES[kind].type(constant)))
    return f"({text})" if text.startswith("-") else text


def _written(value: Any, kind: str, is_alone: bool = False) -> str:
    """Returns the text of a value of this kind. A literal takes the dtype of what it meets; alone, it needs
    a cast."""
    if not isinstance(value, Value):
        text = _literal(value, kind)
        return f"{_CASTS[kind]}({text})" if is_alone else text
    return value.text if value.kind == kind else f"{_CASTS[kind]}({value.text})"


def _kind(*values: Any) -> str:
    kinds = [value.kind if isinstance(value, Value) else kind_of(value) for value in values]
    return max(kinds, key=KINDS.index)


def _has_values(values: Sequence[Any]) -> bool:
    if any(isinstance(value, Reduction) for value in values):
        raise RuntimeError("reduction operations must occur last; reduce first, then use the result as a variable")
    return any(isinstance(value, Value) for value in values)


class _Translator:
    def __init__(self, kinds: dict[str, tuple[str, str]], optimization: str) -> None:
        self.kinds = kinds
        self.optimization = optimization
        self.statements: list[str] = []

    def translate(self, tree: ast.expr) -> Translation:
        done: dict[ast.AST, Any] = {}
        # Backwards, every node comes after those below it. A recursion would limit the number of terms.
        for node in reversed(list(ast.walk(tree))):
            if isinstance(node, ast.expr) and node not in done:
                done[node] = self._node(node, done)
        root = done[tree]
        reduction, axis = None, None
        if isinstance(root, Reduction):
            reduction, root, axis = root
        kind = _kind(root)
        text = _written(root, kind, is_alone=True)
        return Translation(self._read(text), text, kind, reduction, axis)

    def _read(self, text: str) -> list[str]:
        """Returns the statements that a text reads: a branch of `where` may be dropped after it was translated."""
        wanted = text
        read: list[str] = []
        for statement in reversed(self.statements):
            if re.search(rf"\b{statement.split(' ', 1)[0]}\b", wanted):
                read.insert(0, statement)
                wanted += statement
        return read

    def _node(self, node: ast.expr, done: dict[ast.AST, Any]) -> Any:
        match node:
            case ast.Constant(value):
                return value
            case ast.Name(name):
                # The name of a function is looked at with its call.
                return Value(*self.kinds[name]) if name in self.kinds else None
            case ast.BinOp(left, sign, right) if type(sign) in _BINARY:
                return self._binary(type(sign), done[left], done[right])
            case ast.UnaryOp(sign, operand) if not isinstance(sign, ast.Not):
                return self._unary(sign, done[operand])
            case ast.Compare(left, [sign], [right]) if type(sign) in _COMPARISONS:
                return self._compare(type(sign), done[left], done[right])
            case ast.Attribute(value, name):
                return self._call(name, [done[value]])
            case ast.Call(ast.Name(name), arguments, keywords):
                named = {each.arg: done[each.value] for each in keywords}
                return self._call(name, [done[each] for each in arguments], named)
            case ast.BoolOp() | ast.IfExp() | ast.Compare() | ast.UnaryOp():
                raise TypeError(_BOOLEAN)
        raise TypeError(f"unsupported expression type: {type(node).__name__.lower()}")

    def _new(self, text: str, kind: str, *values: Any) -> Value:
        depth = 1 + max((value.depth for value in values if isinstance(value, Value)), default=0)
        value = Value(text, kind, depth)
        # Overshot's parentheses nest 200 levels deep at most, and an operation takes up to three.
        return self._named(value) if depth > 50 else value

    def _named(self, value: Value) -> Value:
        """Gives a value a name, so that its text can be used several times."""
        if value.text.isidentifier():
            return value
        name = f"t{len(self.statements)}"
        self.statements.append(f"{name} = {value.text}")
        return Value(name, value.kind)

    def _binary(self, sign: type[ast.operator], a: Any, b: Any) -> Any:
        text, fold, allowed = _BINARY[sign]
        if not _has_values((a, b)):
            _kind(a, b)
            is_computed = sign is ast.Div and isinstance(b, _OF_BOOLS)
            if not (is_computed or (sign in (ast.Div, ast.Pow) and isinstance(a, _OF_BOOLS))):
                return fold(a, b)
            # NumPy would compute with 16 bits, and NumExpr does not.
            a = Value(_written(a, kind_of(a), is_alone=True), kind_of(a))
        if sign is ast.Pow and isinstance(a, Value) and not isinstance(b, Value):
            return self._power(a, b)
        kind = _kind(a, b)
        if sign is ast.Div and kind in _BITS:
            kind = "double"
        if kind == "bool" and sign in (ast.Add, ast.Mult):
            text, allowed = ("|" if sign is ast.Add else "&"), _BITS
        if kind not in allowed:
            raise _no(f"'{text}'", kind)
        if sign is ast.Mod and kind in _FLOATS:
            return self._float_mod(a, b, kind)
        left, right = _written(a, kind), _written(b, kind)
        # NumPy's quotient belongs to its exact remainder, and may be one less than NumExpr's.
        both = f"floor({left} / {right})" if sign is ast.FloorDiv and kind in _FLOATS else f"({left} {text} {right})"
        return self._new(both, kind, a, b)

    def _float_mod(self, a: Any, b: Any, kind: str) -> Value:
        left, right = (
            self._named(Value(_written(each, kind), kind)).text if isinstance(each, Value) else _literal(each, kind)
            for each in (a, b)
        )
        return self._new(f"({left} - floor({left} / {right}) * {right})", kind, a, b)

    def _power(self, a: Value, exponent: Any) -> Value:
        """A power by a constant: products, as in NumExpr, which are faster than a power."""
        kind = kind_of(exponent)
        if a.kind in _INTEGERS and kind in _INTEGERS and exponent < 0:
            raise ValueError(
                "Integers to negative integer powers are not allowed. Write the exponent as a float, as in a ** -2.0."
            )
        is_half = self.optimization == "aggressive" and abs(exponent) <= 50 and 2 * exponent == int(2 * exponent)
        is_short = self.optimization == "moderate" and exponent in (-1, 0, 0.5, 1, 2)
        if not (is_half or is_short):
            kind = _kind(a, exponent)
            if kind == "bool":
                raise _no("'**'", kind)
            return self._new(f"({_written(a, kind)} ** {_written(exponent, kind)})", kind, a)
        if exponent == 0:
            return self._ones_like(a)
        base = factor = self._named(a)
        product: Any = None
        n = int(abs(exponent))
        while n:
            if n & 1:
                product = factor if product is None else self._binary(ast.Mult, product, factor)
            n >>= 1
            if n:
                factor = self._named(self._binary(ast.Mult, factor, factor))
        if abs(exponent) % 1:
            root = self._function("sqrt", [base])
            product = root if product is None else self._binary(ast.Mult, product, root)
        power: Value = product if exponent > 0 else self._binary(ast.Div, 1, product)
        return power

    def _unary(self, sign: ast.unaryop, a: Any) -> Any:
        if not _has_values((a,)):
            _kind(a)
            # NumPy has no `+` of bools.
            return a if isinstance(sign, ast.UAdd) and isinstance(a, np.bool_) else _UNARY[type(sign)](a)
        if isinstance(sign, ast.UAdd):
            return a
        text, allowed = ("-", _NUMBERS) if isinstance(sign, ast.USub) else ("~", _BITS)
        if a.kind not in allowed:
            raise _no(f"'{text}'", a.kind)
        return self._new(f"({text}{a.text})", a.kind, a)

    def _compare(self, sign: type[ast.cmpop], a: Any, b: Any) -> Any:
        text, fold = _COMPARISONS[sign]
        kind = _kind(a, b) if _has_values((a, b)) else None
        if kind is None:
            _kind(a, b)
            return fold(a, b)
        return self._new(f"({_written(a, kind)} {text} {_written(b, kind)})", "bool", a, b)

    def _call(self, name: str, arguments: list[Any], keywords: dict[str | None, Any] | None = None) -> Any:
        if name in _REFUSED:
            raise unsupported(_REFUSED[name], name)
        if name not in _NAMES:
            raise TypeError(f"{name!r} is no function of NumExpr; the functions are {', '.join(sorted(_NAMES))}")
        if name in _LAST and 1 <= len(arguments) + len(keywords or {}) <= 2 and arguments:
            axis = arguments[1] if len(arguments) > 1 else None
            if not set(keywords or {}) - {"axis"}:
                return self._reduction(name, arguments[0], (keywords or {}).get("axis", axis))
        count = 3 if name == "where" else _FUNCTIONS[name].form.count("{}") if name in _FUNCTIONS else 1
        if keywords or len(arguments) != count or name in _LAST:
            raise TypeError(f"{name} does not take these arguments; only sums, products, min and max have an axis")
        has_values = _has_values(arguments)
        if name == "where":
            return self._where(*arguments)
        if not has_values:
            return self._folded(name, arguments)
        if name == "ones_like":
            return self._ones_like(arguments[0])
        return Value("f64(0)", "double") if name == "imag" else self._function(name, arguments)

    def _folded(self, name: str, arguments: list[Any]) -> Any:
        _kind(*arguments)
        if name in ("copy", "ones_like"):
            return arguments[0] if name == "copy" else type(arguments[0])(1)
        with np.errstate(all="ignore"):
            return getattr(np, name)(*arguments)

    def _function(self, name: str, arguments: list[Any]) -> Value:
        function = _FUNCTIONS[name]
        kind = _kind(*arguments)
        if kind not in _INTEGERS or not function.keeps_integers:
            lowest = "double" if kind in _INTEGERS else function.least
            kind = max(kind, lowest, key=KINDS.index)
        text = function.form.format(*(_written(each, kind) for each in arguments))
        return self._new(text, function.result or kind, *arguments)

    def _ones_like(self, a: Value) -> Value:
        return Value(_written(1, a.kind, is_alone=True), a.kind)

    def _where(self, condition: Any, a: Any, b: Any) -> Any:
        if not isinstance(condition, Value):
            _kind(condition)
            return a if condition else b
        if condition.kind != "bool":
            raise _no("'where' with a condition", condition.kind)
        kind = _kind(condition, a, b)
        texts = _written(a, kind, is_alone=not isinstance(b, Value)), _written(b, kind)
        return self._new(f"where({condition.text}, {texts[0]}, {texts[1]})", kind, condition, a, b)

    def _reduction(self, name: str, a: Any, axis: Any) -> Any:
        if axis is not None and (isinstance(axis, bool) or not isinstance(axis, int)):
            raise TypeError("axis is None or an integer")
        if axis is not None and not 0 <= axis <= 254:
            raise ValueError("negative axis are not supported" if axis < 0 else f"there is no axis {axis}")
        if not _has_values((a,)):
            return a
        if a.kind == "bool":
            if name in ("min", "max"):
                raise _no(f"'{name}'", a.kind)
            # NumExpr has no such sum; this one is that of NumPy.
            a = Value(_written(a, "long"), "long", a.depth)
        return Reduction(name, a, axis)


def _no(what: str, kind: str) -> NotImplementedError:
    remedy = "write '&', '|', '^' or '~'" if kind == "bool" else "convert the array with astype"
    if what.startswith("'where'"):
        remedy = "compare it: a != 0"
    return NotImplementedError(f"there is no {what} of values of kind {kind!r}; {remedy}")


_UFUNCS: dict[np.ufunc, type[ast.AST]] = dict(
    zip(
        (np.add, np.subtract, np.multiply, np.true_divide, np.floor_divide, np.remainder, np.power, np.left_shift)
        + (np.right_shift, np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.equal, np.not_equal, np.less)
        + (np.less_equal, np.greater, np.greater_equal, np.negative, np.positive, np.invert),
        (*_BINARY, *_COMPARISONS, *_UNARY),
        strict=True,
    )
)


class Symbol(np.lib.mixins.NDArrayOperatorsMixin):
    """An operand of `E`: NumPy's operators and functions build an expression."""

    def __init__(self, tree: ast.expr) -> None:
        self.tree = tree

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Symbol:
        trees = [each.tree if isinstance(each, Symbol) else ast.Constant(each) for each in inputs]
        sign = _UFUNCS.get(ufunc)
        if method != "__call__" or options:
            raise TypeError(f"numpy.{ufunc.__name__} with {method} or options is not supported in an expression")
        if sign is None:
            return Symbol(ast.Call(ast.Name("abs" if ufunc is np.absolute else ufunc.__name__), trees, []))
        if issubclass(sign, ast.cmpop):
            return Symbol(ast.Compare(trees[0], [sign()], trees[1:]))
        if issubclass(sign, ast.unaryop):
            return Symbol(ast.UnaryOp(sign(), trees[0]))
        return Symbol(ast.BinOp(trees[0], cast(type[ast.operator], sign)(), trees[1]))


class Symbols:
    """`E.a` is the variable `a` of an expression for `NumExpr`, as in `NumExpr(2 * E.a + E.b)`."""

    def __getattr__(self, name: str) -> Symbol:
        if name.startswith("_"):
            raise AttributeError(name)
        return Symbol(ast.Name(name))
