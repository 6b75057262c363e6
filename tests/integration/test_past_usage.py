"""Time-based fairness on a real API server: a shard names a usage database, and who used much before waits now."""

import json
import threading
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import attrs
import pytest

from tests.doubles.prometheus import vector
from tests.integration.client import until
from tests.integration.processes import fetch
from tests.integration.test_scheduler import an_object, cluster, group, pod, running

__all__ = ["cluster"]  # the fixture of the other tests of the scheduler

HELD = {"kai_queue_allocated_gpus": {"heavy": 80.0, "light": 0.0}}
THERE = {"nvidia_com_gpu": 80.0, '"cpu"': 80.0, '"memory"': 80.0}


@attrs.define
class Database:
    """A stand-in for Prometheus: what it is asked, and whether it answers."""

    address: str = ""
    is_up: bool = True
    questions: list[str] = attrs.field(factory=list)

    def answer(self, question):
        self.questions.append(question)
        held = next((amounts for metric, amounts in HELD.items() if metric in question), {})
        there = next(({"": amount} for resource, amount in THERE.items() if resource in question), None)
        return json.dumps(vector(held if there is None else there)).encode()


@contextmanager
def serving():
    database = Database()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            text = database.answer(parse_qs(body)["query"][0]) if database.is_up else b"down"
            self.send_response(200 if database.is_up else 503)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    database.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield database
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def database():
    with serving() as found:
        yield found


def weighed(name, parent):
    """Return a queue without quota: all that it gets is over it."""
    share = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
    resources = dict.fromkeys(("cpu", "memory", "gpu"), share)
    return an_object("scheduling.run.ai/v2", "Queue", name, spec={"parentQueue": parent, "resources": resources})


def test_a_queue_with_high_past_usage_waits_for_another(control_plane, cluster, database, tmp_path):
    params = {"fetchInterval": "1s", "stalenessPeriod": "10s", "halfLifePeriod": "10m"}
    usage = {"clientType": "prometheus", "connectionString": database.address, "usageParams": params}
    shard = {
        "apiVersion": "kai.scheduler/v1",
        "kind": "SchedulingShard",
        "metadata": {"name": "default"},
        "spec": {"usageDBConfig": usage, "args": {"detailed-fit-errors": "true"}},
    }
    (tmp_path / "shard.yaml").write_text(json.dumps(shard))
    for name in ("heavy", "light"):
        cluster.create(weighed(name, "top"))
    for at in range(8):
        for name in ("heavy", "light"):  # the heavy one asks first
            cluster.create(group(f"{name}-{at}", queue=name))
            cluster.create(pod(f"{name}-{at}-0", f"{name}-{at}"))
    with running(control_plane, tmp_path, f"--scheduler-conf={tmp_path / 'shard.yaml'}") as scheduler:
        until(lambda: len(cluster.requests()) == 8, "eight GPUs to be given")
        assert Counter(name.partition("-")[0] for name in cluster.requests()) == {"light": 8}

        def shown(line):
            return line in fetch(scheduler.metrics_port, "/metrics").decode()

        labels = 'queue_display_name="",queue_metadata_name="heavy",queue_name="heavy"'
        until(lambda: shown(f"kai_queue_gpu_usage{{{labels}}} 1.0"), "the past usage among the metrics")
        assert shown('kai_usage_is_known{client="prometheus"} 1.0')
        assert database.questions[3].startswith("sum_over_time((((kai_queue_allocated_gpus) * (0.5^((")

        database.is_up = False
        until(lambda: shown('kai_usage_is_known{client="prometheus"} 0.0'), "past usage to become stale")
        # By weight alone half of the GPUs are the heavy one's.
        until(lambda: sum(bool(cluster.events(f"light-{at}", "Evict")) for at in range(8)) == 4, "four evictions")
    assert cluster.forbidden() == []
