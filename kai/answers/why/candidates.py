"""Candidate changes for a waiting group: only changes that bear on its dominant reason.

A family is one field. Its steps go from the least change to the greatest, so that a binary search finds the least one
that helps; or they are alternatives without an order.
"""

import difflib
import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from kai.answers.why import changes, pod_changes
from kai.answers.why.changes import LIMITS, Site, used_against
from kai.answers.why.unfit_nodes import CAPPED, MOST_ALTERNATIVES, OBSTACLES, Family, Maker, back_again, below, rounder
from kai.api import names
from kai.api.conventions.queue_rules import Rule, queue_faults, shape_of
from kai.api.kinds import key_of
from kai.basics.parsing import GPU_HOUR
from kai.basics.trees import ancestry
from kai.deciding.explain.codes import Stage, stage_of
from kai.deciding.explain.phrases import number
from kai.deciding.explain.recorded import least_pods
from kai.facts.model.axis import CPU, GPU, GPU_UNIT, LEADING, MEMORY
from kai.facts.model.budgets import ADMIT
from kai.facts.model.pod import ALIVE, within

if TYPE_CHECKING:
    from kai.api.kubernetes.node import Taint


def families(site: Site) -> Iterator[Family]:
    """Yield the families to try for the dominant reason of a group, its owner's fields first."""
    code = site.reasons[0].code
    makers = _BY_CODE.get(code) if code in _BY_CODE else _BY_STAGE.get(stage_of(code), _ROOM)
    if site.reasons[0].facts.get("sized"):
        makers = _SIZED
    for make in makers or ():
        # The pods of a group come from one template: smaller requests would also restart its running pods.
        if make in _SMALLER_PODS and _has_run(site):
            continue
        yield from (family for family in make(site) if family.steps)


def _has_run(site: Site) -> bool:
    """Return whether pods of the group had a place before the cycle, or have one now."""
    rows = site.cycle.snapshot.pod_group == site.group
    return bool(site.placed or (site.cycle.snapshot.pod_node[rows] >= 0).any())


# ----------------------------------------------------------------------------------------------------------------- size


def _at_once(site: Site) -> Iterator[Family]:
    """Yield lower minimums: of the group, or of the sub-group that found no place."""
    spec = site.source.spec
    subgroup = str(_fact(site, "subgroup", ""))
    # The minimum of the group itself is for groups without sub-groups. With them, only the sub-group that found no
    # place is tried: a lower minimum of another one leaves it waiting.
    if not spec.sub_groups:
        least = spec.minimum
        yield Family(topic="size", steps=tuple(partial(changes.at_once, site, each) for each in below(least)))
    for part in spec.sub_groups:
        if part.name == subgroup:
            steps = tuple(partial(changes.at_once_in, site, subgroup, each) for each in below(part.min_member or 0))
            yield Family(topic="size", steps=steps)


def _existing(site: Site) -> Iterator[Family]:
    """Yield the minimum that the existing pods can meet."""
    snapshot, least = site.cycle.snapshot, least_pods(site.cycle.snapshot.groups[site.group])
    rows = np.flatnonzero(snapshot.pod_group == site.group)
    ready = sum(within(int(snapshot.pod_status[row]), ALIVE) for row in rows)
    # Gated pods are alive but cannot be placed. A minimum that counts them would leave the group waiting for the gates.
    ready -= sum(bool(pod.spec.scheduling_gates) for pod in site.waiting)
    if not site.source.spec.sub_groups and 0 < ready < least:
        yield Family(topic="size", steps=(partial(changes.at_once, site, ready),))


def _fewer_pods(site: Site) -> Iterator[Family]:
    # A group that runs in part has reached its minimum, and its further pods
    # are tried one by one: fewer of them help none.
    if not site.source.spec.sub_groups and not site.placed:
        steps = tuple(partial(changes.pods, site, each) for each in below(len(site.waiting)))
        yield Family(topic="size", steps=steps)


