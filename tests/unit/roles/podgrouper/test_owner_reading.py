"""Grouping asks for what it needs, and nothing hangs on how the answers come."""

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.cluster.requests import Forbidden, NoSuchKind
from kai.roles.podgrouper import Absent, Answers, Get, Needs, Settings, group_pod, load_groupers
from kai.roles.podgrouper.grouper import KARTA
from kai.roles.podgrouper.owner_reading import Fetcher
from kai.roles.podgrouper.resource import Kind
from tests.doubles.cluster import VirtualClock
from tests.doubles.known_objects import KnownObjects
from tests.unit.roles.podgrouper.kartas import FLOW, karta, one_group
from tests.unit.roles.podgrouper.workloads import decide, pod_group, pod_of, priority_class, thing

TOP = thing("run.ai/v1", "TrainingWorkload", "top", labels={"priorityClassName": "high"})
RAY_JOB = thing("ray.io/v1", "RayJob", "job", status={"rayClusterName": "c"}, owners=[TOP])
CLUSTER = thing("ray.io/v1", "RayCluster", "c", owners=[RAY_JOB], spec={"workerGroupSpecs": [{"replicas": 2}]})
JOB_SET = thing("jobset.x-k8s.io/v1alpha2", "JobSet", "js", spec={"replicatedJobs": [{"name": "w"}]})
IN_JOB_SET = {"jobset.sigs.k8s.io/replicatedjob-name": "w", "jobset.sigs.k8s.io/job-index": "0"}

WORLDS = {
    "wrapped ray job": (pod_of(CLUSTER), [TOP, RAY_JOB, CLUSTER, priority_class("high")]),
    "job set": (pod_of(JOB_SET, labels=IN_JOB_SET), [JOB_SET, pod_group("a"), pod_group("b")]),
    "karta": (pod_of(FLOW, labels={"role": "worker"}), [FLOW, karta(one_group("master", "worker"))]),
    "two kartas": (pod_of(FLOW), [FLOW, karta(one_group("worker"), name="a"), karta(one_group("worker"), name="b")]),
}


def asked(pod, objects):
    """Decide by answering one read after the other; return the decision and the reads."""
    settings = Settings()
    groupers = load_groupers()
    known = KnownObjects.of([pod, *objects], optional_kinds=[KARTA])
    answers, reads = Answers(), []
    while isinstance(outcome := group_pod(pod, answers, settings, groupers), Needs):
        read = outcome.read
        reads.append(read)
        answers = (
            answers.with_object(read, known.get(read))
            if isinstance(read, Get)
            else answers.with_list(read, known.many(read))
        )
    return outcome, reads


@pytest.mark.parametrize("world", WORLDS)
def test_known_objects_and_stepwise_reads_give_one_decision(world):
    pod, objects = WORLDS[world]
    outcome, reads = asked(pod, objects)
    assert outcome == decide(pod, *objects)
    assert len(reads) == len(set(reads))


def test_a_plain_workload_takes_two_reads():
    work = thing("apps/v1", "StatefulSet")
    _, reads = asked(pod_of(work), [work])
    assert [str(read) for read in reads] == ['StatefulSet "ns/work"', 'PodGroup "ns/pg-work-work-uid"']


@given(st.sampled_from(sorted(WORLDS)), st.randoms(use_true_random=False))
def test_a_decision_is_independent_of_the_objects_order(world, random):
    pod, objects = WORLDS[world]
    shuffled = random.sample(objects, len(objects))
    assert decide(pod, *shuffled) == decide(pod, *objects)


class Refusing:
    """Refuses each read, and counts them."""

    def __init__(self, refusal):
        self.refusal = refusal
        self.asked = 0

    async def perform(self, request):
        del request
        self.asked += 1
        return self.refusal


@pytest.mark.parametrize("refusal", [NoSuchKind(message="none"), Forbidden(message="no")])
def test_refused_kinds_are_remembered_in_bounded_number_and_time(monkeypatch, refusal):
    monkeypatch.setattr("kai.cluster.requesting.foreign.MOST", 3)
    api, clock = Refusing(refusal), VirtualClock()
    fetcher = Fetcher(api, clock, lambda _: True)

    async def scenario():
        async def ask(number):
            read = Get(Kind(f"g{number}.example", "v1", "K"), "team", "x")
            await fetcher.add(Answers(), read, fetcher.moment())

        for number in range(10):
            await ask(number)
        assert len(fetcher._missing) + len(fetcher._forbidden) == 3
        await ask(0)
        assert api.asked == 10, "it is remembered for a minute"
        await clock.pass_time(61.0)
        await ask(10)
        await ask(10)
        assert api.asked == 11
        assert len(fetcher._missing) + len(fetcher._forbidden) == 1

    anyio.run(scenario)


class Owners:
    """Answers each read with an owner of so many bytes, and counts them."""

    def __init__(self, size):
        self.size = size
        self.asked = 0

    async def perform(self, request):
        self.asked += 1
        return {"kind": request.kind, "metadata": {"name": request.name}, "spec": {"text": "x" * self.size}}


def owner(number):
    return Get(Kind("batch", "v1", "Job"), "team", f"j{number}")


def test_large_owners_are_not_remembered_for_long():
    clock = VirtualClock()

    async def scenario(size):
        fetcher = Fetcher(Owners(size), clock)
        for number in range(300):
            await fetcher.add(Answers(), owner(number), fetcher.moment())
        return sum(each.size for each in fetcher._reads.values())

    assert anyio.run(scenario, 100_000) <= 5 << 20
    assert anyio.run(scenario, 100) > 30_000, "what is small is remembered: the pods of a workload share a read"


def test_all_that_one_decision_reads_is_bounded():
    async def scenario():
        fetcher, answers = Fetcher(Owners(200_000), VirtualClock()), Answers()
        for number in range(32):
            answers = await fetcher.add(answers, owner(number), fetcher.moment())
        return answers

    answers = anyio.run(scenario)
    assert answers.size < 512 << 10
    found = [answers.get(owner(number)) for number in range(32)]
    assert [isinstance(each, Absent) for each in found] == [False] * 2 + [True] * 30
    assert str(found[2]) == "the read failed: the owners of one pod hold more than 512 KiB"
