import os
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

__version__: str
__all__ = [
    "Blocks",
    "Call",
    "Cancelled",
    "Engine",
    "Expression",
    "File",
    "GpuArray",
    "Kernel",
    "Matrices",
    "NewFile",
    "NewRows",
    "Partial",
    "Plan",
    "Report",
    "Resident",
    "__version__",
    "devices",
    "numpy_type",
]

class Cancelled(RuntimeError): ...

@final
class Expression:
    """A parsed expression, for any number of runs."""

    def __new__(cls, text: str) -> Expression: ...
    @property
    def text(self) -> str: ...
    @property
    def unnamed(self) -> str | None: ...
    @property
    def inputs(self) -> list[str]: ...
    @property
    def constants(self) -> list[str]: ...
    @property
    def outputs(self) -> list[str]: ...
    @property
    def unread(self) -> list[str]: ...
    @property
    def reductions(self) -> list[str]: ...
    def __getnewargs__(self) -> tuple[str]: ...

@final
class File:
    """A file to be read, or several as one input: those of a folder, or of a pattern such as `part-*.npy`."""

    def __new__(
        cls,
        path: str | os.PathLike[str],
        dtype: str | None = None,
        read: str = "map",
        field: str | list[str] | None = None,
        member: str | None = None,
        nulls: str | None = None,
        shape: list[int] | None = None,
        timestamps: bool = False,
    ) -> File: ...
    @property
    def path(self) -> str | os.PathLike[str]: ...
    @property
    def dtype(self) -> type[np.generic]: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def field(self) -> str | list[str] | None: ...
    @property
    def member(self) -> str | None: ...
    @property
    def nulls(self) -> str | None: ...
    @property
    def timestamps(self) -> bool: ...
    def __getnewargs__(
        self,
    ) -> tuple[
        os.PathLike[str], str | None, str, str | list[str] | None, str | None, str | None, list[int] | None, bool
    ]: ...

@final
class NewFile:
    """A file to be written."""

    def __new__(
        cls,
        path: str | os.PathLike[str],
        dtype: str | None = None,
        force: bool = False,
        fsync: bool = False,
        codec: str | None = None,
        chunks: list[int] | None = None,
        shards: list[int] | None = None,
        dimensions: list[str] | None = None,
    ) -> NewFile: ...
    @property
    def path(self) -> os.PathLike[str]: ...
    @property
    def is_encoded(self) -> bool: ...
    @property
    def journal(self) -> os.PathLike[str]: ...
    def __getnewargs__(
        self,
    ) -> tuple[
        os.PathLike[str], str | None, bool, bool, str | None, list[int] | None, list[int] | None, list[str] | None
    ]: ...

@final
class NewRows:
    """A new array of the rows of an output that a part of a job computes."""

    def __new__(cls, first: int, end: int, rows: int) -> NewRows: ...
    def take(self) -> np.ndarray | None: ...

@final
class Blocks:
    """A dataset of which this process has some rows only, in arrays."""

    def __new__(
        cls, dtype: str, shape: Sequence[int], identity: str, blocks: list[tuple[int, Any]] = ...
    ) -> Blocks: ...
    def with_blocks(self, blocks: list[tuple[int, Any]]) -> Blocks: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    def __getnewargs__(self) -> tuple[str, list[int], str, list[tuple[int, Any]]]: ...

@final
class GpuArray:
    """An array of another library in the memory of a GPU."""

    def __new__(cls, array: Any) -> GpuArray: ...
    @property
    def owner(self) -> Any: ...
    @property
    def dtype(self) -> type[np.generic]: ...
    @property
    def shape(self) -> tuple[int, ...]: ...

@final
class Resident:
    """A dataset that stays in the memory of an engine's GPUs as far as it fits."""

    @property
    def dtype(self) -> type[np.generic]: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def rows_on_devices(self) -> list[tuple[str, int]]: ...

@final
class Kernel:
    """A kernel of the user's own."""

    def __new__(
        cls,
        code: str | bytes,
        entry: str,
        name: str,
        is_image: bool,
        parameters: str | None = None,
        threads: int | None = None,
        rows_per_block: int | None = None,
        shared_bytes: int | None = None,
        options: list[str] = ...,
        halos: list[tuple[str | None, int, int]] = ...,
    ) -> Kernel: ...
    def call(self, numbers: list[tuple[str, Any]], resident: list[tuple[str, Any]], scratch: list[str]) -> Call: ...
    def scalars(self, names: list[str]) -> list[str]: ...
    @property
    def entry(self) -> str: ...

