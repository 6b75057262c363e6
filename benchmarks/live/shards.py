"""Several schedulers on one control plane, each with the nodes, queues and pods of its own pool.

One process more groups, binds and reports for all of them. How soon all pods are bound says what the whole gains on the
machine at hand, which the API server shares; processor time and memory of each scheduler say what its part costs.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.live.cluster import POOL_LABEL, Binds, Scheduler, Size, create_pods, kai, pool_name
from benchmarks.live.counting import Usage, requests, when_quiet
from tests.integration.controlplane import ControlPlane

_LIMIT = 600.0
_OTHERS = ("binder", "podgrouper", "podgroup-controller", "queue-controller")


@contextmanager
def schedulers(plane: ControlPlane, folder: Path, shards: int) -> Iterator[dict[str, Scheduler]]:
    """Run a scheduler for each pool, and one process for what all pools share."""
    with ExitStack() as stack:
        found = {"others": stack.enter_context(kai(plane, folder, roles=_OTHERS, log="others"))}
        for shard in range(shards):
            name = pool_name(shard)
            flags = (f"--partition-label-value={name}", f"--nodepool-label-key={POOL_LABEL}") if shards > 1 else ()
            found[name] = stack.enter_context(kai(plane, folder, flags, roles=("scheduler",), log=name))
        yield found


def fill_shards(plane: ControlPlane, found: dict[str, Scheduler], size: Size) -> dict[str, Any]:
    """Return how long it took until all pods were bound, and what each process used for it."""
    pids = {name: each.daemon.pid for name, each in found.items()}
    pids |= {"apiserver": plane.apiserver.pid, "etcd": plane.etcd.pid}
    counts = when_quiet(plane.admin)
    before = {name: Usage.of(pid) for name, pid in pids.items()}
    binds, since = Binds(plane.admin, size.pods), time.monotonic()
    create_pods(plane.admin, size, "kai-scheduler")
    created = time.monotonic() - since
    bound = binds.wait(_LIMIT) - since
    made = requests(plane.admin) - counts
    after = {name: Usage.of(pid) for name, pid in pids.items()}
    return {
        "shards": size.pools,
        "nodes": size.nodes,
        "pods": size.pods,
        "created_seconds": round(created, 2),
        "bound_seconds": round(bound, 2),
        "requests_per_pod": {what: round(count / size.pods, 3) for what, count in made.most_common()},
        "cpu_seconds": {name: round(after[name].cpu_seconds - before[name].cpu_seconds, 2) for name in pids},
        "rss_mb": {name: round(after[name].rss_mb) for name in found},
    }
