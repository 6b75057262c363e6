"""What a plugin makes of objects of its own kinds, and reads of pods and groups: once for each version."""

import attrs
import pytest

from kai.api.cluster_objects import collect
from kai.api.codec.structuring import structure_all
from kai.api.kinds import declare
from kai.deciding.engine.session import Session
from kai.framework import Column, Objects, Unreadable
from kai.intake import Intake
from kai.testing.views import open_session
from tests.doubles.own_kinds import declared_for_a_while
from tests.unit.intake.making import group as made_group
from tests.unit.intake.making import pod as made_pod
from tests.unit.intake.making import queue as made_queue

VERSION, KIND = "power.example.com/v1", "RackPowerCap"
PODS = (("a", {"watts": "7"}), ("b", {"watts": "much"}), ("c", {}))


def cap(name, watts):
    return {"apiVersion": VERSION, "kind": KIND, "metadata": {"name": name}, "spec": {"watts": watts}}


@pytest.fixture(autouse=True)
def _declared():
    with declared_for_a_while():
        declare(VERSION, KIND, "rackpowercaps", namespaced=False)
        yield


@pytest.fixture
def caps():
    """Return a kind whose reader remembers what it was asked."""
    asked = []

    def read(raw):
        asked.append(raw.name)
        if raw.spec["watts"] == "much":
            raise ValueError("spec.watts: found 'much', expected a whole number")
        return raw.spec["watts"]

    return Objects(api_version=VERSION, kind=KIND, plural="rackpowercaps", read=read), asked


def objects_of(*manifests):
    return collect(structure_all(manifests).objects)


def view_of(intake, objects):
    session = open_session(intake.take(objects, 0.0))
    assert isinstance(session, Session)
    return session.view


def test_values_are_by_name_in_name_order(caps):
    kind, _ = caps
    view = view_of(Intake(), objects_of(cap("b", 2), cap("a", 1)))
    assert list(view.values(kind).items()) == [("a", 1), ("b", 2)]


def test_each_object_version_is_read_once(caps):
    kind, asked = caps
    intake, objects = Intake(), objects_of(cap("a", 1), cap("b", 2))
    first = view_of(intake, objects).values(kind)
    assert view_of(intake, attrs.evolve(objects)).values(kind) is first
    (changed,) = objects_of(cap("b", 3)).foreign
    after = attrs.evolve(objects, foreign=(objects.foreign[0], changed))
    assert view_of(intake, after).values(kind) == {"a": 1, "b": 3}
    assert asked == ["a", "b", "b"]


def test_an_unreadable_object_becomes_a_value_with_message(caps):
    kind, _ = caps
    found = view_of(Intake(), objects_of(cap("a", "much"))).values(kind)
    message = "rackpowercap a: spec.watts: found 'much', expected a whole number"
    assert found == {"a": Unreadable(message)}


def test_of_a_kind_without_objects_there_are_no_values(caps):
    kind, _ = caps
    assert view_of(Intake(), objects_of()).values(kind) == {}


def test_a_kinds_right_is_plural_and_group(caps):
    kind, _ = caps
    assert kind.right == "rackpowercaps.power.example.com"


def watched_column():
    """Return a column that remembers the annotations of which it was made."""
    asked = []

    def read(labels, annotations):
        asked.append((dict(labels).get("app"), annotations.get("watts")))
        return float(annotations["watts"])

    return Column(read=read, otherwise=300.0), asked


def test_a_column_has_a_number_per_pod_and_group():
    column, _ = watched_column()
    group = made_group("g", metadata={"annotations": {"watts": "9"}})
    pods = [made_pod(name, group="g", annotations=text) for name, text in PODS]
    view = view_of(Intake(), objects_of(made_queue("q"), group, *pods))
    assert view.pod_column(column).tolist() == [7.0, 300.0, 300.0]
    assert view.group_column(column).tolist() == [9.0]
    assert not view.pod_column(column).flags.writeable


def test_a_column_reads_each_pod_version_once():
    column, asked = watched_column()
    intake, objects = (
        Intake(),
        objects_of(made_pod("a", annotations={"watts": "1"}), made_pod("b", labels={"app": "x"})),
    )
    view_of(intake, objects).pod_column(column)
    (changed,) = objects_of(made_pod("a", annotations={"watts": "2"})).pods
    after = attrs.evolve(objects, pods=(changed, objects.pods[1]))
    assert view_of(intake, after).pod_column(column).tolist() == [2.0, 300.0]
    assert asked == [(None, "1"), ("x", None), (None, "2")]


@pytest.mark.parametrize(
    ("spec", "why"),
    [({}, "KeyError: 'watts'"), ({"watts": None}, "TypeError: int() argument must be")],
)
def test_a_bad_field_costs_only_its_object(spec, why):
    kind = Objects(api_version=VERSION, kind=KIND, plural="rackpowercaps", read=lambda raw: int(raw.spec["watts"]))
    odd = {**cap("odd", 0), "spec": spec}
    found = view_of(Intake(), objects_of(odd, cap("sound", 2))).values(kind)
    assert found["sound"] == 2
    assert isinstance(found["odd"], Unreadable)
    assert found["odd"].message.startswith(f"rackpowercap odd: {why}")
