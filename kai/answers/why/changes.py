"""One-field changes that might let a waiting group run, each made on a copy of the objects.

This module changes the group, its queue and amounts. ``pod_changes`` changes what pods require of nodes, and
what they claim. Whether a change helps is decided by ``kai.answers.why.trials``.

Untouched objects keep their identity, so that an intake re-reads only what changed.

`GroupFields` names the fields in the form in which the group is written: the short form has ``groups.train.minimum``
where objects have ``minMember``. Users type a suggestion into their file, so it names the field of that file.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import attrs
import numpy as np

from kai.answers.offline.run import Cycle
from kai.api import names
from kai.api.cluster_objects import ClusterObjects
from kai.api.kubernetes.pod import Container, Pod, PodSpec
from kai.api.scheduling.pod_group import PodGroup, TopologyConstraint
from kai.api.scheduling.queue import Queue, QueueBudget, QueueModel, QueueResource, QueueResources, UserResource
from kai.basics.parsing import amount as amount_in
from kai.basics.wording import counted, number_text, span_text
from kai.deciding.explain.declared import Takeable
from kai.deciding.explain.phrases import bare, listed, number, quantity
from kai.facts.model.axis import GPU_UNIT, LEADING
from kai.facts.model.units import parts_of
from kai.facts.state.budgets import users_of
from kai.facts.state.facts import named_models
from kai.framework.decisions import Cause
from kai.framework.verdict import Reason


@attrs.frozen(kw_only=True)
class GroupFields:
    """The names of the changeable fields in one form."""

    minimum: str
    fraction: str
    gpu_memory: str
    preemptible: str
    """The field and the value that make pods preemptible."""
    delay: str


OBJECTS: Final = GroupFields(
    minimum="minMember",
    fraction=names.GPU_FRACTION,
    gpu_memory=names.GPU_MEMORY,
    preemptible=f"{names.PREEMPTIBILITY}: {names.PREEMPTIBLE}",
    delay="preemptionDelay",
)
SHORT: Final = GroupFields(
    minimum="minimum",
    fraction="fraction",
    gpu_memory="gpu_memory",
    preemptible="preemptible: true",
    delay="preemption_delay",
)


QUEUE_UNITS = {"gpu": GPU_UNIT, "cpu": 1, "memory": 1_000_000}
"""Axis units in one unit of a queue's quota and limit."""


@attrs.frozen(kw_only=True)
class Site:
    """A waiting group, as input for changes and evidence."""

    objects: ClusterObjects
    """The cluster before the cycle in which the group was left waiting."""
    cycle: Cycle
    group: int
    source: PodGroup
    waiting: tuple[Pod, ...]
    placed: int
    """Pods of the group that have a place."""
    reasons: tuple[Reason[str], ...]
    """Why it waits, the dominant reason first."""
    takeable: Callable[[Cause], Takeable | None] = lambda _: None
    """The groups that it could evict; None where that was not computed, or no action evicts for it."""
    fields: GroupFields = OBJECTS
    """Field names in texts. ``Change.field`` always has the name that objects have."""


@attrs.frozen(kw_only=True)
class Change:
    """One field with its old and its new value, and the changed cluster."""

    field: str
    old: str
    new: str
    text: str
    objects: ClusterObjects = attrs.field(repr=False, eq=False)


# ----------------------------------------------------------------------------------------------------------------- size


def at_once(site: Site, least: int) -> Change:
    """Let the group start with ``least`` pods."""
    spec = site.source.spec
    old = spec.minimum
    return Change(
        field="minMember",
        old=str(old),
        new=str(least),
        text=f"{site.fields.minimum} {old} -> {least}",
        objects=with_group(site, attrs.evolve(site.source, spec=attrs.evolve(spec, min_member=least))),
    )


def at_once_in(site: Site, subgroup: str, least: int) -> Change:
    """Let one sub-group start with ``least`` pods."""
    spec = site.source.spec
    old = next(each.min_member or 0 for each in spec.sub_groups if each.name == subgroup)
    parts = tuple(attrs.evolve(each, min_member=least) if each.name == subgroup else each for each in spec.sub_groups)
    return Change(
        field=f"subGroups[{subgroup}].minMember",
        old=str(old),
        new=str(least),
        text=f"{site.fields.minimum} of {subgroup} {old} -> {least}",
        objects=with_group(site, attrs.evolve(site.source, spec=attrs.evolve(spec, sub_groups=parts))),
    )