@final
class Call:
    """A kernel with its scalars, resident arrays and scratch memory."""

    @property
    def inputs(self) -> list[str]: ...
    @property
    def outputs(self) -> list[str]: ...

@final
class Report:
    """What a run did."""

    @property
    def rows(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def total_seconds(self) -> float: ...
    @property
    def notes(self) -> list[str]: ...
    def to_dict(self) -> dict[str, Any]: ...
    def _repr_html_(self) -> str: ...

@final
class Plan:
    """What a run would do."""

    def to_dict(self) -> dict[str, Any]: ...
    def _repr_html_(self) -> str: ...

@final
class Partial:
    """The results of some rows of a job."""

    @property
    def rows(self) -> list[tuple[int, int]]: ...
    @property
    def total_rows(self) -> int: ...
    @property
    def is_complete(self) -> bool: ...
    def merge(self, other: Partial) -> None: ...
    def finish(self, checksum: bool = False) -> tuple[list[tuple[str, Any]], Report]: ...
    def to_bytes(self) -> bytes: ...
    @staticmethod
    def from_bytes(bytes: bytes) -> Partial: ...

@final
class Engine:
    def __new__(
        cls,
        device: str = "auto",
        device_memory: int | None = None,
        pinned_memory: int | None = None,
        chunk: int | None = None,
        workers: int | None = None,
        device_timeout: float | None = None,
    ) -> Engine: ...
    def run(
        self,
        what: Expression | Call,
        inputs: list[tuple[str, Any]],
        outputs: list[tuple[str, Any]],
        rows: int | None = None,
        progress: Callable[[int, int], object] | None = None,
        timeline: bool = False,
        journal: str | None = None,
        verify: float = 0.0,
        precision: str = "full",
        checksum: bool = False,
    ) -> tuple[list[tuple[str, Any]], list[tuple[str, np.ndarray]], Report]: ...
    def run_rows(
        self,
        what: Expression | Call,
        inputs: list[tuple[str, Any]],
        outputs: list[tuple[str, Any]],
        range: tuple[int, int],
        rows: int | None = None,
        progress: Callable[[int, int], object] | None = None,
        verify: float = 0.0,
        precision: str = "full",
    ) -> Partial: ...
    def ranges(
        self,
        what: Expression | Call,
        inputs: list[tuple[str, Any]],
        outputs: list[tuple[str, Any]],
        parts: list[tuple[int, int]],
        rows: int | None = None,
    ) -> list[tuple[int, int]]: ...
    def part_step(
        self,
        what: Expression | Call,
        inputs: list[tuple[str, Any]],
        outputs: list[tuple[str, Any]],
        rows: int | None = None,
    ) -> int: ...
    def resident(self, array: Any) -> Resident: ...
    def plan(
        self,
        what: Expression | Call,
        inputs: list[tuple[str, Any]],
        outputs: list[tuple[str, Any]],
        rows: int | None = None,
        precision: str = "full",
    ) -> Plan: ...

@final
class Matrices:
    """The algorithms on tables, on an engine."""

    def __new__(
        cls,
        engine: Engine,
        precision: str = "full",
        progress: Callable[[int, int], object] | None = None,
        each_pass: Callable[[Report], object] | None = None,
    ) -> Matrices: ...
    def gram(self, x: Any) -> np.ndarray: ...
    def covariance(self, x: Any, ddof: int) -> np.ndarray: ...
    def linear(self, x: Any, t: Any, ridge: float, intercept: bool) -> tuple[np.ndarray, float]: ...
    def logistic(
        self, x: Any, t: Any, penalty: float, tolerance: float, iterations: int
    ) -> tuple[np.ndarray, float, int, bool]: ...
    def pca(
        self, x: Any, count: int, method: str, tolerance: float, iterations: int, seed: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]: ...
    def project(
        self, x: Any, components: np.ndarray, mean: np.ndarray | None, outputs: list[tuple[str, Any]]
    ) -> tuple[list[tuple[str, np.ndarray]], Report]: ...
    def kmeans(
        self,
        x: Any,
        start: int | np.ndarray,
        iterations: int,
        tolerance: float,
        seed: int,
        outputs: list[tuple[str, Any]],
    ) -> tuple[np.ndarray, float, np.ndarray, int, bool, tuple[list[tuple[str, np.ndarray]], Report]]: ...
    def assign(
        self, x: Any, centers: np.ndarray, outputs: list[tuple[str, Any]]
    ) -> tuple[list[tuple[str, np.ndarray]], Report]: ...
    def nearest(self, base: Any, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]: ...

def numpy_type(name: str) -> type[np.generic]: ...
def devices() -> tuple[list[dict[str, Any]], list[str]]: ...
