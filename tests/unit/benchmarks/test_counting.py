import os
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

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


def test_requests_are_counted_by_verb_and_what_they_are_about_with_the_code_of_a_refusal():
    counts = requests(Server())
    assert counts == {"POST pods/binding": 40, "POST pods/binding (409)": 2, "APPLY podgroups": 10, "GET pods": 7}
    assert writes(counts).total() == 52


def test_the_last_write_came_when_the_counts_grew_last(monkeypatch):
    """Time passes only while one waits, and the third look finds a write more."""
    now, looks = [100.0], []

    def later(seconds):
        now[0] += seconds

    def counted(_):
        looks.append(now[0])
        return Counter({"POST pods/binding": 1 + (len(looks) >= 3), "GET pods": len(looks)})

    monkeypatch.setattr(counting, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=later))
    monkeypatch.setattr(counting, "requests", counted)
    counts, at = last_write("the server", seconds=3.0)
    assert (counts["POST pods/binding"], at) == (2, 101.0)
    assert now[0] == 104.0


def test_the_use_of_a_process_is_read_from_the_system():
    if not Path("/proc/self/stat").exists():
        pytest.skip("this system has no /proc to read it from")
    used = Usage.of(os.getpid())
    assert used.cpu_seconds > 0
    assert used.peak_rss_mb >= used.rss_mb > 1


def test_growth_is_told_apart_from_what_goes_up_and_down():
    assert slope([(0.0, 5.0), (1.0, 7.0), (2.0, 9.0)]) == 2.0
    assert slope([(0.0, 5.0), (1.0, 8.0), (2.0, 5.0)]) == 0.0
    assert slope([(0.0, 5.0)]) == slope([]) == 0.0
