import json
from importlib import resources
from pathlib import Path

import kubernetes_asyncio.client as kubernetes
import pytest
import yaml

from kai.answers.documents.document import as_json
from kai.cli.failures import finding_item, finding_text
from kai.manifests import RefusedError, documents_of, open_text, read
from kai.manifests.codes import CODES
from kai.manifests.fields import NEWER
from kai.manifests.findings import Text

CASES = yaml.safe_load((Path(__file__).parent / "mistakes.yaml").read_text())


def findings_of(text):
    try:
        source, values = open_text(text.encode(), "x.yaml")
        return read(documents_of(source, values)).findings
    except RefusedError as error:
        return error.findings


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["about"])
def test_a_mistake_has_its_place_and_remedy(case):
    found = findings_of(case["text"])
    said = "\n".join(finding_text(finding) for finding in found)
    assert said.strip() == case["said"].strip()
    assert all(finding.code in CODES for finding in found)


def test_a_finding_has_all_fields_for_machines():
    (finding,) = findings_of("metadata: {name: m}\n")
    assert as_json(finding_item(finding)) == {
        "code": "T003",
        "severity": "error",
        "meaning": "refusal",
        "message": "apiVersion and kind are missing",
        "file": "x.yaml",
        "line": 1,
        "column": 1,
        "object": None,
        "found": None,
        "expected": "an object with apiVersion, kind and metadata.name",
        "help": None,
    }


def test_places_are_counted_in_the_whole_file():
    text = Text("x", "# one\n---\n---\na: 1\n---\n~\n---\n\nb:\n  - c: {d: 2}\n")
    place = text.locate(1, ("b", 0, "c", "d"))
    assert (place.line, place.column, place.width) == (10, 12, 1)


def test_an_unknown_path_is_placed_at_its_nearest_key():
    text = Text("x", "a:\n  b: {c: 1}\n")
    assert (text.locate(0, ("a", "b", "nope")).line, text.locate(0, ("a", "b", "nope")).column) == (2, 3)


def test_places_are_found_in_json_too():
    text = Text("x", json.dumps({"a": [{"b": 1}]}, indent="\t"))
    assert text.locate(0, ("a", 0, "b")).line == 4


def test_a_long_line_is_cut_around_the_place():
    (finding,) = findings_of(
        '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "x": "' + "y" * 500 + '", "spek": {}}'
    )[1:]
    rows = finding_text(finding).split("\n")
    at = rows[2].index("^")
    assert max(map(len, rows[1:3])) < 200
    assert rows[1][at : at + 6] == '"spek"'


def test_fields_of_kubernetes_are_those_of_its_client():
    kept = json.loads(resources.files("kai.manifests").joinpath("core_fields.json").read_text())
    for name, fields in kept["types"].items():
        assert set(fields) == set(getattr(kubernetes, name).attribute_map.values()), name


def test_newer_fields_are_missing_in_the_client():
    for name, fields in NEWER.items():
        assert not set(fields) & set(getattr(kubernetes, name).attribute_map.values()), name


OF_THE_CLIENT = {"int32": "int", "int64": "int", "time": "datetime", "int|str": "object"}


def test_types_of_kubernetes_are_those_of_its_client():
    kept = json.loads(resources.files("kai.manifests").joinpath("core_fields.json").read_text())
    for name, fields in kept["types"].items():
        client = getattr(kubernetes, name)
        for attribute, field in client.attribute_map.items():
            theirs = client.openapi_types[attribute]
            if "?" in fields[field]:  # amounts, which are texts to the client and may be numbers, and anything at all
                assert theirs in {"str", "list[str]", "dict(str, str)", "object"}, (name, field)
                continue
            inner = fields[field].strip("[]{}")
            ours = fields[field].replace(inner, OF_THE_CLIENT.get(inner, inner))
            assert ours.replace("{", "dict(str, ").replace("[", "list[").replace("}", ")") == theirs, (name, field)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("apiVersion: v1\nkind: 7\n", "x.yaml:2:7: T003 kind: found 7, expected a string"),
        ("apiVersion: v1\nkind: true\n", "x.yaml:2:7: T003 kind: found true, expected a string"),
        ("apiVersion: 1.0\nkind: Pod\n", "x.yaml:1:13: T003 apiVersion: found 1.0, expected a string"),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: p, ownerReferences: hello}\nspec: {}\n",
            'x.yaml:3:38: F001 ownerReferences: found "hello", expected a list',
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {}\nstatus: [1]\n",
            "x.yaml:5:1: F001 status: found a list of 1, expected an object",
        ),
        (
            "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: gpu}\nspec: {selector: []}\n",
            "x.yaml:4:8: F002 DeviceClass has no field selector in spec",
        ),
        (
            (
                "apiVersion: resource.k8s.io/v1beta2\nkind: ResourceClaim\nmetadata: {name: c}\n"
                "spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu, adminAccess: 1}}]}}\n"
            ),
            "x.yaml:4:84: F001 adminAccess: found 1, expected true or false",
        ),
        (
            (
                "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: t}\n"
                "spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu, cont: 2}}]}}}\n"
            ),
            "x.yaml:4:78: F002 ResourceClaimTemplate has no field cont in spec.spec.devices.requests[0].exactly",
        ),
        (
            (
                "apiVersion: resource.k8s.io/v1beta1\nkind: ResourceSlice\nmetadata: {name: s}\n"
                "spec: {driver: d, devices: [{name: g, basic: {atributes: {}}}]}\n"
            ),
            "x.yaml:4:47: F002 ResourceSlice has no field atributes in spec.devices[0].basic",
        ),
        *(
            (
                (
                    f"apiVersion: resource.k8s.io/{version}\nkind: DeviceTaintRule\nmetadata: {{name: t}}\n"
                    "spec: {deviceSelector: {drivers: d}, taint: {key: k, effect: NoSchedule}}\n"
                ),
                "x.yaml:4:25: F002 DeviceTaintRule has no field drivers in spec.deviceSelector",
            )
            for version in ("v1", "v1beta2", "v1alpha3")
        ),
    ],
)
def test_odd_types_at_odd_places_have_their_place(text, said):
    findings = read(documents_of(*open_text(text.encode(), "x.yaml"))).findings
    assert [str(finding) for finding in findings] == [said]


def test_letters_that_yaml_reads_as_booleans_are_no_texts():
    text = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {a: n, b: Y, c: off, d: yes, e: no1}}\nspec: {}\n"
    said = [each.message for each in findings_of(text) if each.code == "F001"]
    assert [each.partition(":")[0] for each in said] == ["a", "b", "c", "d"]


def test_all_unreadable_values_are_reported_together():
    text = (
        "apiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {name: a}\n"
        'spec: {resources: {gpu: {quota: "20", limit: 8}, memory: {quota: 64Gi, limit: 128Gi}}}\n'
        "---\napiVersion: scheduling.run.ai/v2alpha2\nkind: PodGroup\nmetadata: {name: g}\n"
        "spec: {queue: 5, minMember: x, subGroups: [{name: s, minMember: z}, 7]}\n"
    )
    found = [each.message for each in findings_of(text)]
    assert found == [
        'quota: found "20", expected a number',
        'quota: found "64Gi", expected a number',
        'limit: found "128Gi", expected a number',
        "queue: found 5, expected a string",
        'minMember: found "x", expected a whole number',
        'minMember: found "z", expected a whole number',
        "subGroups[1]: found 7, expected an object",
    ]
