"""Base class of results: declarations, and the files, frames and reports that follow.

A kind of result is a frozen dataclass with ``kind``, ``columns``, ``summary``, ``rows()``,
``blocks(view)`` and, if it has a plot, ``draw(figure)``. Files, data frames, notebook and terminal
output follow from these.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack, cast

from roofline.core import files, schema
from roofline.core.blocks import Block, Report, View, ViewOptions, escape_report
from roofline.core.files import check_named_once, check_writable, write_together
from roofline.core.rows import csv_text, frame_of, json_text
from roofline.errors import InputError, argument, did_you_mean

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

FORMATS = {
    ".json": "json",
    ".csv": "csv",
    ".md": "md",
    ".html": "html",
    ".png": "png",
    ".svg": "svg",
    ".toml": "toml",
    ".trace.json": "trace",
    ".tfevents": "tensorboard",
    ".pt2": "pt2",
}
"""Formats by suffix; the longest match counts."""

HOMES = {
    "advice": "roofline.design.advice.result",
    "analysis": "roofline.analysis.result",
    "calibration": "roofline.latency.calibrated",
    "comparison": "roofline.design.comparison.result",
    "check": "roofline.design.gate.result",
    "compilation": "roofline.design.compilation",
    "crosscheck": "roofline.counters.result",
    "export": "roofline.design.export",
    "hardware difference": "roofline.machine.difference",
    "hardware": "roofline.machine.hardware",
    "language model": "roofline.llm.result",
    "missing operators": "roofline.workload.formulas.catalog",
    "operators": "roofline.workload.formulas.catalog",
    "optimization": "roofline.substitution.result",
    "quantization": "roofline.quantization.result",
    "scaling": "roofline.scaling.result",
    "trace": "roofline.traces.result",
    "trace advice": "roofline.traces.advice",
    "trace comparison": "roofline.traces.comparison",
    "validation": "roofline.latency.validation",
}
"""Modules of result kinds, imported when such a file is read."""

_KINDS: dict[str, type[Result]] = {}


class Result:
    """A result: values with a report, rows and files.

    Attributes:
        kind: name of the kind in files and messages.
        columns: names of `rows` with units, and pandas' nullable types.
        suffixes: suffixes of files it can be written to.
        made_by: command that makes it, for messages on damaged files.
        height_inch: height of its plot.
    """

    __slots__ = ()

    kind: ClassVar[str]
    columns: ClassVar[Mapping[str, str]] = {}
    suffixes: ClassVar[tuple[str, ...]] = (".json", ".csv", ".md", ".html", ".png", ".svg")
    made_by: ClassVar[str] = "roofline"
    height_inch: ClassVar[float] = 6.5

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "kind" in cls.__dict__:
            _KINDS[cls.kind] = cls

    @property
    def summary(self) -> str:
        """Verdict in one sentence."""
        raise NotImplementedError

    def rows(self) -> Iterable[Sequence[Any]]:
        """Return cells in the order of `columns`; None where a value is unknown."""
        raise NotImplementedError

    def blocks(self, view: View) -> Iterable[Block]:
        """Return the blocks below the summary."""
        raise NotImplementedError

    def draw(self, figure: Figure) -> None:
        """Draw the plot into an empty figure."""
        raise NotImplementedError

    def contradictions(self) -> Iterable[str]:
        """Return inconsistencies of values in a file; none if all is consistent."""
        return ()

    def table(self, view: View) -> tuple[Iterable[str], Iterable[Sequence[Any]]]:
        """Return column names and rows of CSV files for a view."""
        del view
        return self.columns, self.rows()

    def report(self, view: View | None = None) -> Report:
        """Return summary and blocks, control characters escaped."""
        blocks = tuple(self.blocks(view or View()))
        return escape_report(Report(headline=self.summary, blocks=blocks))

    def to_data(self) -> dict[str, Any]:
        """Return plain data for JSON: the fields, and properties in ``ALSO_WRITTEN``."""
        return {"schema_version": schema.VERSION, "kind": self.kind, **schema.to_data(self)}

    @classmethod
    def from_data(cls, data: Any, *, file: str) -> Self:
        """Return the result in plain data, as in its JSON.

        Raises:
            FileFormatError: unknown, missing or wrong values, another version, or contradictions.
        """
        fix = f"make it again with `{cls.made_by}`"
        table = schema.check_version(data, file=file, fix=fix)
        if (kind := table.get("kind", cls.kind)) != cls.kind:
            kind = f"'{files.cut(kind)}'" if isinstance(kind, str) else "no text"
            raise files.refused(file, f"expected kind '{cls.kind}', got {kind}", fix)
        fields = {
            name: each for name, each in table.items() if name not in ("schema_version", "kind")
        }
        result = schema.from_data(cls, fields, file=file, fix=fix)
        for wrong in result.contradictions():
            raise files.refused(file, f"{wrong}: the file was changed or cut", fix)
        return result

    def to_frame(self) -> pandas.DataFrame:
        """Return the rows as a data frame, units in column names; unknown is missing, never 0."""
        return frame_of(self.columns, list(self.rows()))

    def to_json(self) -> str:
        """Return the result as JSON text; `read_result` returns an equal result."""
        return json_text(self.to_data())

    def to_csv(self, **view: Unpack[ViewOptions]) -> str:
        """Return the rows as CSV; unknown is empty, never 0."""
        return csv_text(*self.table(View(**view)))

    def plot(
        self, *, width_inch: float = 10.0, height_inch: float | None = None, **options: Any
    ) -> Figure:
        """Return the plot as a matplotlib Figure, which `matplotlib.pyplot.show` shows.

        Args:
            width_inch: width of the figure.
            height_inch: height; None: `height_inch` of the class.
            options: options of `draw`.
        """
        from roofline.plots.figures import shown_figure

        return self._figure(shown_figure, width_inch, height_inch, options)

    def _figure(
        self,
        make: Callable[[float, float], Figure],
        width_inch: float,
        height_inch: float | None,
        options: Mapping[str, Any],
    ) -> Figure:
        from roofline.plots.figures import make_safe

        figure = make(width_inch, height_inch or self.height_inch)
        self.draw(figure, **options)
        make_safe(figure)
        return figure

    def render(self, format: str, view: View | None = None, **picture: Any) -> str | bytes:
        """Return the result in a format of `FORMATS`: text, or bytes for ``png``.

        Args:
            format: a format of `suffixes`.
            view: view of ``md``, ``html`` and ``csv``.
            picture: options of `draw`.

        Raises:
            InputError: a format that this kind of result lacks.
        """
        # Files keep every detail.
        view = replace(view or View(), verbose=True)
        match format if format in self.formats() else "":
            case "json":
                return self.to_json()
            case "csv":
                return csv_text(*self.table(view))
            case "md":
                from roofline.render.markdown import report_markdown

                return report_markdown(self.report(view))
            case "html":
                return self.page(view)
            case "png":
                return self._saved_picture("png", picture)
            case "svg":
                return self._saved_picture("svg", picture).decode("utf-8")
            case _:
                known = ", ".join(self.formats())
                raise InputError(f"{argument('format', format)}: {self._written_as()} {known}")

    def page(self, view: View) -> str:
        """Return a self-contained HTML page: the plot if any, and the report."""
        from roofline.render.pages import page_html

        has_picture = ".svg" in self.suffixes
        picture = self._saved_picture("svg", {}).decode("utf-8") if has_picture else ""
        return page_html(self.report(view), picture)

    def _saved_picture(self, format: str, options: Mapping[str, Any]) -> bytes:
        from roofline.plots.figures import new_figure, saved

        return saved(self._figure(new_figure, 10.0, None, options), format)

    @classmethod
    def formats(cls) -> tuple[str, ...]:
        """Return the formats of its files."""
        return tuple(FORMATS[each] for each in cls.suffixes)

    @classmethod
    def check_files(cls, paths: Sequence[Path], *, overwrite: bool) -> None:
        """Raise an error if a file cannot be written, before any work is done.

        Raises:
            InputError: an unknown suffix, the same file twice, one that exists while `overwrite` is
                false, or a folder that cannot be written.
        """
        for path in paths:
            cls._suffix(path)
            check_writable(path, overwrite=overwrite)
        check_named_once(paths)

    @classmethod
    def _suffix(cls, path: Path) -> str:
        """Return the suffix that sets the format of a file."""
        fitting = [each for each in FORMATS if path.suffix and path.name.lower().endswith(each)]
        chosen = max(fitting, key=len, default=path.suffix.lower())
        if chosen not in cls.suffixes:
            near = did_you_mean("".join(path.suffixes[-2:]).lower(), cls.suffixes)
            near = near or did_you_mean(chosen, cls.suffixes)
            what = f"unknown suffix '{chosen}'" if chosen else "no suffix"
            known = ", ".join(cls.suffixes)
            raise InputError(f"{path}: {what}; {cls._written_as()} {known}{near}")
        return chosen

    @classmethod
    def _written_as(cls) -> str:
        return f"results of kind '{cls.kind}' are written as"

    def save(
        self, *paths: str | Path, overwrite: bool = False, **view: Unpack[ViewOptions]
    ) -> None:
        """Write files, each in the format of its suffix: all of them, or none.

        Args:
            paths: names of files, with one of `suffixes`.
            overwrite: replace existing files.
            view: fields of `View`.

        Raises:
            InputError: as `check_files`, or a file cannot be written.
        """
        self.write(tuple(map(Path, paths)), View(**view), overwrite=overwrite)

    def write(self, paths: Sequence[Path], view: View, *, overwrite: bool, **picture: Any) -> None:
        """Write files as `save` does, with a view and options of the plot."""
        self.check_files(paths, overwrite=overwrite)
        contents = {
            path: self.render(FORMATS[self._suffix(path)], view, **picture) for path in paths
        }
        write_together(contents, overwrite=overwrite)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.summary}>"

    def __str__(self) -> str:
        from roofline.render.console import plain_text

        return plain_text(self.report())

    def _repr_html_(self) -> str:
        from roofline.render.pages import report_html

        return report_html(self.report())


def read_result(path: str | Path) -> Result:
    """Return the result saved in a JSON file, of any kind; needs no torch.

    Raises:
        FileFormatError: not readable, no result, damaged, or of another version.
    """
    file = str(path)
    data = files.read_json(Path(path), fix="save it again")
    return result_from_data(data, file=file)


def result_from_data(data: Any, *, file: str) -> Result:
    """Return the result in plain data, of the class of its ``kind``.

    Raises:
        FileFormatError: as `read_result`.
    """
    table = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    kind = table.get("kind")
    if not isinstance(kind, str):
        raise files.refused(file, "not a roofline result: it has no 'kind'", "save it again")
    if kind not in _KINDS and kind in HOMES:
        importlib.import_module(HOMES[kind])
    if kind not in _KINDS:
        known = {*_KINDS, *HOMES}
        raise files.refused(
            file,
            f"kind '{files.cut(kind)}' is not known{did_you_mean(kind, known)}",
            f"known kinds are {', '.join(sorted(known))}",
        )
    return _KINDS[kind].from_data(data, file=file)
