from hypothesis import given
from hypothesis import strategies as st

from kai.api.kubernetes.meta import ConfigMap, ObjectMeta
from kai.cluster.caching.shown import Lookup
from kai.cluster.port import Index


def by_data(obj):
    return tuple(sorted(obj.data))


def config_map(name, keys, namespace="x"):
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace), data=dict.fromkeys(keys, "1"))


NAMES = st.sampled_from("abcd")
CHANGES = st.lists(st.tuples(NAMES, st.none() | st.frozensets(st.sampled_from("uvw"))), max_size=30)


@given(CHANGES)
def test_an_index_finds_the_same_as_a_full_scan(changes):
    lookup, shown = Lookup(Index(ConfigMap, "data", by_data)), {}
    for name, keys in changes:
        place = ("x", name)
        before, after = shown.get(place), None if keys is None else config_map(name, keys)
        lookup.put(place, before, after)
        shown.pop(place, None)
        if after is not None:
            shown[place] = after
        for key in "uvw":
            wanted = tuple(obj for _, obj in sorted(shown.items()) if key in obj.data)
            assert lookup.find(key) == wanted


def test_a_single_object_at_a_key_needs_no_dictionary():
    lookup = Lookup(Index(ConfigMap, "data", by_data))
    alone, other = config_map("a", "u"), config_map("b", "u")
    lookup.put(("x", "a"), None, alone)
    assert lookup._found == {"u": alone}
    lookup.put(("x", "b"), None, other)
    lookup.put(("x", "a"), alone, None)
    assert lookup._found == {"u": other}
    lookup.put(("x", "b"), other, None)
    assert lookup._found == {}
