"""The results of some rows of a job, which other processes complete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from overshot import _core
from overshot._outputs import opened
from overshot._results import Results
from overshot._settings import whole

Rows = range | slice | tuple[int, int]
"""Adjacent rows: `range(a, b)`, `slice(a, b)` or `(a, b)`."""


def span(rows: Rows | None) -> tuple[int, int]:
    """Returns the first row, and the one behind the last row."""
    if isinstance(rows, (range, slice)):
        if rows.step not in (None, 1):
            raise ValueError(f"{rows}: a part has adjacent rows, so leave the step out")
        if rows.stop is None:
            raise ValueError(f"{rows}: say where the rows end")
        rows = (rows.start or 0, rows.stop)
    if not isinstance(rows, tuple) or len(rows) != 2:
        raise TypeError(f"rows={rows!r} are not rows, such as range(0, 4096)")
    first, end = rows
    if not 0 <= first <= end < 1 << 64:
        raise ValueError(f"rows {first} to {end} make no sense: the first one comes before the end")
    return first, end


def numbered(part: tuple[int, int]) -> tuple[int, int]:
    """Returns the number of a part, and that of all parts."""
    try:
        number, of = part
    except (TypeError, ValueError):
        raise ValueError(f"part={part!r} is not a pair, such as (0, 2) for the first of two parts") from None
    return whole("part", number), whole("part", of)


class Partial:
    """The results of some rows of a job: what `run_rows` returns.

    Partials of the same job with other rows are merged in any order, by any process. When all rows are complete,
    `finish` returns the results of one run, to the bit, and names the output files. A partial is a few kilobytes,
    whatever the number of rows. It can be pickled, and `to_bytes` makes it a file, which `overshot merge` reads, too.

    >>> x = np.arange(10_000.0)
    >>> first, last = (ov.run_rows("sum(x)", part=(k, 2), x=x) for k in range(2))
    >>> first.merge(last)
    >>> first.is_complete, first.finish()["sum(x)"]
    (True, np.float64(49995000.0))

    A partial knows its job, and refuses to merge with one of another expression, other inputs, numbers or outputs, or
    another version of Overshot, and with one that has some of the same rows.
    """

    __slots__ = ("_core",)

    def __init__(self, core: _core.Partial) -> None:
        self._core = core

    @property
    def rows(self) -> list[range]:
        """The complete rows, in order."""
        return [range(first, end) for first, end in self._core.rows]

    @property
    def total_rows(self) -> int:
        """The number of rows of the job."""
        return self._core.total_rows

    @property
    def is_complete(self) -> bool:
        """Whether all rows of the job are complete."""
        return self._core.is_complete

    def merge(self, other: Partial) -> None:
        """Adds the rows of another partial of the same job, which stays as it is.

        Raises `ValueError` if it is of another job, or has some of the same rows; then nothing changes.
        """
        self._core.merge(other._core)

    def finish(self, *, checksum: bool = False) -> Results:
        """Completes the job: gives its output files their names, all or none, and returns all results by name.

        An expression without a name is called `result`, and a reduction without one by its text. Output files are
        memory maps; an array of the caller is not among the results. `report` has the sums of the times of all parts.

        `checksum=True` adds the BLAKE3 hash of each output file to the report, as `evaluate` does.

        Raises `ValueError` if rows are missing, and `OSError` if an output cannot be named; no output appears then.
        """
        values, report = self._core.finish(checksum)
        files = {output["name"]: output["path"] for output in report.to_dict()["outputs"] if output["path"]}
        results: dict[str, Any] = {name: opened(name, path, report) for name, path in files.items()}
        results.update(values)
        return Results(results, report)

    def to_bytes(self) -> bytes:
        """Returns the partial as bytes, with a checksum."""
        return self._core.to_bytes()

    @staticmethod
    def from_bytes(data: bytes) -> Partial:
        """Returns the partial that bytes are. Raises `ValueError` if they are damaged, or something else."""
        return Partial(_core.Partial.from_bytes(data))

    def __reduce__(self) -> tuple[Callable[[bytes], Partial], tuple[bytes]]:
        return Partial.from_bytes, (self.to_bytes(),)

    def __repr__(self) -> str:
        rows = ", ".join(f"{rows.start} to {rows.stop}" for rows in self.rows[:4]) or "none"
        more = f" and {len(self.rows) - 4} more ranges" if len(self.rows) > 4 else ""
        return f"<overshot.Partial: rows {rows}{more} of {self.total_rows}>"
