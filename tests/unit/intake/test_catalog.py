import attrs
import pytest

from kai.intake.catalog import read_library
from kai.intake.settings import IntakeSettings
from tests.unit.intake.making import objects, other, pod, taken


def library(made, before=None):
    return read_library(made, IntakeSettings(), before)


def test_namespaces_have_labels():
    made = other("Namespace", "v1", "a", metadata={"labels": {"team": "x"}})
    assert taken(made).catalog.namespaces == {"a": {"team": "x"}}


def test_config_maps_are_known_when_there_is_any():
    assert not taken().catalog.config_maps_known
    found = taken(other("ConfigMap", "v1", "c", namespace="a")).catalog
    assert (found.config_maps_known, found.config_maps) == (True, {("a", "c")})


def test_the_library_is_the_same_while_its_objects_are():
    made = objects(other("ConfigMap", "v1", "c", namespace="a"))
    first = library(made)
    more_pods = attrs.evolve(made, pods=objects(pod("p")).pods, config_maps=(*made.config_maps,))
    assert library(more_pods, first) is first


@pytest.mark.parametrize("kind", ["ConfigMap", "ResourceClaim"])
def test_a_new_object_makes_a_new_library(kind):
    version = "resource.k8s.io/v1" if kind == "ResourceClaim" else "v1"
    made = objects(other(kind, version, "c", namespace="a"))
    first = library(objects())
    assert library(made, first) is not first
    assert library(objects(), library(made)).catalog == first.catalog


def test_namespaces_are_the_same_while_they_do_not_change_whatever_else_does():
    space = other("Namespace", "v1", "a", metadata={"labels": {"team": "x"}})
    made = objects(space, other("ConfigMap", "v1", "c", namespace="a"))
    first = library(made)
    fewer = library(attrs.evolve(made, config_maps=()), first)
    assert fewer.catalog.namespaces is first.catalog.namespaces
    more = library(objects(space, other("Namespace", "v1", "b")), fewer)
    assert sorted(more.catalog.namespaces) == ["a", "b"]
