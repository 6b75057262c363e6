import json

import pytest

from kai.roles.podgrouper import Settings
from kai.roles.podgrouper.rules import parse_delay
from tests.unit.roles.podgrouper.workloads import decide, group_of, pod_of, priority_class, spec_of, thing

DEFAULTS = Settings(defaults_namespace="kai", defaults_name="defaults")


def work(**metadata):
    return thing("example.com/v1", "Work", **metadata)


def defaults(*entries, text=None):
    data = {"types": json.dumps(entries) if text is None else text}
    return thing("v1", "ConfigMap", "defaults", namespace="kai", data=data)


@pytest.mark.parametrize("name", ["n" * 253, "n" * 211 + ".-" + "n" * 40])
def test_the_longest_pod_names_give_valid_group_names(name):
    """KAI-Scheduler's group of such a pod is refused by the API server, and the pod waits for ever."""
    pod = pod_of(name=name)
    uid = pod["metadata"]["uid"] = "12345678-1234-1234-1234-123456789012"
    found = group_of(pod)["metadata"]["name"]
    assert found.startswith(f"pg-{'n' * 211}")
    assert found.endswith(f"n-{uid}")
    assert len(found) <= 253


def test_labels_and_annotations_of_the_owner_are_the_groups():
    owner = work(labels={"a": "1", "user": "ann"}, annotations={"note": "x"})
    pod = pod_of(owner, labels={"user": "bob", "b": "2"}, annotations={"user": "bob", "other": "y"})
    metadata = group_of(pod, owner)["metadata"]
    assert metadata["labels"] == {"a": "1", "user": "ann"}
    assert metadata["annotations"]["user"] == "bob"
    assert metadata["annotations"]["note"] == "x"
    assert "other" not in metadata["annotations"]


def test_kubectls_annotation_on_the_owner_is_not_copied():
    owner = work(annotations={"kubectl.kubernetes.io/last-applied-configuration": '{"env": "PASSWORD"}', "note": "x"})
    annotations = group_of(pod_of(owner), owner)["metadata"]["annotations"]
    assert "note" in annotations
    assert not any("PASSWORD" in text for text in annotations.values())


def test_an_oversized_owner_passes_on_only_what_kai_reads():
    labels = {"kai.scheduler/queue": "team", **{f"l{at}": "" for at in range(1100)}}
    owner = work(annotations={"kai.scheduler/topology": "t", "big": "x" * 70_000}, labels=labels)
    metadata = group_of(pod_of(owner), owner)["metadata"]
    assert metadata["labels"] == {"kai.scheduler/queue": "team"}
    assert metadata["annotations"].keys() == {"kai.scheduler/topology", "kai.scheduler/top-owner-metadata"}


def test_the_pods_user_applies_if_the_owner_lacks_one():
    owner = work()
    assert group_of(pod_of(owner, labels={"user": "bob"}), owner)["metadata"]["labels"] == {"user": "bob"}


@pytest.mark.parametrize(
    ("of_owner", "of_pod", "queue"),
    [
        ({"kai.scheduler/queue": "a"}, {"kai.scheduler/queue": "b"}, "a"),
        ({}, {"kai.scheduler/queue": "b"}, "b"),
        ({"project": "p"}, {"kai.scheduler/queue": "b"}, "b"),
        ({"project": "p"}, {"kai.scheduler/node-pool": "n"}, "p-n"),
        ({"kai.scheduler/node-pool": "n"}, {"project": "p"}, "p"),
        ({"project": ""}, {"project": "p"}, "default-queue"),
        ({}, {}, "default-queue"),
    ],
)
def test_the_queue_comes_from_queue_label_then_project(of_owner, of_pod, queue):
    owner = work(labels=of_owner)
    assert spec_of(pod_of(owner, labels=of_pod), owner)["queue"] == queue


def test_the_queue_label_can_be_another():
    owner = work(labels={"team": "a"})
    assert spec_of(pod_of(owner), owner, settings=Settings(queue_label="team"))["queue"] == "a"


@pytest.mark.parametrize(
    ("of_owner", "of_pod", "in_spec", "found"),
    [
        ({"priorityClassName": "high"}, {"priorityClassName": "low"}, "mid", "high"),
        ({}, {"priorityClassName": "low"}, "mid", "low"),
        ({}, {}, "mid", "mid"),
        ({"priorityClassName": "unknown"}, {"priorityClassName": "low"}, "mid", "train"),
        ({}, {"priorityClassName": ""}, "mid", "train"),
        ({}, {}, "", "train"),
    ],
)
def test_the_first_named_existing_priority_class_applies(of_owner, of_pod, in_spec, found):
    owner = work(labels=of_owner)
    pod = pod_of(owner, labels=of_pod, spec={"priorityClassName": in_spec})
    classes = [priority_class(name) for name in ("high", "low", "mid")]
    assert spec_of(pod, owner, *classes)["priorityClassName"] == found


