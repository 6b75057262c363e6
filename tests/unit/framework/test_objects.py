"""What a plugin makes of objects of its own kinds: once for each version, by name."""

import attrs
import pytest

from kai.api.codec import structure_all
from kai.api.declaring import declare
from kai.api.objects import collect
from kai.engine.session import Session
from kai.framework import Objects, Unreadable
from kai.intake import Intake
from kai.testing.views import open_session
from tests.doubles.own_kinds import declared_for_a_while

VERSION, KIND = "power.example.com/v1", "RackPowerCap"


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


def test_a_reader_is_asked_once_for_each_version_of_an_object(caps):
    kind, asked = caps
    intake, objects = Intake(), objects_of(cap("a", 1), cap("b", 2))
    first = view_of(intake, objects).values(kind)
    assert view_of(intake, attrs.evolve(objects)).values(kind) is first
    (changed,) = objects_of(cap("b", 3)).foreign
    after = attrs.evolve(objects, foreign=(objects.foreign[0], changed))
    assert view_of(intake, after).values(kind) == {"a": 1, "b": 3}
    assert asked == ["a", "b", "b"]


def test_an_object_that_cannot_be_read_is_a_value_that_says_so(caps):
    kind, _ = caps
    found = view_of(Intake(), objects_of(cap("a", "much"))).values(kind)
    message = "rackpowercap a: spec.watts: found 'much', expected a whole number"
    assert found == {"a": Unreadable(message)}


def test_of_a_kind_without_objects_there_are_no_values(caps):
    kind, _ = caps
    assert view_of(Intake(), objects_of()).values(kind) == {}


def test_the_right_that_a_kind_needs_is_plural_and_group(caps):
    kind, _ = caps
    assert kind.right == "rackpowercaps.power.example.com"
