"""Pods that come at a rate and go again after a while: does anything fall behind?"""

import threading
import time
from typing import Any

import attrs

from benchmarks.live.cluster import NAMESPACE, Binds, Scheduler, an_object, create_lone_pod, each
from benchmarks.live.counting import Usage, last_write, when_quiet
from kai.lab.virtual.results.metrics import percentile
from tests.integration.controlplane import ControlPlane

_LIMIT = 600.0
_PARTS = {"p50": 0.5, "p99": 0.99, "max": 1.0}


@attrs.frozen(kw_only=True)
class Pace:
    """How many pods come, and how long each stays.

    Units: pods a second, seconds.
    """

    rate: float
    seconds: float
    stay: float

    @property
    def pods(self) -> int:
        """How many pods come."""
        return max(3, round(self.rate * self.seconds))


def run_steadily(plane: ControlPlane, scheduler: Scheduler, pace: Pace) -> dict[str, Any]:
    """Return how long pods waited, early and late, and what that cost.

    The k-th pod that is bound is held against the k-th that was created: which one it is does not matter to a mean, and
    where pods are bound in their order not to the rest.
    """
    admin = plane.admin
    pids = {"scheduler": scheduler.daemon.pid, "apiserver": plane.apiserver.pid, "etcd": plane.etcd.pid}
    when_quiet(admin)
    before = {name: Usage.of(pid) for name, pid in pids.items()}
    binds, created = Binds(admin, pace.pods), list[float]()
    began = time.monotonic()

    def create(number: int) -> None:
        _sleep_until(began + number / pace.rate)
        create_lone_pod(admin, number, scheduler.name)
        created.append(time.monotonic())

    def delete(number: int) -> None:
        _sleep_until(began + number / pace.rate + pace.stay)
        admin.delete(an_object("v1", "Pod", f"pod-{number:05d}", NAMESPACE), gracePeriodSeconds=0)

    leaving = threading.Thread(target=each, args=(range(pace.pods), delete), daemon=True)
    leaving.start()
    each(range(pace.pods), create)
    ended = max(created)
    bound = [binds.next(_LIMIT) for _ in range(pace.pods)]
    leaving.join()
    _, last = last_write(admin, limit=_LIMIT)
    used = {name: Usage.of(pid).cpu_seconds - before[name].cpu_seconds for name, pid in pids.items()}
    waits = [max(0.0, at - since) for since, at in zip(sorted(created), bound, strict=True)]
    third = len(waits) // 3
    return {
        "scheduler": scheduler.name,
        "pods": pace.pods,
        "created_per_second": round(pace.pods / (ended - began), 1),
        "wait_seconds": {"first_third": _spread(waits[:third]), "last_third": _spread(waits[-third:])},
        "unbound_when_the_last_came": sum(at > ended for at in bound),
        "written_after_seconds": round(max(0.0, last - max(ended, began + pace.seconds + pace.stay)), 1),
        "cpu_ms_per_pod": {name: round(1000 * seconds / pace.pods, 2) for name, seconds in used.items()},
        "rss_mb": round(Usage.of(pids["scheduler"]).rss_mb),
    }


def _spread(waits: list[float]) -> dict[str, float]:
    return {name: round(percentile(waits, part) or 0.0, 3) for name, part in _PARTS.items()}


def _sleep_until(instant: float) -> None:
    time.sleep(max(0.0, instant - time.monotonic()))
