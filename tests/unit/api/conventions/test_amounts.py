import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.api.codec.structuring import structure_as
from kai.api.conventions.amounts import Amount, add_up, effective_requests, exact, plus, same, texts
from kai.api.kubernetes.pod import Pod
from kai.api.values import BadValue


def pod(containers=(), init=(), overhead=None):
    def made(requests, **fields):
        return {"resources": {"requests": requests}, **fields}

    spec = {
        "containers": [made(requests) for requests in containers],
        "initContainers": [made(dict(requests), **fields) for requests, fields in init],
        "overhead": overhead or {},
    }
    return structure_as(Pod, {"spec": spec})


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0.5", "500m"),
        ("1000m", "1"),
        ("2Gi", "2Gi"),
        ("2048Mi", "2Gi"),
        ("1e3", "1k"),
        ("0", "0"),
        ("333333334n", "333333334n"),
    ],
)
def test_an_amount_is_written_in_its_canonical_form(text, canonical):
    assert exact(text).text == canonical


def test_memory_far_beyond_64_bits_of_billionths_is_exact():
    assert (exact("4000Ti") + exact("1")).billionths == (4000 * 2**40 + 1) * 10**9


def test_a_sum_keeps_the_notation_of_its_nonzero_part():
    assert (exact("0") + exact("1Gi") + exact("1073741824")).text == "2Gi"


def test_a_text_that_is_no_quantity_is_refused():
    with pytest.raises(BadValue, match="expected a quantity"):
        exact("much")


@given(st.lists(st.integers(0, 10**12)))
def test_adding_up_texts_adds_up_numbers(numbers):
    total = add_up({"x": f"{number}m"} for number in numbers)
    assert total.get("x", Amount()).billionths == sum(numbers) * 10**6


def test_lists_are_added_by_resource_and_written_by_name():
    total = plus(add_up([{"b": "1"}]), add_up([{"a": "2", "b": "500m"}]))
    assert list(texts(total).items()) == [("a", "2"), ("b", "1500m")]


def test_the_same_amount_may_be_written_in_two_ways():
    assert same({"cpu": "1"}, {"cpu": "1000m"})
    assert not same({"cpu": "1"}, {"cpu": "1001m"})
    assert not same({"cpu": "0"}, {})


def test_containers_add_up_and_overhead_comes_on_top():
    assert texts(effective_requests(pod([{"cpu": "1"}, {"cpu": "2"}], overhead={"cpu": "100m"}))) == {"cpu": "3100m"}


def test_the_largest_init_container_raises_the_requests():
    requests = effective_requests(pod([{"cpu": "1"}], init=[({"cpu": "5"}, {}), ({"memory": "1Gi"}, {})]))
    assert texts(requests) == {"cpu": "5", "memory": "1Gi"}


def test_a_sidecar_runs_beside_containers_and_later_init_containers():
    sidecar = ({"cpu": "1"}, {"restartPolicy": "Always"})
    assert texts(effective_requests(pod([{"cpu": "1"}], init=[sidecar]))) == {"cpu": "2"}
    assert texts(effective_requests(pod([{"cpu": "1"}], init=[sidecar, ({"cpu": "3"}, {})]))) == {"cpu": "4"}
    assert texts(effective_requests(pod([{"cpu": "1"}], init=[({"cpu": "3"}, {}), sidecar]))) == {"cpu": "3"}
