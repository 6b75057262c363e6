import json

from benchmarks import engine
from benchmarks.catalogue import find_workload
from benchmarks.clock import Stopwatch
from benchmarks.events import arriving, leaving, listed, updating
from benchmarks.manifests import NOW, node_name
from benchmarks.measure import measure
from benchmarks.outcome import Decisions, problems
from benchmarks.workload import Expected, Nodes, Pending, QueueShape, Running, Workload

QUEUES = (QueueShape("top"), QueueShape("leaf", "top"))


class FirstFit:
    """The least scheduler that fills a cluster: pods in order onto nodes in order."""

    def __init__(self) -> None:
        self.waiting = dict.fromkeys(())
        self.seen = []

    def take(self, batch) -> None:
        self.seen.append((batch.kind, batch.form))
        for body in map(json.loads, batch.bodies if batch.kind == "Pod" else ()):
            metadata = (body if batch.form == "list" else body["object"])["metadata"]
            if batch.form == "DELETED":
                del self.waiting[metadata["name"]]
            else:
                self.waiting[metadata["name"]] = metadata["uid"]

    def settle(self) -> None:
        self.seen.append("settled")

    def cycle(self, now: float, watch: Stopwatch) -> Decisions:
        with watch.phase("allocate"):
            places = {name: node_name(index // 8) for index, name in enumerate(self.waiting)}
            return Decisions(places, {}, {}, frozenset())

    def read(self, outcome: Decisions) -> Decisions:
        return outcome


def little(**parts) -> Workload:
    return Workload(id="little", title="little", nodes=Nodes(3), queues=QUEUES, **parts)


def test_every_cycle_is_measured_and_checked():
    measured = measure(find_workload("w0"), FirstFit, lambda: None, rounds=2)
    assert measured.problems == ()
    assert measured.placed == 800
    assert len(measured.warm) == 2
    assert {*measured.cold.phases_ms, *measured.warm[0].phases_ms} == {"allocate"}
    assert measured.calibration_ms > 0
    assert measured.peak_rss_mb >= measured.rss_mb > 0
    assert [arrivals.objects for arrivals in measured.arrived] == [1600, 1600]
    assert measured.listed.objects == 2 + 6 + 100 + 1600


def test_waiting_pods_leave_and_return_between_warm_cycles():
    schedulers = []

    def begin():
        schedulers.append(FirstFit())
        return schedulers[-1]

    measure(little(pending=Pending(2, ("leaf",)), expected=Expected(placed=2)), begin, lambda: None, rounds=1)
    story = [step for step in schedulers[-1].seen if step == "settled" or step[0] == "Pod"]
    assert story == [("Pod", "list"), "settled", ("Pod", "DELETED"), ("Pod", "ADDED")]


def test_running_pods_are_updated_where_a_workload_says_so():
    workload = little(running=Running(24, ("leaf",)), updates=10, expected=Expected())
    (batch,) = updating(workload, 3)
    pods = [json.loads(body)["object"] for body in batch.bodies]
    assert batch.form == "MODIFIED"
    assert [pod["metadata"]["name"] for pod in pods] == [f"running-{at:06d}-000" for at in range(10)]
    assert {pod["metadata"]["uid"][-2:] for pod in pods} == {".0"}
    measured = measure(workload, engine.Live, engine.warm, rounds=1)
    assert measured.problems == ()
    assert [arrivals.objects for arrivals in measured.arrived] == [10]


def test_those_who_stay_do_not_come_back():
    workload = little(
        running=Running(24, ("leaf",)), pending=Pending(2, ("leaf",)), updates=1, stays=True, expected=Expected()
    )
    measured = measure(workload, engine.Live, engine.warm, rounds=2)
    assert measured.problems == ()
    assert [arrivals.objects for arrivals in measured.arrived] == [1, 1]


def test_a_wrong_decision_in_any_cycle_is_a_problem():
    measured = measure(
        little(pending=Pending(2, ("leaf",)), expected=Expected(placed=1)), FirstFit, lambda: None, rounds=1
    )
    assert "placed: 2 pods, expected 1" in measured.problems[0]


def test_a_pod_that_comes_back_is_another_object():
    workload = little(pending=Pending(1, ("leaf",)), expected=Expected(placed=1))
    uids = [
        json.loads(batch.bodies[0])["object"]["metadata"]["uid"] for at in (1, 2) for batch in arriving(workload, at)
    ]
    versions = [
        int(json.loads(batch.bodies[0])["object"]["metadata"]["resourceVersion"])
        for batch in (*arriving(workload, 1), *leaving(workload, 1))
    ]
    assert len(set(uids)) == 4
    assert versions == sorted(set(versions))


def test_batches_hold_objects_of_one_kind():
    batches = list(listed(find_workload("w0")))
    assert [batch.kind for batch in batches[:3]] == ["PriorityClass", "Queue", "Node"]
    assert sum(len(batch.bodies) for batch in batches if batch.kind == "Pod") == 800
    assert max(len(batch.bodies) for batch in batches) == 500


def test_kai_places_arrivals_in_a_known_cluster():
    workload = little(
        running=Running(8, ("leaf",)), pending=Pending(2, ("leaf",), pods=8), expected=Expected(placed=16)
    )
    measured = measure(workload, engine.Live, engine.warm, rounds=1)
    assert measured.problems == ()
    assert {"deltas", "snapshot", "open", "allocate", "encode"} <= measured.warm[0].phases_ms.keys()


def test_decisions_are_read_from_the_bodies_to_send():
    workload = little(
        running=Running(24, ("leaf",)),
        pending=Pending(1, ("owner",), pods=1, gpus=8),
        expected=Expected(pipelined=1, evicted=8),
    )
    queues = (QueueShape("top"), QueueShape("leaf", "top", 0, weight=0), QueueShape("owner", "top", 24, weight=0))
    live = engine.Live()
    for batch in listed(Workload(**{**_fields(workload), "queues": queues})):
        live.take(batch)
    outcome = live.cycle(NOW.timestamp(), Stopwatch())
    decisions = live.read(outcome)
    assert len(outcome.bodies) == 8
    assert problems(workload, decisions) == []


def _fields(workload: Workload) -> dict:
    return {each.name: getattr(workload, each.name) for each in workload.__attrs_attrs__}
