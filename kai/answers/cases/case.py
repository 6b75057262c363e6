"""A case: the complete input of one simulation, independent of the format in which it was written.

Doubts about the objects of a case become sentences: limits below quotas, nodes that do not exist, other node pools.

The past usage of queues is given in a case as fractions of the cluster; a simulation queries no database.

Intake settings come from the peer's scheduler parameters that determine how a cluster becomes a snapshot.

The time of a case without one is the newest time in its objects. It is not the current time, because the same files
must always give the same decisions.

Resource claims are made from templates for waiting pods, as kube-controller-manager would, since none runs here.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.answers.cases.origin import Origin
from kai.api import names, values
from kai.api.cluster_objects import ClusterObjects
from kai.api.conventions.device_claims import ClaimKey, with_claims
from kai.api.conventions.queue_rules import Rule, queue_faults, shape_of
from kai.api.fields import EMPTY
from kai.api.kinds import key_of
from kai.api.kubernetes.meta import ObjectMeta
from kai.api.kubernetes.pod import ENDED, Pod
from kai.api.values import BadValue
from kai.basics.errors import ConfigError, InputError
from kai.basics.parsing import is_number
from kai.basics.wording import counted, shown
from kai.deciding.configuration.peer import Settings
from kai.deciding.configuration.profile_reading import Configuration
from kai.facts.model.groups import Shares
from kai.facts.model.placement import Past
from kai.intake import IntakeSettings, QueueAccess

if TYPE_CHECKING:
    from kai.manifests import Finding, Unused
    from kai.manifests.proposals import Proposal


@attrs.frozen(kw_only=True)
class Expected:
    """The expectations of a scenario in the short form."""

    groups: Mapping[str, Any]
    idle: Mapping[str, Any] = attrs.field(factory=dict)
    shares: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class RefusedWorkload:
    """A workload that a cluster would refuse as it is, so that the simulation leaves it out.

    It has the job that it would have been, and every finding that means refusal.
    """

    name: str
    namespace: str
    kind: str
    queue: str
    pods: int
    gpus: float
    findings: "tuple[Finding, ...]"

    @property
    def text(self) -> str:
        """Return the refusal in one sentence: the first fault, and the number of others."""
        others = len(self.findings) - 1
        return f"{self.findings[0].message}{f' (and {others} more)' if others else ''}"


@attrs.frozen(kw_only=True)
class Case:
    """A cluster at one instant, a configuration, and the number of cycles.

    Time stands still: every cycle happens at ``now``, in seconds since the epoch.
    """

    name: str
    """The path as the user gave it."""
    title: str
    objects: ClusterObjects
    now: float
    configuration: Configuration
    settings: IntakeSettings
    cycles: int = 1
    stable_cycles: int = 0
    """Cycles after those; the answer must hold after each of them."""
    past: Past = attrs.field(factory=Past)
    """The history before the first cycle."""
    keep_terminating: frozenset[str] = frozenset()
    """Names of pod groups whose pods stay terminating forever once they are evicted."""
    expected: Mapping[str, Any] | None = None
    sentences: Expected | None = None
    """The expectations of a scenario in the short form."""
    short_groups: frozenset[str] = frozenset()
    """Names of the groups that are written in the short form."""
    document: Mapping[str, Any] | None = None
    """The configuration in the form that snapshots carry; None for the default one."""
    recorded: Mapping[str, Any] | None = None
    """The decisions that a snapshot records about itself, as a plan."""
    notes: tuple[str, ...] = ()
    """What reading skipped or changed."""
    unused: "tuple[Unused, ...]" = ()
    """Objects that had no part in it, counted by kind and reason."""
    findings: "tuple[Finding, ...]" = ()
    """Faults of the input, of objects that have a part in it and of refused ones."""
    refused: tuple[RefusedWorkload, ...] = ()
    """Workloads that a cluster would refuse as they are; they have no part in it."""
    about: "Mapping[str, tuple[Finding, ...]]" = EMPTY
    """The findings about each job, by ``namespace/name``."""
    workloads: int = 0
    """Number of workloads among plain manifests that ask for this scheduler."""
    owners: Mapping[str, tuple[tuple[str, str, str], ...]] = EMPTY
    """Kind, name and UID of the owners of workloads among plain manifests, by the UID of the workload."""
    templates: tuple[Mapping[str, Any], ...] = ()
    """Manifests that only describe the pods of workloads, such as the runtimes of TrainJobs."""
    adopted: tuple[str, ...] = ()
    """Notes on what was adopted from other schedulers, and what was not."""
    proposals: "tuple[Proposal, ...]" = ()
    """The queues that were proposed for it."""
    queue_sources: tuple[Mapping[str, Any], ...] = ()
    """Manifests that define the queues of other schedulers."""
    origin: Origin = attrs.field(factory=Origin)


@attrs.frozen(kw_only=True)
class FairShareCase:
    """Sibling queues and an amount to divide, without a cluster."""

    name: str
    title: str
    document: Mapping[str, Any]
    expected: Mapping[str, Any] | None = None
    origin: Origin = attrs.field(factory=Origin)


def cluster_of(case: Case | FairShareCase) -> Case:
    """Return the case if it is a cluster.

    Raises: InputError for a division of fair shares.
    """
    if not isinstance(case, Case):
        raise InputError(f"{case.name}: found a division of fair shares, expected a cluster")
    return case


_MOST: Final = 3


def low_limits(objects: ClusterObjects) -> Iterator[tuple[str, str]]:
    """Yield the name of each queue whose limit is below its quota, and a sentence about it without the name.

    The part of the quota above the limit can never be used.
    """
    for faults in queue_faults(map(shape_of, objects.queues)).values():
        for fault in (each for each in faults if each.rule is Rule.LOW_LIMIT):
            limit, quota = f"{fault.found:.15g}", f"{fault.bound:.15g}"
            yield fault.queue, f"its limit of {fault.resource}, {limit}, is below its quota, {quota}"


def missing_nodes(case: Case) -> tuple[str, ...]:
    """Return a sentence for each of the first pods whose node is not among the nodes of a case.

    Their requests count for their queues, although they run nowhere.
    """
    known = {node.metadata.name for node in case.objects.nodes}
    scheduler = case.settings.scheduler_name
    astray = [
        pod
        for pod in case.objects.pods
        if pod.spec.node_name
        and pod.spec.node_name not in known
        and pod.status.phase not in ENDED
        # Pods of other schedulers have no queue here, so a wrong node of theirs charges none.
        and pod.spec.scheduler_name == scheduler
    ]
    first = [
        f"pod {pod.metadata.namespace}/{pod.metadata.name}: spec.nodeName: found {pod.spec.node_name}, "
        "which is not among the nodes"
        for pod in astray[:_MOST]
    ]
    more = len(astray) - len(first)
    return (*first, f"so it is with {more} more pods") if more > 0 else tuple(first)


def unknown_hour(case: Case) -> tuple[str, ...]:
    """Return a sentence where queues follow the clock and no object of the input says what time it is.

    Manifests carry no time before they are applied. Their case is at the beginning of time, whatever the day is.
    """
    if case.now > 0 or not any(queue.spec.schedules for queue in case.objects.queues):
        return ()
    return ("quotas follow the clock, and the input has no time: these are for Thu 00:00 UTC; --at chooses a time",)


def other_schedulers(case: Case) -> tuple[str, ...]:
    """Return a sentence where kai has neither pods nor groups, but other schedulers have pods."""
    ours = case.settings.scheduler_name
    counts = Counter(pod.spec.scheduler_name for pod in case.objects.pods if pod.status.phase not in ENDED)
    if case.objects.pod_groups or not counts or ours in counts:
        return ()
    by_scheduler = ", ".join(f"{number} for {name or 'default-scheduler'}" for name, number in sorted(counts.items()))
    flags = " ".join(f"--scheduler-name {name or 'default-scheduler'}" for name in sorted(counts))
    return (f"no pod is for {ours} ({by_scheduler}); {flags} asks what kai would do with them",)


def other_pools(case: Case) -> tuple[str, ...]:
    """Return a sentence where pod groups belong to other node pools than the scheduled one."""
    settings = case.settings
    groups = [each.metadata.labels for each in case.objects.pod_groups]
    others = Counter(settings.pool(labels) or "none" for labels in groups if not settings.owns(labels))
    if not others:
        return ()
    # Some groups are of the pool: the answer is about them, and the others are a note. Else the
    # answer is empty, and the sentence has to say why.
    if len(groups) > others.total():
        by_pool = ", ".join(f"{pool}: {number}" for pool, number in sorted(others.items()))
        first = next(iter(sorted(others)))
        counts = f"{counted(others.total(), 'pod group')} of other node pools not shown ({by_pool})"
        return (f"{counts}; --config with a SchedulingShard of partitionLabelValue {first} shows that pool",)
    pools = ", ".join(sorted({settings.pool(labels) for labels in groups} - {""})) or "none"
    ours = settings.node_pool or f"what has no label {settings.node_pool_label}"
    places = f"each pod group is in another node pool ({pools}) than the one that is decided for ({ours})"
    return (f"{places}; a SchedulingShard says by its partitionLabelValue for which, see --config",)


_PARTS = tuple(attrs.fields_dict(Shares))


def read_past_usage(value: object, subject: str, field: str) -> Mapping[str, Shares]:
    """Return the past usage of queues by name; ``subject`` and ``field`` name the place in messages.

    Raises: InputError for a value that is not a fraction of a resource.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError.about(subject, field, found=value, wanted=f"{', '.join(_PARTS)} of each queue")
    return {str(queue): _shares(parts, subject, f"{field}.{queue}") for queue, parts in value.items()}


