import attrs
import pytest

from kai.api.names import NOTED_USER
from kai.basics.errors import PluginError
from kai.roles.podgrouper import (
    Absent,
    Answers,
    Get,
    Grouping,
    Kind,
    Needs,
    Settings,
    Verb,
    Why,
    group_pod,
    load_groupers,
)
from kai.roles.podgrouper.grouper import NAMESPACE, POD_GROUP, Groupers
from tests.unit.roles.podgrouper.workloads import decide, failure_of, group_of, pod_group, pod_of, thing

SET = thing("apps/v1", "StatefulSet")


def answered(pod, **answers):
    settings = Settings()
    return group_pod(pod, Answers(**answers), settings, load_groupers())


def test_a_pod_joins_the_group_of_its_owner():
    outcome = decide(pod_of(SET), SET)
    assert outcome.group.verb is Verb.CREATE
    assert outcome.group.manifest["metadata"]["name"] == "pg-work-work-uid"
    assert outcome.pod_patch == {"metadata": {"annotations": {"pod-group-name": "pg-work-work-uid"}}}


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (pod_of(SET, spec={"schedulerName": "default-scheduler"}), 'for scheduler "default-scheduler"'),
        (pod_of(SET, annotations={"kai.scheduler/skip-podgrouper": "true"}), "carries kai.scheduler/skip-podgrouper"),
        (pod_of(annotations={"pod-group-name": "mine"}), "put into a group by another writer"),
    ],
)
def test_a_pod_that_is_not_ours_is_left_alone(pod, reason):
    outcome = decide(pod, SET)
    assert reason in outcome.ignored
    assert outcome.group is None
    assert outcome.pod_patch is None


def test_only_the_exact_word_true_skips_a_pod():
    assert group_of(pod_of(SET, annotations={"kai.scheduler/skip-podgrouper": "yes"}), SET)


def test_an_owner_that_is_skipped_skips_its_pods():
    top = thing("example.com/v1", "Top", "top")
    middle = thing("apps/v1", "ReplicaSet", owners=[top], annotations={"kai.scheduler/skip-podgrouper": "true"})
    assert 'ReplicaSet "ns/work"' in decide(pod_of(middle), middle, top).ignored


def test_a_pod_without_selected_labels_is_left_alone():
    settings = Settings(pod_labels={"team": "a"})
    assert decide(pod_of(SET), SET, settings=settings).ignored
    assert group_of(pod_of(SET, labels={"team": "a"}), SET, settings=settings)


def test_a_namespace_must_carry_every_selected_label():
    settings = Settings(namespace_labels={"team": "a", "tier": "gpu"})
    half = thing("v1", "Namespace", "ns", namespace="", labels={"team": "a"})
    whole = thing("v1", "Namespace", "ns", namespace="", labels={"team": "a", "tier": "gpu", "more": "yes"})
    assert decide(pod_of(SET), SET, half, settings=settings).ignored
    assert decide(pod_of(SET), SET, settings=settings).ignored
    assert group_of(pod_of(SET), SET, whole, settings=settings)


def test_the_owners_node_pool_precedes_the_pods():
    key = "kai.scheduler/node-pool"
    pooled = thing("apps/v1", "StatefulSet", labels={key: "b"})
    assert group_of(pod_of(SET, labels={key: "a"}), SET)["metadata"]["labels"] == {key: "a"}
    assert group_of(pod_of(pooled, labels={key: "a"}), pooled)["metadata"]["labels"] == {key: "b"}
    without_pools = Settings(node_pool_label="")
    assert "labels" not in group_of(pod_of(SET, labels={key: "a"}), SET, settings=without_pools)["metadata"]


def test_a_pod_being_deleted_may_lack_its_owner():
    pod = pod_of(SET)
    assert "not found" in failure_of(pod)
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert decide(pod).ignored


def test_missing_objects_are_requested_one_by_one():
    pod = pod_of(SET)
    owner = Get(Kind("apps", "v1", "StatefulSet"), "ns", "work")
    group = Get(POD_GROUP, "ns", "pg-work-work-uid")
    assert answered(pod) == Needs(owner)
    assert answered(pod, objects={owner: SET}) == Needs(group)
    done = answered(pod, objects={owner: SET, group: Absent(Why.NOT_FOUND)})
    assert isinstance(done, Grouping)
    assert done.group.verb is Verb.CREATE


