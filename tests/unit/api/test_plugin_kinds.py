import json

import pytest

from kai.api.cluster_objects import collect
from kai.api.codec import structuring
from kai.api.codec.structuring import decode_as
from kai.api.kinds import declare
from kai.api.kubernetes.meta import Foreign
from kai.basics.errors import ConfigError, InputError
from tests.doubles.own_kinds import declared_for_a_while

VERSION, KIND = "power.example.com/v1", "RackPowerCap"
CAP = {"apiVersion": VERSION, "kind": KIND, "metadata": {"name": "a"}, "spec": {"watts": 700, "deep": {"list": [1.5]}}}


@pytest.fixture
def cls():
    with declared_for_a_while():
        yield declare(VERSION, KIND, "rackpowercaps", namespaced=False)


def test_an_object_of_an_undeclared_kind_is_passed_over():
    assert structuring.structure_all([CAP]).objects == ()


def test_an_object_of_a_declared_kind_is_read_whole(cls):
    (found,) = structuring.structure_all([CAP]).objects
    assert (type(found), found.spec) == (cls, CAP["spec"])
    assert structuring.structure_as(cls, decode_as(cls, json.dumps(CAP).encode())) == found
    assert structuring.unstructure(found) == CAP


def test_objects_of_declared_kinds_belong_to_the_cluster(cls):
    (cap,) = structuring.structure_all([CAP]).objects
    assert isinstance(cap, Foreign)
    assert collect([cap]).foreign == (cap,)
    with pytest.raises(InputError, match="found 'a second one'"):
        collect([cap, cap])


def test_a_kind_can_be_redeclared_only_identically(cls):
    assert declare(VERSION, KIND, "rackpowercaps", namespaced=False) is cls
    wanted = "found rackpowercaps, namespaced: True, expected rackpowercaps, namespaced: False"
    with pytest.raises(ConfigError, match=wanted):
        declare(VERSION, KIND, "rackpowercaps", namespaced=True)


def test_a_kind_of_kai_cannot_be_declared():
    with pytest.raises(ConfigError, match="v1 Node: found a kind that kai reads itself"):
        declare("v1", "Node", "nodes", namespaced=False)


def test_a_plugin_declaring_kais_own_kind_is_named():
    with pytest.raises(ConfigError, match=r"^plugin 'mine': v1 Pod: found a kind that kai reads itself"):
        declare("v1", "Pod", "pods", namespaced=True, plugin="mine")
