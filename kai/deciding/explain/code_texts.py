"""The texts of the engine's codes, from the facts of a reason alone: those of KAI-Scheduler, and kai's own below.

The texts of events equal those of KAI-Scheduler to the character. kai's own are parts of a sentence, for users. Why a
pod fits no node is made from the objections of all nodes instead (``kai.deciding.explain.messages``).

Source: the peer's pkg/scheduler/api and its status updater.
"""

import math
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from kai.basics import parsing
from kai.basics.parsing import GPU_HOUR
from kai.basics.schedules import clock_text, read_zone
from kai.basics.wording import number_text, span_text
from kai.deciding.explain.phrases import listed, number, plain, quantity
from kai.facts.model.axis import PLUGGED_GPU
from kai.facts.model.groups import DEFAULT_SUBGROUP, PodGroup
from kai.framework.verdict import Code, Facts, Reason

DIVISORS: Final = {"cpu": 1000.0, "memory": 1e9, "gpu": 1000.0, PLUGGED_GPU: 1000.0}
"""Axis units per unit in texts."""
_PLURALS: Final = {"cpu": "CPU cores", "memory": "memory", "gpu": "GPUs"}
_UNITS: Final = {"cpu": "cores", "memory": "GB", "gpu": "GPUs"}
_LEAVES_SHOWN: Final = 5


def _over_limit(facts: Facts) -> str:
    resource = str(facts["resource"])
    unit = _UNITS[resource]
    # The peer's words and order, to the letter: tools of its users search for them.
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