def _shares(parts: object, subject: str, field: str) -> Shares:
    if not isinstance(parts, Mapping) or not set(parts) <= set(_PARTS):
        raise InputError.about(subject, field, found=parts, wanted=f"{', '.join(_PARTS)} as fractions of the cluster")
    for key, part in parts.items():
        if not is_number(part) or not 0 <= part < math.inf:
            raise InputError.about(subject, f"{field}.{key}", found=part, wanted="a fraction of the cluster, 0 or more")
    return Shares(**{key: float(part) for key, part in parts.items()})


def unread(configuration: Configuration, known: Mapping[str, Shares]) -> tuple[str, ...]:
    """Return a note where a configuration uses past usage and the case has none."""
    if configuration.usage is None or known:
        return ()
    return (f"{configuration.place}: usageDBConfig: a simulation asks no database, and past usage is not in the case",)


def intake_settings(settings: Settings) -> IntakeSettings:
    """Return the intake settings from ``settings`` of a scenario or of a snapshot of the peer."""
    default = IntakeSettings()
    partition = settings.values.get("partitionParams")
    pool = partition if isinstance(partition, Mapping) else {}
    label = pool.get("NodePoolLabelKey", settings.values.get("nodePoolLabelKey", default.node_pool_label))
    value = pool.get("NodePoolLabelValue", settings.values.get("nodePoolLabelValue", default.node_pool))
    # Snapshots of the peer have the name of its field, scenarios that of its flag.
    restrict = "restrictSchedulingNodes" if settings.zeroed else "restrictNodeScheduling"
    return IntakeSettings(
        scheduler_name=settings.text("schedulerName", default.scheduler_name),
        node_pool_label=str(label),
        node_pool=str(value),
        stuck_in_releasing_seconds=settings.seconds("stuckInReleasingThreshold", default.stuck_in_releasing_seconds),
        full_hierarchy_fairness=settings.truth("fullHierarchyFairness", default=default.full_hierarchy_fairness),
        queue_label_key=settings.text("queueLabelKey", default.queue_label_key),
        restrict_node_scheduling=settings.truth(restrict, default=default.restrict_node_scheduling),
        queue_access=_access(settings),
    )


