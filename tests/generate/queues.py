"""Draw the tree of queues: one to three levels, quotas, limits, weights, priorities and protected run times."""

from tests.generate.draft import GPU_DRIVER, Draft, Queue

UNLIMITED = -1
_MEGABYTES = 1000


def draw_queues(draft: Draft) -> None:
    """Draw a tree; quotas of siblings may add up to more or less than their parent's, as people make them."""
    random = draft.random
    gpus = sum(node.gpus + sum(device.driver == GPU_DRIVER for device in node.devices) for node in draft.nodes)
    if draft.has("flat-queues"):
        for _ in range(random.randint(1, 3)):
            _add(draft, "", random.randint(0, gpus))
        return
    for _ in range(random.randint(1, 3)):
        department = _add(draft, "", random.choice((UNLIMITED, gpus, random.randint(0, gpus), gpus // 2)))
        for _ in range(random.randint(1, 3)):
            team = _add(draft, department, random.randint(0, max(1, gpus // 2)))
            if draft.sometimes("deep-queues", 0.5):
                for _ in range(random.randint(1, 2)):
                    _add(draft, team, random.randint(0, max(1, gpus // 3)))


def _add(draft: Draft, parent: str, quota: int) -> str:
    random = draft.random
    name = f"queue-{len(draft.queues):02d}"
    limit = random.randint(max(quota, 0), max(quota, 0) + 4) if draft.sometimes("limits", 0.4) else UNLIMITED
    weight = random.choice((0, 1, 2, 3, 5)) if draft.has("weights") else 1
    shares = {
        "gpu": {"quota": quota, "limit": limit, "overQuotaWeight": weight},
        "cpu": _open_share(),
        "memory": _open_share(),
    }
    if draft.sometimes("cpu-quota", 0.6):
        cores, gigabytes = random.randint(1, 40), random.randint(4, 400)
        shares["cpu"] = {"quota": cores * 1000, "limit": UNLIMITED, "overQuotaWeight": weight}
        shares["memory"] = {"quota": gigabytes * _MEGABYTES, "limit": UNLIMITED, "overQuotaWeight": weight}
        if draft.sometimes("limits", 0.3):
            shares["cpu"]["limit"] = (cores + random.randint(0, 20)) * 1000
    queue = Queue(name, parent, shares)
    if draft.sometimes("queue-priority", 0.6):
        queue.priority = random.choice((50, 100, 150))
    for kind in ("reclaimMinRuntime", "preemptMinRuntime"):
        if draft.sometimes("min-runtime", 0.4):
            queue.runtimes[kind] = random.choice(("30s", "10m", "2h"))
    draft.queues.append(queue)
    return name


def _open_share() -> dict[str, float]:
    return {"quota": UNLIMITED, "limit": UNLIMITED, "overQuotaWeight": 1}