def _over_user_limit(facts: Facts) -> str:
    """Return what a queue lets a user hold; the peer has no such limits."""
    resource = str(facts["resource"])
    unit = _UNITS[resource]
    limit, used, requested = (amount(facts[key], resource) for key in ("bound", "used", "requested"))
    return (
        f"{facts['user']} has reached the limit of {_PLURALS[resource]} for each user of {facts['queue']}. "
        f"Limit is {limit} {unit}, currently {used} {unit} allocated to this user and workload requested "
        f"{requested} {unit}{_clock_note(facts)}"
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
        return f"{name} lets nothing start while the history of usage cannot be read, so that its use is not known"
    if number(facts["seconds"]) < 0:
        return f"{name} needs a run-time limit for non-preemptible work (kai.scheduler/max-runtime)"
    amount_, spent, committed = (number(facts[key]) for key in ("amount", "spent", "committed"))
    # With enforce: stop nothing is reserved for running work: it loses its claim when the budget is used up.
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
        f"Nested sub-groups were tried in {facts.get('tries')} sets of nodes, and no more are tried"
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
    Code.OVER_USER_LIMIT: _over_user_limit,
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
    # A little more before it is cut: 1.001 times 1000 is less than 1001 in floats.
    return _shortest(math.floor(scaled * 1000 + 1e-9) / 1000)


def _shortest(found: float) -> str:
    return str(int(found)) if found == int(found) else repr(found)


# --------------------------------------------------------------------------------------------------------- kai's own


def queue_of(reason: Reason) -> object:
    """Return the name of the queue that would exceed a bound; the peer's conditions have only its title."""
    return reason.facts.get("queue_name", reason.facts["queue"])


def bound_text(reason: Reason) -> str:
    """Return which limit, quota or budget a queue would exceed."""
    if reason.code is Code.BUDGET_USED:
        return budget_text({**reason.facts, "queue": queue_of(reason)})
    resource = str(reason.facts["resource"])
    if reason.code is Code.OVER_MODEL_LIMIT:
        return _model_text(reason.facts)
    bound, used, requested = (number(reason.facts[key]) for key in ("bound", "used", "requested"))
    queue, would = queue_of(reason), quantity(round(used + requested), resource)
    most = quantity(round(bound), resource) + clock_words(reason.facts)
    if reason.code is Code.OVER_USER_LIMIT:
        return (
            f"a user of queue {queue} may not hold more than {most}; {reason.facts['user']} holds "
            f"{quantity(round(used), resource)}, and this job would make it {would}"
        )
    if reason.code is Code.OVER_LIMIT:
        return f"queue {queue} may not use more than {most}, and this job would make it {would}"
    return f"non-preemptible pods of {queue} may use {most}, and this job would make it {would}"


def _model_text(facts: Facts) -> str:
    """Return which limit of a model a queue would exceed."""
    bound, used, requested = (round(number(facts[key])) for key in ("bound", "used", "requested"))
    queue, model = facts.get("queue_name", facts["queue"]), facts["model"]
    most = quantity(bound, "gpu").replace(" GPU", f" {model} GPU")
    return f"queue {queue} may not use more than {most}, and this job would make it {quantity(used + requested, 'gpu')}"


def owed_text(facts: Facts) -> str:
    """Return that queues hold all GPUs of a model within their quotas, and what the own queue has of it."""
    used, quota = (round(number(facts[key])) for key in ("used", "quota"))
    own = f"has a quota of {quantity(quota, 'gpu') if quota >= 0 else 'all'}" if quota else "has no quota"
    return (
        f"no room; all {facts['model']} GPUs that others hold are within their quotas of {facts['model']}, and queue"
        f" {facts['queue']}, which uses {plain(used)}, {own}"
    )


def clock_words(facts: Facts) -> str:
    """Return from when or until when the clock has it that a bound holds, after a blank; "" for one that stays."""
    zone = str(facts.get("timezone", ""))
    if "until" in facts:
        return f" until {clock_text(number(facts['until']), zone)}"
    return f" from {clock_text(number(facts['from']), zone)} on" if "from" in facts else ""


def share_text(numbers: Mapping[str, Any]) -> str:
    """Return why a queue may not reclaim: what it would use, and its share."""
    queue, resource = numbers["queue"], numbers["resource"]
    would, share = numbers["used"] + numbers["requested"], numbers["fair_share"]
    pods = numbers["pods"]
    what = f"with {'one more pod' if pods == 1 else f'{pods} more pods'}" if numbers["more"] else "with this job"
    if would <= share:
        return (
            f"queue {queue} could not take from others when it was tried; its fair share is {quantity(share, resource)}"
        )
    passed, limit = f"fair share of {quantity(share, resource)}", numbers.get("limit", -1)
    if 0 <= limit < would:
        # One amount of both is not written twice.
        amounts = (share,) if limit == share else (share, limit)
        passed = f"fair share and limit of {' and '.join(quantity(each, resource) for each in amounts)}"
    return (
        f"{what} queue {queue} would use {quantity(would, resource)}, more than its {passed}, "
        "so it may take none from others"
    )


def few_pods_text(least: int, there: int, ended: int = 0, *, name: str = "") -> str:
    """Return that a group, or its sub-group ``name``, has too few pods; ended pods do not count."""
    where = f" in its sub-group {name}" if name else ""
    others = {0: "", 1: "; 1 other has ended"}.get(ended, f"; {ended} others have ended")
    return f"only {there} of the {least} pods that must start together exist{where}{others}"


def sub_groups_asked(facts: PodGroup) -> str:
    """Return where more sub-groups must start together than exist, "" if nowhere."""
    children = Counter(each.parent for each in facts.subgroups)
    for at, each in enumerate(facts.subgroups):
        if not each.leaf and each.minimum is not None and each.minimum > children[at]:
            field = f"minSubGroup of sub-group {each.name}" if each.name else "minSubGroup"
            return f"{field}: found {each.minimum}, expected at most {children[at]}, the number of its sub-groups"
    return ""


def delay_text(facts: Mapping[str, object]) -> str:
    """Return until when the group itself asked not to evict others."""
    window, until = delay_of(facts)
    return f"no room; it asked for a preemption delay of {window}, and may evict no others before {until}"


def held_text(nodes: Sequence[str], vacated: Container[str]) -> str:
    """Return where a group will start; pods still have to leave those of its ``nodes`` that are ``vacated``."""
    still = [node for node in nodes if node in vacated]
    what, are = (f"its place on {nodes[0]}", "is") if len(nodes) == 1 else (f"its places on {listed(nodes)}", "are")
    if len(still) == len(nodes):
        return f"{what} {are} being vacated by pods that are terminating"
    if still:
        return f"{what} {are} held until pods that are terminating have left {listed(still)}"
    return f"{what} {are} held until the pods have left that are evicted or moved in this cycle"


def tree_text(error: str) -> str:
    """Return that the sub-groups of a group are written in a way that forms no tree."""
    return f"its sub-groups form no tree: {error}"