def _access(settings: Settings) -> QueueAccess:
    found = settings.text("queueAccess", QueueAccess.OPEN)
    if found in set(QueueAccess):
        return QueueAccess(found)
    raise ConfigError(f"{settings.place}.queueAccess: found {shown(found)}, expected {' or '.join(QueueAccess)}")


_STAMPS = (names.STALE_SINCE, names.PARTIAL_SINCE, names.LAST_START, names.LAST_EVICTION)


def newest_time(objects: ClusterObjects) -> float:
    """Return the newest instant in ``objects``, in seconds since the epoch; 0 if they have none."""
    return max(_instants(objects), default=0.0)


def _instants(objects: ClusterObjects) -> Iterator[float]:
    for members in (objects.pods, objects.pod_groups, objects.nodes, objects.queues, objects.bind_requests):
        yield from _births_and_deaths(obj.metadata for obj in members)
    # Conditions and stamps of status count: what a scheduler wrote last is often newer than any object.
    for pod in objects.pods:
        if pod.status.start_time is not None:
            yield pod.status.start_time
        yield from (c.last_transition_time for c in pod.status.conditions if c.last_transition_time is not None)
    for group in objects.pod_groups:
        conditions = group.status.scheduling_conditions
        yield from (c.last_transition_time for c in conditions if c.last_transition_time is not None)
        yield from _stamps(group.metadata.annotations.get(key) for key in _STAMPS)


def _births_and_deaths(all_metadata: Iterable[ObjectMeta]) -> Iterator[float]:
    for metadata in all_metadata:
        for instant in (metadata.creation_timestamp, metadata.deletion_timestamp):
            if instant is not None:
                yield instant


def _stamps(texts: Iterator[str | None]) -> Iterator[float]:
    for text in texts:
        try:
            if text:
                yield values.instant(text)
        # Any user may write annotations, and a wrong one must not keep a file from being read.
        except BadValue:
            continue


def with_claims_of_templates(objects: ClusterObjects, pods: Collection[ClaimKey] | None = None) -> ClusterObjects:
    """Return a cluster with the missing claims of pods: of ``pods`` (namespace and name), or of all."""
    templates = {key_of(each): each for each in objects.resource_claim_templates}
    if not templates:
        return objects
    claims = {key_of(each): each for each in objects.resource_claims}
    found: list[Pod] = []
    for pod in objects.pods:
        if pods is not None and key_of(pod) not in pods:
            found.append(pod)
            continue
        claiming, made = with_claims(pod, templates.get, claims.get)
        # At once: the next pod must not draw the same number for the name of its claim.
        claims |= {key_of(each): each for each in made}
        found.append(claiming)
    return attrs.evolve(objects, pods=tuple(found), resource_claims=tuple(claims.values()))
