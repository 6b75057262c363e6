"""What pods of one template ask for is computed once, and is the same as computed for each pod."""

from unittest import mock

import attrs
from hypothesis import given
from hypothesis import strategies as st

from kai.api.codec.structuring import structure
from kai.intake import requests
from kai.intake.requests import KnownRequests, asked_by, resource_key
from tests.unit.intake.making import pod

AMOUNTS = st.dictionaries(st.sampled_from(("cpu", "memory", "nvidia.com/gpu")), st.sampled_from(("1", "2")))
STATUSES = st.fixed_dictionaries(
    {},
    optional={
        "qosClass": st.sampled_from(("Guaranteed", "Burstable")),
        "allocatedResources": AMOUNTS,
        "resources": st.fixed_dictionaries({"requests": AMOUNTS}),
        "containerStatuses": st.lists(
            st.fixed_dictionaries(
                {"name": st.just("main"), "allocatedResources": AMOUNTS},
                optional={"resources": st.fixed_dictionaries({"requests": AMOUNTS})},
            ),
            max_size=1,
        ),
        "conditions": st.lists(
            st.fixed_dictionaries(
                {"type": st.just("PodResizePending"), "reason": st.sampled_from(("Infeasible", "Deferred"))}
            ),
            max_size=1,
        ),
    },
)
SPECS = st.fixed_dictionaries(
    {
        "containers": st.lists(
            st.fixed_dictionaries(
                {"name": st.just("main"), "resources": st.fixed_dictionaries({"requests": AMOUNTS, "limits": AMOUNTS})}
            ),
            min_size=1,
            max_size=2,
        )
    },
    optional={
        "initContainers": st.lists(
            st.fixed_dictionaries(
                {"resources": st.fixed_dictionaries({"requests": AMOUNTS})},
                optional={"restartPolicy": st.just("Always")},
            ),
            max_size=2,
        ),
        "overhead": AMOUNTS,
        "resources": st.fixed_dictionaries({"requests": AMOUNTS}),
        "nodeName": st.sampled_from(("m", "n")),
    },
)


def read(spec, status):
    manifest = pod("a")
    return structure({**manifest, "spec": {**manifest["spec"], **spec}, "status": {**manifest["status"], **status}})


@given(st.lists(st.tuples(SPECS, STATUSES), min_size=1, max_size=4))
def test_known_requests_equal_those_computed_anew(drawn):
    known = KnownRequests()
    for each in [read(spec, status) for spec, status in drawn * 2]:
        fresh, found = asked_by(each), known.of(each)
        assert (found.amounts, found.has_whole, found.guaranteed) == (fresh.amounts, fresh.has_whole, fresh.guaranteed)
        assert resource_key(each, asked=found) == resource_key(each)


def test_pods_of_one_template_are_computed_once():
    known = KnownRequests()
    spec = {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}
    first = read(spec, {})
    second = attrs.evolve(first, spec=attrs.evolve(first.spec, node_name="n"))
    with mock.patch.object(requests, "asked_by", wraps=asked_by) as asked:
        assert known.of(first) is known.of(second)
    assert asked.call_count == 1


def test_another_report_of_the_kubelet_is_computed_anew():
    known, spec = KnownRequests(), {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}
    resized = [{"name": "main", "allocatedResources": {"cpu": "2"}, "resources": {"requests": {"cpu": "2"}}}]
    before, after = read(spec, {}), read(spec, {"containerStatuses": resized})
    assert known.of(before).amounts != known.of(after).amounts
