from pathlib import Path

import pytest
import yaml

from kai.api.crds.definitions import PRESENTATIONS, definition, file_name, files, main
from kai.api.kinds import BY_CLASS
from kai.api.scheduling.bind_request import BindRequest
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.queue import Queue, Topology
from kai.api.scheduling.shard import Config, SchedulingShard

SHIPPED = Path(__file__).parents[4] / "deploy" / "crds"
EVERY = list(PRESENTATIONS)


def version(cls):
    (only,) = definition(cls)["spec"]["versions"]
    return only


def nodes(schema):
    yield schema
    for child in schema.get("properties", {}).values():
        yield from nodes(child)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key])


def test_the_shipped_definitions_are_those_of_the_classes():
    shipped = {path.name: path.read_text() for path in SHIPPED.glob("*.yaml") if path.name != "kustomization.yaml"}
    assert shipped == files(), "run `python -m kai.api.crds.definitions deploy/crds`"


@pytest.mark.parametrize(
    ("cls", "name", "api_version", "scope", "short_names", "has_status"),
    [
        (Queue, "queues.scheduling.run.ai", "v2", "Cluster", None, True),
        (PodGroup, "podgroups.scheduling.run.ai", "v2alpha2", "Namespaced", ["pg"], True),
        (BindRequest, "bindrequests.scheduling.run.ai", "v1alpha2", "Namespaced", None, True),
        (Config, "configs.kai.scheduler", "v1", "Cluster", None, True),
        (SchedulingShard, "schedulingshards.kai.scheduler", "v1", "Cluster", None, True),
        (Topology, "topologies.kai.scheduler", "v1alpha1", "Cluster", None, False),
    ],
)
def test_a_kind_is_served_where_the_peer_serves_it(cls, name, api_version, scope, short_names, has_status):
    spec = definition(cls)["spec"]
    assert definition(cls)["metadata"]["name"] == name
    assert version(cls)["name"] == api_version
    assert version(cls)["served"]
    assert version(cls)["storage"]
    assert spec["scope"] == scope
    assert spec["names"].get("shortNames") == short_names
    assert ("subresources" in version(cls)) == has_status


@pytest.mark.parametrize("cls", EVERY)
def test_names_are_those_by_which_kai_asks(cls):
    kind, names = BY_CLASS[cls], definition(cls)["spec"]["names"]
    assert (names["kind"], names["plural"], names["listKind"]) == (kind.kind, kind.plural, f"{kind.kind}List")


def test_the_peer_s_columns_of_a_queue_come_first():
    columns = [(each["name"], each["jsonPath"], each["type"]) for each in version(Queue)["additionalPrinterColumns"]]
    assert columns[:4] == [
        ("Priority", ".spec.priority", "string"),
        ("Parent", ".spec.parentQueue", "string"),
        ("Children", ".status.childQueues", "string"),
        ("DisplayName", ".spec.displayName", "string"),
    ]


def test_queue_columns_show_quota_and_usage():
    shown = {each["name"] for each in version(Queue)["additionalPrinterColumns"] if not each.get("priority")}
    assert {"GPU-Quota", "GPU-Fair-Share", "GPU-Allocated", "GPU-Requested"} <= shown


@pytest.mark.parametrize("cls", EVERY)
def test_every_schema_part_has_a_type_or_is_open(cls):
    for node in nodes(version(cls)["schema"]["openAPIV3Schema"]):
        typed = "type" in node or node.get("x-kubernetes-int-or-string")
        assert typed or node.get("x-kubernetes-preserve-unknown-fields"), node


@pytest.mark.parametrize("cls", EVERY)
def test_what_is_required_exists(cls):
    for node in nodes(version(cls)["schema"]["openAPIV3Schema"]):
        assert set(node.get("required", ())) <= set(node.get("properties", {}))


@pytest.mark.parametrize("cls", EVERY)
def test_a_definition_file_reads_back_and_has_no_aliases(cls):
    text = files()[file_name(cls)]
    assert yaml.safe_load(text) == definition(cls)
    assert not [event for event in yaml.parse(text) if isinstance(event, yaml.AliasEvent)]


def test_the_program_writes_every_file(tmp_path):
    assert main([str(tmp_path / "new" / "folder")]) == 0
    assert {path.name: path.read_text() for path in (tmp_path / "new" / "folder").iterdir()} == files()


@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["--help"]])
def test_the_program_says_how_it_is_used(arguments, capsys):
    assert main(arguments) == 2
    assert "usage" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_named(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main([str(tmp_path / "file")]) == 1
    assert capsys.readouterr().err.startswith(str(tmp_path / "file"))
