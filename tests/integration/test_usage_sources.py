"""The same week asked of a real Prometheus and of kai's own database: past usage differs by samples, and by no more.

The database has begins and ends to the millisecond, Prometheus the same series once a minute, filled in by promtool.
"""

import http.client
import json
import math
import random
import subprocess

import anyio
import attrs
import pytest

from kai.cluster.clock import SystemClock
from kai.deciding.configuration.past_usage import UsageSettings
from kai.facts.model.groups import Shares
from kai.history.database import DAY, Author, Writer
from kai.history.facts import Amounts, Ended, Held, JobFacts, NodeState, QueueFacts
from kai.lab.virtual.running.history import RunHistory
from kai.roles.scheduler.cycle.past_usage import Prometheus, Recorded, UsageError
from tests.integration import programs
from tests.integration.client import until
from tests.integration.conftest import built
from tests.integration.controlplane import Daemon
from tests.integration.ports import HOST, free_ports
from tests.integration.processes import fetch
from tests.unit.lab.virtual.builders import cluster
from tests.unit.lab.virtual.running.test_run_history import queues, shares, work

END = 1_795_910_400_000
BEGAN = END - 8 * DAY
STEP = 60_000
GPUS = 32
CAPACITY = Amounts(GPUS * 1000, GPUS * 8000, GPUS * 64_000)
SETTINGS = UsageSettings(window_text="1w", resolution_seconds=STEP / 1000)


class Frozen(SystemClock):
    """A clock that stands at the end of the week."""

    def now(self) -> float:
        return END / 1000


def drawn():
    """Return jobs as queue, GPUs, begin and end; four queues of unequal demand, on what is free."""
    luck, jobs, ends = random.Random(5), [], {}
    for at in range(BEGAN + 1, END, 1_000_003):
        ends = {job: end for job, end in ends.items() if end > at}
        gpus, queue = luck.choice((1, 1, 2, 4, 8)), luck.choice("aaabbcd")
        if sum(jobs[job][1] for job in ends) + gpus <= GPUS:
            ends[len(jobs)] = end = at + luck.randrange(1000, 8 * 3_600_000)
            jobs.append((queue, gpus, at, end))
    return jobs


def recorded(path, jobs):
    """Write the jobs as the scheduler would."""
    node = {"n": NodeState(model="", capacity=CAPACITY)}
    writer = Writer.begin(str(path), Author(epoch=1, identity="x"), BEGAN, {}, node, retention=90 * DAY)
    changes = []
    for number, (queue, gpus, begin, end) in enumerate(jobs):
        job = JobFacts(uid=f"{number}", namespace="n", name=f"{number}")
        amounts = Amounts(gpus * 1000, gpus * 8000, gpus * 64_000)
        held = Held(job=job, queue=QueueFacts(uid=queue, name=queue), model="", amounts=amounts)
        changes += [(begin, number, held), (end, number, Ended.DONE)]
    for at, number, what in sorted(changes, key=lambda each: each[:2]):
        if at < END:
            writer.write(at, {(f"{number}", "n"): what})
    writer.write(END)
    writer.close()


def sampled(jobs):
    """Yield the week as Prometheus would have scraped it, in its text form."""
    times = range(BEGAN, END + 1, STEP)
    for resource, name, each in (
        ("gpus", "nvidia_com_gpu", 1),
        ("cpu_cores", "cpu", 8),
        ("memory_bytes", "memory", 64e6),
    ):
        metric = f"kai_queue_allocated_{resource}"
        yield f"# TYPE {metric} gauge"
        for queue in "abcd":
            own = [job for job in jobs if job[0] == queue]
            for at in times:
                held = sum(gpus for _, gpus, begin, end in own if begin <= at < end)
                yield f'{metric}{{queue_name="{queue}"}} {held * each:g} {at // 1000}'
        yield from ((name, each, at) for at in times)


