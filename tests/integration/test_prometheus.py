"""Alerts, dashboard and past usage on a real Prometheus: recorded incidents by promtool, and kai's own metrics scraped.

`tests/prometheus/incidents` has incidents as data, in the form of promtool's rule tests: each alert where it should
fire, a day of ordinary churn, scrapes that fail, and processes that start anew.
"""

import json
import re
import subprocess
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlencode

import anyio
import attrs
import pytest
import yaml
from anyio.from_thread import start_blocking_portal
from prometheus_client import CollectorRegistry

from kai.api.codec.structuring import structure
from kai.cli.running.rolemetrics import ApiCalls, MissingRights, RoleMetrics
from kai.cluster.clock import SystemClock
from kai.cluster.process.connections import Response
from kai.cluster.process.exposition import CONTENT_TYPE, metrics_route
from kai.cluster.process.listener import Address, Route, listen
from kai.cluster.process.tracing import Taken
from kai.cluster.signals import BindEnded, QueueCounted
from kai.deciding.configuration.past_usage import UsageSettings
from kai.deciding.configuration.profiles import default_profile
from kai.deciding.engine.cycle import run_cycle
from kai.facts.model.groups import Shares
from kai.framework.decisions import Recorder
from kai.intake import take_snapshot
from kai.lab.scenarios.shorthand import NOW
from kai.roles.scheduler.cycle.past_usage import Prometheus, UsageError
from kai.roles.scheduler.effects import BindOrdered, Evicted
from kai.roles.scheduler.reporting.metrics import SchedulerMetrics
from kai.testing import cluster
from tests.integration import programs
from tests.integration.client import until
from tests.integration.conftest import built
from tests.integration.controlplane import Daemon
from tests.integration.ports import HOST, free_ports
from tests.integration.processes import fetch
from tests.integration.stage import an_object
from tests.unit.deploy.rendering import DEPLOY, of_kind, render
from tests.unit.deploy.test_dashboards import queries

MONITORING = DEPLOY / "components" / "monitoring"
INCIDENTS = Path(__file__).parents[1] / "prometheus" / "incidents"
LONG = re.compile(r"\[\d+d:5m\]")
"""Steps of a long time, which stand at whole five minutes: a server that runs for seconds has none."""
PANELS = [
    LONG.sub("[1m:1s]", query.values[0].replace("$queue", ".*"))
    for query in queries()
    if not query.values[0].startswith("label_values")
]
RESOURCES = ("gpu", "cpu", "memory")
NODE = 'kube_node_status_capacity{{node="n",resource="{}",unit="x"}} 8\n'


@pytest.fixture(scope="module")
def rules(tmp_path_factory):
    """Return the shipped rules in a file of Prometheus' own form."""
    (found,) = of_kind(render(MONITORING), "PrometheusRule")
    path = tmp_path_factory.mktemp("rules") / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": found["spec"]["groups"]}))
    return path


