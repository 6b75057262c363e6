import string

import yaml
from hypothesis import given
from hypothesis import strategies as st

from kai.roles.podgrouper import Resource
from kai.roles.podgrouper.rules import top_owner_text
from tests.unit.roles.podgrouper.workloads import thing

NAMES = st.text(string.ascii_letters + string.digits + "-._:~ #'\"", max_size=12)


def test_the_text_is_what_the_peer_writes():
    owner = thing("v1", "Pod", "worker-0")
    owner["metadata"]["uid"] = "100"
    assert top_owner_text(Resource.of(owner)) == 'name: worker-0\nuid: "100"\ngroup: ""\nversion: v1\nkind: Pod\n'


@given(NAMES, NAMES)
def test_whatever_the_name_it_is_read_back_as_text(name, uid):
    owner = Resource.of({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": name, "uid": uid}})
    assert yaml.safe_load(top_owner_text(owner)) == {
        "name": name, "uid": uid, "group": "g", "version": "v1", "kind": "K",
    }  # fmt: skip
