"""What several statements return."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from typing import Any

from overshot import _core


class Results(Mapping[str, Any]):
    """The arrays and numbers of a run, by name; a reduction without a name by its text.

    `report` tells what the run did.
    """

    __slots__ = ("_values", "report")

    def __init__(self, values: dict[str, Any], report: _core.Report) -> None:
        self._values = values
        self.report = report

    def __getitem__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            known = ", ".join(repr(known) for known in self._values)
            raise KeyError(f"there is no result {name!r}; the results are {known}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>{self.report._repr_html_()}"

    def __repr__(self) -> str:
        lines = [f"  {name} = {value!r}" for name, value in self._values.items()]
        return "\n".join([f"<overshot.Results in {self.report.seconds:.3f} s", *lines]) + ">"
