"""Kernels of the user's own, as functions of arrays."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from overshot import _core
from overshot._columns import column
from overshot._outputs import resolve
from overshot._results import Results

if TYPE_CHECKING:
    from overshot._engine import Engine

_BOUNDS = r"(?:__launch_bounds__\s*\([^)]*\)\s*)?"
_ENTRY_OF_CUDA = re.compile(rf"__global__\s+{_BOUNDS}void\s+{_BOUNDS}(\w+)\s*\(")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY_OF_PTX = re.compile(r"\.entry\s+([\w$]+)")
_IMAGES = (b"\x7fELF", b"\x50\xed\x55\xba")  # a cubin, a fatbin


class Kernel:
    """A kernel that runs on every row of its arrays, which may be larger than the GPU: a function of arrays.

    `Engine.kernel` makes it of CUDA C++, PTX, a cubin or a fatbin. The C declaration says what each parameter is:
    `const T *x` an input, `T *y` an output, `T a` a scalar, `long long rows` the number of rows of a launch. A launch
    has one block of `threads` threads (256) for every `rows_per_block` rows (as many as threads), and is for one chunk.
    PTX and device code need `parameters`, as in C. `entry` is needed if the code has several kernels.

    ```python
    saxpy = engine.kernel('''
        extern "C" __global__ void saxpy(long long rows, float a, const float *x, float *y) {
            long long i = blockIdx.x * 256ll + threadIdx.x;
            if (i < rows) y[i] = a * x[i];
        }''')
    y = saxpy(x, a=2.0)
    saxpy(x, out=y, a=2.0)
    ```

    `overshot.run_rows` and the functions for clusters and executors take a kernel in place of an expression.

    `halo` says how many rows of its inputs the kernel reads before and behind those of a launch: 1 for one on each
    side, `(1, 0)` for one before, or those of some inputs by name, as in `halo={'x': (1, 0)}`. Then `x[-1]` is the row
    before the first one, if the job has it: `long long first_row` and `long long total_rows` tell.

    Scalars that are called `out`, `resident`, `scratch`, `progress` or `timeline` cannot be given: rename them.

    A kernel is code of your own: Overshot cannot check what it accesses.
    """

    def __init__(
        self,
        engine: Engine,
        code: str | bytes,
        entry: str | None,
        parameters: str | None,
        launch: Mapping[str, int | None],
        halos: list[tuple[str | None, int, int]],
        options: list[str],
        name: str,
    ) -> None:
        is_image = _is_image(code)
        if entry is None:
            entry = _only_entry(code, is_image)
        self._engine = engine
        self._arguments = (engine, code, entry, parameters, launch, halos, options, name)
        self._core = _core.Kernel(code, entry, name, is_image, parameters, options=options, halos=halos, **launch)

    def __call__(
        self,
        *columns: Any,
        out: Any = None,
        rows: int | None = None,
        resident: Mapping[str, Any] | None = None,
        scratch: Iterable[str] = (),
        progress: bool | Callable[[int, int], object] = False,
        timeline: bool = False,
        **named: Any,
    ) -> Any:
        """Runs the kernel on arrays or files.

        Arrays without a name are the inputs, in the order of the declaration; keywords are inputs and scalars by name.
        `out` is the output, or a mapping by name; others are new arrays. A kernel with one output returns it; one with
        several returns a mapping with the report of the run. `resident` are arrays that are the same for all rows;
        `scratch` are the names of parameters that need memory for the rows of a chunk.
        """
        call, inputs, outputs, copied = self._bound(columns, named, out, resident or {}, scratch)
        values, report = self._engine._run(call, inputs, outputs, copied, rows, progress, timeline)
        return next(iter(values.values())) if len(call.outputs) == 1 else Results(values, report)

    def _bound(
        self,
        columns: Sequence[Any],
        named: dict[str, Any],
        out: Any,
        resident: Mapping[str, Any] = {},
        scratch: Iterable[str] = (),
    ) -> tuple[_core.Call, list[tuple[str, Any]], list[tuple[str, Any]], dict[str, Any]]:
        """Returns a call, its inputs, its outputs, and the arrays that are written after a run."""
        numbers = [(name, named.pop(name)) for name in self._core.scalars(list(named))]
        arrays = [(name, column(name, array)) for name, array in resident.items()]
        call = self._core.call(numbers, arrays, list(scratch))
        free = [name for name in call.inputs if name not in named]
        if len(columns) > len(free):
            raise TypeError(f"{self._core.entry} has the inputs {', '.join(call.inputs)}; {len(columns)} are given")
        given = dict(zip(free, columns)) | named
        inputs = [(name, column(name, given.pop(name))) for name in call.inputs if name in given]
        if given:
            raise TypeError(f"{self._core.entry} has no parameter {next(iter(given))!r} that takes an argument")
        outs = dict(out) if isinstance(out, Mapping) else {} if out is None else {call.outputs[0]: out}
        if out is not None and not isinstance(out, Mapping) and len(call.outputs) > 1:
            raise TypeError(f"{self._core.entry} has several outputs: pass out={{'name': array or path}}")
        outputs, copied = resolve(call.outputs, [], outs, inputs)
        for name, own in outputs:
            if name in copied:
                # A kernel need not write all elements: the others keep their values.
                own[...] = copied[name]
        return call, inputs, outputs, copied

    def __reduce__(self) -> tuple[type[Kernel], tuple[Any, ...]]:
        return Kernel, self._arguments

    def __repr__(self) -> str:
        return f"<overshot.Kernel {self._core.entry!r}>"


def halos(halo: int | tuple[int, int] | Mapping[str, int | tuple[int, int]]) -> list[tuple[str | None, int, int]]:
    """Returns the rows before and behind each row that a kernel reads, with the names of inputs, or None for all."""
    each: list[tuple[str | None, int | tuple[int, int]]] = (
        list(halo.items()) if isinstance(halo, Mapping) else [(None, halo)] if halo else []
    )
    found: list[tuple[str | None, int, int]] = []
    for name, rows in each:
        try:
            before, after = (operator.index(row) for row in (rows if isinstance(rows, (tuple, list)) else (rows, rows)))
        except (TypeError, ValueError):
            raise TypeError(f"the halo {rows!r} is neither a number of rows nor a pair of them, before and behind")
        if before < 0 or after < 0:
            raise ValueError(f"the halo {rows} has less than no rows: pass how many rows before and behind are read")
        found.append((name, before, after))
    return found


def _is_image(code: str | bytes) -> bool:
    """Returns whether the code is PTX or device code, not CUDA C++."""
    if isinstance(code, str):
        return re.search(r"^\s*\.version\s", code, re.MULTILINE) is not None
    if not isinstance(code, bytes):
        raise TypeError(f"the code of a kernel is a str or bytes, not {type(code).__name__}")
    return code.startswith(_IMAGES) or _is_image(code.decode(errors="replace"))


def _only_entry(code: str | bytes, is_image: bool) -> str:
    text = code if isinstance(code, str) else code.decode(errors="replace")
    found = list(dict.fromkeys((_ENTRY_OF_PTX if is_image else _ENTRY_OF_CUDA).findall(_COMMENT.sub(" ", text))))
    if len(found) != 1:
        kernels = ", ".join(found) or "none that can be seen"
        raise ValueError(f"the code has the kernels {kernels}: name the one to run with entry=...")
    return str(found[0])
