"""What a reader may not see changes no byte of what the reader is sent.

Two clusters are drawn that are alike in all that a reader may see, and differ in the rest: in queues, quotas, names,
jobs and pods of others. Every page and every document must be the same. What a reader may see is said here once more
(`facts`), without the code that makes pages.
"""

import re
from unittest import mock

import attrs
import hypothesis.strategies as st
from hypothesis import event, given, settings

from kai.answers.outcomes.gpu_slots import node_slots
from kai.answers.outcomes.job_lines import job_lines
from kai.answers.outcomes.overview import overview
from kai.cluster.process.connections import Request
from kai.dashboard import answer_cache
from kai.dashboard.access import TokenAccess
from kai.dashboard.answer_cache import AnswerCache
from kai.dashboard.feed import Feed, _summed_up
from kai.dashboard.pages import make_pages
from kai.dashboard.server import Dashboard
from tests.doubles.two_tenants import _job, _node, _queue, decided
from tests.doubles.virtual_time import VirtualClock, run
from tests.unit.dashboard.test_server import Rights

OURS, THEIRS = "ours", ("alpha", "theirs", "zulu")
OWN_QUEUES = ("green", "green-team")
NODES = ("own-1", "far-1", "far-2", "far-3")
SLICE = "nvidia.com/mig-1g.10gb"
PAGES = ("", "queues", "jobs", "nodes", "waiting", "finished", "cycles")
LISTS = ("jobs", "jobs?pods=true", f"jobs?namespace={OURS}", "queues", "nodes", "waiting", "evictions", "cycles")
ASKED = (
    *(f"/{name}" for name in PAGES),
    *(f"/queues/{name}" for name in (*OWN_QUEUES, "alpha-0", "zulu-0")),
    *(f"/jobs/{OURS}/{name}" for name in ("own-runs", "own-waits", "own-large")),
    "/jobs/theirs/job-0",
    "/jobs?queue=zulu-0",
    "/jobs?queue=green&sort=gpus",
    *(f"/nodes/{name}" for name in NODES[:3]),
    *(f"/api/v1/{name}" for name in LISTS),
    *(f"/api/v1/queues/{name}" for name in (*OWN_QUEUES, "alpha-0", "zulu-0")),
    *(f"/api/v1/jobs/{OURS}/{name}" for name in ("own-runs", "own-waits", "own-large", "own-swapped")),
    "/api/v1/jobs?queue=zulu-0",
    "/api/v1/jobs?queue=green",
    "/api/v1/queues?queue=green",
    "/api/v1/jobs/theirs/job-0",
    *(f"/api/v1/nodes/{name}" for name in NODES[:3]),
    "/api/v1/why?name=own-waits",
)


@attrs.frozen
class Block:
    """A pod of others that runs: where, and with how many GPUs or slices."""

    node: str
    amount: int
    resource: str = "nvidia.com/gpu"


@attrs.frozen
class Others:
    """What a reader does not see."""

    tops: tuple[str, ...]
    """Departments, each with a team."""
    quotas: tuple[int, ...]
    homes: tuple[tuple[str, int], ...]
    """For each block in which namespace its job is, and in which team."""
    waiting: tuple[tuple[str, int, int, int], ...]
    """Jobs that wait: namespace, team, pods, GPUs of each."""
    guests: int
    """Jobs of others that wait in a queue in which the reader has jobs."""


blocks = st.lists(
    st.builds(Block, st.sampled_from(NODES[1:]), st.integers(1, 3))
    | st.builds(Block, st.just("far-3"), st.integers(1, 2), st.just(SLICE)),
    max_size=5,
    unique_by=lambda block: (block.node, block.resource),
)
namespaces, teams = st.sampled_from(THEIRS), st.integers(0, 2)
others = st.builds(
    Others,
    tops=st.lists(st.sampled_from(["alpha", "hotel", "zulu"]), min_size=1, max_size=3, unique=True).map(tuple),
    quotas=st.tuples(*[st.integers(0, 9)] * 3),
    homes=st.tuples(*[st.tuples(namespaces, teams)] * 5),
    waiting=st.lists(st.tuples(namespaces, teams, st.integers(1, 3), st.integers(9, 12)), max_size=3).map(tuple),
    guests=st.integers(0, 2),
)
rights = st.builds(
    lambda jobs, queues, nodes: frozenset({*jobs, *queues, *nodes}),
    st.sampled_from([(), (f"podgroups/{OURS}",), (f"podgroups/{OURS}",)]),
    st.sampled_from([(), ("queues/green-team",), ("queues/green", "queues/green-team"), ("queues/zulu-0",)]),
    st.sampled_from([(), ("nodes",)]),
)


def confined(manifests, pool):
    """Return a job whose pods may be in one pool of nodes only."""
    group, *pods = manifests
    return [group, *({**pod, "spec": {**pod["spec"], "nodeSelector": {"pool": pool}}} for pod in pods)]