@pytest.fixture(scope="module")
def week(tmp_path_factory):
    """Run a Prometheus that has the week; return its address, the database and the jobs."""
    folder, jobs = tmp_path_factory.mktemp("week"), drawn()
    recorded(folder / "history.db", jobs)
    lines, capacities = [], []
    for each in sampled(jobs):
        (lines if isinstance(each, str) else capacities).append(each)
    lines.append("# TYPE kube_node_status_capacity gauge")
    for name, each, at in capacities:
        lines.append(f'kube_node_status_capacity{{node="n",resource="{name}"}} {GPUS * each:.0f} {at // 1000}')
    (folder / "week.om").write_text("\n".join([*lines, "# EOF\n"]))
    (folder / "prometheus.yml").write_text("{}")
    words = [built(programs.PROMTOOL), "tsdb", "create-blocks-from", "openmetrics", "week.om", "data"]
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
    (port,) = free_ports(1)
    flags = ("--config.file=prometheus.yml", f"--web.listen-address={HOST}:{port}", "--storage.tsdb.path=data")
    kept = "--storage.tsdb.retention.time=20y"
    daemon = Daemon((str(built(programs.PROMETHEUS)), *flags, kept), folder / "prometheus.log")
    daemon.start()
    try:
        until(lambda: _is_ready(port, daemon), "a Prometheus")
        yield f"http://{HOST}:{port}", folder / "history.db", jobs
    finally:
        daemon.stop()


def _is_ready(port, daemon):
    assert daemon.pid
    try:
        return b"ready" in fetch(port, "/-/ready").lower()
    except OSError:
        return False


def read(database):
    async def asked():
        try:
            return await database.read()
        finally:
            await database.close()

    return anyio.run(asked)


@pytest.mark.parametrize("half_life", [0.0, 86_400.0])
def test_both_sources_agree_within_a_step_for_each_job(week, half_life):
    address, path, jobs = week
    settings = UsageSettings(
        window_text=SETTINGS.window_text, resolution_seconds=STEP / 1000, half_life_seconds=half_life
    )
    ours, theirs = (
        read(each) for each in (Recorded(settings, str(path), Frozen()), Prometheus(address, settings, Frozen()))
    )
    assert set(ours) == set(theirs) == set("abcd")
    # A sample stands for the minute before it, so an interval is a step longer or shorter at most at each of its ends.
    whole = GPUS * (7 * DAY if not half_life else half_life * 1000)
    for queue, use in ours.items():
        most = sum(gpus * STEP for name, gpus, *_ in jobs if name == queue) / whole
        assert abs(use.gpu - theirs[queue].gpu) <= most
        assert abs(use.gpu - theirs[queue].gpu) <= 0.01 * use.gpu
        assert (use.cpu, use.memory) == pytest.approx((use.gpu, use.gpu), abs=1e-9)
    assert ours["a"].gpu > ours["b"].gpu > max(ours["c"].gpu, ours["d"].gpu) > 0.02


# --- Two queues that take turns, divided by what Prometheus says ------------------------------------------------------

SCRAPE = 5_000
"""Milliseconds from one sample to the next, and the resolution of queries."""
HALF_LIFE = 450_000
TURNS = {"windowSize": "30m", "halfLifePeriod": "7m30s", "fetchInterval": "10s"}


class At(SystemClock):
    """A clock that stands at an instant of virtual time, in seconds."""

    def __init__(self, now):
        self.instant = now

    def now(self) -> float:
        return self.instant


