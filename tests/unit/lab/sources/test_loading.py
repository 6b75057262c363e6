import io
import json
import os
import zipfile
from errno import EACCES

import pytest

from kai.answers.cases.case import Case
from kai.basics.errors import InputError
from kai.framework.objects import Objects
from kai.lab.sources.loading import read_case
from kai.lab.sources.text_files import find_cases, read_documents
from tests.doubles.own_kinds import declared_for_a_while

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "creationTimestamp": "2026-01-02T00:00:00Z"}}
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "creationTimestamp": "2026-01-03T00:00:00Z"}}
SCENARIO = {"name": "s", "now": "2026-01-01T12:00:00Z", "objects": [NODE], "actions": ["allocate"]}


def write(path, *documents):
    path.write_text("---\n".join(json.dumps(document) + "\n" for document in documents))
    return str(path)


def test_a_manifest_file_is_read_at_its_newest_time(tmp_path):
    case = read_case(write(tmp_path / "m.yaml", NODE, POD))
    assert isinstance(case, Case)
    assert (len(case.objects.nodes), case.objects.pods[0].metadata.namespace) == (1, "default")
    assert (case.now, case.title, case.cycles) == (1767398400.0, "m", 1)


def test_a_folder_of_manifests_is_one_case(tmp_path):
    write(tmp_path / "a.yaml", NODE)
    (tmp_path / "deep").mkdir()
    write(tmp_path / "deep" / "b.json", POD)
    (tmp_path / "notes.txt").write_text("not read")
    assert list(find_cases(str(tmp_path))) == [str(tmp_path)]
    case = read_case(str(tmp_path))
    assert (len(case.objects.nodes), len(case.objects.pods), case.title) == (1, 1, tmp_path.name)


def test_hidden_files_are_skipped_unless_named(tmp_path):
    write(tmp_path / "a.yaml", NODE)
    for place in (".git", "deep/.cache/more"):
        (tmp_path / place).mkdir(parents=True)
        write(tmp_path / place / "b.json", POD)
    hidden = write(tmp_path / ".c.yaml", POD)
    assert [len(read_case(path).objects.pods) for path in (str(tmp_path), hidden, str(tmp_path / ".git"))] == [0, 1, 1]


def test_a_mounted_config_map_is_read_once(tmp_path):
    (tmp_path / "..2026_01_01").mkdir()
    write(tmp_path / "..2026_01_01" / "a.yaml", NODE)
    (tmp_path / "..data").symlink_to("..2026_01_01")
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    assert len(read_case(str(tmp_path)).objects.nodes) == 1


def test_a_folder_that_cannot_be_listed_is_an_error(tmp_path, monkeypatch):
    write(tmp_path / "a.yaml", NODE)
    (tmp_path / "secret").mkdir()
    listed = os.scandir

    def scandir(path):
        if str(path).endswith("secret"):
            raise PermissionError(EACCES, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(InputError, match="secret: found Permission denied"):
        read_case(str(tmp_path))


def test_a_folder_of_scenarios_is_many_cases(tmp_path):
    paths = [write(tmp_path / f"{name}.yaml", SCENARIO) for name in "ba"]
    assert list(find_cases(str(tmp_path))) == sorted(paths)


def test_standard_input_is_read(monkeypatch):
    class Standard:
        buffer = io.BytesIO(json.dumps(SCENARIO).encode())

    monkeypatch.setattr("sys.stdin", Standard)
    assert list(find_cases("-")) == ["-"]
    assert read_case("-").title == "s"


def snapshot(path, content, member="snapshot.json"):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, content if isinstance(content, str) else json.dumps(content))
    return str(path)


def test_a_snapshot_is_read_list_by_list(tmp_path):
    raw = {"nodes": [{"metadata": NODE["metadata"]}], "pods": None, "queues": [], "unheardOf": [1, 2]}
    case = read_case(snapshot(tmp_path / "s.zip", {"config": {}, "schedulerParams": {}, "rawObjects": raw}))
    assert [node.metadata.name for node in case.objects.nodes] == ["n1"]
    assert case.notes == ("passed over 2 of rawObjects.unheardOf",)
    assert case.configuration.parameters.max_consolidation_preemptees == 0


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_a_snapshot_is_read_in_each_encoding_of_json(tmp_path, encoding):
    content = {"config": {}, "schedulerParams": {}, "rawObjects": {"nodes": [NODE]}, "kai": {"now": 1e9, "x": "ü"}}
    plain = read_case(snapshot(tmp_path / "s.zip", content))
    with zipfile.ZipFile(tmp_path / "s.zip", "w") as archive:
        archive.writestr("snapshot.json", json.dumps(content, ensure_ascii=False).encode(encoding))
    case = read_case(str(tmp_path / "s.zip"))
    assert (case.objects, case.now) == (plain.objects, plain.now)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e400"])
def test_non_standard_json_numbers_are_accepted(tmp_path, number):
    content = f'{{"rawObjects": {{"unheardOf": [{number}]}}}}'
    assert read_case(snapshot(tmp_path / "s.zip", content)).notes == ("passed over 1 of rawObjects.unheardOf",)


