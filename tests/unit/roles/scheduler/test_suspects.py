"""Finding what makes cycles fail, by nothing but whether they fail."""

import itertools

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.intake.aside import Suspect
from kai.roles.scheduler.cycle.suspects import Blame, Inquiry
from tests.unit.intake import making

BLAME = Blame(kind="RuntimeError", message="broken")


def group(name):
    return Suspect("PodGroup", "default", name)


def cluster(count, *more):
    groups = [making.group(f"g{at:03}") for at in range(count)]
    pods = [making.pod(f"p{at:03}", group=f"g{at:03}") for at in range(count)]
    return making.objects(*groups, *pods, *more)


def search(inquiry, objects, fails, names=lambda _: None, now=0.0):
    """Run cycles until none is to follow at once; return how many there were, and whether the last one failed."""
    for count in itertools.count(1):
        out = inquiry.begin(objects, now)
        present = {Suspect.of(each) for each in objects.pod_groups} - out.keys()
        failed = fails(present)
        again = inquiry.failed(BLAME, names(present)) if failed else inquiry.ended()
        if not again or count > 5000:
            break
    assert count < 5000
    return count, failed


def test_a_named_suspect_is_absent_from_the_next_cycle():
    inquiry, objects = Inquiry(), cluster(9)
    assert search(inquiry, objects, lambda present: group("g004") in present, lambda _: group("g004")) == (2, False)
    assert list(inquiry.records) == inquiry.fresh == [group("g004")]


@given(st.sets(st.integers(0, 39), max_size=6), st.booleans())
def test_exactly_the_failing_groups_are_set_aside(culprits, named):
    inquiry, objects, bad = Inquiry(), cluster(40), {group(f"g{at:03}") for at in culprits}
    say = (lambda present: min(bad & present)) if named else (lambda _: None)
    count, failed = search(inquiry, objects, lambda present: bool(bad & present), say)
    assert not failed
    assert set(inquiry.records) == bad
    assert count <= (3 * len(bad) + 1 if named else 4 + 16 * len(bad))


def test_a_wrongly_named_group_is_let_in_again():
    inquiry, objects = Inquiry(), cluster(9)
    names = iter([group("g001"), group("g002")])
    search(inquiry, objects, lambda present: group("g005") in present, lambda _: next(names, group("g005")))
    assert set(inquiry.records) == {group("g005")}


def test_what_changed_last_is_suspected_first():
    inquiry, before = Inquiry(), cluster(200)
    assert search(inquiry, before, lambda _: False) == (1, False)
    poison = making.objects(making.group("new"), making.pod("new", group="new"))
    objects = attrs.evolve(
        before, pod_groups=(*before.pod_groups, *poison.pod_groups), pods=(*before.pods, *poison.pods)
    )
    assert search(inquiry, objects, lambda present: group("new") in present) == (2, False)
    assert list(inquiry.records) == [group("new")]


def test_nothing_is_set_aside_where_it_does_not_help():
    inquiry = Inquiry()
    _, failed = search(inquiry, cluster(20), lambda _: True)
    assert failed
    assert (inquiry.records, inquiry.left_out) == ({}, frozenset())


def test_the_search_ends_although_everything_fails_by_name():
    inquiry, objects = Inquiry(), cluster(300)
    count, failed = search(inquiry, objects, bool, min)
    assert not failed
    assert count < 1000
    assert len(inquiry.records) == 300


def set_aside():
    inquiry, objects = Inquiry(), cluster(3)
    search(inquiry, objects, lambda present: group("g001") in present, lambda _: group("g001"))
    inquiry.fresh.clear()
    return inquiry, objects


@pytest.mark.parametrize(
    "changed",
    [
        cluster(2, making.group("g002", minMember=2), making.pod("p002", group="g002")),
        cluster(3, making.pod("more", group="g002")),
    ],
)
def test_a_change_of_a_suspect_has_it_tried_again(changed):
    inquiry, objects = Inquiry(), cluster(3)
    search(inquiry, objects, lambda present: group("g002") in present, lambda _: group("g002"))
    assert search(inquiry, changed, lambda _: False, now=1.0) == (1, False)
    assert group("g002") in inquiry.records  # it has just been tried
    assert inquiry.due() == 5.0
    assert search(inquiry, changed, lambda _: False, now=5.0) == (1, False)
    assert inquiry.records == {}


def test_what_kai_writes_onto_it_is_no_change():
    inquiry, objects = set_aside()
    stamped = making.group("g001", metadata={"annotations": {"kai.scheduler/last-start-timestamp": "x"}})
    told = making.objects(stamped, *(making.group(f"g00{at}", status={"conditions": []}) for at in (0, 2)))
    search(inquiry, attrs.evolve(objects, pod_groups=told.pod_groups), lambda _: False, now=100.0)
    assert list(inquiry.records) == [group("g001")]


def test_a_suspect_is_tried_again_after_minutes_silently():
    inquiry, objects = set_aside()
    assert inquiry.due() == 300.0
    fails = lambda present: group("g001") in present  # noqa: E731 - read as a table
    assert search(inquiry, objects, fails, lambda _: group("g001"), now=300.0) == (2, False)
    assert inquiry.fresh == []
    assert search(inquiry, objects, fails, now=600.0) == (2, False)  # unnamed: what was tried again is it
    assert search(inquiry, objects, lambda _: False, now=900.0) == (1, False)
    assert inquiry.records == {}


def test_what_is_gone_is_forgotten():
    inquiry, _ = set_aside()
    search(inquiry, cluster(1), lambda _: False, now=1.0)
    assert inquiry.records == {}


def test_a_suspect_that_still_fails_is_left_out_entirely():
    inquiry, objects = Inquiry(), cluster(2)
    found = []
    for _ in range(3):
        found.append(inquiry.begin(objects, 0.0))
        if not inquiry.failed(BLAME, group("g000")):
            break
    assert found == [{}, {group("g000"): False}, {group("g000"): True}]
