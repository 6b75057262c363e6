import pytest

from kai.deciding.explain.codes import BY_CODE
from kai.facts.model.axis import NONE
from kai.intake import Intake, IntakeSettings, QueueAccess
from tests.unit.intake.making import NOW, group, objects, other, pod, queue

NAMES, LABELS = "kai.scheduler/allowed-namespaces", "kai.scheduler/allowed-namespace-labels"
REQUIRED = IntakeSettings(queue_access=QueueAccess.REQUIRED)
UNBOUNDED = ("", "PodGroupRefused")


def space(name="default", labels=None, annotations=None):
    return other("Namespace", "v1", name, metadata={"labels": labels or {}, "annotations": annotations or {}})


def allowing(**said):
    return queue("q", metadata={"annotations": said.pop("annotations", said)})


def taken(*made, settings=REQUIRED):
    return Intake(settings).take(objects(*made), NOW)


def told(*made, settings=REQUIRED):
    (found,) = taken(*made, settings=settings).groups
    return found.held, found.held_code


@pytest.mark.parametrize(
    ("annotations", "labels", "is_allowed"),
    [
        ({}, {"team": "a"}, False),
        ({NAMES: "other"}, {}, False),
        ({NAMES: "other, default"}, {}, True),
        ({NAMES: "*"}, {}, True),
        ({NAMES: "defaul"}, {}, False),
        ({LABELS: "team=a"}, {"team": "a"}, True),
        ({LABELS: "team=a"}, {"team": "b"}, False),
        ({LABELS: "team=a"}, {}, False),
        ({LABELS: "team=a, tier=1"}, {"team": "a"}, False),
        ({LABELS: "team=a, tier=1"}, {"team": "a", "tier": "1"}, True),
        ({LABELS: "team"}, {"team": "b"}, True),
        ({LABELS: ""}, {"team": "b"}, False),
        ({LABELS: "=a"}, {"": "a"}, False),
        ({LABELS: "=a, team=b"}, {"team": "b"}, False),
        ({NAMES: "default", LABELS: "team=a"}, {}, True),
    ],
)
def test_a_queue_allows_namespaces_by_name_or_by_labels(annotations, labels, is_allowed):
    held, code = told(allowing(annotations=annotations), space(labels=labels), group("g"), pod("p", group="g"))
    assert not held if is_allowed else code == "QueueNotAllowed"


def test_every_namespace_uses_every_queue_unless_permission_is_required():
    assert told(allowing(), space(), group("g"), settings=IntakeSettings()) == UNBOUNDED


def test_the_refusal_names_the_queue_and_own_namespace_only():
    held, _ = told(allowing(annotations={NAMES: "secret"}), space(), group("g"))
    assert held.startswith("spec.queue: found q, expected a queue that allows namespace default;")
    assert "secret" not in held


def test_a_missing_queue_is_reported_as_missing():
    assert told(space(), group("g")) == UNBOUNDED


def test_an_unknown_namespace_is_allowed_only_by_its_name():
    assert told(allowing(annotations={NAMES: "default"}), group("g")) == UNBOUNDED
    assert told(allowing(annotations={LABELS: "team=a"}), group("g"))[1] == "QueueNotAllowed"


def test_a_refused_groups_waiting_pods_stay_out():
    made = taken(
        allowing(), space(), group("g"), pod("runs", group="g", node="n", phase="Running"), pod("waits", group="g")
    )
    by_name = dict(zip([each.name for each in made.pods], made.pod_subgroup.tolist(), strict=True))
    assert by_name["waits"] == NONE
    assert by_name["runs"] != NONE


def test_a_changed_queue_or_namespace_shows_in_next_snapshot():
    intake = Intake(REQUIRED)
    refused, allowed = allowing(annotations={LABELS: "team=a"}), space(labels={"team": "a"})
    for spaces, is_held in ((space(), True), (allowed, False), (space(), True)):
        found = intake.take(objects(refused, spaces, group("g"), pod("p", group="g")), NOW)
        assert bool(found.groups[0].held) is is_held


@pytest.mark.parametrize(
    ("annotations", "spec", "text"),
    [
        ({"kai.scheduler/priority-classes": "train, build"}, {"priorityClassName": "train"}, ""),
        ({"kai.scheduler/priority-classes": "train, build"}, {}, ""),
        (
            {"kai.scheduler/priority-classes": "train, build"},
            {"priorityClassName": "inference"},
            "spec.priorityClassName: found inference, expected what namespace default may use: train, build",
        ),
        (
            {"kai.scheduler/priority-classes": ""},
            {"priorityClassName": "train"},
            "spec.priorityClassName: found train, expected what namespace default may use: none",
        ),
        ({"kai.scheduler/allowed-preemptibility": "preemptible"}, {"priorityClassName": "train"}, ""),
        (
            {"kai.scheduler/allowed-preemptibility": "preemptible"},
            {"priorityClassName": "inference"},
            "spec.preemptibility: found non-preemptible, expected what namespace default may use: preemptible",
        ),
        (
            {"kai.scheduler/allowed-preemptibility": "preemptible"},
            {"preemptibility": "non-preemptible"},
            "spec.preemptibility: found non-preemptible, expected what namespace default may use: preemptible",
        ),
        (
            {"kai.scheduler/allowed-preemptibility": "preemptible"},
            {"priorityClassName": "inference", "preemptibility": "preemptible"},
            "",
        ),
        (
            {"kai.scheduler/allowed-preemptibility": "preemptible, non-preemptible"},
            {"preemptibility": "non-preemptible"},
            "",
        ),
    ],
)
@pytest.mark.parametrize("settings", [IntakeSettings(), REQUIRED])
def test_a_namespace_bounds_what_priorities_its_groups_have(annotations, spec, text, settings):
    classes = [other("PriorityClass", "scheduling.k8s.io/v1", "inference", value=125)]
    classes.append(other("PriorityClass", "scheduling.k8s.io/v1", "train", value=50))
    queues = allowing(annotations={NAMES: "*"})
    held, code = told(queues, space(annotations=annotations), *classes, group("g", **spec), settings=settings)
    assert (held, code) == (text, "PriorityNotAllowed" if text else "PodGroupRefused")


@pytest.mark.parametrize("code", ["QueueNotAllowed", "PriorityNotAllowed"])
def test_the_codes_have_a_meaning_and_help(code):
    assert BY_CODE[code].means
    assert BY_CODE[code].help


@pytest.mark.parametrize(
    ("status", "message", "held"),
    [
        ("True", "ran for 1h0m0s", ("ran for 1h0m0s", "TimeLimit")),
        ("True", "", ("the group has run for as long as it may", "TimeLimit")),
        ("False", "ends in 5m0s", ("", "PodGroupRefused")),
    ],
)
def test_a_group_that_reached_its_limit_is_held(status, message, held):
    condition = {"type": "TimeLimit", "status": status, "message": message}
    assert told(group("g", status={"conditions": [condition]}), settings=IntakeSettings()) == held