def pods(site: Site, count: int) -> Change:
    """Keep ``count`` of the waiting pods, and lower the minimum to that."""
    least = site.source.spec.minimum
    # By identity: to hash or compare a pod by value goes through each of its containers.
    gone = {id(pod) for pod in site.waiting[count:]}
    source = attrs.evolve(site.source, spec=attrs.evolve(site.source.spec, min_member=min(least, count)))
    left = tuple(pod for pod in site.objects.pods if id(pod) not in gone)
    return Change(
        field="pods",
        old=str(len(site.waiting)),
        new=str(count),
        text=f"{counted(count, 'pod')}, not {len(site.waiting)}",
        objects=attrs.evolve(with_group(site, source), pods=left),
    )


def gpus_each(site: Site, most: int) -> Change:
    """Lower the request of each pod to at most ``most`` whole GPUs."""
    amounts = sorted({asked_gpus(pod) for pod in site.waiting})
    old, gpus = amounts[-1], counted(most, "GPU")
    return Change(
        field="GPUs of each pod",
        old=str(old),
        new=str(most),
        text=f"{gpus} a pod, not {old}" if len(amounts) == 1 else _uneven(gpus, [n for n in amounts if n > most]),
        objects=with_pods(site, lambda pod: capped(pod, gpu_resource(pod), str(most))),
    )


def _uneven(gpus: str, lowered: list[int]) -> str:
    """Return the text of a change that lowers different requests to the same amount."""
    asked = f"{', '.join(map(str, lowered[:-1]))} or {lowered[-1]}" if len(lowered) > 1 else str(lowered[0])
    return f"{gpus} for pods that ask for {asked}"


def amount_each(site: Site, resource: str, old: int, new: int) -> Change:
    """Lower the request of each pod to at most ``new`` of CPU (millicores) or memory (bytes)."""
    text = f"{new}m" if resource == names.CPU else str(new)
    return Change(
        field=f"{resource} of each pod",
        old=quantity(old, resource),
        new=quantity(new, resource),
        text=f"{quantity(new, resource)} a pod, not {quantity(old, resource)}",
        objects=with_pods(site, lambda pod: capped(pod, resource, text)),
    )


def fraction(site: Site, old: int, hundredths: int) -> Change:
    """Lower the GPU fraction of every pod, in hundredths."""
    text = f"{hundredths / 100:g}"

    def smaller(pod: Pod) -> Pod:
        return (
            _with_annotation(pod, names.GPU_FRACTION, text) if names.GPU_FRACTION in pod.metadata.annotations else pod
        )

    return Change(
        field=names.GPU_FRACTION,
        old=f"{old / 100:g}",
        new=text,
        text=f"{site.fields.fraction} {old / 100:g} -> {text}",
        objects=with_pods(site, smaller),
    )


def gpu_memory(site: Site, old: int, mebibytes: int) -> Change:
    """Lower the GPU memory that every pod requests."""

    def smaller(pod: Pod) -> Pod:
        asks = names.GPU_MEMORY in pod.metadata.annotations
        return _with_annotation(pod, names.GPU_MEMORY, str(mebibytes)) if asks else pod

    return Change(
        field=names.GPU_MEMORY,
        old=str(old),
        new=str(mebibytes),
        text=f"{site.fields.gpu_memory} {old} -> {mebibytes}",
        objects=with_pods(site, smaller),
    )


# ------------------------------------------------------------------------------------------------------------ the group


def preemptible(site: Site) -> Change:
    """Make the pods of the group preemptible."""
    spec = attrs.evolve(site.source.spec, preemptibility="preemptible")
    return Change(
        field=names.PREEMPTIBILITY,
        old=site.source.spec.preemptibility or "",
        new=names.PREEMPTIBLE,
        text=site.fields.preemptible,
        objects=with_group(site, attrs.evolve(site.source, spec=spec)),
    )


