"""Texts of KAI-Scheduler for the engine's codes, for evictions and for promises, from the facts of a reason alone.

The texts of events equal those of KAI-Scheduler to the character. Why a pod fits no node is made from the objections of
all nodes instead (``kai.deciding.explain.messages``).

Source: the peer's pkg/scheduler/api and its status updater.
"""

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from kai.basics import parsing
from kai.basics.parsing import GPU_HOUR, mappings_of
from kai.basics.schedules import clock_text, read_zone
from kai.basics.wording import number_text, span_text
from kai.deciding.explain.phrases import number
from kai.facts.model.axis import PLUGGED_GPU
from kai.facts.model.groups import DEFAULT_SUBGROUP
from kai.facts.state.snapshot import Snapshot
from kai.framework.decisions import YIELDED, Cause, Evict
from kai.framework.verdict import Code, Facts

DIVISORS: Final = {"cpu": 1000.0, "memory": 1e9, "gpu": 1000.0, PLUGGED_GPU: 1000.0}
"""Axis units per unit in texts."""
_PLURALS: Final = {"cpu": "CPU cores", "memory": "memory", "gpu": "GPUs"}
_UNITS: Final = {"cpu": "cores", "memory": "GB", "gpu": "GPUs"}
_LEAVES_SHOWN: Final = 5


def _over_limit(facts: Facts) -> str:
    resource = str(facts["resource"])
    unit = _UNITS[resource]
    limit, used, requested = (amount(facts[key], resource) for key in ("bound", "used", "requested"))
    return (
        f"{facts['queue']} quota has reached the allowable limit of {_PLURALS[resource]}. "
        f"Limit is {limit} {unit}, currently {used} {unit} allocated and workload requested {requested} {unit}"
        f"{_clock_note(facts)}"
    )


def _over_model_limit(facts: Facts) -> str:
    """Return which limit of a model a queue would exceed; the peer has no such limits."""
    limit, used, requested = (amount(facts[key], "gpu") for key in ("bound", "used", "requested"))
    return (
        f"{facts['queue']} has reached its limit of {facts['model']} GPUs. "
        f"Limit is {limit} GPUs, currently {used} GPUs allocated and workload requested {requested} GPUs"
    )


def _over_quota(facts: Facts) -> str:
    resource = str(facts["resource"])
    unit = _UNITS[resource]
    noun = "GB memory" if resource == "memory" else _PLURALS[resource]
    requested = amount(facts["requested"], resource)
    if resource == "gpu":
        # The peer prints all decimals for a requested amount of GPUs, and only for that.
        requested = _shortest(number(facts["requested"]) / DIVISORS[resource])
    since = f" from {clock_text(number(facts['from']), str(facts.get('timezone', '')))} on" if "from" in facts else ""
    return (
        f"Non-preemptible workload is over quota. Workload requested {requested} {noun}, but {facts['queue']} quota is "
        f"{amount(facts['bound'], resource)} {unit}{since}, while {amount(facts['used'], resource)} {unit} are already "
        f"allocated for non-preemptible pods. Use a preemptible workload to go over quota."
    )


def budget_text(facts: Facts) -> str:
    """Return what a budget leaves, what the group would cost, when that changes, and who used it."""
    name = f"budget {facts['budget']} of queue {facts['queue']}"
    if not facts["is_open"]:
        opens, zone = facts["opens"], str(facts["timezone"])
        return f"{name} {'is over' if opens is None else f'begins on {date_text(number(opens), zone)}'}"
    if facts["spent"] is None:
        return f"{name} lets nothing start while it is not known what was used: the history of usage cannot be read"
    if number(facts["seconds"]) < 0:
        return f"{name} needs a limit of the run time for work that cannot be preempted (kai.scheduler/max-runtime)"
    amount_, spent, committed = (number(facts[key]) for key in ("amount", "spent", "committed"))
    taken = 0.0 if facts["enforce"] == "stop" else committed
    left = f"{hours_text(max(0.0, amount_ - spent - taken))} of {hours_text(amount_)} GPU-hours left"
    held = f", and {hours_text(taken)} are held for running work" if taken else ""
    until = number(facts["until"])
    reset = f" until {date_text(until, str(facts['timezone']))}" if until < math.inf else ""
    cost = ""
    if facts["enforce"] != "stop":
        gpus, span = amount(facts["gpus"], "gpu"), span_text(number(facts["seconds"]))
        what = f"{gpus} GPU{'' if gpus == '1' else 's'} for {'a slice of ' if facts['sliced'] else ''}{span}"
        cost = f"; this job may use {hours_text(number(facts['requested']))} ({what})"
    return f"{name} has {left}{reset}{held}{cost}{_users_note(facts)}"