def test_answers_are_added_without_changing_those_before():
    read = Get(NAMESPACE, "", "ns")
    before = Answers()
    after = before.with_object(read, SET)
    assert after.get(read) is SET
    assert before.get(read).why is Why.UNREAD


def test_an_unreadable_group_fails_without_creating_another():
    pod = pod_of(SET)
    owner = Get(Kind("apps", "v1", "StatefulSet"), "ns", "work")
    group = Get(POD_GROUP, "ns", "pg-work-work-uid")
    outcome = answered(pod, objects={owner: SET, group: Absent(Why.FORBIDDEN)})
    assert outcome.failure == 'PodGroup "ns/pg-work-work-uid": reading it is not permitted'


def test_a_failed_read_is_a_failure_with_its_reason():
    owner = Get(Kind("apps", "v1", "StatefulSet"), "ns", "work")
    outcome = answered(pod_of(SET), objects={owner: Absent(Why.FAILED, "timed out")})
    assert outcome.failure == 'StatefulSet "ns/work": the read failed: timed out'


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("metadata",), "none"),
        (("metadata", "labels"), ["a"]),
        (("metadata", "annotations"), {"a": 1}),
        (("metadata", "name"), 7),
        (("metadata", "ownerReferences"), {"kind": "Job"}),
        (("metadata", "ownerReferences"), ["Job"]),
        (("spec",), []),
        (("spec", "schedulerName"), 1),
    ],
)
def test_a_malformed_pod_fails_with_the_fields_name(place, value):
    pod = pod_of(SET)
    holder = pod
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    assert f"{'.'.join(place)}" in failure_of_known(pod)


def failure_of_known(pod):
    """Return the failure where the owner exists and the pod may be so malformed that no lookup could hold it."""
    settings = Settings()
    read = Get(Kind("apps", "v1", "StatefulSet"), "ns", "work")
    return group_pod(pod, Answers({read: SET}), settings, load_groupers()).failure


def test_a_failure_is_one_line():
    pod = pod_of(SET)
    pod["metadata"]["ownerReferences"][0]["name"] = "two\nlines"
    assert "\n" not in failure_of(pod, SET)


def test_a_pod_is_ignored_if_its_grouper_wants_none():
    outcome = decide_with(lambda _: None)
    assert outcome.ignored == 'its owner, StatefulSet "ns/work", asks for no group'


def test_a_grouper_returning_another_type_is_a_plugin_error():
    with pytest.raises(PluginError, match="expected a GroupDraft or None"):
        decide_with(lambda _: "a group")


def decide_with(draft):
    @attrs.frozen
    class Odd:
        kinds = ()

        def draft(self, request, /):
            return draft(request)

    read = Get(Kind("apps", "v1", "StatefulSet"), "ns", "work")
    return group_pod(pod_of(SET), Answers({read: SET}), Settings(), Groupers({"default": Odd()}, {}))


def test_nothing_is_written_for_a_correct_group_and_link():
    group = group_of(pod_of(SET), SET)
    pod = pod_of(SET, annotations={"pod-group-name": "pg-work-work-uid"})
    outcome = decide(pod, SET, group)
    assert outcome.group.verb is Verb.NOTHING
    assert outcome.pod_patch is None


def test_notes_say_what_was_passed_over():
    wrong = thing("apps/v1", "StatefulSet", labels={"kai.scheduler/preemptibility": "maybe"})
    outcome = decide(pod_of(wrong), wrong, pod_group("other"))
    assert outcome.notes == (
        'StatefulSet "ns/work": metadata.labels["kai.scheduler/preemptibility"]: "maybe" is not valid and passed over',
    )


def user_of(pod, *others):
    manifest = decide(pod, *others).group.manifest
    return manifest["metadata"]["annotations"].get(NOTED_USER)


def test_the_nearest_note_names_the_groups_user():
    top = thing("example.com/v1", "Top", "top", annotations={NOTED_USER: "maria"})
    middle = thing("apps/v1", "ReplicaSet", owners=[top])
    assert user_of(pod_of(middle), middle, top) == "maria"
    noted = thing("apps/v1", "ReplicaSet", owners=[top], annotations={NOTED_USER: "jo"})
    assert user_of(pod_of(noted), noted, top) == "jo"
    assert user_of(pod_of(noted, annotations={NOTED_USER: "kim"}), noted, top) == "kim"


def test_a_chain_without_notes_names_no_user():
    assert user_of(pod_of(SET), SET) is None
