"""What an API server and processes say about what they did: requests by kind, processor time, memory."""

import os
import re
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import attrs

from tests.integration.client import Api

WRITES = frozenset({"APPLY", "DELETE", "PATCH", "POST", "PUT"})
_SAMPLE = re.compile(r"^apiserver_request_total\{([^}]*)\} ([0-9.e+]+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
# Elections, and questions about rights that the server asks itself, are no work for pods.
_NOT_COUNTED = frozenset({"leases", "subjectaccessreviews", "tokenreviews"})
_TICKS = os.sysconf("SC_CLK_TCK")
_ONE_GROUP = "/apis/scheduling.run.ai/v2alpha2/podgroups"
_LEASES_AT_ONCE = 4
"""So many of the changes between two looks may be of leases."""


def requests(api: Api) -> Counter[str]:
    """Return how many requests the server answered since it began, by verb and what they were about.

    A refused request is counted with its code: it cost as much as any other.
    """
    found: Counter[str] = Counter()
    for line in api.request("GET", "/metrics", accept="text/plain").splitlines():
        sample = _SAMPLE.match(line)
        if sample is None:
            continue
        labels = dict(_LABEL.findall(sample[1]))
        if labels["resource"] in _NOT_COUNTED or not labels["resource"] or labels["verb"] in {"WATCH", "LIST"}:
            continue
        what = labels["resource"] + (f"/{labels['subresource']}" if labels["subresource"] else "")
        refused = "" if labels["code"].startswith("2") else f" ({labels['code']})"
        found[f"{labels['verb']} {what}{refused}"] += int(float(sample[2]))
    return found


def writes(counts: Counter[str]) -> Counter[str]:
    """Return those of the requests that change something."""
    return Counter({what: count for what, count in counts.items() if what.split(" ")[0] in WRITES and count})


@attrs.frozen
class Usage:
    """What a process used so far.

    Units: seconds of processor time, MiB of resident memory.
    """

    cpu_seconds: float
    rss_mb: float
    peak_rss_mb: float

    @classmethod
    def of(cls, pid: int) -> "Usage":
        """Return what a process of this machine used."""
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
        )
        rss, peak = (int(status[key].split()[0]) / 1024 for key in ("VmRSS", "VmHWM"))
        return cls((int(fields[11]) + int(fields[12])) / _TICKS, rss, peak)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return how fast the second numbers grow with the first, by least squares; 0 where nothing can be told."""
    middle = [sum(values) / max(1, len(points)) for values in zip(*points, strict=True)] or [0.0, 0.0]
    spread = sum((at - middle[0]) ** 2 for at, _ in points)
    return sum((at - middle[0]) * (value - middle[1]) for at, value in points) / spread if spread else 0.0


def when_quiet(api: Api, *, seconds: float = 3.0, limit: float = 60.0) -> Counter[str]:
    """Wait until nothing was written for so long, and return the counts of that moment."""
    return last_write(api, seconds=seconds, limit=limit)[0]


def last_write(api: Api, *, seconds: float = 3.0, limit: float = 60.0) -> tuple[Counter[str], float]:
    """Wait until nothing was written for so long, and return the counts of that moment and when the last one came.

    Counts cost the server 50 ms and us 25. In a rush, where that would slow down what is measured, the revision of the
    cluster tells as much; counts tell writes from the changes of leases.

    Units: the instant on the monotonic clock, half a second late at most.
    """
    counts: Counter[str] | None = requests(api)
    changed = _revision(api)
    since = end = time.monotonic()
    while time.monotonic() - since < seconds and time.monotonic() - end < limit:
        time.sleep(0.5)
        before, changed = changed, _revision(api)
        if changed - before > _LEASES_AT_ONCE:
            counts, since = None, time.monotonic()
        elif changed > before:
            later = requests(api)
            if counts is None or writes(later) != writes(counts):
                since = time.monotonic()
            counts = later
    return requests(api) if counts is None else counts, since


def _revision(api: Api) -> int:
    """Return the number of changes that the cluster has seen; those of leases count."""
    return int(api.request("GET", _ONE_GROUP, limit=1)["metadata"]["resourceVersion"])
