"""Results as documents for machines and back: names as on the wire, everything else as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs
import cattrs
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from kai.api.fields import document_name
from kai.errors import InputError
from kai.virtual.results import result
from kai.virtual.results.result import SimulationResult

_CLASSES: Final = (
    result.InputItem,
    result.MetricItem,
    result.QueueResult,
    result.JobResult,
    result.EvictionResult,
    result.StayResult,
    result.SeriesResult,
    result.DecisionLine,
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
    """Return the result that a document holds.

    Raises: InputError for one that is none.
    """
    try:
        return _CONVERTER.structure(values, SimulationResult)
    except (cattrs.BaseValidationError, KeyError, TypeError, ValueError):
        raise InputError(f"{name}: found another document, expected the result of kai simulate --until") from None
