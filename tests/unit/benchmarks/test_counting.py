import os
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.live import counting
from benchmarks.live.counting import Usage, last_write, requests, slope, writes

METRICS = """# HELP apiserver_request_total Counter
apiserver_request_total{code="201",group="",resource="pods",subresource="binding",verb="POST",version="v1"} 40
apiserver_request_total{code="409",group="",resource="pods",subresource="binding",verb="POST",version="v1"} 2
apiserver_request_total{code="200",group="x",resource="podgroups",subresource="",verb="APPLY",version="v1"} 1e+01
apiserver_request_total{code="200",group="",resource="pods",subresource="",verb="GET",version="v1"} 7
apiserver_request_total{code="200",group="",resource="pods",subresource="",verb="WATCH",version="v1"} 3
apiserver_request_total{code="200",group="",resource="leases",subresource="",verb="PUT",version="v1"} 9
apiserver_request_total{code="404",group="",resource="",subresource="/readyz",verb="GET",version=""} 5
something_else{verb="POST",resource="pods"} 1
"""


class Server:
    def request(self, method, path, *, accept):
        assert (method, path, accept) == ("GET", "/metrics", "text/plain")
        return METRICS


def test_requests_are_counted_by_verb_object_and_code():
    counts = requests(Server())
    assert counts == {"POST pods/binding": 40, "POST pods/binding (409)": 2, "APPLY podgroups": 10, "GET pods": 7}
    assert writes(counts).total() == 52


class Passing:
    """Time passes only while one waits; at each look at the revision the cluster is as far as it says."""

    def __init__(self, revisions, written):
        self.now, self.revisions, self.written, self.counted = 100.0, revisions, written, 0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds

    @property
    def look(self):
        return min(round(2 * (self.now - 100.0)), len(self.revisions) - 1)

    def request(self, method, path, *, limit):
        assert (method, limit) == ("GET", 1), path
        return {"metadata": {"resourceVersion": str(self.revisions[self.look])}}

    def requests(self, _):
        self.counted += 1
        return Counter({"POST pods/binding": self.written[self.look], "GET pods": self.counted})


def watched(monkeypatch, server):
    monkeypatch.setattr(counting, "time", server)
    monkeypatch.setattr(counting, "requests", server.requests)
    counts, at = last_write(server, seconds=3.0)
    return counts["POST pods/binding"], at


def test_the_last_write_came_when_the_counts_grew_last(monkeypatch):
    server = Passing([7, 7, 9, 9], [1, 1, 2, 2])
    assert watched(monkeypatch, server) == (2, 101.0)
    assert server.now == 104.0


def test_a_lease_that_is_renewed_is_no_write(monkeypatch):
    server = Passing([7, 7, 9, 9], [1, 1, 1, 1])
    assert watched(monkeypatch, server) == (1, 100.0)


def test_during_writes_counts_are_read_only_afterwards(monkeypatch):
    server = Passing([0, 100, 200, 300, 301, 301], [0, 90, 190, 290, 291, 291])
    assert watched(monkeypatch, server) == (291, 102.0)
    assert server.counted == 2


def test_counts_are_final_when_writes_end_at_once(monkeypatch):
    assert watched(monkeypatch, Passing([0, 100], [0, 90])) == (90, 100.5)


def test_a_processs_usage_is_read_from_the_system():
    if not Path("/proc/self/stat").exists():
        pytest.skip("this system has no /proc to read it from")
    used = Usage.of(os.getpid())
    assert used.cpu_seconds > 0
    assert used.peak_rss_mb >= used.rss_mb > 1


def test_growth_differs_from_going_up_and_down():
    assert slope([(0.0, 5.0), (1.0, 7.0), (2.0, 9.0)]) == 2.0
    assert slope([(0.0, 5.0), (1.0, 8.0), (2.0, 5.0)]) == 0.0
    assert slope([(0.0, 5.0)]) == slope([]) == 0.0
