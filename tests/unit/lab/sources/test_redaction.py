"""What is taken out of a snapshot, and that the decisions stay the same."""

import json
import re
import zipfile
from pathlib import Path

import pytest

from kai.cli.command import run
from kai.lab.sources.archive import without_annotations, without_names

LAB = Path(__file__).parents[4] / "examples" / "lab"
PEER = Path(__file__).parents[3] / "samples" / "kai-snapshot-lab.zip"


def pod(name, **metadata):
    return {"metadata": {"name": name, "namespace": "secret", **metadata}, "spec": {"schedulerName": "kai-scheduler"}}


def document(*pods, **kai):
    queues = [{"metadata": {"name": "train"}, "spec": {"parentQueue": "top"}}, {"metadata": {"name": "top"}}]
    classes = [{"metadata": {"name": "train"}, "value": 50}]
    raw = {"pods": list(pods), "queues": queues, "priorityClasses": classes}
    return {"config": {"tiers": [{"plugins": [{"name": "train"}]}]}, "rawObjects": raw, "kai": kai}


def test_only_annotations_that_kai_reads_are_kept():
    annotations = {
        "kubectl.kubernetes.io/last-applied-configuration": '{"env": "PASSWORD=x"}',
        "team": "blue",
        "gpu-fraction": "0.5",
        "kai.scheduler/topology": "t",
        "pod-group-name": "g",
        "pv.kubernetes.io/bind-completed": "yes",
    }
    (found,) = without_annotations(document(pod("p", annotations=annotations)))["rawObjects"]["pods"]
    assert set(found["metadata"]["annotations"]) == {
        "gpu-fraction",
        "kai.scheduler/topology",
        "pod-group-name",
        "pv.kubernetes.io/bind-completed",
    }


def test_names_become_numbers_in_the_order_of_the_names():
    hidden = without_names(document(pod("zeta"), pod("alpha")))["rawObjects"]
    zeta, alpha = (each["metadata"]["name"] for each in hidden["pods"])
    assert alpha < zeta
    assert re.fullmatch(r"n\d+", zeta)
    assert hidden["queues"][0]["spec"]["parentQueue"] == hidden["queues"][1]["metadata"]["name"]


def test_a_class_named_like_a_queue_keeps_its_name():
    labels = {"priorityClassName": "train", "kai.scheduler/queue": "train"}
    found = without_names(document(pod("p", labels=labels)))
    assert found["rawObjects"]["priorityClasses"][0]["metadata"]["name"] == "train"
    kept = found["rawObjects"]["pods"][0]["metadata"]["labels"]
    assert kept["priorityClassName"] == "train"
    assert kept["kai.scheduler/queue"] == found["rawObjects"]["queues"][0]["metadata"]["name"]
    assert found["config"] == document()["config"]


def test_label_and_owner_names_are_hidden_but_numbers_kept():
    owners = [{"kind": "Job", "name": "project-x", "uid": "1"}]
    found = without_names(document(pod("p", labels={"app": "project-x", "rank": "3"}, ownerReferences=owners)))
    metadata = found["rawObjects"]["pods"][0]["metadata"]
    assert metadata["labels"]["app"] == metadata["ownerReferences"][0]["name"] != "project-x"
    assert metadata["labels"]["rank"] == "3"


def test_kais_own_section_is_redacted_too():
    found = without_names(document(pod("p"), awaited=["secret/p"], usage={"train": {"gpu": 0.5}}))["kai"]
    queue = without_names(document(pod("p")))["rawObjects"]["queues"][0]["metadata"]["name"]
    assert found["usage"] == {queue: {"gpu": 0.5}}
    assert "secret" not in found["awaited"][0]


def test_texts_for_people_are_left_out():
    pods = {**pod("p"), "status": {"conditions": [{"type": "Ready", "message": "secret/p waits"}]}}
    (found,) = without_names(document(pods))["rawObjects"]["pods"]
    assert found["status"]["conditions"] == [{"type": "Ready", "message": ""}]


@pytest.mark.parametrize("source", [LAB, PEER], ids=["lab", "peer"])
def test_without_names_the_same_is_decided(source, tmp_path, capsys):
    file = tmp_path / "hidden.zip"
    assert run(["snapshot", str(file), "-f", str(source), "--redact=names", "-q"]) == 0
    capsys.readouterr()
    assert run(["replay", str(file), "--expect", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["expected"] == {"equal": True, "differences": []}
    text = zipfile.ZipFile(file).read("snapshot.json").decode()
    assert not re.findall(r"vit-large|llm-sft|chat-1|gpu-0\d", text)


def test_volumes_and_nodes_lose_their_names_but_drivers_not():
    volumes = [{"metadata": {"name": "disk"}, "spec": {"csi": {"driver": "train", "volumeHandle": "vol-of-ann"}}}]
    drivers = [{"name": "train", "allocatable": {"count": 3}}]
    nodes = {"nodes": [{"metadata": {"name": "rack-1"}}], "persistentVolumes": volumes}
    given = document(objects={"csiNodes": [{"metadata": {"name": "rack-1"}, "spec": {"drivers": drivers}}]})
    given["rawObjects"].update(nodes)
    found = without_names(given)
    (hidden,), (volume,) = found["kai"]["objects"]["csiNodes"], found["rawObjects"]["persistentVolumes"]
    assert hidden["metadata"] == found["rawObjects"]["nodes"][0]["metadata"] != {"name": "rack-1"}
    assert hidden["spec"] == {"drivers": drivers}
    assert volume["spec"]["csi"]["driver"] == "train"
    assert volume["spec"]["csi"]["volumeHandle"] != "vol-of-ann"
