"""The peer's words for pods that are evicted or promised a node: the texts of its events, kept to the character.

Source: the peer's pkg/scheduler/api and its status updater.
"""

from kai.explain.code_texts import amount
from kai.framework.decisions import Cause, Evict
from kai.framework.words import Facts
from kai.lenient import mappings_of
from kai.model.podgroup import DEFAULT_SUBGROUP
from kai.state.snapshot import Snapshot


def eviction_message(evict: Evict, snapshot: Snapshot, *, is_hidden: bool = False) -> str:
    """Return the text of the event about an eviction.

    ``is_hidden``: the aggressor is told by its UID alone, and of queues only the victim's.
    """
    pod = snapshot.pods[evict.pod].key
    gainer = snapshot.groups[evict.aggressor] if evict.aggressor >= 0 else None
    group = "" if gainer is None else f"{gainer.uid} of another namespace" if is_hidden else gainer.key
    subgroup = str(evict.facts.get("subgroup", ""))
    facts = {
        "pod": pod,
        "group": group,
        "action": evict.cause.name,
        "rule": evict.rule or "its scheduler gave no reason",
        "minimum": evict.facts.get("minimum", 0),
        "where": f" in sub-group {subgroup}" if subgroup and subgroup != DEFAULT_SUBGROUP else "",
    }
    queues = [evict.facts.get("victim"), None if is_hidden else evict.facts.get("aggressor")]
    return "\n".join([_filled(evict.cause, facts), *map(_queue_details, mappings_of(queues))])


def _filled(cause: Cause, facts: Facts) -> str:
    """Return the text of the event of ``cause``; the plain one where it names what no eviction has."""
    try:
        return cause.event.format_map(facts)
    except (LookupError, ValueError, AttributeError, TypeError):
        return Cause(cause.name).event.format_map(facts)


def _queue_details(facts: Facts) -> str:
    used, quota, share = (_amounts(facts.get(key)) for key in ("used", "quota", "fair_share"))
    priority = facts.get("priority", 0)
    return (
        f"{facts.get('title', '')} uses <{used}> with a quota of <{quota}>, fair-share of <{share}> "
        f"and queue priority of <{priority}>."
    )


def _amounts(values: object) -> str:
    cpu, memory, gpu = values if isinstance(values, tuple) else (0.0, 0.0, 0.0)
    return f"GPU: {amount(gpu, 'gpu')}, CPU: {amount(cpu, 'cpu')} (cores), memory: {amount(memory, 'memory')} (GB)"


def pipelined_message(pod: str, node: str) -> str:
    """Return the text of the event about a pod that was promised a node."""
    return f"Pod {pod} was pipelined to node {node}"