def in_queue(site: Site, queue: str) -> Change:
    """Move the group to another queue."""
    old = site.source.spec.queue
    return Change(
        field="queue",
        old=old,
        new=queue,
        text=f"queue {old or '(none)'} -> {queue}",
        objects=with_group(site, attrs.evolve(site.source, spec=attrs.evolve(site.source.spec, queue=queue))),
    )


def without_delay(site: Site) -> Change:
    """Remove the preemption delay of the group."""
    spec = attrs.evolve(site.source.spec, preemption_delay=0.0)
    old = f"{site.source.spec.preemption_delay or 0:g}s"
    return Change(
        field="preemptionDelay",
        old=old,
        new="0s",
        text=f"{site.fields.delay} {old} -> 0s",
        objects=with_group(site, attrs.evolve(site.source, spec=spec)),
    )


def near_if_possible(site: Site, subgroup: str) -> Change:
    """Make the required topology level of the group ("") or of a sub-group a preferred one."""
    spec = site.source.spec
    if subgroup:
        level, parts = "", []
        for each in spec.sub_groups:
            if each.name == subgroup and each.topology_constraint is not None:
                level = each.topology_constraint.required_topology_level
                each = attrs.evolve(each, topology_constraint=_preferred(each.topology_constraint))  # noqa: PLW2901 - the same part, changed
            parts.append(each)
        changed = attrs.evolve(spec, sub_groups=tuple(parts))
    else:
        level = spec.topology_constraint.required_topology_level
        changed = attrs.evolve(spec, topology_constraint=_preferred(spec.topology_constraint))
    whose = f" of {subgroup}" if subgroup else ""
    return Change(
        field=f"topologyConstraint{whose}",
        old=f"required {level}",
        new=f"preferred {level}",
        text=f"{level}{whose} preferred, not required",
        objects=with_group(site, attrs.evolve(site.source, spec=changed)),
    )


def _preferred(constraint: TopologyConstraint) -> TopologyConstraint:
    preferred = constraint.preferred_topology_level or constraint.required_topology_level
    return attrs.evolve(constraint, required_topology_level="", preferred_topology_level=preferred)


# --------------------------------------------------------------------------------------------------------------- queues


def queue_bound(site: Site, queue: str, bound: str, resource: str, amount: float) -> Change:
    """Raise the quota or the limit of a queue to ``amount`` in axis units."""
    units = QUEUE_UNITS[resource]
    members: list[Queue] = []
    old = 0.0
    for each in site.objects.queues:
        if each.metadata.name == queue:
            resources = each.spec.resources or QueueResources()
            share: QueueResource = getattr(resources, resource)
            old = getattr(share, bound)
            changed: dict[str, Any] = {resource: attrs.evolve(share, **{bound: amount / units})}
            raised = attrs.evolve(resources, **changed)
            each = attrs.evolve(each, spec=attrs.evolve(each.spec, resources=raised))  # noqa: PLW2901 - the same queue, changed
        members.append(each)
    was, would = (bare(value * units, resource) for value in (old, amount / units))
    return Change(
        field=f"{bound} of queue {queue}" + ("" if resource == "gpu" else f" for {resource}"),
        old=was,
        new=would,
        text=f"{bound} of {queue} {was} -> {would}",
        objects=attrs.evolve(site.objects, queues=tuple(members)),
    )


LIMITS: Final = frozenset({"OverLimit", "OverModelLimit", "OverUserLimit"})
"""Codes of limits of queues, which bound all pods; quotas bound only pods that cannot be preempted."""


def used_against(site: Site, reason: Reason[str]) -> float:
    """Return what counts at the end of the cycle against the limit or quota that ``reason`` names, in axis units."""
    report, row = site.cycle.report, int(number(reason.facts["queue_row"]))
    if reason.code == "OverUserLimit":
        accounts, user = report.accounts, str(reason.facts["user"])
        mine = (accounts.queue == row) & (np.array(users_of(site.cycle.snapshot, accounts)) == user)
        return float(report.user_used[mine, LEADING.index(str(reason.facts["resource"]))].sum())
    if "model" in reason.facts:
        return float(report.queue_models[row, named_models(site.cycle.snapshot).index(str(reason.facts["model"]))])
    columns = report.queue_used if reason.code in LIMITS else report.queue_fixed
    return float(columns[row, LEADING.index(str(reason.facts["resource"]))])


