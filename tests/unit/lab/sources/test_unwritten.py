"""A reader of a cluster knows of pods what their scheduler knows and did not write on them, or not yet."""

import attrs
import pytest

from kai.answers.cases.live_cluster import as_known
from kai.api.conventions.binding import GATE, refusal_text
from tests.unit.intake import making

NODE = making.node("n1")


def owned(name, *owners):
    group = making.group(name)
    return {
        **group,
        "metadata": {**group["metadata"], "ownerReferences": [{"kind": "X", "uid": uid} for uid in owners]},
    }


def bare(name, **metadata):
    pod = making.pod(name)
    found = {**pod["metadata"], "uid": f"uid-{name}", **metadata}
    return {**pod, "metadata": found, "spec": {**pod["spec"], "schedulerName": "kai-scheduler"}}


def known(*manifests):
    return as_known(making.objects(NODE, *manifests))


def group_of(objects, name):
    pod = next(each for each in objects.pods if each.metadata.name == name)
    return pod.metadata.annotations.get("pod-group-name")


def test_a_pod_owning_its_group_joins_before_the_label():
    assert group_of(known(bare("p"), owned("pg-p", "uid-p")), "p") == "pg-p"


def test_a_pod_of_a_job_joins_the_jobs_group():
    pod = bare("p", ownerReferences=[{"kind": "Job", "name": "j", "uid": "uid-j"}])
    assert group_of(known(pod, owned("pg-j", "uid-j")), "p") == "pg-j"


def test_an_owner_of_several_groups_tells_nothing():
    pod = bare("p", ownerReferences=[{"kind": "Job", "name": "j", "uid": "uid-j"}])
    assert group_of(known(pod, owned("a", "uid-j"), owned("b", "uid-j")), "p") is None


def test_where_all_is_written_nothing_changes():
    objects = making.objects(NODE, making.pod("p", group="g"), making.group("g"))
    assert as_known(objects) is objects


@pytest.mark.parametrize("node", ["", "n1"], ids=["waits", "runs"])
def test_a_bare_pod_joins_the_group_held_in_memory(node):
    (pod,) = making.objects(bare("p", labels={"kai.scheduler/queue": "team"})).pods
    pod = attrs.evolve(pod, spec=attrs.evolve(pod.spec, node_name=node))
    objects = as_known(attrs.evolve(making.objects(NODE), pods=(pod,)))
    (group,) = objects.pod_groups
    assert group_of(objects, "p") == group.metadata.name == "pg-p-uid-p"
    assert (group.spec.queue, group.spec.min_member, group.metadata.uid) == ("team", 1, "")


def test_a_running_pod_whose_owner_has_no_group_stays():
    (pod,) = making.objects(bare("p", ownerReferences=[{"kind": "Job", "name": "j", "uid": "uid-j"}])).pods
    bound = attrs.evolve(pod, spec=attrs.evolve(pod.spec, node_name="n1"))
    objects = attrs.evolve(making.objects(NODE), pods=(bound,))
    assert as_known(objects) is objects


TEXT = refusal_text('pods "x" is forbidden: exceeded quota', 3, "2026-01-01T00:00:08Z")
SAID = {"type": "PodScheduled", "status": "False", "reason": "BindRefused", "message": f"{TEXT[0].upper()}{TEXT[1:]}"}
FAILED = {"type": "PodBound", "status": "False", "reason": "BindingError", "message": "Failed to bind: no"}
EARLY, LATE = {"lastProbeTime": "2026-01-01T00:00:01Z"}, {"lastProbeTime": "2026-01-01T00:00:02Z"}
NO_ROOM = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}


@pytest.mark.parametrize(
    ("conditions", "text"),
    [
        ([SAID], TEXT),
        ([FAILED], "the bind was refused: Failed to bind: no"),
        ([{**FAILED, **LATE}, {**NO_ROOM, **EARLY}], "the bind was refused: Failed to bind: no"),
        ([{**FAILED, **EARLY}, {**NO_ROOM, **LATE}], None),
        ([NO_ROOM], None),
    ],
)
def test_a_pod_is_gated_while_its_last_condition_refuses(conditions, text):
    pod = bare("p")
    (seen,) = known({**pod, "status": {**pod.get("status", {}), "conditions": conditions}}).pods
    assert [gate.name for gate in seen.spec.scheduling_gates] == ([f"{GATE}{text}"] if text else [])


def test_a_pod_with_a_node_rests_no_more():
    (pod,) = making.objects(making.pod("p", group="g")).pods
    bound = attrs.evolve(pod, spec=attrs.evolve(pod.spec, node_name="n1"))
    objects = attrs.evolve(making.objects(NODE), pods=(bound,))
    assert as_known(objects) is objects
