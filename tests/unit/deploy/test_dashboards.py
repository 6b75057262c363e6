"""The dashboards that are shipped ask for metrics that exist, with labels that they have."""

import json
import re

import pytest

from tests.unit.deploy.charting import CHART
from tests.unit.deploy.rendering import DEPLOY, load, of_kind, render
from tests.unit.docs.test_operations import exported

MONITORING = DEPLOY / "components" / "monitoring"
DASHBOARDS = sorted(MONITORING.glob("*.json"))
EXPORTED = {re.sub(r"\W", "_", name): labels for name, (_, labels) in exported().items()}
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