def model_limit(site: Site, queue: str, model: str, amount: float) -> Change:
    """Raise the limit of a queue for a model of GPU to ``amount`` thousandths of GPUs."""
    old = 0.0

    def raised(each: Queue) -> Queue:
        nonlocal old
        if each.metadata.name != queue or each.spec.resources is None:
            return each
        models = each.spec.resources.models
        known = models.get(model, QueueModel())
        old = known.limit
        resources = attrs.evolve(
            each.spec.resources, models={**models, model: attrs.evolve(known, limit=amount / GPU_UNIT)}
        )
        return attrs.evolve(each, spec=attrs.evolve(each.spec, resources=resources))

    queues = tuple(map(raised, site.objects.queues))
    was, would = bare(old * GPU_UNIT, "gpu"), bare(amount, "gpu")
    return Change(
        field=f"limit of queue {queue} for {model}",
        old=was,
        new=would,
        text=f"limit of {queue} for {model} {was} -> {would}",
        objects=attrs.evolve(site.objects, queues=queues),
    )


def user_limit(site: Site, queue: str, resource: str, amount: float) -> Change:
    """Raise what a queue lets each user hold of a resource to ``amount`` in axis units."""
    units = QUEUE_UNITS[resource]
    old = 0.0

    def raised(each: Queue) -> Queue:
        nonlocal old
        resources = each.spec.resources
        if each.metadata.name != queue or resources is None or resources.per_user is None:
            return each
        known: UserResource = getattr(resources.per_user, resource)
        old = known.limit
        changed: dict[str, Any] = {resource: UserResource(limit=amount / units)}
        resources = attrs.evolve(resources, per_user=attrs.evolve(resources.per_user, **changed))
        return attrs.evolve(each, spec=attrs.evolve(each.spec, resources=resources))

    queues = tuple(map(raised, site.objects.queues))
    was, would = bare(old * units, resource), bare(amount, resource)
    of = "" if resource == "gpu" else f" for {resource}"
    return Change(
        field=f"limit of users of queue {queue}{of}",
        old=was,
        new=would,
        text=f"limit of each user of {queue}{of} {was} -> {would}",
        objects=attrs.evolve(site.objects, queues=queues),
    )


def max_runtime(site: Site, seconds: float) -> Change:
    """Give the group a limit of its run time."""
    metadata, text = site.source.metadata, span_text(seconds)
    old = metadata.annotations.get(names.MAX_RUNTIME, "")
    annotations = {**metadata.annotations, names.MAX_RUNTIME: text}
    return Change(
        field=names.MAX_RUNTIME,
        old=old,
        new=text,
        text=f"{names.MAX_RUNTIME} {old or '(none)'} -> {text}",
        objects=with_group(site, attrs.evolve(site.source, metadata=attrs.evolve(metadata, annotations=annotations))),
    )


def budget_amount(site: Site, queue: str, budget: str, hours: float) -> Change:
    """Raise a budget of a queue to ``hours`` GPU-hours."""
    old = 0.0

    def raised(each: QueueBudget) -> QueueBudget:
        nonlocal old
        if each.name != budget:
            return each
        old = each.amount
        return attrs.evolve(each, amount=hours)

    members = tuple(
        attrs.evolve(each, spec=attrs.evolve(each.spec, budgets=tuple(map(raised, each.spec.budgets))))
        if each.metadata.name == queue
        else each
        for each in site.objects.queues
    )
    was, would = number_text(old, 9), number_text(hours, 9)
    return Change(
        field=f"budget {budget} of queue {queue}",
        old=was,
        new=would,
        text=f"budget {budget} of {queue} {was} -> {would} GPU-hours",
        objects=attrs.evolve(site.objects, queues=members),
    )


