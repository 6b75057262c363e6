"""An object that scheduling fails at, or that is refused, costs itself its place and takes nothing from others."""

import json

import pytest

from tests.integration.behaviour import Job, Part
from tests.integration.client import Refused, until
from tests.integration.installation import install
from tests.integration.stage import POD_GROUP, an_object, node, queue, scene, staged
from tests.integration.touchy import LABEL, install_touchy
from tests.unit.deploy.rendering import DEPLOY


@pytest.fixture(scope="module")
def cluster(bare_control_plane, tmp_path_factory):
    """Run all roles in one process, with a plugin from elsewhere that cannot bear groups of a label."""
    install(bare_control_plane, DEPLOY)
    folder = tmp_path_factory.mktemp("poison")
    policy, variables = install_touchy(folder)
    with staged(bare_control_plane, folder) as stage:
        stage.start("kai", flags=(f"--config={policy}",), environment=variables)
        yield stage


@pytest.fixture
def stage(cluster):
    with scene(cluster) as opened:
        opened.create(node("n1", gpu=8))
        opened.create(queue("team"))
        other = f"{opened.space}-other"
        opened.api.create(an_object("v1", "Namespace", other))
        yield opened
        for kind in ((POD_GROUP, "PodGroup"), ("v1", "Pod")):
            for manifest in opened.api.list(*kind, other):
                opened.api.delete(manifest, gracePeriodSeconds=0)


def chain(name, depth, beside=0):
    """Return a group of sub-groups of which each is the parent of the next, and others; and a pod of the last one."""
    above = [{}, *({"parent": f"g{number}"} for number in range(depth - 1))]
    parts = [{"name": f"g{number}", **part} for number, part in enumerate(above)]
    parts[-1]["minMember"] = 1
    parts += [{"name": f"other{number}", "minMember": 0} for number in range(beside)]
    group = an_object(POD_GROUP, "PodGroup", name, spec={"queue": "team", "subGroups": parts})
    labels = {"kai.scheduler/subgroup-name": f"g{depth - 1}"}
    return group, Part(labels=labels, annotations={"pod-group-name": name}).pod(f"{name}-0")


def await_canary(stage, name):
    """Have another namespace make a job of one pod, and wait until it runs."""
    other = f"{stage.space}-other"
    for manifest in Job(name=name, part=Part(gpu=1)).manifests():
        stage.create({**manifest, "metadata": {**manifest["metadata"], "namespace": other}})
    asked = an_object("v1", "Pod", f"{name}-0", metadata={"namespace": other})
    until(lambda: stage.api.get(asked)["status"].get("phase") == "Running", f"canary {name} to run")


def reasons(stage, group):
    """Return why a group waits, by the reasons of its condition."""
    conditions = stage.get(POD_GROUP, "PodGroup", group).get("status", {}).get("schedulingConditions", ())
    return {each["reason"]: each["message"] for condition in conditions for each in condition.get("reasons", ())}


def said(stage, what):
    """Return the lines of the log that say this, about our namespace."""
    lines = (stage.folder / "kai.log").read_text().splitlines()
    return [line for line in lines if what in line and f"{stage.space}/" in line]


def test_five_hundred_nested_sub_groups_are_refused_alone(stage):
    for manifest in chain("deep", 500, beside=1000):  # more than the policy looks at
        stage.create(manifest)
    told = until(lambda: reasons(stage, "deep").get("PodGroupRefused"), "the group to be told")
    assert "found sub-groups nested 500 deep, expected at most 16" in told
    await_canary(stage, "canary")
    stage.settle()
    assert not stage.pod("deep-0")["spec"].get("nodeName")
    assert stage.programs[0].metric("kai_groups_set_aside") == 0


def test_a_tree_that_is_allowed_is_scheduled(stage):
    for manifest in chain("shallow", 16):
        stage.create(manifest)
    until(lambda: stage.pod("shallow-0")["status"].get("phase") == "Running", "the pod to run")


def test_too_many_sub_groups_are_refused_by_the_server(stage):
    parts = [{"name": f"g{number}", "minMember": 1} for number in range(4097)]
    with pytest.raises(Refused, match="must have at most 4096 items") as refused:
        stage.create(an_object(POD_GROUP, "PodGroup", "wide", spec={"queue": "team", "subGroups": parts}))
    assert refused.value.code == 422
    made = stage.create(an_object(POD_GROUP, "PodGroup", "widest", spec={"queue": "team", "subGroups": parts[:-1]}))
    assert len(made["spec"]["subGroups"]) == 4096
    await_canary(stage, "canary")


def test_a_group_that_breaks_a_plugin_is_set_aside(stage):
    group, pod = Job(name="touchy", part=Part(gpu=1)).manifests()
    stage.create({**group, "metadata": {**group["metadata"], "labels": {LABEL: "yes"}}})
    stage.create(pod)
    told = until(lambda: reasons(stage, "touchy").get("SetAside"), "the group to be told")
    assert "RuntimeError: cannot bear it (at filter_nodes in touchy, line " in told
    for number in range(3):
        await_canary(stage, f"canary-{number}")
    stage.settle()
    (program,) = stage.programs
    assert program.is_ready()
    assert program.metric("kai_groups_set_aside") == 1
    (line,) = said(stage, "set aside")
    assert "cannot bear it (at filter_nodes in touchy, line " in json.dumps(line)
    assert "SetAside" in stage.condition("touchy-0")["message"]
    assert not stage.pod("touchy-0")["spec"].get("nodeName")
    change = an_object(POD_GROUP, "PodGroup", "touchy", metadata={"labels": {LABEL: None}})
    stage.change(change)
    until(lambda: stage.pod("touchy-0")["status"].get("phase") == "Running", "the pod to run")
    until(lambda: program.metric("kai_groups_set_aside") == 0, "the metric to say so")
    assert len(said(stage, "set aside")) == 1
