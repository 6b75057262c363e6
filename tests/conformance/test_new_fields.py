"""The drop-in law: a cluster that sets none of kai's own fields is decided on as if these did not exist.

`FIELDS` has each field of a queue and of a pod group that KAI-Scheduler does not have, once with its default written
out and once with a value that cannot matter: a window that is always open and has the amounts of outside, a limit of
ten years. Every recorded case gets both. The decisions, and every byte of the JSON outputs, stay the same.
"""

import copy
import json
import tarfile
from functools import cache
from pathlib import Path

import attrs
import pytest

from kai.answers.documents.document import as_json
from kai.answers.documents.jobs import JobItem
from kai.answers.documents.nodes import NodeItem
from kai.answers.documents.queues import queue_items
from kai.answers.offline.run import simulate
from kai.answers.outcomes.gpu_slots import node_slots
from kai.answers.outcomes.job_lines import job_lines
from kai.answers.outcomes.overview import overview
from kai.answers.outcomes.plan import answer as answer_of
from kai.answers.outcomes.plan import plan_of
from kai.api import names
from kai.api.codec.structuring import structure
from kai.api.scheduling.pod_group import PodGroupSpec, PodGroupStatus
from kai.api.scheduling.queue import QueueResource, QueueResources, QueueSpec, QueueStatus
from kai.lab.scenarios.scenario import read_scenario
from tests.conformance.answer import answerer, read_case
from tests.conformance.test_random_clusters import ARCHIVES, PARTS

FILES = sorted((Path(__file__).parent / "cases").glob("*/*.yaml"))
FAMILIES = sorted({path.parent.name for path in FILES})

NEVER = {
    "name": "never",
    "start": "0 0 31 2 *",
    "duration": "1h",
    "onClose": "evict",
    "resources": {"gpu": {"quota": 0}, "perUser": {"gpu": {"limit": 0}}},
}
ALWAYS = {"name": "always", "start": "*/5 * * * *", "timeZone": "Europe/Berlin", "duration": "1h", "onClose": "drain"}
TEN_YEARS = "87600h"

FIELDS = {
    "Queue": {
        "schedules": ([], [ALWAYS, NEVER]),
        "maxRuntime": (None, TEN_YEARS),
        "defaultRuntime": (None, TEN_YEARS),
        "budgets": ([], [{"name": "month", "amount": 1_000_000, "enforce": "warn"}]),
        "resources.models": (
            {},
            {"h100": {"limit": 100_000}, "a100": {"limit": -1, "quota": 0}, "no-node-has-it": {"quota": 1}},
        ),
        "resources.perUser": (None, {"gpu": {"limit": 100_000}, "cpu": {"limit": -1}, "memory": {}}),
    },
    "PodGroup": {},
}
"""By kind and by the place in ``spec``: the default, and a value that cannot matter. A new field gets a row."""
ANNOTATIONS = {
    names.MAX_RUNTIME: TEN_YEARS,
    names.EXPECTED_RUNTIME: TEN_YEARS,
    names.RUNTIME_POLICY: "yield",
    names.REQUEUE_DELAY: "0s",
    names.NOTED_USER: "maria",
    names.OWNER_DEADLINE: f"{TEN_YEARS} spec.activeDeadlineSeconds",
}
"""Values of kai's annotations of pod groups that cannot matter."""

PEERS = {
    QueueSpec: {"displayName", "parentQueue", "priority", "resources", "preemptMinRuntime", "reclaimMinRuntime"},
    QueueResources: {"gpu", "cpu", "memory"},
    QueueResource: {"quota", "overQuotaWeight", "limit"},
    QueueStatus: {
        *("childQueues", "allocated", "allocatedNonPreemptible", "requested", "conditions"),
        "fairShare",  # written from the start, and read by nothing that decides
    },
    PodGroupSpec: {
        *(
            "queue",
            "minMember",
            "minSubGroup",
            "priorityClassName",
            "preemptibility",
            "topologyConstraint",
            "subGroups",
        ),
        *("markUnschedulable", "schedulingBackoff", "preemptionDelay", "stalenessGracePeriod"),
    },
    PodGroupStatus: {
        *("conditions", "schedulingConditions", "resourcesStatus"),
        *("runningSince", "consumedRuntime"),  # left out of groups without a limit
    },
}
"""The fields that recorded cases have."""


def camel(name):
    first, *rest = name.split("_")
    return first + "".join(each.capitalize() for each in rest)