_MOST_USERS: Final = 3


def _users_note(facts: Facts) -> str:
    """Return who used most of a budget, as a part of a sentence; "" where that is not known."""
    users = facts.get("users")
    pairs = users[:_MOST_USERS] if isinstance(users, tuple) else ()
    shown = ", ".join(f"{user} {hours_text(used)}" for user, used in pairs if user and used > 0)
    return f"; most was used by {shown}" if shown else ""


def _budget_used(facts: Facts) -> str:
    text = budget_text(facts)
    return f"{text[:1].upper()}{text[1:]}"


def hours_text(microseconds: float) -> str:
    """Return GPU-microseconds as GPU-hours, with at most two decimals."""
    return number_text(round(microseconds / GPU_HOUR, 2), 9)


def date_text(instant: float, zone: str) -> str:
    """Return a date and a time as the clock of a zone shows them: ``Tue 1 Dec 00:00 (Europe/Berlin)``."""
    local = datetime.fromtimestamp(instant, read_zone(zone))
    return f"{local:%a} {local.day} {local:%b %H:%M} ({zone or 'UTC'})"


def _clock_note(facts: Facts) -> str:
    """Return when the clock changes a limit, as another sentence; "" if it does not.

    The peer has no amounts that follow the clock.
    """
    if "until" not in facts:
        return ""
    resource, value = str(facts["resource"]), number(facts["next"])
    following = "unlimited" if value < 0 else f"{amount(value, resource)} {_UNITS[resource]}"
    until = clock_text(number(facts["until"]), str(facts.get("timezone", "")))
    return f". The limit is that until {until}, then {following}"


def not_ready(facts: Facts) -> str:
    """Return the event for a group that lacks pods; ``missing`` lists (sub-group, needed, existing, gated)."""
    text = "Job is not ready for scheduling."
    missing = facts.get("missing", ())
    for subgroup, needed, existing, gated in missing if isinstance(missing, tuple) else ():
        counts = f"currently {existing} exist, {gated} are gated"
        if subgroup == DEFAULT_SUBGROUP:
            text += f" Waiting for {needed} pods, {counts}"
        else:
            text += f" Waiting for {needed} pods for SubGroup {subgroup}, {counts}."
    return text


_CAPS: Mapping[str, str] = {
    "evicted_gpus_per_gpu": "for each GPU that is gained by it",
    "evicted_gpus_per_cycle": "in a cycle",
    "evicted_gpus_per_hour": "in an hour",
    "queue_evicted_gpus_per_cycle": "from one queue in a cycle",
    "queue_evicted_gpus_per_hour": "from one queue in an hour",
}


def _evictions_capped(facts: Facts) -> str:
    """Return which cap prevents evictions; the peer has no caps."""
    found, most, before = (number(facts.get(key)) for key in ("found", "most", "before"))
    cap, what = str(facts.get("cap")), "1 GPU" if facts.get("found") == 1 else f"{found:.12g} GPUs"
    setting = f"parameters.{cap} in the configuration of the scheduler"
    if most <= 0:
        return f"No room could be made within a cap: {what} would be evicted for a job that gains none ({setting})"
    what = f"at least {what}" if facts.get("part") else what
    already = f", {before:.12g} of them before this job," if before else ","
    return (
        f"No room could be made within a cap: {what} would be evicted {_CAPS.get(cap, '')}{already}"
        f" and at most {most:.12g} may be ({setting})"
    )


def _victims_protected(facts: Facts) -> str:
    """Return that groups were spared because of disruption budgets or moves; the peer spares none."""
    count = int(number(facts.get("groups")))
    spared = "1 job" if count == 1 else f"{count} jobs"
    why = "that disruption budgets protect, or that are being moved"
    return f"No room could be made without {spared} {why}"


def _tries_spent(facts: Facts) -> str:
    """Return that sub-groups have more possible placements than are tried; the peer has no such bound."""
    return (
        f"Sub-groups that lie within each other were tried in {facts.get('tries')} sets of nodes, and no more are tried"
        " in a cycle. Fewer levels of sub-groups, or fewer that ask for a topology level of their own, need fewer tries"
    )