def checked(*words, folder):
    """Run promtool and return what it said; fail with that if it found a fault."""
    done = subprocess.run([built(programs.PROMTOOL), *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


# --- Recorded incidents ----------------------------------------------------------------------------------------------


def test_promtool_finds_no_fault_in_the_alerts(rules):
    said = checked("check", "rules", "--lint=all", "--lint-fatal", "rules.yml", folder=rules.parent)
    assert "SUCCESS: 17 rules found" in said


@pytest.mark.parametrize("path", sorted(INCIDENTS.glob("*.yaml")), ids=lambda path: path.stem)
def test_alerts_tell_an_incident_and_are_silent_otherwise(rules, path):
    (rules.parent / path.name).write_text(path.read_text(encoding="utf-8"))
    checked("test", "rules", path.name, folder=rules.parent)


def test_each_alert_has_an_incident_in_which_it_fires(rules):
    named = {each["alert"] for group in yaml.safe_load(rules.read_text())["groups"] for each in group["rules"]}
    told = (INCIDENTS / "each.yaml").read_text(encoding="utf-8")
    assert {name for name in named if f'alertname="{name}"' in told or f"alertname: {name}\n" in told} == named


# --- A Prometheus that scrapes kai -----------------------------------------------------------------------------------


@attrs.define(eq=False)
class Shown:
    """What a process of kai shows, served by kai's own listener in a thread."""

    scheduler: SchedulerMetrics
    roles: RoleMetrics
    calls: dict = attrs.field(factory=dict)
    missing: dict = attrs.field(factory=dict)

    @classmethod
    def begin(cls, registry):
        """Make metrics of all roles in one registry."""
        found = cls(SchedulerMetrics(registry), RoleMetrics(registry))
        registry.register(ApiCalls(found.calls, "kai"))
        registry.register(MissingRights(SimpleNamespace(missing=lambda: found.missing), "kai"))
        return found

    def work(self):
        """Do each thing once that the dashboard shows."""
        jobs = {name: {"queue": name, "each": {"gpu": gpus}} for name, gpus in (("a", 4), ("b", 16))}
        objects = cluster({"n": {"gpu": 8}}, jobs, {"a": {"quota": 4}, "b": {"quota": 4}})
        snapshot = take_snapshot(objects, NOW)
        metrics = self.scheduler
        metrics.state(snapshot, run_cycle(snapshot, default_profile(), Recorder()), {"OverLimit": 1})
        metrics.leads(now=True)
        metrics.usage_known(known=True)
        metrics.cycle(0.3)
        metrics.phase("allocate", 0.2)
        metrics.plugin_asked("proportion", "queue_order", Taken(calls=3, seconds=0.01))
        metrics.take(BindOrdered(pod="d/p", node="n", seconds=0.1, waited=3.0))
        metrics.take(Evicted(pod="d/q", cause="preempt", seconds=0.1, group=("q", "d", "uid-q")))
        metrics.under_way(3)
        metrics._later.show({"default": 2})
        self.roles.observe(BindEnded(result="gone", seconds=0.1))
        self.calls["create", "events", 403, "namespace"] = self.calls.get(("create", "events", 403, "namespace"), 0) + 1
        self.hold(a=4, b=0)

    def hold(self, **gpus):
        """Let queues hold so many GPUs, as many cores, and as many bytes."""
        resources = {each: {"quota": 1, "limit": -1, "overQuotaWeight": 1} for each in RESOURCES}
        for name, count in gpus.items():
            held = dict.fromkeys(("nvidia.com/gpu", "cpu", "memory"), str(count))
            body = {"spec": {"resources": resources}, "status": {"allocated": held}}
            self.roles.observe(QueueCounted(structure(an_object("scheduling.run.ai/v2", "Queue", name, **body))))


@contextmanager
def served(routes, port):
    """Serve routes in a thread of its own, by kai's own listener."""
    with start_blocking_portal() as portal:
        task, _ = portal.start_task(listen, Address(HOST, port), routes)
        try:
            yield
        finally:
            task.cancel()


async def nodes():
    """Answer as kube-state-metrics does of a node of 8 GPUs, 8 cores and 8 bytes."""
    text = "".join(NODE.format(resource) for resource in ("nvidia_com_gpu", "cpu", "memory"))
    return Response(body=text.encode(), content_type=CONTENT_TYPE)


@attrs.frozen
class Running:
    """A Prometheus, and what it scrapes."""

    port: int
    shown: Shown

    def ask(self, path, **words):
        """Return the data of an answer of its API, which must be without warnings."""
        answer = json.loads(fetch(self.port, f"/api/v1/{path}?{urlencode(words)}"))
        assert answer["status"] == "success"
        assert not answer.get("warnings")
        assert not answer.get("infos")
        return answer["data"]

    def value(self, query):
        """Return the samples of a query."""
        return [float(each["value"][1]) for each in self.ask("query", query=query)["result"]]

    def alerts(self):
        """Return the alerts that are firing, with what they say."""
        found = self.ask("alerts")["alerts"]
        return {
            each["labels"]["alertname"]: each["annotations"]["summary"] for each in found if each["state"] == "firing"
        }

    def usage(self, **changes):
        """Return past usage of the last five seconds, as kai reads it."""
        settings = attrs.evolve(UsageSettings(window_text="5s", resolution_seconds=1.0), **changes)

        async def read():
            database = Prometheus(f"http://{HOST}:{self.port}", settings, SystemClock())
            try:
                return await database.read()
            finally:
                await database.close()

        return anyio.run(read)


@pytest.fixture(scope="module")
def running(rules):
    """Run a Prometheus that scrapes kai each second, and the same nodes twice."""
    folder, registry = rules.parent, CollectorRegistry()
    ours, port = free_ports(2)
    shown = Shown.begin(registry)
    jobs = {"kai": "/metrics", "nodes": "/nodes", "nodes-again": "/nodes"}
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [rules.name],
        "scrape_configs": [
            {"job_name": job, "metrics_path": path, "static_configs": [{"targets": [f"{HOST}:{ours}"]}]}
            for job, path in jobs.items()
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    checked("check", "config", "prometheus.yml", folder=folder)
    flags = ("--config.file=prometheus.yml", f"--web.listen-address={HOST}:{port}", "--storage.tsdb.path=data")
    daemon = Daemon((str(built(programs.PROMETHEUS)), *flags), folder / "prometheus.log")
    routes = {"/metrics": metrics_route(registry, shown.scheduler.bare.names), "/nodes": Route(answer=nodes)}
    with served(routes, ours):
        shown.work()
        daemon.start()
        try:
            found = Running(port, shown)
            until(lambda: _scraped(found, daemon), "scrapes of all jobs")
            yield found
        finally:
            daemon.stop()


def _scraped(found, daemon):
    assert daemon.pid
    try:
        return sum(found.value("up")) == 3
    except OSError:
        return False


def test_kai_is_read_without_a_complaint(running):
    targets = running.ask("targets")["activeTargets"]
    assert [each["lastError"] for each in targets] == [""] * 3
    groups = until(lambda: _evaluated(running), "rules to be evaluated")
    assert [(rule["health"], rule.get("lastError", "")) for rule in groups] == [("ok", "")] * 17


def _evaluated(running):
    rules = [rule for group in running.ask("rules")["groups"] for rule in group["rules"]]
    return rules if all(rule["health"] != "unknown" for rule in rules) else None


@pytest.mark.parametrize("query", PANELS)
def test_a_panel_of_the_dashboard_shows_something(running, query):
    running.shown.work()  # of a rate two scrapes have to see something
    until(lambda: running.value(query), query)


def test_a_cycles_first_failure_raises_an_alert(running):
    assert running.alerts() == {}
    until(lambda: running.value("sum(increase(kai_cycles_failed_total[1h]))") == [0.0], "two scrapes")
    running.shown.scheduler.cycle_failed("KeyError")
    said = until(running.alerts, "an alert")
    assert said == {"KaiCyclesFail": "A scheduling cycle was abandoned: KeyError."}
    assert running.value("sum(increase(kai_cycles_failed_total[1h]))")[0] >= 1.0
    running.shown.scheduler.take(Evicted(pod="d/p", cause="reclaim", seconds=0.1, group=None))
    query = 'sum by (cause) (rate(kai_evictions_total{result="done",cause="reclaim"}[10m])) * 60 > 0'
    until(lambda: running.value(query), "the first eviction")


def test_only_a_missing_right_raises_the_rights_alert(running):
    running.shown.calls["create", "events", 403, "namespace"] += 394
    until(lambda: running.value('kai_api_requests_total{reason="namespace"} > 394'), "the answers")
    assert "KaiLacksRights" not in running.alerts()
    running.shown.missing["create", "events"] = 1
    said = until(lambda: running.alerts().get("KaiLacksRights"), "an alert")
    assert said == "A role may not create events; it was changed by hand, or belongs to another version."
    running.shown.missing.clear()
    until(lambda: "KaiLacksRights" not in running.alerts(), "the end of the alert")


def test_past_usage_counts_each_node_once(running):
    half = {"a": Shares(gpu=0.5, cpu=0.5, memory=0.5), "b": Shares()}
    until(lambda: _usage(running) == half, "the usage of a window")
    # Steps of 1.5 s fall elsewhere than those before: the first of them may precede the first scrape of the nodes.
    until(lambda: _usage(running, resolution_seconds=1.5) == half, "the usage in steps of a second and a half")
    assert _usage(running, half_life_seconds=3.0) == half


def _usage(running, **changes):
    try:
        found = running.usage(**changes)
    except UsageError as error:
        return str(error)
    return {
        name: attrs.evolve(each, **{key: round(getattr(each, key), 9) for key in RESOURCES})
        for name, each in found.items()
    }


def test_nodes_without_a_queue_are_no_past_usage(running):
    other = {resource: f"other_queue_allocated_{resource}" for resource in RESOURCES}
    until(lambda: isinstance(_usage(running), dict), "the usage of a window")
    with pytest.raises(UsageError, match="found no queue that held gpu, cpu, memory"):
        running.usage(allocation=other)
