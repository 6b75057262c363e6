import json

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.api.codec import pod_templates
from kai.api.codec.structuring import decode_as, structure_as
from kai.api.kubernetes.pod import Pod, PodSpec
from kai.basics.errors import InputError

NODES = st.sampled_from(["", "n1", 'say "nodeName":"x"', "\\", "é"]) | st.none() | st.integers(0, 1) | st.just({})
NAMES = st.sampled_from(["data", "", "nodeName", '"nodeName":"a"', "kube-api-access-00000", "kube-api-access-a"])
VOLUMES = st.fixed_dictionaries({"name": NAMES}, optional={"configMap": st.fixed_dictionaries({"name": NAMES})})
CONTAINERS = st.fixed_dictionaries(
    {"name": NAMES},
    optional={"volumeMounts": st.lists(VOLUMES, max_size=2), "nodeName": NODES, "env": st.just([{"name": "E"}])},
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "nodeName": NODES,
        "containers": st.lists(CONTAINERS, max_size=2),
        "volumes": st.lists(VOLUMES, max_size=2) | st.just(7),
        "nodeSelector": st.dictionaries(NAMES, NAMES, max_size=2),
        "priority": st.integers(-1, 1) | st.just(True),
        "hostNetwork": st.booleans(),
        "schedulerName": NAMES,
        "unknown": NODES,
    },
)
TOKEN = "kube-api-access-"  # noqa: S105 - the beginning of a name


def read(cls, manifest):
    """What the codec makes of it, or what is wrong with it."""
    try:
        return structure_as(cls, manifest)
    except InputError as error:
        return str(error).partition(":")[2].replace("spec.", "")


def spec_of(manifest):
    found = read(Pod, manifest)
    return found.spec if isinstance(found, Pod) else found


def token_spec(suffix, *, node="n1", others=()):
    mounts = [{"name": f"{TOKEN}{suffix}"}, {"name": "data"}]
    return {
        "nodeName": node,
        "volumes": [{"name": f"{TOKEN}{suffix}", "configMap": {"name": "root"}}, {"name": "data"}, *others],
        "containers": [{"name": "c", "volumeMounts": mounts}],
        "initContainers": [{"name": "i", "volumeMounts": mounts}, {"name": "j"}],
    }


@given(st.lists(SPECS, min_size=1, max_size=5), st.booleans())
def test_specs_read_alike_whatever_was_read_before(specs, spaced):
    for spec in specs:
        text = json.dumps({"spec": spec}, indent=1 if spaced else None).encode()
        assert spec_of({"spec": spec}) == spec_of(decode_as(Pod, text)) == read(PodSpec, spec)


def test_a_manifest_is_left_as_it_is():
    spec = token_spec("bcdfg")
    before = json.dumps(spec)
    structure_as(Pod, {"spec": spec})
    assert json.dumps(spec) == before


def test_the_last_node_name_counts_and_escaped_keys_match():
    text = b'{"spec":{"nodeName":"a","hostNetwork":true,"node\\u004eame":"b"}}'
    assert structure_as(Pod, decode_as(Pod, text)).spec == PodSpec(node_name="b", host_network=True)


def test_pods_of_a_template_share_all_but_node_names():
    first, second, waiting, again = (
        structure_as(Pod, {"spec": token_spec(suffix, node=node)}).spec
        for suffix, node in (("bcdfg", "n1"), ("hjklm", "n2"), ("npqrs", None), ("vwxz2", ""))
    )
    assert (first.node_name, second.node_name, waiting.node_name) == ("n1", "n2", "")
    assert waiting is again
    for field in attrs.fields(PodSpec):
        assert field.name == "node_name" or getattr(first, field.name) is getattr(second, field.name)


def test_token_volumes_get_one_name_and_keep_their_mounts():
    spec = structure_as(Pod, {"spec": token_spec("bcdfg")}).spec
    assert spec == read(PodSpec, token_spec("00000"))


@pytest.mark.parametrize("suffix", ["bcdfa", "bcdf", "bcdfgh", "00000", "BCDFG"])
def test_a_suffix_unlike_the_api_servers_is_kept(suffix):
    assert structure_as(Pod, {"spec": token_spec(suffix)}).spec.volumes[0].name == TOKEN + suffix


@pytest.mark.parametrize("other", ["kube-api-access-00000", "kube-api-access-hjklm", "kube-api-access-bcdfg"])
def test_names_with_a_lookalike_are_kept(other):
    spec = token_spec("bcdfg", others=[{"name": other}])
    assert structure_as(Pod, {"spec": spec}).spec == read(PodSpec, spec)


def test_pods_of_one_template_and_node_share_a_spec():
    specs = [structure_as(Pod, {"spec": {"hostNetwork": True, "nodeName": node}}).spec for node in ("n1", "n2", "n1")]
    assert specs[0] is specs[2]
    assert specs[0] is not specs[1]
    other = structure_as(Pod, {"spec": {"hostNetwork": False, "nodeName": "n1"}}).spec
    assert (other.host_network, other.node_name) == (False, "n1")


def test_specs_of_many_nodes_are_not_all_remembered(monkeypatch):
    monkeypatch.setattr(pod_templates, "_MOST_PLACED", 2)
    specs = [structure_as(Pod, {"spec": {"hostNetwork": True, "nodeName": node}}).spec for node in "abcdabcd"]
    assert all(spec.node_name == node for spec, node in zip(specs, "abcdabcd", strict=True))
    assert specs[0] is not specs[4]
