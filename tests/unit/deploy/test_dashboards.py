"""The dashboards that are shipped, and the queries of the page, name metrics and labels that exist."""

import json
import re

import pytest

from tests.unit.cli.schemas.test_jsonschemas import faults
from tests.unit.deploy.charting import CHART
from tests.unit.deploy.rendering import DEPLOY, load, of_kind, render
from tests.unit.docs.test_operations import exported

MONITORING = DEPLOY / "components" / "monitoring"
DASHBOARDS = sorted(MONITORING.glob("*.json"))
EXPORTED = {re.sub(r"\W", "_", name): labels for name, (_, labels) in exported().items()}
DOCUMENTED = (DEPLOY.parent / "docs" / "monitoring.md").read_text(encoding="utf-8")
OF_A_BOARD = {
    "type": "object",
    "required": ["title", "uid", "schemaVersion", "panels", "templating", "time", "refresh", "version", "tags"],
    "properties": {
        "title": {"type": "string"},
        "uid": {"type": "string"},
        "description": {"type": "string"},
        "schemaVersion": {"type": "integer"},
        "version": {"type": "integer"},
        "refresh": {"type": "string"},
        "editable": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "time": {"type": "object", "required": ["from", "to"], "additionalProperties": {"type": "string"}},
        "templating": {
            "type": "object",
            "required": ["list"],
            "properties": {
                "list": {
                    "type": "array",
                    "items": {"type": "object", "required": ["name", "type", "query"]},
                }
            },
        },
        "panels": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["id", "title", "type", "gridPos"],
                "properties": {
                    "id": {"type": "integer"},
                    "title": {"type": "string"},
                    "description": {"type": "string"},
                    "type": {"type": "string"},
                    "gridPos": {
                        "type": "object",
                        "required": ["h", "w", "x", "y"],
                        "additionalProperties": {"type": "integer"},
                    },
                    "datasource": {
                        "type": "object",
                        "required": ["type", "uid"],
                        "additionalProperties": {"type": "string"},
                    },
                    "fieldConfig": {
                        "type": "object",
                        "required": ["defaults", "overrides"],
                        "properties": {"defaults": {"type": "object"}, "overrides": {"type": "array", "items": {}}},
                    },
                    "options": {"type": "object"},
                    "targets": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["refId", "expr", "legendFormat"],
                            "properties": {
                                "refId": {"type": "string"},
                                "expr": {"type": "string"},
                                "legendFormat": {"type": "string"},
                                "instant": {"type": "boolean"},
                            },
                        },
                    },
                },
            },
        },
    },
}
"""The part of Grafana's model of a dashboard, in version 39 of its schema, that ours use."""
PANELS = {"row", "timeseries", "stat", "bargauge"}
SERIES = {"_bucket": ("le",), "_sum": (), "_count": ()}


def queries():
    for path in DASHBOARDS:
        dashboard = json.loads(path.read_text(encoding="utf-8"))
        for panel in dashboard["panels"]:
            for target in panel.get("targets", ()):
                yield pytest.param(target["expr"], target["legendFormat"], id=f"{path.stem}: {panel['title']}")
        for variable in dashboard["templating"]["list"]:
            if variable["type"] == "query":
                yield pytest.param(variable["query"]["query"], "", id=f"{path.stem}: ${variable['name']}")
    table = DOCUMENTED.partition("### Queries worth having")[2].partition("\n### ")[0]
    for question, query in re.findall(r"^\| ([^|]+) \| `([^`]+)`", table, re.MULTILINE):
        yield pytest.param(query, "", id=f"documented: {question}")


def labels_of(name):
    """Return the labels of a metric or of one of the series of a histogram; None for one that does not exist."""
    if name in EXPORTED:
        return set(EXPORTED[name])
    for ending, more in SERIES.items():
        if name.endswith(ending) and name.removesuffix(ending) in EXPORTED:
            return {*EXPORTED[name.removesuffix(ending)], *more}
    return None


def test_there_are_dashboards():
    assert DASHBOARDS


def test_the_sidecar_of_grafana_finds_every_dashboard():
    (found,) = of_kind(render(MONITORING), "ConfigMap")
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert found["data"] == {path.name: path.read_text(encoding="utf-8") for path in DASHBOARDS}
    (shipped,) = of_kind(load(CHART / "files" / "monitoring.yaml"), "ConfigMap")
    assert shipped == found


@pytest.mark.parametrize(("query", "legend"), list(queries()))
def test_a_query_names_metrics_and_labels_that_exist(query, legend):
    metrics = {name: labels_of(name) for name in re.findall(r"\bkai_\w+", query)}
    assert metrics
    assert None not in metrics.values(), metrics
    known = set().union(*metrics.values())
    grouped = {label.strip() for group in re.findall(r"\bby \(([^)]*)\)", query) for label in group.split(",")}
    matched = set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"", query))
    shown = set(re.findall(r"{{(\w+)}}", legend))
    assert grouped | matched | shown <= known
    assert shown <= grouped


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_keeps_the_model_of_grafana(path):
    board = json.loads(path.read_text(encoding="utf-8"))
    assert faults(board, OF_A_BOARD) == []
    assert board["schemaVersion"] == 39
    assert {panel["type"] for panel in board["panels"]} <= PANELS
    assert all(panel.get("targets") for panel in board["panels"] if panel["type"] != "row")


def test_dashboards_have_identities_of_their_own():
    boards = [json.loads(path.read_text(encoding="utf-8")) for path in DASHBOARDS]
    assert len({board["uid"] for board in boards}) == len({board["title"] for board in boards}) == len(boards) == 2


def test_the_pages_name_queries_and_dashboards():
    assert sum("documented" in str(each.id) for each in queries()) == 10
    assert all(f"deploy/components/monitoring/{path.name}" in DOCUMENTED for path in DASHBOARDS)


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_panels_have_numbers_and_places_of_their_own(path):
    panels = json.loads(path.read_text(encoding="utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
