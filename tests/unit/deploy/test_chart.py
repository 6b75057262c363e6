"""The chart without Helm: what it copies is what kustomize makes, and each value is documented and checked."""

import json
import re
import tomllib

import pytest
import yaml

from tests.unit.deploy.charting import CHART, files
from tests.unit.deploy.rendering import DEPLOY, LASTING, key, render

ROOT = DEPLOY.parent
PAGE = (ROOT / "docs" / "helm.md").read_text()
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
TEMPLATES = "".join(path.read_text() for path in (CHART / "templates").iterdir())


def test_what_the_chart_copies_is_what_kustomize_makes():
    shipped = {path: path.read_text() for part in ("crds", "files") for path in (CHART / part).iterdir()}
    assert shipped == files(), "run `python -m tests.unit.deploy.charting`"


@pytest.mark.parametrize(("form", "entry"), [("single", "base"), ("split", "overlays/split")])
def test_the_default_chart_has_all_kustomization_objects_once(form, entry):
    names = ("lasting", "prerequisites", "network-policies", "policies", form, "webhooks")
    copies = [each for name in names for each in yaml.safe_load_all((CHART / "files" / f"{name}.yaml").read_text())]
    found = [key(each) for each in copies]
    assert len(found) == len(set(found))
    definitions = {each for each in map(key, render(LASTING)) if each[0] == "CustomResourceDefinition"}
    # Helm makes the namespace of a release itself.
    wanted = {key(each) for each in (*render(LASTING), *render(DEPLOY / entry))}
    assert {*found} == wanted - definitions - {("Namespace", "", "kai-scheduler")}


def test_the_charts_shadow_equals_the_kustomized_one():
    copies = list(yaml.safe_load_all((CHART / "files" / "shadow.yaml").read_text()))
    assert copies == render(DEPLOY / "overlays" / "shadow")
    verbs = {
        verb for each in copies if each["kind"] == "ClusterRole" for rule in each["rules"] for verb in rule["verbs"]
    }
    assert verbs == {"list", "watch"}


def test_the_chart_has_the_version_of_the_package():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)


def paths(values, schema):
    """Return each value by its path with its schema."""
    for name, value in values.items():
        found = schema["properties"][name]
        if isinstance(value, dict) and "properties" in found:
            yield from ((f"{name}.{rest}", each, part) for rest, each, part in paths(value, found))
        else:
            yield name, value, found


def test_every_value_is_checked_and_no_other_is_taken():
    known = {name for name, _, _ in paths(VALUES, SCHEMA)}
    checked = set()

    def collect(schema, before=""):
        for name, part in schema["properties"].items():
            if "properties" in part:
                assert part["additionalProperties"] is False
                collect(part, f"{before}{name}.")
            else:
                checked.add(before + name)

    collect(SCHEMA)
    assert SCHEMA["additionalProperties"] is False
    assert checked == known | {"global"}  # which Helm adds


@pytest.mark.parametrize("name", [name for name, _, _ in paths(VALUES, SCHEMA)])
def test_every_value_is_documented_and_used(name):
    assert f"`{name}`" in PAGE
    assert re.search(rf"alues\.{re.escape(name)}\b|\.{re.escape(name.rsplit('.', maxsplit=1)[-1])}\b", TEMPLATES)


def test_the_page_names_no_value_that_there_is_not():
    rows = re.findall(r"^\| `([A-Za-z.]+)` \|", PAGE, re.MULTILINE)
    assert sorted(rows) == sorted(name for name, _, _ in paths(VALUES, SCHEMA))


def test_values_named_by_deployment_cover_all_deployments():
    listed = TEMPLATES.partition('define "kai.deployments"')[2].partition("{{- range")[0]
    files = (yaml.safe_load_all(path.read_text()) for path in (CHART / "files").iterdir())
    made = {each["metadata"]["name"] for file in files for each in file if each and each["kind"] == "Deployment"}
    assert set(re.findall(r"^- (\S+)$", listed, re.MULTILINE)) == made
