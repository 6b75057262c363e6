"""Whatever is wrong with a manifest, a scenario or a configuration ends in a clear error or in an answer."""

import copy
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.answers.offline.run import simulate
from kai.answers.outcomes.overview import overview
from kai.answers.outcomes.plan import answer
from kai.api.codec.manifest_text import load_values
from kai.basics.errors import KaiError
from kai.deciding.configuration.profile_reading import read_configuration
from kai.deciding.configuration.profiles import make_profile
from kai.deciding.configuration.registry import Registry
from kai.lab.scenarios.scenario import read_scenario

ROOT = Path(__file__).parents[1]
INSTALLED = Registry.installed()
# Clusters with something of everything: topology, sub-groups, shared devices, MIG, claims, NUMA, several cycles.
FAMILIES = (
    "allocate-topology",
    "dra",
    "elastic",
    "gpu-memory",
    "integration-reclaim",
    "mig",
    "numa",
    "pod-affinity",
    "stalegang",
    "subgroups",
)
WRONG = (
    *(None, True, -1, 0, 1, 0.1, 2**63, -(2**63), 10**30, 1e308, float("nan"), float("inf")),
    *("", "x", "NaN", "1e400", "-5", "9" * 400, "1.5", "-1n", "a/b/c", "node0", "default", "\u00ff", "\x00"),
    *("2026-99-99T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"),
    *([], {}, [None], {"": None}, [[]], {"a": {"b": [1]}}),
)


def first_case(family):
    path = min((ROOT / "conformance" / "cases" / family).glob("*.yaml"))
    (case,) = load_values(path.read_bytes(), str(path))
    return {**{key: value for key, value in case.items() if key != "expected"}, "cycles": 2, "stableCycles": 0}


CASES = {family: first_case(family) for family in FAMILIES}
SHORT = [load_values(path.read_bytes(), path.name)[0] for path in sorted((ROOT / "scenarios").glob("*/*.yaml"))]
POLICIES = [
    {
        "actions": ["allocate"],
        "plugins": {"binpack": {"cpu": True}, "min_runtime": {"preempt_seconds": 1.0}},
        "parameters": {"queue_depth": {"allocate": 1}, "budgets": {"action": {"default": 1.0}}},
    },
    {
        "actions": "allocate, reclaim",
        "tiers": [
            {"plugins": [{"name": "proportion", "arguments": {"kValue": "1"}}, {"name": "numa", "arguments": {}}]}
        ],
        "queueDepthPerAction": {"allocate": 1},
        "scenarioSearchBudgets": {"maxJobSearchDuration": "1s", "maxActionSearchDuration": {"default": "1s"}},
    },
]


def places(value, path=()):
    """Yield the path of everything inside ``value``."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def spoil(data, document):
    """Put a wrong value somewhere into ``document``; return where."""
    path = data.draw(st.sampled_from(list(places(document))), label="where")
    inner = document
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = copy.deepcopy(data.draw(st.sampled_from(WRONG), label="what"))


def ends_well(document):
    """Run everything that the command runs; say whether there was an answer rather than an error."""
    refused = None
    try:
        outcome = simulate(read_scenario(document, "case.yaml"), INSTALLED)
        json.dumps([answer(outcome), str(overview(outcome))])
    except KaiError as error:
        refused = error
    if refused is None:
        return True
    messages = getattr(refused, "messages", (str(refused),))
    assert all(message and "\n" not in message for message in messages)
    return False


@given(st.data())
def test_a_bad_manifest_value_ends_in_error_or_answer(data):
    document = copy.deepcopy(CASES[data.draw(st.sampled_from(FAMILIES))])
    for _ in range(data.draw(st.integers(1, 3))):
        spoil(data, document["objects"])
    ends_well(document)


@given(st.data())
def test_missing_or_duplicate_objects_end_in_error_or_answer(data):
    document = copy.deepcopy(CASES[data.draw(st.sampled_from(FAMILIES))])
    objects = document["objects"]
    at = data.draw(st.integers(0, len(objects) - 1))
    twice = data.draw(st.booleans())
    objects[at : at + 1] = [objects[at], copy.deepcopy(objects[at])] if twice else []
    assert ends_well(document) is not twice


@given(st.data())
def test_any_tree_of_queues_ends_in_an_answer(data):
    document = copy.deepcopy(CASES[data.draw(st.sampled_from(FAMILIES))])
    queues = [each for each in document["objects"] if each["kind"] == "Queue"]
    names = [queue["metadata"]["name"] for queue in queues]
    for queue in queues:
        queue["spec"]["parentQueue"] = data.draw(st.sampled_from([*names, "", "nowhere"]))
    assert ends_well(document)


@given(st.data())
def test_a_bad_scenario_value_ends_in_error_or_answer(data):
    document = copy.deepcopy(data.draw(st.sampled_from(SHORT)))
    for _ in range(data.draw(st.integers(1, 2))):
        spoil(data, document)
    ends_well(document)


@given(st.data())
def test_a_bad_configuration_value_ends_in_error_or_profile(data):
    document = copy.deepcopy(data.draw(st.sampled_from(POLICIES)))
    spoil(data, document)
    told = "policy.yaml"
    try:
        make_profile(read_configuration(document, "policy.yaml", INSTALLED), INSTALLED)
    except KaiError as error:
        told = str(error)
    assert told.startswith("policy.yaml")


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_spoiled_was_sound(family):
    assert ends_well(copy.deepcopy(CASES[family]))
