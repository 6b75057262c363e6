"""One class writes a document, reads it, and gives its schema."""

from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from kai.answers.documents.document import ABSENT, as_json, read_json, schema_of, span


@attrs.frozen(kw_only=True)
class Part:
    """A part."""

    name: str
    from_: float | None


@attrs.frozen(kw_only=True)
class Whole:
    """A whole; ``parts`` in order.

    More is not said in a schema.
    """

    gpu_hours: float
    parts: tuple[Part, ...]
    best: Part | None
    labels: Mapping[str, str]
    tags: tuple[str, ...] = ("a",)
    note: str | None = ABSENT


WHOLE = Whole(gpu_hours=1.5, parts=(Part(name="x", from_=None),), best=None, labels={"k": "v"})
JSON = {"gpuHours": 1.5, "parts": [{"name": "x", "from": None}], "best": None, "labels": {"k": "v"}, "tags": ["a"]}


def test_fields_are_written_in_their_order_under_their_names():
    assert as_json(WHOLE) == JSON
    assert list(as_json(WHOLE)) == list(JSON)


def test_what_is_written_is_read_back():
    assert read_json(Whole, JSON) == WHOLE
    noted = attrs.evolve(WHOLE, note=None, best=Part(name="y", from_=2.0))
    assert as_json(noted)["note"] is None
    assert read_json(Whole, as_json(noted)) == noted


def test_unknown_fields_are_ignored_and_optional_ones_may_lack():
    older = {name: value for name, value in JSON.items() if name != "tags"}
    assert read_json(Whole, {**older, "later": 1}) == WHOLE


@pytest.mark.parametrize("name", ["gpuHours", "parts", "best", "labels"])
def test_a_missing_field_is_named(name: str):
    with pytest.raises(KeyError, match=name):
        read_json(Whole, {key: value for key, value in JSON.items() if key != name})


@pytest.mark.parametrize("part", [7, "text", None, [1]])
def test_a_part_of_another_form_is_refused(part: Any):
    with pytest.raises((KeyError, TypeError, AttributeError)):
        read_json(Whole, {**JSON, "parts": [part]}).parts[0].name  # noqa: B018 - None stays None until it is used


def test_a_schema_has_what_is_always_written_as_required():
    schema = schema_of(Whole)
    assert schema["description"] == "A whole; parts in order."
    assert schema["required"] == ["gpuHours", "parts", "best", "labels"]
    assert schema["properties"]["parts"]["items"]["properties"]["from"] == {
        "anyOf": [{"type": "number"}, {"type": "null"}]
    }
    assert schema_of(Whole, is_whole=True)["required"] == [*JSON, "note"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0s"), (45.9, "45s"), (60, "1m"), (3599, "59m"), (3600, "1h00m"), (6600, "1h50m"), (273600, "3d4h")],
)
def test_a_length_of_time_has_two_units_at_most(seconds, text):
    assert span(seconds) == text