def _fewer_gpus(site: Site) -> Iterator[Family]:
    asked = max((changes.asked_gpus(pod) for pod in site.waiting), default=0)
    yield Family(topic="gpus", steps=tuple(partial(changes.gpus_each, site, each) for each in below(asked)))
    texts = {pod.metadata.annotations.get(names.GPU_FRACTION, "") for pod in site.waiting}
    portions = [round(float(text) * 100) for text in texts if text.replace(".", "", 1).isdecimal()]
    if len(portions) == 1 and 1 < portions[0] < 100:
        # In hundredths, in which quotas count fractions; a finer step would round to one of these.
        steps = tuple(partial(changes.fraction, site, portions[0], each) for each in range(portions[0] - 1, 0, -1))
        yield Family(topic="fraction", steps=steps)
    amounts = {pod.metadata.annotations.get(names.GPU_MEMORY, "") for pod in site.waiting}
    if len(amounts) == 1 and (text := amounts.pop()).isdecimal():
        steps = tuple(partial(changes.gpu_memory, site, int(text), each) for each in rounder(int(text)))
        yield Family(topic="memory of GPUs", steps=steps)


def _within_bound(site: Site) -> Iterator[Family]:
    """Yield requests that are smaller by the amount that exceeds the bound of the queue."""
    reason = site.reasons[0].facts
    resource = str(reason.get("resource"))
    if resource == "gpu":
        yield from _fewer_gpus(site)
        return
    excess = number(reason.get("used")) + number(reason.get("requested")) - number(reason.get("bound"))
    each = _asked(site, resource)
    pods = round(number(reason.get("requested")) / each) if each else 0
    if pods and excess > 0:
        # The floor of a negative number rounds away from zero, so that what all pods give up covers the excess.
        new = each + int(-excess // pods)
        yield from _amount(site, resource, each, new)


def _within_node(site: Site) -> Iterator[Family]:
    """Yield the largest request that some node could hold if it were empty."""
    resource, most = str(_fact(site, "resource", "")), int(number(_fact(site, "most", 0)))
    if resource == "gpu":
        asked = max((changes.asked_gpus(pod) for pod in site.waiting), default=0)
        possible = most // GPU_UNIT
        if asked > possible > 0:
            steps = tuple(partial(changes.gpus_each, site, each) for each in below(possible + 1))
            yield Family(topic="gpus", steps=steps)
    elif resource in ("cpu", "memory"):
        yield from _amount(site, resource, _asked(site, resource), most)


def _within_idle(site: Site) -> Iterator[Family]:
    """Yield the most CPU and memory that some node has idle, for pods that request no GPUs."""
    idle = site.cycle.report.idle
    if not len(idle) or _asked(site, "gpu"):
        return
    for at, resource in ((CPU, "cpu"), (MEMORY, "memory")):
        # The maxima of CPU and memory may be of two nodes. A trial decides, so a candidate need not be right.
        yield from _amount(site, resource, _asked(site, resource), int(idle[:, at].max()))


def _amount(site: Site, resource: str, old: int, new: int) -> Iterator[Family]:
    # With several containers `new` is for the pod as a whole, and no field of a manifest has that.
    if 0 < new < old and all(len(pod.spec.containers) == 1 for pod in site.waiting):
        yield Family(topic=resource, steps=(partial(changes.amount_each, site, resource, old, new),))


def _asked(site: Site, resource: str) -> int:
    """Return the greatest request of a waiting pod, in axis units."""
    at = LEADING.index(resource)
    snapshot = site.cycle.snapshot
    waiting = {key_of(pod) for pod in site.waiting}
    rows = [row for row in np.flatnonzero(snapshot.pod_group == site.group) if _key(site, int(row)) in waiting]
    return max((int(snapshot.requests[int(snapshot.pod_shape[row]), at]) for row in rows), default=0)


def _key(site: Site, row: int) -> tuple[str, str]:
    pod = site.cycle.snapshot.pods[row]
    return pod.namespace, pod.name


# --------------------------------------------------------------------------------------------------------------- queues


def _bound(site: Site) -> Iterator[Family]:
    """Yield the exceeded limit or quota, raised by the excess at the refusal, and by that at the end of the cycle."""
    reason = site.reasons[0]
    resource, row = str(reason.facts.get("resource")), int(number(reason.facts.get("queue_row", -1)))
    if row < 0:
        return
    limit, model = reason.code in LIMITS, str(reason.facts.get("model", ""))
    requested = number(reason.facts.get("requested"))
    # Jobs that are decided later in the cycle may use up the raise before this one is tried, so the figure of the end
    # counts too. The smaller one often suffices.
    amounts = sorted({number(reason.facts.get("used")) + requested, used_against(site, reason) + requested})
    name = site.cycle.snapshot.queues[row].name
    bound = "limit" if limit else "quota"
    steps = tuple(
        partial(changes.model_limit, site, name, model, amount)
        if model
        else partial(changes.user_limit, site, name, resource, amount)
        if reason.code == "OverUserLimit"
        else partial(changes.queue_bound, site, name, bound, resource, amount)
        for amount in amounts
        if amount > number(reason.facts.get("bound"))
    )
    yield Family(topic=bound, steps=steps)


def _runtime(site: Site) -> Iterator[Family]:
    """Yield limits of the run time with which a group stays within its budget, the longest first."""
    facts = site.reasons[0].facts
    left = number(facts.get("amount")) - number(facts.get("spent")) - number(facts.get("committed"))
    asked = number(facts.get("requested")) / max(1.0, number(facts.get("seconds")))
    if facts.get("enforce") != ADMIT or facts.get("spent") is None or not facts.get("is_open"):
        return
    longest = left / asked if asked > 0 else _USUAL_RUN if number(facts.get("seconds")) < 0 else 0.0
    steps = [each for each in (3600.0, 900.0, 60.0) if longest >= each]
    if steps:
        # Whole hours, else quarters, else minutes, never rounded up: users type the limit into a manifest.
        limit = longest // steps[0] * steps[0]
        yield Family(topic="run time", steps=(partial(changes.max_runtime, site, limit),))


_USUAL_RUN: Final = 3600.0
"""The limit that is tried for work that has none, where none is needed but one."""


def _budget(site: Site) -> Iterator[Family]:
    """Yield the budget with what the group may use."""
    facts = site.reasons[0].facts
    if facts.get("spent") is None or not facts.get("is_open") or number(facts.get("seconds")) < 0:
        return
    needed = number(facts.get("spent")) + number(facts.get("committed")) + number(facts.get("requested"))
    # What was carried over comes on top of the amount and is no part of the field that is changed.
    hours = math.ceil((needed - number(facts.get("carried"))) / GPU_HOUR)
    name = site.cycle.snapshot.queues[int(number(facts.get("queue_row")))].name
    yield Family(topic="budget", steps=(partial(changes.budget_amount, site, name, str(facts["budget"]), hours),))


def _compute(site: Site) -> Iterator[Family]:
    """Yield unlimited CPU and memory for the queue and its ancestors, where they have GPUs but no CPU or memory."""
    if site.reasons[0].facts.get("resource") not in ("cpu", "memory"):
        return
    parents = {each.metadata.name: each.spec.parent_queue or None for each in site.objects.queues}
    faults = queue_faults(map(shape_of, site.objects.queues))
    lacking = {
        name: [fault.resource for fault in faults.get(name, ()) if fault.rule is Rule.NO_COMPUTE]
        for name in ancestry(site.source.spec.queue, parents)
    }
    lacking = {name: found for name, found in lacking.items() if found}
    if lacking:
        yield Family(topic="limit", steps=(partial(changes.with_compute, site, lacking),))


def _share(site: Site) -> Iterator[Family]:
    """Yield quotas up to the one that covers the group, where its queue has reached its fair share."""
    reason = next((each for each in site.reasons if each.code == "AtFairShare"), None)
    row = site.cycle.snapshot.groups[site.group].queue_row
    if reason is None or row < 0:
        return
    resource = str(reason.facts.get("resource"))
    if resource not in ("cpu", "memory", "gpu"):
        return
    at = LEADING.index(resource)
    queue = site.cycle.snapshot.queues[row]
    quota = queue.quota.of(at)
    asked = number(reason.facts.get("requested"))
    would = number(reason.facts.get("used")) + asked
    if not 0 <= quota < would:
        return
    # Steps of one GPU. Where another queue is first in line, the job needs more quota than it will use.
    most = would + asked
    amounts = [most - GPU_UNIT * less for less in range(CAPPED) if most - GPU_UNIT * less > quota]
    steps = amounts[::-1] if resource == "gpu" else [would]
    family = tuple(partial(changes.queue_bound, site, queue.name, "quota", resource, amount) for amount in steps)
    yield Family(topic="quota", steps=family)


def _other_queue(site: Site) -> Iterator[Family]:
    """Yield other queues: leaf queues below a parent queue, else those with similar names, or all if they are few."""
    queues = site.cycle.snapshot.queues
    parents = {queue.parent for queue in queues}
    leaves = [queue.name for row, queue in enumerate(queues) if row not in parents]
    below = _fact(site, "leaves", ())
    if isinstance(below, tuple) and below:
        found = [name for name in leaves if name in below]
    else:
        found = difflib.get_close_matches(site.source.spec.queue, leaves, n=MOST_ALTERNATIVES)
        found = found or (leaves if len(leaves) <= MOST_ALTERNATIVES else [])
    steps = tuple(partial(changes.in_queue, site, name) for name in found[:MOST_ALTERNATIVES])
    yield Family(topic="queue", steps=steps, ordered=False)


# ---------------------------------------------------------------------------------------------------------------- nodes


def _near(site: Site) -> Iterator[Family]:
    spec = site.source.spec
    if spec.topology_constraint.required_topology_level:
        yield Family(topic="topology", steps=(partial(changes.near_if_possible, site, ""),))
    for part in spec.sub_groups:
        if part.topology_constraint is not None and part.topology_constraint.required_topology_level:
            steps = (partial(changes.near_if_possible, site, part.name),)
            yield Family(topic=f"topology of {part.name}", steps=steps)


def _tolerations(site: Site) -> Iterator[Family]:
    """Yield tolerations for the taints of nodes, first for those on nodes with most idle GPUs."""
    idle = _idle_by_node(site)
    found: dict[Taint, int] = {}
    for node in site.objects.nodes:
        for taint in node.spec.taints:
            # The node controller sets and removes these taints, such as not-ready; jobs should not tolerate them.
            if taint.effect in ("NoSchedule", "NoExecute") and not taint.key.startswith("node.kubernetes.io/"):
                found[taint] = found.get(taint, 0) + idle.get(node.metadata.name, 0)
    known = {(each.key, each.value) for pod in site.waiting for each in pod.spec.tolerations}
    taints = sorted(found, key=lambda each: (-found[each], each.key, each.value, each.effect))
    new = [taint for taint in taints if (taint.key, taint.value) not in known]
    steps = tuple(partial(pod_changes.tolerating, site, taint) for taint in new[:MOST_ALTERNATIVES])
    yield Family(topic="toleration", steps=steps, ordered=False)


def _selectors(site: Site) -> Iterator[Family]:
    """Yield other values of each selected label, those of the nodes with most idle GPUs first, then no selector.

    Where no node has the selected value, the value with the most similar spelling comes first, as a probable typo.
    """
    idle = _idle_by_node(site)
    for key in sorted({key for pod in site.waiting for key in pod.spec.node_selector}):
        values: dict[str, int] = {}
        for node in site.objects.nodes:
            value = node.metadata.labels.get(key)
            if value is not None:
                values[value] = values.get(value, 0) + idle.get(node.metadata.name, 0)
        asked = site.waiting[0].spec.node_selector.get(key, "")
        near = difflib.get_close_matches(asked, sorted(values), n=1) if asked not in values else []
        for value in near:
            yield Family(topic=f"spelling of {key}", steps=(partial(pod_changes.selecting, site, key, value),))
        for value in (asked, *near):
            values.pop(value, None)
        # No selector comes last: it lets the pod onto all nodes, and the user may have excluded some on purpose.
        best: list[str | None] = [
            *sorted(values, key=lambda each: (-values[each], each))[: MOST_ALTERNATIVES - 1],
            None,
        ]
        steps = tuple(partial(pod_changes.selecting, site, key, value) for value in best)
        yield Family(topic=f"selector {key}", steps=steps, ordered=False)


def _affinities(site: Site) -> Iterator[Family]:
    for kind in ("node_affinity", "pod_affinity", "pod_anti_affinity"):
        parts = [getattr(pod.spec.affinity, kind) for pod in site.waiting if pod.spec.affinity is not None]
        if any(part is not None and part.required for part in parts):
            yield Family(topic=kind, steps=(partial(pod_changes.without_affinity, site, kind),))


def _idle_by_node(site: Site) -> Mapping[str, int]:
    idle = site.cycle.report.idle
    return {node.name: int(idle[row, GPU]) for row, node in enumerate(site.cycle.snapshot.nodes)}


# --------------------------------------------------------------------------------------------------------------- others


def _preemptible(site: Site) -> Iterator[Family]:
    yield Family(topic="preemptibility", steps=(partial(changes.preemptible, site),))


def _gates(site: Site) -> Iterator[Family]:
    yield Family(topic="gates", steps=(partial(pod_changes.ungated, site),))


def _delay(site: Site) -> Iterator[Family]:
    if any(reason.code == "PreemptionDelayNotElapsed" for reason in site.reasons):
        yield Family(topic="delay", steps=(partial(changes.without_delay, site),))


def _fact(site: Site, key: str, default: object) -> object:
    """Return a fact of the first reason that has it."""
    return next((reason.facts[key] for reason in site.reasons if key in reason.facts), default)


_SIZE: tuple[Maker, ...] = (_at_once, _fewer_pods, _fewer_gpus)
_SMALLER_PODS: tuple[Maker, ...] = (_fewer_gpus, _within_bound, _within_node, _within_idle)
_WHERE: tuple[Maker, ...] = (_tolerations, _selectors, _affinities)
_ROOM: tuple[Maker, ...] = (*OBSTACLES, *_SIZE, _within_idle, back_again, _near, *_WHERE, _delay, _share)
_SIZED: tuple[Maker, ...] = (*_SIZE, _within_node, back_again, _near, *_WHERE)
"""For nodes that match but are too small or too few: smaller pods, fewer pods, or more nodes that match."""
_BY_STAGE: Mapping[Stage, tuple[Maker, ...]] = {
    Stage.QUEUE: (_other_queue,),
    Stage.READINESS: (_existing,),
    Stage.IMPOSSIBLE: (*_SIZE, back_again),
    # An absent resource is a limit of 0, which owners of GPU queues overlook. To lift CPU and memory comes before a
    # raise of the one limit that was exceeded, which only leads to the next refusal.
    Stage.LIMIT: (_compute, _at_once, _fewer_pods, _within_bound, _bound),
    Stage.QUOTA: (_preemptible, _at_once, _fewer_pods, _within_bound, _bound),
    Stage.MATCH: (*_WHERE, back_again),
}
"""By the stage that the group reached; _ROOM for all other stages."""
_BY_CODE: Mapping[str, tuple[Maker, ...]] = {
    "BudgetUsed": (_runtime, _at_once, _fewer_pods, _fewer_gpus, _budget),
    "PodGroupRefused": (),
    "PriorityNotAllowed": (),
    "TimeLimit": (),
    "SubGroupsInvalid": (),
    "UnknownSubGroup": (),
    "Gated": (_gates, _existing),
    "NoNodes": (),
    "NoNodeLargeEnough": (_within_node, back_again),
    "GpuMemoryUnknown": (),
    "TopologyMissing": (_near,),
    "TopologyLevelMissing": (_near,),
    "DomainTooSmall": (_near, *_SIZE),
    "PodRefused": (),
    "BindRefused": (),
    "Plugin": (),
    "NoScore": (),
    "HeldForLeaving": (),
    "Moves": (),
}
"""By reason code, where other changes apply than for the rest of the stage."""
