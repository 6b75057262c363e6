"""The sums of queues, kept up change by change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.api.conventions.amounts import texts
from kai.api.scheduling.pod_group import PodGroupResources
from kai.api.values import BadValue
from kai.roles.controllers.sums import Sum, Sums

amounts = st.dictionaries(st.sampled_from(["cpu", "memory", "gpu"]), st.sampled_from(["0", "1", "500m", "2Gi"]))
resources = st.builds(PodGroupResources, allocated=amounts, allocated_non_preemptible=amounts, requested=amounts)
keys = st.tuples(st.just("ns"), st.sampled_from("abcd"))
changes = st.lists(st.tuples(keys, st.sampled_from(["", "p", "q"]), resources), max_size=20)


def billionths(found: Sum):
    lists = (found.allocated, found.allocated_non_preemptible, found.requested)
    return [{name: amount.billionths for name, amount in each.items()} for each in lists]


@given(changes)
def test_a_sum_equals_the_last_amounts_after_any_changes(made):
    sums, last = Sums(), {}
    for key, queue, said in made:
        sums.put(key, queue, said)
        last[key] = (queue, said)
    for queue in ("p", "q", "r"):
        expected = Sum.of(*(said for on, said in last.values() if on == queue))
        assert billionths(sums.of(queue)) == billionths(expected)


def test_amounts_are_written_as_groups_write_them():
    sums = Sums()
    sums.put(("ns", "a"), "q", PodGroupResources(allocated={"memory": "1Gi", "cpu": "1500m"}))
    sums.put(("ns", "b"), "q", PodGroupResources(allocated={"memory": "1Gi", "cpu": "500m"}))
    assert texts(sums.of("q").allocated) == {"cpu": "2", "memory": "2Gi"}
    sums.put(("ns", "a"), "", PodGroupResources())
    assert texts(sums.of("q").allocated) == {"cpu": "500m", "memory": "1Gi"}


def test_an_invalid_amount_spoils_the_sum_until_corrected():
    sums = Sums()
    sums.put(("ns", "a"), "q", PodGroupResources(allocated={"cpu": "1"}))
    sums.put(("ns", "b"), "q", PodGroupResources(allocated={"cpu": "1", "memory": "much"}))
    with pytest.raises(BadValue):
        sums.of("q")
    sums.put(("ns", "b"), "q", PodGroupResources(allocated={"cpu": "2"}))
    assert texts(sums.of("q").allocated) == {"cpu": "3"}


def test_a_queue_without_groups_is_forgotten():
    sums = Sums()
    sums.put(("ns", "a"), "q", PodGroupResources(allocated={"cpu": "1"}))
    sums.put(("ns", "a"), "", PodGroupResources(allocated={"cpu": "1"}))
    assert sums == Sums()