@pytest.mark.parametrize("of", PEERS, ids=lambda of: of.__name__)
def test_each_field_is_the_peers_or_in_the_table(of):
    own = {place.rpartition(".")[2] for rows in FIELDS.values() for place in rows}
    missing = {camel(each.name) for each in attrs.fields(of)} - PEERS[of] - own
    assert missing == set(), (
        f"give these a row in FIELDS, so that recorded cases are decided with and without: {missing}"
    )


def with_defaults(manifest):
    """Return the manifest with each default of a new field written out."""
    return _changed(manifest, 0)


def with_harmless_values(manifest):
    """Return the manifest with values of new fields that cannot matter."""
    found = _changed(manifest, 1)
    if found.get("kind") == "PodGroup":
        metadata = found["metadata"]
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **ANNOTATIONS}
    return found


def _changed(manifest, place):
    rows = FIELDS.get(manifest.get("kind"))
    if rows is None:
        return manifest
    found = copy.deepcopy(manifest)
    for where, values in rows.items():
        *above, field = ("spec", *where.split("."))
        if set_or_empty(found, above[:-1]).get(above[-1]) or (place and above == ["spec"]):  # not into what is absent
            held = found
            for key in above:
                held[key] = held = dict(held.get(key) or {})
            held[field] = values[place]
    return found


def set_or_empty(manifest, keys):
    for key in keys:
        manifest = manifest.get(key) or {}
    return manifest


def changed(case, change):
    found = {**case, "objects": [change(each) for each in case.get("objects") or ()]}
    return found | {key: change(case[key]) for key in ("object", "oldObject") if case.get(key)}


def outputs(case):
    """Return all that commands would print about a cluster, as text."""
    outcome = simulate(read_scenario(case, case["name"]))
    seen = overview(outcome)
    jobs = [as_json(JobItem.of(line, with_pods=True)) for line in job_lines(outcome, seen)]
    for each in jobs:
        ends = each.pop("endsInSeconds")
        assert ends is None or ends > 9 * 365 * 86_400
    queues = [as_json(each) for each in queue_items(seen.queues, outcome.cycles[-1].snapshot.queues)]
    for each in queues:  # a queue lists the models that it bounds
        assert all(model["limit"] in {None, 100_000} for model in each.pop("models"))
        assert all(user["limit"] == 100_000 for user in each.pop("users", ()))
    shown = {
        "plan": plan_of(outcome).document(),
        "answer": answer_of(outcome),
        "jobs": jobs,
        "queues": queues,
        "nodes": [as_json(NodeItem.of(each)) for each in node_slots(outcome)],
    }
    return json.dumps(shown)


def answered(case):
    kind = case.get("kind", "scheduling")
    return outputs(case) if kind == "scheduling" else json.dumps(answerer(kind)(case))


@pytest.mark.parametrize("family", FAMILIES)
def test_recorded_cases_are_answered_alike_with_new_fields(family):
    for path in (each for each in FILES if each.parent.name == family):
        case = read_case(path)
        plain = answered(case)
        assert answered(changed(case, with_defaults)) == plain, path
        dressed = answered(changed(case, with_harmless_values))
        assert dressed == plain or without_new_fields(dressed) == without_new_fields(plain), path


def without_new_fields(text):
    """Return an answer that repeats the objects of its case, without what was added to these."""
    return json.loads(text, object_hook=_bare)


def _bare(found):
    added = {place.rpartition(".")[2] for place in FIELDS["Queue"]} | {*ANNOTATIONS}
    left = {key: value for key, value in found.items() if key not in added}
    return {key: value for key, value in left.items() if key != "annotations" or value}


@cache
def clusters(archive):
    with tarfile.open(Path(__file__).parent / f"{archive}.tar.xz", "r|xz") as found:
        return {Path(each.name).stem: found.extractfile(each).read() for each in found if each.isfile()}


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("archive", ARCHIVES)
def test_random_clusters_are_decided_alike_with_new_fields(archive, part):
    for name in sorted(clusters(archive))[part::PARTS]:
        case = json.loads(clusters(archive)[name])
        assert outputs(changed(case, with_harmless_values)) == outputs(case), name


@pytest.mark.parametrize("archive", ARCHIVES)
def test_a_written_default_equals_an_absent_value(archive):
    seen = 0
    for text in clusters(archive).values():
        for manifest in json.loads(text)["objects"]:
            if manifest["kind"] in FIELDS:
                seen += 1
                assert structure(with_defaults(manifest)) == structure(manifest)
    assert seen > 1_000
