"""Results as documents for machines and back, and as Parquet tables.

Documents have the field names of the wire; values are unchanged.

Parquet output is a table of jobs, with tables beside it for series over time, stays of pods and evictions. Rows of
several runs share one table; its first columns are the policy and the seed of the run.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final, get_type_hints

import attrs
import cattrs
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from kai.api.fields import document_name
from kai.basics.errors import InputError, load_extra
from kai.lab.virtual.results.result import (
    DecisionLine,
    EvictionResult,
    InputItem,
    JobResult,
    MetricItem,
    QueueResult,
    SeriesResult,
    SimulationResult,
    StayResult,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_CLASSES: Final = (
    InputItem,
    MetricItem,
    QueueResult,
    JobResult,
    EvictionResult,
    StayResult,
    SeriesResult,
    DecisionLine,
    SimulationResult,
)


def _made() -> cattrs.Converter:
    converter = cattrs.Converter(unstruct_collection_overrides={tuple: list})
    for cls in _CLASSES:
        attrs.resolve_types(cls)
        names: dict[str, Any] = {field.name: override(rename=document_name(field.name)) for field in attrs.fields(cls)}
        converter.register_unstructure_hook(cls, make_dict_unstructure_fn(cls, converter, **names))
        converter.register_structure_hook(cls, make_dict_structure_fn(cls, converter, **names))
    return converter


_CONVERTER: Final = _made()


def document_of(found: SimulationResult) -> dict[str, Any]:
    """Return a result as plain values, under the names of the output kind."""
    values: dict[str, Any] = _CONVERTER.unstructure(found)
    return values


def result_of_document(values: Mapping[str, Any], name: str) -> SimulationResult:
    """Return the result in a document.

    Raises: InputError for another document.
    """
    try:
        return _CONVERTER.structure(values, SimulationResult)
    except (cattrs.BaseValidationError, KeyError, TypeError, ValueError):
        raise InputError(f"{name}: found another document, expected the result of kai simulate --until") from None


_TYPES: Final[Mapping[object, str]] = {
    str: "string",
    str | None: "string",
    int: "int64",
    float: "float64",
    float | None: "float64",
    tuple[float, ...]: "list<float64>",
    tuple[str, ...]: "list<string>",
}
_RUN: Final = {"policy": "string", "seed": "int64"}


def require_pyarrow() -> Any:  # noqa: ANN401 - pyarrow, which has no types
    """Return the library that writes Parquet.

    Raises: ConfigError that says how to install it, where it is missing.
    """
    return load_extra("pyarrow", "traces", "--out: Parquet is written by pyarrow")


def write_tables(path: Path, results: Sequence[SimulationResult]) -> list[str]:
    """Write jobs into a file and the other tables beside it; return the names of those.

    Raises: ConfigError where pyarrow is not installed, OSError where nothing can be written.
    """
    others = {
        "series": _series(results),
        "stays": _rows(results, StayResult),
        "evictions": _rows(results, EvictionResult),
    }
    _write(path, *_rows(results, JobResult))
    names = []
    for name, (columns, rows) in others.items():
        beside = path.with_name(f"{path.stem}-{name}{path.suffix}")
        _write(beside, columns, rows)
        names.append(beside.name)
    return names


Rows = tuple[dict[str, str], list[dict[str, Any]]]
"""Columns with their types, and rows."""


def _rows(results: Sequence[SimulationResult], cls: type) -> Rows:
    """Return the values of one class in all results; jobs are given by name."""
    columns = {document_name(name): _TYPES[hint] for name, hint in get_type_hints(cls).items()}
    if cls is StayResult:
        columns["job"] = "string"
    rows = [{**_run(result), **values} for result in results for values in _values(result, cls)]
    return {**_RUN, **columns}, rows


def _values(result: SimulationResult, cls: type) -> Iterator[dict[str, Any]]:
    items: dict[type, Sequence[Any]] = {JobResult: result.jobs, StayResult: result.stays}
    for each in items.get(cls, result.evictions):
        values = {document_name(field.name): getattr(each, field.name) for field in attrs.fields(cls)}
        if cls is StayResult:
            job = result.jobs[each.job]
            values["job"] = f"{job.namespace}/{job.name}"
        yield values


def _series(results: Sequence[SimulationResult]) -> Rows:
    names = dict.fromkeys(name for result in results for name in result.series.columns)
    columns = {**_RUN, "startSeconds": "float64", "bucketSeconds": "float64", **dict.fromkeys(names, "float64")}
    rows = []
    for result in results:
        series = result.series
        for at, start in enumerate(series.start_seconds):
            means = {name: values[at] for name, values in series.columns.items()}
            rows.append({**_run(result), "startSeconds": start, "bucketSeconds": series.bucket_seconds, **means})
    return columns, rows


def _run(result: SimulationResult) -> dict[str, Any]:
    return {"policy": result.policy, "seed": result.inputs.seed}


def _write(path: Path, columns: dict[str, str], rows: list[dict[str, Any]]) -> None:
    pyarrow = require_pyarrow()
    parquet = importlib.import_module("pyarrow.parquet")
    lists = {"list<float64>": "float64", "list<string>": "string"}
    types = {
        name: pyarrow.list_(getattr(pyarrow, lists[kind])()) if kind in lists else getattr(pyarrow, kind)()
        for name, kind in columns.items()
    }
    schema = pyarrow.schema(list(types.items()))
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), str(path), compression="zstd")