def test_a_number_without_bounds_in_an_object_is_accepted(tmp_path):
    node = '{"metadata": {"name": "n1"}, "status": {"odd": 1e400}}'
    case = read_case(snapshot(tmp_path / "s.zip", f'{{"rawObjects": {{"nodes": [{node}]}}, "kai": {{"now": 5}}}}'))
    assert [each.metadata.name for each in case.objects.nodes] == ["n1"]
    assert case.now == 5


def test_an_object_that_is_no_text_is_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "s.zip", "w") as archive:
        archive.writestr("snapshot.json", b'{"rawObjects": {"nodes": [{"metadata": {"name": "\xff\xfe"}}]}}')
    with pytest.raises(InputError, match="found text that is no JSON"):
        read_case(str(tmp_path / "s.zip"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "rawObjects: found nothing, expected lists of objects"),
        ({"rawObjects": {"nodes": 5}}, "rawObjects.nodes: found 5, expected a list"),
        ({"rawObjects": {"nodes": [5]}}, "expected an object"),
        ({"rawObjects": {}, "config": 5}, "config: found 5, expected an object"),
        ([], "found list, expected an object with rawObjects"),
        ('{"rawObjects": {"pods": [', "found text that is no JSON"),
    ],
)
def test_a_snapshot_that_is_not_whole_is_named(tmp_path, content, message):
    with pytest.raises(InputError) as caught:
        read_case(snapshot(tmp_path / "s.zip", content))
    assert message in str(caught.value)


def test_a_snapshot_whose_bytes_are_damaged_is_named(tmp_path):
    path = tmp_path / "s.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("snapshot.json", json.dumps({"rawObjects": {"nodes": [NODE] * 50}}))
    whole = path.read_bytes()
    told = set()
    for at in range(45, len(whole) - 120):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        with pytest.raises(InputError) as caught:
            read_case(str(path))
        told.add(str(caught.value).partition("(")[0])
    assert told <= {
        f"{path}: found a zip file that cannot be read ",
        f"{path}: snapshot.json: found text that is no JSON ",
    }


def test_another_zip_is_no_snapshot(tmp_path):
    with pytest.raises(InputError, match=r"found no snapshot\.json"):
        read_case(snapshot(tmp_path / "s.zip", "{}", "other.json"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found nothing, expected a scenario or Kubernetes objects"),
        ("5", "found 5, expected an object with apiVersion and kind"),
        ("a: [", ":2:1: T001 not YAML"),
        ("\x00", ":1:1: T001 not YAML: found character 0x00, which YAML does not allow"),
        ("kind: Pod\nmetadata:\n\tname: x\n", ":3:1: T001 not YAML: found a tab, expected blanks"),
        ("apiVersion: v1\nmetadata: {name: x}\n", ":1:1: T003 kind is missing"),
        ("objects: []\n---\napiVersion: v1\nkind: Node\n", "found 2 documents with a scenario among them"),
    ],
)
def test_a_text_that_is_neither_is_named(tmp_path, text, message):
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_case(str(path))
    assert str(path) in str(caught.value) or "object" in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize("function", [read_case, read_documents, lambda path: list(find_cases(path))])
def test_an_empty_path_is_not_the_current_folder(function, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.yaml").write_text("{apiVersion: v1, kind: Node, metadata: {name: n1}}")
    with pytest.raises(InputError, match="found an empty path, expected a file or a folder"):
        function("")


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"missing\.yaml: no such file or folder$"):
        read_case(str(tmp_path / "missing.yaml"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"found no file that ends in \.yaml"):
        list(find_cases(str(tmp_path / "empty")))


def test_a_scenario_among_manifests_is_named(tmp_path):
    write(tmp_path / "a.yaml", NODE)
    write(tmp_path / "b.yaml", SCENARIO)
    with pytest.raises(InputError, match="found a scenario, expected Kubernetes objects"):
        read_case(str(tmp_path))


def test_a_folder_with_one_scenario_suggests_the_scenario(tmp_path):
    only = write(tmp_path / "only.yaml", SCENARIO)
    with pytest.raises(InputError) as error:
        read_case(str(tmp_path))
    assert str(error.value).endswith(f"found a folder with one scenario, expected the scenario itself: {only}")


def test_all_faults_of_a_folder_are_reported_together(tmp_path):
    write(tmp_path / "a.yaml", {**NODE, "status": 5}, {**POD, "spec": 5})
    with pytest.raises(InputError) as caught:
        read_case(str(tmp_path))
    assert {message.partition(": ")[2] for message in caught.value.messages} >= {
        "F001 status: found 5, expected an object",
        "F001 spec: found 5, expected an object",
    }


class Plugins:
    """What is installed, with a count of how often it was asked which kinds it reads."""

    asked = 0

    def objects(self):
        self.asked += 1
        return [Objects(api_version="plans.example/v1", kind="Plan", plural="plans", read=lambda each: each)]


def test_plugin_kinds_are_loaded_for_manifests_but_not_snapshots(tmp_path):
    plugins = Plugins()
    read_case(snapshot(tmp_path / "s.zip", {"rawObjects": {"nodes": [NODE]}}), plugins)
    assert plugins.asked == 0
    plan = {"apiVersion": "plans.example/v1", "kind": "Plan", "metadata": {"name": "p"}}
    with declared_for_a_while():
        case = read_case(write(tmp_path / "m.yaml", NODE, plan), plugins)
    assert (plugins.asked, [each.metadata.name for each in case.objects.foreign]) == (1, ["p"])
