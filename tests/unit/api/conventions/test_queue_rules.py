"""The rules of queues as values; those who word them have tests of their own."""

import math

import attrs
import pytest

from kai.api.codec.structuring import structure_as
from kai.api.conventions.queue_rules import Bounds, QueueShape, Rule, excess, queue_faults, shape_in, shape_of
from kai.api.scheduling.queue import Queue

FREE = Bounds(quota=math.inf, limit=math.inf)


def queue(name, parent="", **bounds):
    known = {"gpu": FREE, "cpu": FREE, "memory": FREE}
    return QueueShape(name=name, parent=parent, bounds={**known, **bounds})


def rules(*queues):
    return {name: [(each.rule, each.resource) for each in found] for name, found in queue_faults(queues).items()}


def test_a_sound_tree_has_no_faults():
    assert rules(queue("top"), queue("a", "top", gpu=Bounds(quota=8, limit=8)), QueueShape(name="bare")) == {}


def test_all_faults_of_a_queue_come_together():
    low, none = Bounds(quota=8, limit=4), Bounds()
    assert rules(queue("a", "gone", gpu=low, cpu=none, memory=none), queue("b", "a")) == {
        "a": [
            (Rule.ORPHAN, ""),
            (Rule.LOW_LIMIT, "gpu"),
            (Rule.OVERCOMMITTED, "gpu"),
            (Rule.OVERCOMMITTED, "cpu"),
            (Rule.OVERCOMMITTED, "memory"),
            (Rule.NO_COMPUTE, "cpu"),
            (Rule.NO_COMPUTE, "memory"),
        ]
    }


def test_a_queue_without_gpus_needs_no_cpu():
    assert rules(queue("a", gpu=Bounds(), cpu=Bounds(), memory=Bounds())) == {}


def test_a_cycle_is_reported_for_members_and_descendants_alike():
    faults = queue_faults([queue("c", "b"), queue("b", "c"), queue("below", "c")])
    assert {name: found[0].circle for name, found in faults.items()} == dict.fromkeys("bc", ("b", "c")) | {
        "below": ("b", "c")
    }


def test_a_queue_below_too_many_says_how_many():
    found = queue_faults([queue(f"q{at}", f"q{at - 1}" if at else "") for at in range(34)])
    assert {name: each[0].found for name, each in found.items()} == {"q32": 33, "q33": 34}


@pytest.mark.parametrize("amount", ["many", None, True, 10**400])
def test_an_amount_that_is_no_number_counts_as_none(amount):
    shape = shape_in({"metadata": {"name": "a"}, "spec": {"resources": {"gpu": {"quota": amount, "limit": -1}}}})
    assert shape.bounds["gpu"] == Bounds(quota=0, limit=math.inf)


def test_an_object_and_its_manifest_have_the_same_shape():
    manifest = {
        "metadata": {"name": "a"},
        "spec": {"parentQueue": "p", "resources": {"gpu": {"quota": -1, "limit": 2.5}, "cpu": {"quota": 1}}},
    }
    assert shape_of(structure_as(Queue, manifest)) == shape_in(manifest)
    assert shape_in({"metadata": {"name": "a"}, "spec": {}}).bounds is None


def test_what_is_unlimited_exceeds_all_but_itself():
    assert (excess([math.inf], 8), excess([math.inf], math.inf), excess([4, 4], 8)) == (math.inf, None, None)


def clocked(name, parent="", quota=8, limit=-1, **entry):
    free = {"quota": -1, "limit": -1}
    resources = {"gpu": {"quota": quota, "limit": limit}, "cpu": free, "memory": free}
    schedule = {"name": "nights", "start": "0 22 * * *", "duration": "8h", **entry}
    spec = {"parentQueue": parent, "resources": resources, "schedules": [schedule] if entry else []}
    return {"metadata": {"name": name}, "spec": spec}


NIGHT = {"resources": {"gpu": {"quota": 24}}}


