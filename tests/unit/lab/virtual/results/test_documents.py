import json

import pytest

from kai.basics.errors import InputError
from kai.cli.output_kinds import kind_schema
from kai.lab.virtual.results.documents import document_of, result_of_document
from kai.lab.virtual.results.metrics import result_of
from kai.lab.virtual.running.simulation import run
from tests.unit.cli.schemas.test_jsonschemas import faults
from tests.unit.lab.virtual.builders import case, scene_of


def test_a_result_matches_its_schema_and_round_trips():
    result = result_of(run(scene_of(case("reclaim.yaml")), until=8 * 3600.0))
    text = json.dumps(document_of(result))
    assert result_of_document(json.loads(text), "result.json") == result
    envelope = {"apiVersion": "", "kind": "", "generatedAt": "", "source": None, "program": {"version": ""}}
    assert faults({**envelope, **json.loads(text)}, kind_schema("SimulationResult")) == []


def test_the_timeline_has_a_bar_per_stay():
    result = result_of(run(scene_of(case("reclaim.yaml")), until=8 * 3600.0))
    bars = [(each["name"], each["ts"], each["dur"]) for each in result.trace() if each["ph"] == "X"]
    assert bars == [
        ("default/long", 0, 3630_000_000),
        ("default/short", 3630_000_000, 1800_000_000),
        ("default/long", 5430_000_000, 5100_000_000),
    ]


def test_another_document_is_refused():
    with pytest.raises(InputError, match=r"x\.json: found another document"):
        result_of_document({"kind": "Plan"}, "x.json")