def own_manifests():
    yield {**_node("own-1", 4), "metadata": {"name": "own-1", "labels": {"pool": "own"}}}
    yield {**_node("far-1", 8), "metadata": {"name": "far-1", "labels": {"pool": "far"}}}
    yield {**_node("far-2", 8), "metadata": {"name": "far-2", "labels": {"pool": "far"}}}
    yield {**_node("far-3", 4, slices={SLICE: "7"}), "metadata": {"name": "far-3", "labels": {"pool": "far"}}}
    # What a queue may use at most is its fair share, too, whatever others ask for.
    yield _queue("green", quota=4, limit=4)
    yield _queue("green-team", "green", quota=4)
    yield _queue("lime", quota=4)
    yield from confined(_job(OURS, "own-runs", "green-team", 2, "own-1"), "own")
    yield from confined(_job(OURS, "own-waits", "green-team", 4, pods=2), "own")
    yield from confined(_job(OURS, "own-large", "lime", 64), "own")
    yield from confined(_job(OURS, "own-swapped", "lime", 3), "own")


def manifests(running, hidden):
    """Return a cluster in which others have what runs of theirs, and more that is ``hidden``."""
    yield from own_manifests()
    names = []
    for top, quota in zip(hidden.tops, hidden.quotas, strict=False):
        yield _queue(top, quota=quota)
        yield _queue(f"{top}-0", top, quota=quota)
        names.append(f"{top}-0")
    for at, (block, (namespace, team)) in enumerate(zip(running, hidden.homes, strict=False)):
        queue = names[team % len(names)]
        yield from _job(namespace, f"job-{at}", queue, block.amount, block.node, resource=block.resource)
    for at, (namespace, team, pods, gpus) in enumerate(hidden.waiting):
        yield from confined(_job(namespace, f"later-{at}", names[team % len(names)], gpus, pods=pods), "far")
    for at in range(hidden.guests):
        yield from confined(_job("theirs", f"guest-{at}", "lime", 9), "far")


def ended(running, hidden):
    # So long a cycle leaves time for no trial: what they lead to is for a test of its own.
    return decided(manifests(running, hidden), took=1.0, phases={"allocate": 0.5})


def facts(cycle, may):
    """Return what the rights show: own jobs, queues by name, nodes as far as they are taken, and the capacity."""
    seen = overview(cycle.outcome)
    own = []
    for line in job_lines(cycle.outcome, seen) if f"podgroups/{OURS}" in may else ():
        if line.job.namespace == OURS:
            job = line.job
            code = job.waiting_reason.code if job.waiting_reason else ""
            position = line.position if f"queues/{job.queue}" in may else None
            told = (job.explanations, job.message, job.pod_messages)
            own.append((job.name, job.state, code, told, job.placed, job.held, job.evicted, line.pods, position))
    queues = [line for line in seen.queues if f"queues/{line.name}" in may]
    taken = ()
    if "nodes" in may:
        nodes = node_slots(cycle.outcome)
        taken = (
            cycle.outcome.last.report.idle.tolist(),
            [(node.name, sorted((s.state, s.granted, s.left) for s in node.slots)) for node in nodes],
            [[(s.resource, s.total, s.in_use, s.free) for s in node.slices] for node in nodes],
        )
    return (
        seen.nodes,
        seen.totals,
        own,
        [(line.name, line.shares, line.running, line.waiting) for line in queues],
        taken,
    )


def sent(cycle, may):
    """Return all that a reader with these rights is sent."""
    feed = Feed()
    feed.show(cycle)
    feed.remember(*_summed_up(cycle))
    clock, answers = VirtualClock(), None
    answers, access = AnswerCache(feed, clock), TokenAccess(Rights(reader=may))
    board = Dashboard(answers=answers, access=access, pages=make_pages(answers, access, clock, list))

    async def at_once(function, *arguments, **_):
        return function(*arguments)

    async def ask_all():
        found = {}
        for path in ASKED:
            path_alone, _, query = path.partition("?")
            parameters = dict(part.split("=") for part in query.split("&") if part)
            headers = {"Authorization": "Bearer reader"}
            request = Request(method="GET", path=path_alone, peer="10.0.0.1", query=parameters, headers=headers)
            response = await board.respond(request)
            text = re.sub(r'"generatedAt":"[^"]*"', "", response.body.decode())  # by the clock of this machine
            found[path] = (response.status, dict(response.headers), text)
        return found

    with mock.patch.object(answer_cache.to_thread, "run_sync", at_once):
        return run(ask_all)


def assert_nothing_shows(running, one, other, may):
    cycles = [ended(running, each) for each in (one, other)]
    if facts(cycles[0], may) != facts(cycles[1], may):
        event("what the reader may see differs")
        return
    event("alike")
    first, second = (sent(cycle, may) for cycle in cycles)
    different = {path: (first[path], second[path]) for path in ASKED if first[path] != second[path]}
    assert not different, next(iter(different.items()))


@settings(max_examples=30)
@given(blocks, others, others, rights)
def test_a_reader_sees_no_change_of_what_is_hidden(running, one, other, may):
    assert_nothing_shows(running, one, other, may)


@settings(max_examples=12)
@given(blocks, blocks, others, others, rights.map(lambda may: may - {"nodes"}))
def test_without_node_rights_others_amounts_stay_hidden(running, more, one, other, may):
    cycles = [ended(running, one), ended(more, other)]
    if facts(cycles[0], may) == facts(cycles[1], may):
        first, second = (sent(cycle, may) for cycle in cycles)
        assert first == second
