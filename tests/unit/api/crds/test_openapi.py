import re
from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

import attrs
import pytest

from kai.api.crds.definitions import EXTRAS
from kai.api.crds.openapi import OPEN, description_of, schema_of
from kai.api.fields import (
    Bounds,
    Count,
    Count64,
    Format,
    Int32,
    JsonObject,
    NumberOrText,
    Pattern,
    Port,
    Quantity,
    Requests,
    Seconds,
    Share,
    Time,
)
from kai.api.kubernetes.dra import AllocationResult
from kai.api.kubernetes.meta import Condition
from kai.api.scheduling.queue import QueueSpec
from kai.api.scheduling.shard import GlobalConfig
from kai.api.values import seconds

Letter: TypeAlias = Literal["a"]


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (float, {"type": "number"}),
        (int, {"type": "integer", "format": "int64"}),
        (str | None, {"type": "string"}),
        (Int32, {"type": "integer", "format": "int32"}),
        (Count, {"type": "integer", "format": "int32", "minimum": 0}),
        (Count64 | None, {"type": "integer", "format": "int64", "minimum": 0}),
        (Port, {"type": "integer", "format": "int32", "minimum": 0, "maximum": 65535}),
        (Annotated[int, Bounds(1, 5)], {"type": "integer", "format": "int32", "minimum": 1, "maximum": 5}),
        (Annotated[str, Pattern("^a$")], {"type": "string", "pattern": "^a$"}),
        (Annotated[str, Pattern(shortest=1, longest=9)], {"type": "string", "minLength": 1, "maxLength": 9}),
        (Literal["", "a"], {"type": "string", "enum": ["", "a"]}),
        (Letter | Literal["b", "c"], {"type": "string", "enum": ["a", "b", "c"]}),
        (tuple[str, ...], {"type": "array", "items": {"type": "string"}}),
        (Mapping[str, bool], {"type": "object", "additionalProperties": {"type": "boolean"}}),
        (Time, {"type": "string", "format": "date-time"}),
        (JsonObject, {"type": "object", **OPEN}),
        (NumberOrText, {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}),
        (Annotated[tuple[str, ...], Format("of a class's own")], {"type": "array", "items": {"type": "string"}}),
    ],
)
def test_a_type_has_the_schema(hint, expected):
    assert schema_of(hint, {}) == expected


@pytest.mark.parametrize("hint", [object, list[str], str | int, Annotated[str, "a note"]])
def test_a_type_outside_of_the_vocabulary_is_refused(hint):
    with pytest.raises(TypeError):
        schema_of(hint, {})


@pytest.mark.parametrize("text", ["0", "1", "500m", "2Gi", "1e3", "-1.5", ".5", "1.", "+3k"])
def test_a_quantity_matches(text):
    assert re.fullmatch(schema_of(Quantity, {})["pattern"], text)
    assert re.fullmatch(schema_of(Requests, {})["additionalProperties"]["pattern"], text)


@pytest.mark.parametrize("text", ["", "m", "1 Gi", "1KB", "--1", "1e"])
def test_what_is_no_quantity_does_not_match(text):
    assert not re.fullmatch(schema_of(Quantity, {})["pattern"], text)


@pytest.mark.parametrize("text", ["0", "90s", "1h30m", "-1s", "1.5h", ".5s", "300ms", "5µs", "2d", "1w"])
def test_a_duration_that_a_reader_takes_matches(text):
    assert isinstance(seconds(text), float)
    assert re.fullmatch(schema_of(Seconds, {})["pattern"], text)


@pytest.mark.parametrize("text", ["", "5", "1h30", "s", "1 s", "1H"])
def test_what_is_no_duration_does_not_match(text):
    assert not re.fullmatch(schema_of(Seconds, {})["pattern"], text)


def test_a_share_has_a_rule():
    assert schema_of(Share, {})["x-kubernetes-validations"]


def test_a_schema_has_wire_names_in_order():
    schema = schema_of(QueueSpec, {})
    assert list(schema["properties"]) == sorted(schema["properties"])
    assert {"displayName", "parentQueue", "preemptMinRuntime"} <= schema["properties"].keys()


def test_a_field_without_a_default_is_required():
    @attrs.frozen(kw_only=True)
    class Level:
        """A level."""

        node_label: str
        alias: str = ""

    # Where annotations are evaluated does not matter here: both are builtins.
    assert schema_of(Level, {})["required"] == ["nodeLabel"]


def test_kubernetes_classes_are_open_and_ours_closed():
    assert OPEN.items() <= schema_of(AllocationResult, {}).items()
    assert not OPEN.items() & schema_of(Condition, {}).items()


def test_extras_are_added_to_classes_and_fields():
    extras = {(Condition, ""): {"required": ["type"]}, (Condition, "type"): {"maxLength": 316}}
    schema = schema_of(Condition, extras)
    assert schema["required"] == ["type"]
    assert schema["properties"]["type"]["maxLength"] == 316


def test_settings_that_only_the_peer_knows_are_kept():
    assert OPEN.items() <= schema_of(GlobalConfig, EXTRAS).items()


def test_every_extra_is_about_a_field_that_exists():
    for cls, wire in EXTRAS:
        assert not wire or wire in schema_of(cls, {})["properties"]


def test_a_description_is_one_line_with_wire_names():
    class Example:
        __doc__ = """A gang has
        `min_member` pods; see ``kai-config``.

        What follows is for programmers.
        """

    assert description_of(Example) == "A gang has minMember pods; see kai-config."
