"""Overshot streams arrays and files larger than a GPU's memory through a computation.

>>> import numpy as np, overshot as ov
>>> a = np.arange(5.0)
>>> ov.evaluate("sqrt(a * a + 1)")
array([1.        , 1.41421356, 2.23606798, 3.16227766, 4.12310563])
>>> r = ov.evaluate("c = a * 2; total = sum(a)")
>>> r["c"], r["total"]
(array([0., 2., 4., 6., 8.]), np.float64(10.0))

`evaluate` runs an expression over NumPy arrays, memory maps and files, on all GPUs of the machine and its cores
together, without copying its inputs. Without a GPU it runs on the cores. `r.report` tells what happened and what
bounds the speed. An `Engine` keeps devices and memory for many runs with the same settings.
"""

from overshot import array_api, matrices
from overshot._core import Cancelled, Expression, File, NewFile, Plan, Report, Resident, __version__, devices
from overshot._engine import Engine, create, evaluate, open, plan, run_rows
from overshot._jit import jit
from overshot._kernel import Kernel
from overshot._lazy import Array, array
from overshot._lazy_jobs import compute
from overshot._partial import Partial
from overshot._results import Results

__all__ = [
    "Array",
    "Cancelled",
    "Engine",
    "Expression",
    "File",
    "Kernel",
    "NewFile",
    "Partial",
    "Plan",
    "Report",
    "Resident",
    "Results",
    "__version__",
    "array",
    "array_api",
    "compute",
    "create",
    "devices",
    "evaluate",
    "jit",
    "matrices",
    "open",
    "plan",
    "run_rows",
]