def _preemption_delay(facts: Facts) -> str:
    window, until = delay_of(facts)
    return f"Workload is within its preemption delay window ({window}) and may not trigger evictions before {until}"


def _queue_missing(facts: Facts) -> str:
    return f"Queue '{facts.get('queue', '')}' does not exist"


def _queue_not_leaf(facts: Facts) -> str:
    queue, found = facts.get("queue", ""), facts.get("leaves", ())
    leaves = [str(each) for each in found] if isinstance(found, tuple) else []
    shown = ", ".join(leaves[:_LEAVES_SHOWN]) + (", ..." if len(leaves) > _LEAVES_SHOWN else "")
    return f"Queue '{queue}' has children; only a queue without children runs jobs: {shown}"


def _unknown_subgroup(facts: Facts) -> str:
    subgroup, group = facts.get("subgroup", ""), facts.get("group", "")
    return f'Pod references subgroup "{subgroup}", which does not exist in PodGroup {group}'


def _waits_for_turn(facts: Facts) -> str:
    """Return that a group was not considered in this cycle; the peer has no such bound."""
    if "namespace" not in facts:
        return (
            f"{facts['considered']} jobs were considered in this cycle, which had no time for more while kernels are"
            " compiled; this one waits for its turn"
        )
    shapes = f"pending pods of {facts.get('shapes')} distinct shapes"
    found = f"{facts['pods']} pending pods" if "pods" in facts else shapes
    return (
        f"namespace {facts['namespace']} has {found}, and at most {facts['considered']} are considered in a cycle;"
        " this one waits for its turn"
    )


WRITERS: Final[Mapping[Code, Callable[[Facts], str]]] = {
    Code.OVER_LIMIT: _over_limit,
    Code.OVER_MODEL_LIMIT: _over_model_limit,
    Code.OVER_QUOTA: _over_quota,
    Code.BUDGET_USED: _budget_used,
    Code.PREEMPTION_DELAY: _preemption_delay,
    Code.EVICTIONS_CAPPED: _evictions_capped,
    Code.VICTIMS_PROTECTED: _victims_protected,
    Code.TRIES_SPENT: _tries_spent,
    Code.QUEUE_MISSING: _queue_missing,
    Code.QUEUE_NOT_LEAF: _queue_not_leaf,
    Code.UNKNOWN_SUBGROUP: _unknown_subgroup,
    Code.NOT_READY: not_ready,
    Code.WAITS_FOR_TURN: _waits_for_turn,
}


# ------------------------------------------------------------------------------------------------------------- numbers


def delay_of(facts: Facts) -> tuple[str, str]:
    """Return how long a group asked not to evict others, and until when."""
    until = datetime.fromtimestamp(number(facts.get("until")), tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return parsing.text(number(facts.get("seconds"))), until


def amount(value: object, resource: str) -> str:
    """Return an amount in axis units as the peer prints it: cores, gigabytes or devices, cut off after three decimals.

    Units: millicores, bytes, thousandths of a GPU; -1 is "Unlimited".
    """
    found = number(value)
    if found < 0:
        return "Unlimited"
    scaled = round(found / DIVISORS[resource], 6)
    return _shortest(math.floor(scaled * 1000 + 1e-9) / 1000)


def _shortest(found: float) -> str:
    return str(int(found)) if found == int(found) else repr(found)


_MADE_WAY: Final = Cause(
    Cause.PREEMPT.name,
    rule=YIELDED,
    event="Pod {pod} made way for workload {group}: it yields, and has run for longer than it wished",
)


def eviction_message(evict: Evict, snapshot: Snapshot, *, is_hidden: bool = False) -> str:
    """Return the text of the event about an eviction.

    ``is_hidden``: name the aggressor only by its UID, and of the queues only the victim's.
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
    cause = _MADE_WAY if evict.cause == Cause.PREEMPT and evict.rule == YIELDED else evict.cause
    return "\n".join([_filled(cause, facts), *map(_queue_details, mappings_of(queues))])


def _filled(cause: Cause, facts: Facts) -> str:
    """Return the event text of ``cause``; the plain text if it has a placeholder that evictions do not know."""
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
    """Return the text of the event about a nominated pod."""
    return f"Pod {pod} was pipelined to node {node}"