@attrs.define
class Scraped:
    """A Prometheus that is given samples of a run in virtual time, as if it had scraped them."""

    port: int
    until: int = 0
    """The instant of the last sample."""
    apart: list = attrs.field(factory=list)
    """By how much past usage of the first queue differed from that of the database, at each reading."""

    def see(self, connection, now):
        """Take the samples of each queue and of the node that are due by ``now``, in milliseconds."""
        self.until = self.until or now - now % SCRAPE
        names = dict(connection.execute("SELECT id, name FROM queue"))
        points = []
        for at in range(self.until + SCRAPE, now, SCRAPE):
            held = dict.fromkeys(("one", "two"), 0)
            for row, gpus in connection.execute("SELECT queue, gpu FROM held WHERE since <= ? AND until > ?", (at, at)):
                held[names[row]] += gpus / 1000
            points += [("kai_queue_allocated_gpus", {"queue_name": name}, gpus, at) for name, gpus in held.items()]
            for metric in ("kai_queue_allocated_cpu_cores", "kai_queue_allocated_memory_bytes"):
                points += [(metric, {"queue_name": name}, 0.0, at) for name in held]
            for resource, amount in (("nvidia_com_gpu", 16.0), ("cpu", 64.0), ("memory", 512.0 * 2**30)):
                labels = {"node": "n1", "resource": resource}
                points.append(("kube_node_status_capacity", labels, amount, at))
            self.until = at
        if points:
            self._send(points)

    def _send(self, points):
        """Write samples with their own instants, over the receiver of OpenTelemetry."""
        metrics = [
            {
                "name": metric,
                "gauge": {
                    "dataPoints": [
                        {
                            "attributes": [
                                {"key": key, "value": {"stringValue": text}} for key, text in labels.items()
                            ],
                            "timeUnixNano": str(at * 1_000_000),
                            "asDouble": value,
                        }
                    ]
                },
            }
            for metric, labels, value, at in points
        ]
        body = json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": metrics}]}]})
        connection = http.client.HTTPConnection(HOST, self.port)
        connection.request("POST", "/api/v1/otlp/v1/metrics", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == http.HTTPStatus.OK, answer.read()
        connection.close()


@pytest.fixture
def scraped(tmp_path):
    (port,) = free_ports(1)
    (tmp_path / "prometheus.yml").write_text("{}")
    flags = ("--config.file=prometheus.yml", f"--web.listen-address={HOST}:{port}", "--storage.tsdb.path=data")
    kept = ("--storage.tsdb.retention.time=20y", "--web.enable-otlp-receiver")
    daemon = Daemon((str(built(programs.PROMETHEUS)), *flags, *kept), tmp_path / "prometheus.log")
    daemon.start()
    try:
        until(lambda: _is_ready(port, daemon), "a Prometheus")
        yield Scraped(port)
    finally:
        daemon.stop()


def test_two_queues_take_equal_turns_by_a_prometheus(scraped, monkeypatch):
    """The oscillation of `test_run_history`: the run asks a Prometheus that has samples of the run itself."""
    ours = RunHistory.usage

    def usage(history, now):
        if history.writer is None or now < history.next_read:
            return history._usage
        scraped.see(history.writer.connection, round(now * 1000))
        recorded = ours(history, now)
        settings = attrs.evolve(history.settings, resolution_seconds=SCRAPE / 1000)
        try:
            history._usage = read(Prometheus(f"http://{HOST}:{scraped.port}", settings, At(now)))
        except UsageError:
            assert not scraped.apart  # only before the first sample
            history._usage = {}
        else:
            one, other = (each.get("one", Shares()).gpu for each in (recorded, history._usage))
            scraped.apart.append(abs(one - other))
        return history._usage

    monkeypatch.setattr(RunHistory, "usage", usage)
    text = cluster(1, gpus=16, quota=0) + queues(one=1, two=1)
    text += work("one", 50, gpus=16, minutes=1) + work("two", 50, gpus=16, minutes=1)
    found = shares(text, 1.25, settled=0.5, **TURNS)
    assert found["one"] + found["two"] == pytest.approx(found["all"])
    assert found["all"] > 0.95 * 16 * 0.75
    assert 0.95 <= found["one"] / found["two"] <= 1.05
    assert len(scraped.apart) > 400
    # A sample may miss one step of what both count by weight.
    assert max(scraped.apart) <= SCRAPE / (HALF_LIFE / math.log(2) * (1 - 0.5**4))