def with_compute(site: Site, lacking: Mapping[str, Collection[str]]) -> Change:
    """Lift quota and limit of CPU and memory where queues may use none; ``lacking`` has these resources by queue."""
    # A limit alone would not do for work that is not preemptible: it needs a quota, and an absent one is 0.
    free = QueueResource(quota=names.UNLIMITED, limit=names.UNLIMITED)

    def lifted(queue: Queue) -> Queue:
        found = lacking.get(queue.metadata.name, ())
        if not found:
            return queue
        lifting: dict[str, Any] = dict.fromkeys(found, free)
        resources = attrs.evolve(queue.spec.resources or QueueResources(), **lifting)
        return attrs.evolve(queue, spec=attrs.evolve(queue.spec, resources=resources))

    resources = sorted({resource for found in lacking.values() for resource in found})
    what, where = " and ".join(resources), listed(list(lacking))
    return Change(
        field=f"limit of {what}",
        old="0",
        new="-1",
        text=f"{what}: {{quota: -1, limit: -1}} in {'queue' if len(lacking) == 1 else 'queues'} {where}",
        objects=attrs.evolve(site.objects, queues=tuple(map(lifted, site.objects.queues))),
    )


# -------------------------------------------------------------------------------------------------------------- reading


def gpu_resource(pod: Pod) -> str:
    """Return the resource in which one container of ``pod`` requests whole GPUs; "" when none does, or several do."""
    # GPUs of several containers add up, and which of them should ask for less is the owner's choice.
    found = [
        resource
        for container in pod.spec.containers
        for resource in {**container.resources.limits, **container.resources.requests}
        if resource in names.GPU_RESOURCES
    ]
    return found[0] if len(found) == 1 else ""


def asked_gpus(pod: Pod) -> int:
    """Return the whole GPUs that one container of ``pod`` requests; 0 when none does, or several do."""
    resource = gpu_resource(pod)
    for container in pod.spec.containers if resource else ():
        asked = container.resources.requests.get(resource) or container.resources.limits.get(resource)
        # A quantity such as "1k" is valid in Kubernetes but unusual for GPUs; 0 suggests nothing, which is never wrong.
        if asked is not None:
            return int(asked) if asked.isdecimal() else 0
    return 0


# -------------------------------------------------------------------------------------------------------------- copying


def with_group(site: Site, changed: PodGroup) -> ClusterObjects:
    """Return the cluster with the changed group."""
    # All others are kept as they are: the intake of trials finds by identity what it need not read again.
    members = tuple(changed if each is site.source else each for each in site.objects.pod_groups)
    return attrs.evolve(site.objects, pod_groups=members)


def with_pods(site: Site, edit: Callable[[Pod], Pod]) -> ClusterObjects:
    """Return the cluster with the waiting pods edited."""
    mine = {id(pod) for pod in site.waiting}
    return attrs.evolve(site.objects, pods=tuple(edit(pod) if id(pod) in mine else pod for pod in site.objects.pods))


def with_spec(site: Site, edit: Callable[[Pod], PodSpec]) -> ClusterObjects:
    """Return the cluster with the specs of the waiting pods edited."""
    return with_pods(site, lambda pod: attrs.evolve(pod, spec=edit(pod)))


def _with_annotation(pod: Pod, key: str, value: str) -> Pod:
    return attrs.evolve(pod, metadata=attrs.evolve(pod.metadata, annotations={**pod.metadata.annotations, key: value}))


def capped(pod: Pod, resource: str, text: str) -> Pod:
    """Return the pod with requests and limits above ``text`` of ``resource`` lowered to that."""
    # Compared as amounts: "500m" and "0.5" are one request, and a comparison of texts would leave one above the bound.
    parts = parts_of(resource)
    most = amount_in(text, parts)

    def lowered(asked: Mapping[str, str]) -> Mapping[str, str]:
        return {**asked, resource: text} if amount_in(asked.get(resource, "0"), parts) > most else asked

    def smaller(container: Container) -> Container:
        asked = container.resources
        resources = attrs.evolve(asked, requests=lowered(asked.requests), limits=lowered(asked.limits))
        return attrs.evolve(container, resources=resources)

    containers = tuple(map(smaller, pod.spec.containers))
    if containers == pod.spec.containers:
        return pod  # an unchanged object keeps its identity
    return attrs.evolve(pod, spec=attrs.evolve(pod.spec, containers=containers))
