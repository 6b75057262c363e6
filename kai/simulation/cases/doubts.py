"""What cannot be as the objects of a case say: limits below quotas, nodes that are not there, other node pools."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from kai.api.cluster_objects import ClusterObjects
from kai.api.conventions.queue_rules import Rule, queue_faults, shape_of
from kai.api.kubernetes.pod import ENDED
from kai.simulation.cases.case import Case
from kai.wording import counted

_MOST: Final = 3


def low_limits(objects: ClusterObjects) -> Iterator[tuple[str, str]]:
    """Yield for each queue whose limit is below its quota its name, and a sentence without it.

    The rest of such a quota can never be used.
    """
    for faults in queue_faults(map(shape_of, objects.queues)).values():
        for fault in (each for each in faults if each.rule is Rule.LOW_LIMIT):
            limit, quota = f"{fault.found:.15g}", f"{fault.bound:.15g}"
            yield fault.queue, f"its limit of {fault.resource}, {limit}, is below its quota, {quota}"


def missing_nodes(case: Case) -> tuple[str, ...]:
    """Return a sentence for each of the first pods whose node is not among the nodes of a case.

    What they hold counts for their queues, and they run nowhere.
    """
    known = {node.metadata.name for node in case.objects.nodes}
    scheduler = case.settings.scheduler_name
    astray = [
        pod
        for pod in case.objects.pods
        if pod.spec.node_name
        and pod.spec.node_name not in known
        and pod.status.phase not in ENDED
        and pod.spec.scheduler_name == scheduler
    ]
    first = [
        f"pod {pod.metadata.namespace}/{pod.metadata.name}: spec.nodeName: found {pod.spec.node_name}, "
        "which is not among the nodes"
        for pod in astray[:_MOST]
    ]
    more = len(astray) - len(first)
    return (*first, f"so it is with {more} more pods") if more > 0 else tuple(first)


def other_schedulers(case: Case) -> tuple[str, ...]:
    """Return a sentence where nothing is for kai, and pods are for other schedulers."""
    ours = case.settings.scheduler_name
    counts = Counter(pod.spec.scheduler_name for pod in case.objects.pods if pod.status.phase not in ENDED)
    if case.objects.pod_groups or not counts or ours in counts:
        return ()
    told = ", ".join(f"{number} for {name or 'default-scheduler'}" for name, number in sorted(counts.items()))
    flags = " ".join(f"--scheduler-name {name or 'default-scheduler'}" for name in sorted(counts))
    return (f"no pod is for {ours} ({told}); {flags} asks what kai would do with them",)


def other_pools(case: Case) -> tuple[str, ...]:
    """Return a sentence where pod groups are in other node pools than the one that is decided for."""
    settings = case.settings
    groups = [each.metadata.labels for each in case.objects.pod_groups]
    others = Counter(settings.pool(labels) or "none" for labels in groups if not settings.owns(labels))
    if not others:
        return ()
    if len(groups) > others.total():
        told = ", ".join(f"{pool}: {number}" for pool, number in sorted(others.items()))
        first = next(iter(sorted(others)))
        counts = f"{counted(others.total(), 'pod group')} of other node pools not shown ({told})"
        return (f"{counts}; --config with a SchedulingShard of partitionLabelValue {first} shows that pool",)
    pools = ", ".join(sorted({settings.pool(labels) for labels in groups} - {""})) or "none"
    ours = settings.node_pool or f"what has no label {settings.node_pool_label}"
    places = f"each pod group is in another node pool ({pools}) than the one that is decided for ({ours})"
    return (f"{places}; a SchedulingShard says by its partitionLabelValue for which, see --config",)
