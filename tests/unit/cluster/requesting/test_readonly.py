"""An API that only reads, in front of one that would write."""

from functools import partial

import anyio
import pytest

from kai.api.kubernetes.pod import Pod
from kai.api.plans import Bind, Create, Delete, Emit, Get, Patch, Ref
from kai.cluster.port import Term
from kai.cluster.requesting.refused_writes import ReadOnlyApi
from kai.cluster.requests import WRITES, Apply, Evict, Forbidden, JsonPatch
from tests.doubles.cluster import MemoryCluster
from tests.unit.intake import making

REF = Ref(cls=Pod, name="p", namespace="default")


def asked(*requests, fenced=False):
    memory = MemoryCluster(making.pod("p"))
    api = ReadOnlyApi(memory.api)
    way = api.fenced(Term(1, "life")) if fenced else api
    replies = [anyio.run(partial(way.perform, request)) for request in requests]
    return memory, replies


@pytest.mark.parametrize("fenced", [False, True])
@pytest.mark.parametrize("cls", WRITES, ids=lambda cls: cls.__name__)
def test_no_kind_of_write_reaches_the_server(cls, fenced):
    request = object.__new__(cls)  # what it says does not matter
    memory, (reply,) = asked(request, fenced=fenced)
    assert isinstance(reply, Forbidden)
    assert reply.message == f"{cls.__name__}: this process only reads"
    assert not memory.server.requests


def test_every_write_of_the_port_is_among_the_refused():
    assert {Create, Patch, Delete, Bind, Emit, Apply, JsonPatch, Evict} == set(WRITES)


def test_what_reads_passes():
    memory, (reply,) = asked(Get(ref=REF))
    assert reply.metadata.name == "p"
    assert not memory.writes()
