"""The schemas of what kai writes, and that what it writes keeps them."""

import json
import re
from pathlib import Path

import attrs
import pytest

from kai.answers.documents.document import Document
from kai.cli.checking import doctor
from kai.cli.command import run
from kai.cli.output_kinds import KINDS, kind_schema
from kai.cluster.process.decisions import Decision, Gainer, Subject, line_of
from kai.facts.compiled.warm import Warmth
from tests.unit.doctor.cluster import HEALTHY, queue, with_lists

CLUSTER = """
about: One starts, one waits.
cluster: {nodes: {n1: {gpu: 2}}}
queues: {root: {quota: 2}, a: {parent: root, quota: 2}}
groups:
  starts: {queue: a, each: {gpu: 1}}
  waits: {queue: a, each: {gpu: 2}}
run: [allocate]
"""
TYPES = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
    "array": list,
    "object": dict,
}


def faults(value, schema, path="$"):
    """Return where a value does not keep a schema: the part of JSON Schema that ours use."""
    if "anyOf" in schema:
        tried = [faults(value, each, path) for each in schema["anyOf"]]
        return [] if [] in tried else min(tried, key=len)
    kind = schema.get("type")
    if kind is None:
        return []
    if not isinstance(value, TYPES[kind]) or (kind in {"integer", "number"} and isinstance(value, bool)):
        return [f"{path}: {value!r} is no {kind}"]
    found = [f"{path}: lacks {name}" for name in schema.get("required", ()) if name not in value]
    if kind == "array":
        found += [each for at, item in enumerate(value) for each in faults(item, schema["items"], f"{path}[{at}]")]
    if kind == "object":
        known = schema.get("properties", {})
        for name, item in value.items():
            inner = known.get(name, schema.get("additionalProperties", {}))
            found += faults(item, inner, f"{path}.{name}")
    return found


@pytest.fixture
def cluster(tmp_path):
    path = tmp_path / "one.yaml"
    path.write_text(CLUSTER)
    return str(path)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("JobList", ["jobs", "-f", "CLUSTER"]),
        ("QueueList", ["queues", "-f", "CLUSTER"]),
        ("QueueWeekList", ["queues", "--week", "-f", "CLUSTER"]),
        ("NodeList", ["nodes", "-f", "CLUSTER"]),
        ("Explanation", ["why", "waits", "-f", "CLUSTER"]),
        ("Explanation", ["why", "starts", "-f", "CLUSTER"]),
        ("ExplanationList", ["why", "--all", "-f", "CLUSTER"]),
        ("EvictionList", ["why", "--evicted", "-f", "CLUSTER"]),
        ("QueueExplanation", ["why", "queue/a", "-f", "CLUSTER"]),
        ("NodeExplanation", ["why", "node/n1", "-f", "CLUSTER"]),
        ("Plan", ["replay", "CLUSTER"]),
        ("Comparison", ["diff", "CLUSTER", "CLUSTER"]),
        ("Comparison", ["diff", "default", "POLICY", "--on", "CLUSTER"]),
        ("Snapshot", ["snapshot", "FILE", "-f", "CLUSTER"]),
        ("PluginList", ["plugins"]),
        ("PluginTimes", ["plugins", "--time", "CLUSTER"]),
        ("Kernels", ["warm"]),
        ("CheckList", ["doctor", "--list"]),
        ("CodeList", ["lint", "--explain"]),
        ("Findings", ["doctor"]),
        ("Versions", ["version"]),
    ],
)
def test_what_is_written_keeps_its_schema(kind, words, cluster, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "_look", lambda *_: (with_lists(queues=(queue("a", "gone"),)), "lab"))
    kept = Warmth(kernels=3, compiled=1, directory=tmp_path)
    monkeypatch.setattr("kai.facts.compiled.warm.warm", lambda *_, **__: kept)
    policy = tmp_path / "none.yaml"
    policy.write_text("actions: preempt\n")
    places = {"CLUSTER": cluster, "FILE": str(tmp_path / "x.zip"), "POLICY": str(policy)}
    run([*(places.get(word, word) for word in words), "-o", "json"])
    document = json.loads(capsys.readouterr().out)
    assert document["kind"] == kind
    assert faults(document, kind_schema(kind)) == []


def test_every_class_of_documents_is_a_kind():
    def below(cls):
        return {each for one in cls.__subclasses__() for each in (one, *below(one))}

    named = {cls.__name__ for cls in below(Document) if not cls.__module__.startswith("tests.")}
    assert named == KINDS.keys() - {"Decision"}
    sources = (path.read_text() for path in Path("kai").rglob("*.py"))
    assert {kind for text in sources for kind in re.findall(r"enveloped\(\"(\w+)\"", text)} <= KINDS.keys()


@pytest.mark.parametrize("more", [[], ["--explain"], ["--check"]], ids=" ".join)
def test_the_result_of_one_moment_keeps_its_schema(more, cluster, capsys):
    run(["simulate", cluster, "-o", "json", *more])
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], "horizonSeconds" in document) == ("SimulationResult", False)
    assert faults(document, kind_schema("MomentResult")) == []


def test_a_line_of_the_decision_log_keeps_its_schema():
    subject = Subject(kind="Pod", namespace="x", name="a-0")
    decision = Decision(cycle=1, time="2026-01-31T12:00:00Z", kind="evict", subject=subject, numbers={"gpus": 1.0})
    gained = attrs.evolve(decision, gainer=Gainer(namespace="y", name="b", queue="q"))
    for each in (decision, gained):
        assert faults(json.loads(line_of(each)), kind_schema("Decision")) == []


def test_the_check_finds_what_a_schema_forbids():
    schema = kind_schema("Findings")
    assert faults({"kind": 7}, schema)[0] == "$: lacks apiVersion"
    assert "$.kind: 7 is no string" in faults({"kind": 7}, schema)


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_is_printed(kind, capsys):
    assert run(["version", "--schema", kind]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert (schema["title"], schema["type"]) == (kind, "object")
    assert schema["description"]
    assert schema["required"]


def test_a_kind_without_a_schema_is_said(capsys):
    assert run(["version", "--schema", "Plann"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: --schema: found 'Plann', expected a kind with a schema",
        "  help: did you mean Plan?",
    ]


def test_healthy_findings_keep_the_schema_too(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "_look", lambda *_: (HEALTHY, "lab"))
    assert run(["doctor", "-o", "json"]) == 0
    assert faults(json.loads(capsys.readouterr().out), kind_schema("Findings")) == []
