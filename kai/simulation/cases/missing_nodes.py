"""Pods that name a node which is not there: what they hold counts for their queues, and they run nowhere."""

from typing import Final

from kai.api.pod import ENDED
from kai.simulation.cases.case import Case

_MOST: Final = 3


def missing_nodes(case: Case) -> tuple[str, ...]:
    """Return a sentence for each of the first pods whose node is not among the nodes of a case."""
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


__all__ = ["missing_nodes"]
