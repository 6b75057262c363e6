import os
from pathlib import Path

import pytest

from benchmarks.live.counting import Usage, requests, writes

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


def test_the_use_of_a_process_is_read_from_the_system():
    if not Path("/proc/self/stat").exists():
        pytest.skip("this system has no /proc to read it from")
    used = Usage.of(os.getpid())
    assert used.cpu_seconds > 0
    assert used.peak_rss_mb >= used.rss_mb > 1