@pytest.mark.parametrize(
    ("manifests", "wanted"),
    [
        ([clocked("a", **NIGHT)], {}),
        ([clocked("a", **NIGHT, timeZone="Berlin")], {"a": [(Rule.BAD_SCHEDULE, "")]}),
        ([clocked("a", start="0 0 31 2 *")], {"a": [(Rule.NEVER_OPENS, "")]}),
        ([clocked("a", resources={"gpu": {"limit": 4}})], {"a": [(Rule.WINDOW_LOW_LIMIT, "gpu")]}),
        ([clocked("a", **NIGHT, onClose="evict")], {"a": [(Rule.STARTS_AGAIN, "gpu")]}),
        ([clocked("a", limit=8, resources={"gpu": {"quota": 24, "limit": 24}}, onClose="evict")], {}),
        ([clocked("p"), clocked("a", "p", **NIGHT)], {"p": [(Rule.WINDOW_OVERCOMMITTED, "gpu")]}),
        ([clocked("p", **NIGHT), clocked("a", "p", **NIGHT)], {}),
        # The same nights of two zones differ for some hours.
        (
            [clocked("p", **NIGHT), clocked("a", "p", **NIGHT, timeZone="Asia/Tokyo")],
            {"p": [(Rule.WINDOW_OVERCOMMITTED, "gpu")]},
        ),
        # What is wrong outside of windows is said once.
        ([clocked("p", quota=4), clocked("a", "p", **NIGHT)], {"p": [(Rule.OVERCOMMITTED, "gpu")]}),
    ],
)
def test_contradictions_of_windows_are_found_in_a_week(manifests, wanted):
    assert rules(*map(shape_in, manifests)) == wanted
    if not any(Rule.BAD_SCHEDULE in dict(found) for found in wanted.values()):
        assert rules(*(shape_of(structure_as(Queue, each)) for each in manifests)) == wanted


def test_the_windows_of_a_contradiction_are_named():
    (fault,) = queue_faults(map(shape_in, (clocked("p"), clocked("a", "p", **NIGHT))))["p"]
    assert (fault.windows, fault.found, fault.bound) == (("a/nights",), 24, 8)


def test_each_mistyped_part_of_a_schedule_is_named():
    broken = {"metadata": {"name": "a"}, "spec": {"schedules": [{"name": 3, "start": None, "duration": "soon"}, "x"]}}
    assert [each.bad.field for each in queue_faults([shape_in(broken)])["a"]] == ["name", "start", "duration"]


def at_most(limit):
    return Bounds(limit=limit)


def test_ineffective_model_limits_name_the_queue_that_binds():
    top = attrs.evolve(queue("top"), models={"h100": at_most(4.0), "a100": at_most(math.inf)})
    team = attrs.evolve(
        queue("team", "top", gpu=Bounds(quota=0, limit=8)),
        models={"h100": at_most(6.0), "a100": at_most(9.0), "l4": at_most(8.0)},
    )
    found = queue_faults([top, team])["team"]
    assert [(each.rule, each.model, each.found, each.bound, each.owner) for each in found] == [
        (Rule.IDLE_MODEL_LIMIT, "h100", 6.0, 4.0, "top"),
        (Rule.IDLE_MODEL_LIMIT, "a100", 9.0, 8.0, "team"),
    ]


def test_a_product_is_no_name_of_a_model():
    models = {"NVIDIA-H100": at_most(1.0), "h100": at_most(math.inf)}
    (fault,) = queue_faults([attrs.evolve(queue("q"), models=models)])["q"]
    assert (fault.rule, fault.model) == (Rule.BAD_MODEL, "NVIDIA-H100")


def test_models_read_alike_from_manifest_and_object():
    models = {"h100": {"limit": 2, "quota": 1}, "a100": {}, "l4": {"limit": -1, "quota": -1}}
    manifest = {"metadata": {"name": "q"}, "spec": {"resources": {"gpu": {"quota": 1}, "models": models}}}
    assert shape_in(manifest) == shape_of(structure_as(Queue, manifest))
    assert shape_in(manifest).models == {
        "h100": Bounds(quota=1.0, limit=2.0),
        "a100": at_most(math.inf),
        "l4": Bounds(quota=math.inf, limit=math.inf),
    }


def test_quotas_of_models_fit_limits_gpus_and_parents():
    top = attrs.evolve(queue("top", gpu=Bounds(quota=8, limit=8)), models={"h100": Bounds(quota=4, limit=4)})
    one = attrs.evolve(
        queue("one", "top", gpu=Bounds(quota=4, limit=8)),
        models={"h100": Bounds(quota=3, limit=2), "l4": Bounds(quota=2, limit=8)},
    )
    two = attrs.evolve(queue("two", "top", gpu=Bounds(quota=4, limit=8)), models={"h100": Bounds(quota=2, limit=4)})
    found = queue_faults([top, one, two])
    assert [(each.rule, each.model, each.found, each.bound) for each in found["one"]] == [
        (Rule.MODEL_LOW_LIMIT, "h100", 2, 3),
        (Rule.MODELS_OVERCOMMITTED, "", 5, 4),
    ]
    assert [(each.rule, each.model, each.found, each.bound) for each in found["top"]] == [
        (Rule.MODEL_OVERCOMMITTED, "h100", 5, 4)
    ]
    assert "two" not in found


def test_a_parent_without_a_quota_of_a_model_passes():
    top = attrs.evolve(queue("top", gpu=Bounds(quota=8, limit=8)), models={"h100": at_most(4.0)})
    team = attrs.evolve(queue("team", "top", gpu=Bounds(quota=8, limit=8)), models={"h100": Bounds(quota=4, limit=4)})
    assert queue_faults([top, team]) == {}