def test_an_owner_with_a_missing_class_defers_to_another():
    top = work(name="top", labels={"priorityClassName": "high"})
    near = thing("example.com/v1", "Near", labels={"priorityClassName": "unknown"}, owners=[top])
    outcome = decide(pod_of(near), near, top, priority_class("high"))
    assert outcome.group.manifest["spec"]["priorityClassName"] == "high"
    assert outcome.notes == ('priority class "unknown" does not exist and is passed over',)


def test_defaults_by_kind_prefer_the_entry_with_the_group():
    entries = (
        {"typeName": "Work", "priorityName": "low", "preemptibility": "preemptible"},
        {"typeName": "Work", "group": "example.com", "priorityName": "high", "preemptibility": "Non-Preemptible"},
    )
    owner = work()
    spec = spec_of(
        pod_of(owner), owner, defaults(*entries), priority_class("high"), priority_class("low"), settings=DEFAULTS
    )
    assert spec["priorityClassName"] == "high"
    assert spec["preemptibility"] == "non-preemptible"


def test_a_default_class_must_exist_unlike_the_last_resort():
    owner = work()
    config_map = defaults({"typeName": "Work", "priorityName": "gone"})
    assert spec_of(pod_of(owner), owner, config_map, settings=DEFAULTS)["priorityClassName"] == "train"


def test_default_preemptibility_counts_although_the_priority_is_labelled():
    owner = work(labels={"priorityClassName": "high"})
    config_map = defaults({"typeName": "Work", "preemptibility": "preemptible"})
    spec = spec_of(pod_of(owner), owner, config_map, priority_class("high"), settings=DEFAULTS)
    assert (spec["priorityClassName"], spec["preemptibility"]) == ("high", "preemptible")


@pytest.mark.parametrize("text", ["", "[", "{}", "[1]", '[{"typeName": 1}]', '[{"typeName": ["Work"]}]'])
def test_unreadable_defaults_are_noted_and_ignored(text):
    owner = work()
    outcome = decide(pod_of(owner), owner, defaults(text=text), settings=DEFAULTS)
    assert outcome.group.manifest["spec"]["priorityClassName"] == "train"
    assert "data.types" in outcome.notes[0]


def test_a_missing_config_map_is_noted():
    owner = work()
    assert decide(pod_of(owner), owner, settings=DEFAULTS).notes[0] == (
        'defaults by kind: ConfigMap "kai/defaults": not found'
    )


def test_an_empty_preemptibility_ends_the_search():
    owner = work(labels={"kai.scheduler/preemptibility": ""})
    pod = pod_of(owner, labels={"kai.scheduler/preemptibility": "preemptible"})
    assert "preemptibility" not in spec_of(pod, owner)


def test_an_invalid_preemptibility_is_passed_over():
    owner = work(labels={"kai.scheduler/preemptibility": "maybe"})
    pod = pod_of(owner, labels={"kai.scheduler/preemptibility": "preemptible"})
    assert spec_of(pod, owner)["preemptibility"] == "preemptible"


def test_delays_are_written_in_normal_duration_form():
    owner = work(
        annotations={"kai.scheduler/preemption-delay": "90s", "kai.scheduler/staleness-grace-period": "-1.5h"},
    )
    spec = spec_of(pod_of(owner), owner)
    assert (spec["preemptionDelay"], spec["stalenessGracePeriod"]) == ("1m30s", "-1h30m0s")


def test_an_owners_invalid_delay_leaves_it_to_the_pod():
    owner = work(annotations={"kai.scheduler/preemption-delay": "-5s"})
    pod = pod_of(owner, annotations={"kai.scheduler/preemption-delay": "5s"})
    assert spec_of(pod, owner)["preemptionDelay"] == "5s"


@pytest.mark.parametrize("text", ["", "5", "s", "1d", "1w", "5 s", "99999999h", "-1ns"])
def test_an_invalid_or_negative_duration_is_none(text):
    assert parse_delay(text, lowest=0) is None


def test_topology_is_the_owners_alone():
    keys = {"kai.scheduler/topology": "t", "kai.scheduler/topology-required-placement": "rack"}
    owner = work(annotations=keys)
    assert spec_of(pod_of(owner), owner)["topologyConstraint"] == {"topology": "t", "requiredTopologyLevel": "rack"}
    plain = work()
    assert "topologyConstraint" not in spec_of(pod_of(plain, annotations=keys), plain)


def test_the_owners_deadline_overrides_the_annotation():
    by_hand = {"kai.scheduler/owner-deadline": "1s mine"}
    owner = thing("example.com/v1", "Work", annotations=by_hand, spec={"activeDeadlineSeconds": 90})
    found = group_of(pod_of(owner), owner)["metadata"]["annotations"]["kai.scheduler/owner-deadline"]
    assert found == "1m30s spec.activeDeadlineSeconds"
