"""The reaction of a cluster between two cycles: bound pods run, evicted pods are gone and come back as pending pods.

Objects in, objects out; time does not pass. Unchanged objects keep their identity, so that intake reads only what
changed.

Resource claims are allocated when a pod is bound, and keep their devices until the last user is gone.

``Disruptions`` protects victims by disruption budgets, where there is no API server to enforce them. In a cluster, all
budgets of a statement are checked before the first of its pods is evicted. If a budget forbids one eviction, no pod of
the statement is evicted. The groups of the protected pods lose none for a while, and the scheduler looks for other
victims.

Source: the behaviour between cycles that the peer's integration tests simulate.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import attrs

from kai.api import names, values
from kai.api.cluster_objects import ClusterObjects
from kai.api.codec.structuring import structure_as
from kai.api.conventions.device_claims import consumer_of, extended_claim
from kai.api.kinds import key_of
from kai.api.kubernetes.dra import AllocationResult, ResourceClaim, ResourceClaimConsumer
from kai.api.kubernetes.pod import Pod as ApiPod
from kai.api.kubernetes.pod import claim_behind
from kai.api.scheduling.bind_request import BindRequestSpec
from kai.api.scheduling.pod_group import PodGroup
from kai.deciding.engine.cycle import CycleReport
from kai.facts.model.placement import ClaimPlacement
from kai.facts.model.pod import ACTIVE_ALLOCATED, Pod, Status, within
from kai.facts.state.snapshot import Snapshot
from kai.framework.decisions import Bind, Decision, Evict
from kai.intake.bind_requests import allocation_result, fields
from kai.intake.bind_requests import annotations as written_annotations
from kai.intake.disruption_budgets import BudgetKey, Budgets, judged

ClaimKey = tuple[str, str]
"""Namespace and name."""
_WRITTEN = ("resourceClaimAllocations", "extendedResourceClaimAllocation")
"""Keys of a bind request about claims."""
MOST_ROUNDS = 64
"""After this many repeated decisions, no pod under a budget is evicted."""


def bound_claims(
    pod: ApiPod, request: Mapping[str, object], claims: Mapping[ClaimKey, ResourceClaim]
) -> Sequence[ResourceClaim]:
    """Return the claims that a bind of ``pod`` changes or creates, as the binder leaves them.

    ``request`` has the keys of the bind request about claims.
    """
    spec_fields = fields({key: request[key] for key in _WRITTEN if key in request}, pod)
    if not spec_fields:
        return ()
    spec = structure_as(BindRequestSpec, spec_fields)
    allocations = {each.name: each.allocation for each in spec.resource_claim_allocations}
    found: dict[ClaimKey, ResourceClaim] = {}
    for reference in pod.spec.resource_claims:
        key = (pod.metadata.namespace, claim_behind(pod, reference) or "")
        # Two references of a pod may name one claim: the second one must see what the first one reserved.
        claim = found.get(key) or claims.get(key)
        if reference.name in allocations and claim is not None:
            found[key] = _reserved(claim, pod, allocations[reference.name])
    extended = spec.extended_resource_claim_allocation
    if extended is not None:
        made = extended_claim(pod, extended.device_requests)
        found[key_of(made)] = _reserved(made, pod, extended.allocation)
    return tuple(found.values())


def without_user(claim: ResourceClaim, user: str) -> ResourceClaim:
    """Return a claim without the consumer of a UID; the last consumer frees its devices."""
    status = claim.status
    kept = tuple(each for each in status.reserved_for if each.uid != user)
    # As the claim controller of Kubernetes does: devices stay allocated while any pod is in `reservedFor`.
    allocation = status.allocation if kept else None
    if kept == status.reserved_for:
        return claim
    return attrs.evolve(claim, status=attrs.evolve(status, reserved_for=kept, allocation=allocation))


def _reserved(claim: ResourceClaim, pod: ApiPod, allocation: AllocationResult | None) -> ResourceClaim:
    status, consumer = claim.status, consumer_of(pod)
    # A pod that has the claim already must not be entered twice.
    others = tuple(each for each in status.reserved_for if each.uid != consumer.uid)
    return attrs.evolve(
        claim,
        status=attrs.evolve(status, reserved_for=(*others, consumer), allocation=status.allocation or allocation),
    )


def claims_after(
    claims: Iterable[ResourceClaim], snapshot: Snapshot, report: CycleReport, made: Iterable[ResourceClaim] = ()
) -> tuple[ResourceClaim, ...]:
    """Return the claims as the next cycle finds them, with the claims ``made`` for extended resources.

    They are reserved for pods that were bound or stay where they are, and for pods that the snapshot lacks. Allocations
    for promised pods are dropped.
    """
    given: dict[ClaimKey, AllocationResult] = {}
    users: dict[ClaimKey, list[Pod]] = {}
    gone: set[str] = set()
    for row, pod in enumerate(snapshot.pods):
        status = int(report.status[row])
        # A promise holds no device: the next cycle chooses anew, as the binder never saw it.
        if not within(status, ACTIVE_ALLOCATED) or status == Status.PIPELINED:
            gone.add(pod.uid)
            continue
        placement = report.details.get(row, {}).get("claims")
        if isinstance(placement, ClaimPlacement):
            for each in placement.claims:
                given[each.claim] = allocation_result(each.devices, each.nodes, "/".join(each.claim))
                users.setdefault(each.claim, []).append(pod)
    found = {key_of(claim): _after(claim, given, users, gone) for claim in claims}
    found |= {key_of(claim): claim for claim in made}
    # The binder makes such a claim for one pod, which owns it: the garbage collector deletes it with the pod.
    return tuple(claim for claim in found.values() if claim.status.reserved_for or not _is_extended(claim))


def _is_extended(claim: ResourceClaim) -> bool:
    """Return whether a claim was made for extended resources: it ends with its pod."""
    return claim.metadata.annotations.get(names.EXTENDED_RESOURCE_CLAIM) == "true"


def _after(
    claim: ResourceClaim,
    given: Mapping[ClaimKey, AllocationResult],
    users: Mapping[ClaimKey, list[Pod]],
    gone: set[str],
) -> ResourceClaim:
    key = key_of(claim)
    status = claim.status
    kept = tuple(user for user in status.reserved_for if user.uid not in gone)
    known = {user.uid for user in kept}
    added = tuple(_consumer(pod) for pod in users.get(key, ()) if pod.uid not in known)
    reserved = kept + added
    allocation = (status.allocation or given.get(key)) if reserved else None
    if kept != status.reserved_for and key in given:
        # All former users may have gone in a cycle that gave the claim to others: then the new allocation counts.
        allocation = given[key]
    if reserved == status.reserved_for and allocation == status.allocation:
        return claim
    return attrs.evolve(claim, status=attrs.evolve(status, reserved_for=reserved, allocation=allocation))


def _consumer(pod: Pod) -> ResourceClaimConsumer:
    return ResourceClaimConsumer(resource="pods", name=pod.name, uid=pod.uid)


_RUN = frozenset({Status.RUNNING, Status.BINDING, Status.BOUND})
"""Statuses of pods that run before the next cycle."""
STARTED_BEFORE = 60.0
"""A group with running pods counts as started this many seconds before ``now``."""


@attrs.frozen(kw_only=True)
class Aftermath:
    """The result of one cycle, looked up by pod and by group."""

    snapshot: Snapshot
    report: CycleReport
    binds: Mapping[int, Bind]
    number: int
    """Number of the cycle; makes the names of new devices unique."""

    @classmethod
    def of(cls, snapshot: Snapshot, report: CycleReport, decisions: Iterable[Decision], number: int) -> "Aftermath":
        """Return the aftermath of a cycle."""
        binds = {decision.pod: decision for decision in decisions if isinstance(decision, Bind)}
        return cls(snapshot=snapshot, report=report, binds=binds, number=number)

    def status(self, pod: int) -> Status:
        """Return the status of a pod after the last action."""
        return Status(int(self.report.status[pod]))

    def node(self, pod: int) -> str:
        """Return the node of a pod, "" for none."""
        row = int(self.report.node[pod])
        return self.snapshot.nodes[row].name if row >= 0 else ""

    def devices(self, pod: int) -> tuple[str, ...]:
        """Return the shared devices of a pod; those opened in this cycle get permanent names."""
        found = self.report.devices.get(pod) or self.snapshot.pod_devices.get(pod, ())
        return tuple(device_of(name, self.number) for name in found)


def next_objects(objects: ClusterObjects, after: Aftermath, keep_terminating: frozenset[str]) -> ClusterObjects:
    """Return the objects as the next cycle finds them.

    Holds: pods that were bound run on their nodes; evicted pods are pending under their old names, unless their
           group is in ``keep_terminating``; promises are dropped; bind requests are carried out.
    """
    # By name: a snapshot has an order of its own, and lacks pods that intake leaves out.
    rows = {(pod.namespace, pod.name): row for row, pod in enumerate(after.snapshot.pods)}
    pods: list[ApiPod] = []
    made: list[ResourceClaim] = []
    for pod in objects.pods:
        row = rows.get(key_of(pod))
        pods.append(pod if row is None else _next_pod(pod, row, after, keep_terminating))
        bind = None if row is None or after.status(row) not in _RUN else after.binds.get(row)
        if bind is not None:
            made += bound_claims(pod, bind.request, {})
    return attrs.evolve(
        objects,
        pods=tuple(pods),
        pod_groups=_next_groups(objects.pod_groups, pods, after),
        bind_requests=(),
        resource_claims=claims_after(objects.resource_claims, after.snapshot, after.report, made),
    )


# ---------------------------------------------------------------------------------------------------------------- pods


def _next_pod(pod: ApiPod, row: int, after: Aftermath, keep_terminating: frozenset[str]) -> ApiPod:
    match after.status(row):
        case status if status in _RUN:
            return _running(pod, row, after)
        case Status.RELEASING if pod.metadata.annotations.get(names.POD_GROUP, "") in keep_terminating:
            return _terminating(pod, after.snapshot.now)
        case Status.RELEASING | Status.PIPELINED:
            return recreated(pod)
        case _:
            return pod


def _running(pod: ApiPod, row: int, after: Aftermath) -> ApiPod:
    node = after.node(row) or pod.spec.node_name
    if pod.status.phase == "Running" and pod.spec.node_name == node:
        return pod
    annotations = dict(pod.metadata.annotations)
    bind = after.binds.get(row)
    if bind is not None:
        annotations.pop(names.GRANTED, None)  # a grant from before an eviction; its labels show the current devices
        annotations |= {names.RECEIVED_RESOURCE_TYPE: bind.received} if bind.received else {}
        annotations |= written_annotations(bind.request, pod)
    # Old device labels go first: a pod that was evicted and placed again would hold its former GPU as well.
    labels = _without_devices(pod.metadata.labels) | device_labels(after.devices(row))
    return attrs.evolve(
        pod,
        metadata=attrs.evolve(pod.metadata, labels=labels, annotations=annotations),
        spec=attrs.evolve(pod.spec, node_name=node),
        status=attrs.evolve(pod.status, phase="Running"),
    )


def _terminating(pod: ApiPod, now: float) -> ApiPod:
    if pod.metadata.deletion_timestamp is not None:
        return pod
    return attrs.evolve(
        pod,
        metadata=attrs.evolve(pod.metadata, deletion_timestamp=now),
        status=attrs.evolve(pod.status, phase="Running"),
    )


def recreated(pod: ApiPod) -> ApiPod:
    """Return the replacement that the owner of a pod creates, or a waiting pod without its promise."""
    received = {names.GRANTED, names.RECEIVED_RESOURCE_TYPE, names.NUMA_PREDICTED, names.NUMA_OBSERVED}
    annotations = {key: value for key, value in pod.metadata.annotations.items() if key not in received}
    metadata = attrs.evolve(
        pod.metadata, deletion_timestamp=None, labels=_without_devices(pod.metadata.labels), annotations=annotations
    )
    return attrs.evolve(
        pod,
        metadata=metadata,
        spec=attrs.evolve(pod.spec, node_name=""),
        # Under its old name, as in the peer's integration tests; a real owner often draws another.
        status=attrs.evolve(pod.status, phase="Pending", nominated_node_name="", start_time=None),
    )


def _without_devices(labels: Mapping[str, str]) -> dict[str, str]:
    return {
        key: value
        for key, value in labels.items()
        if key != names.GPU_GROUP and not key.startswith(names.GPU_GROUP_PREFIX)
    }


def device_of(name: str, cycle: int) -> str:
    """Return the permanent name of a device that is opened in this cycle, or the name of another device unchanged."""
    # The number of the cycle keeps two openings of one slot apart.
    return f"opened-{cycle}-{name[1:].replace('/', '-')}" if name.startswith("+") else name


def device_labels(devices: tuple[str, ...]) -> dict[str, str]:
    """Return the labels with the shared devices of a pod: every device after the first has its own key."""
    if not devices:
        return {}
    return {names.GPU_GROUP: devices[0]} | {names.GPU_GROUP_PREFIX + name: name for name in devices[1:]}


# -------------------------------------------------------------------------------------------------------------- groups


def _next_groups(groups: Iterable[PodGroup], pods: Iterable[ApiPod], after: Aftermath) -> tuple[PodGroup, ...]:
    running = {pod.metadata.annotations.get(names.POD_GROUP, "") for pod in pods if pod.status.phase == "Running"}
    rows = {(group.namespace, group.name): row for row, group in enumerate(after.snapshot.groups)}
    started = values.instant_text(after.snapshot.now - STARTED_BEFORE)
    out: list[PodGroup] = []
    for group in groups:
        row = rows.get(key_of(group))
        if row is None:
            out.append(group)
            continue
        annotations = dict(group.metadata.annotations)
        if group.metadata.name in running:
            annotations[names.LAST_START] = started
        _stamp(annotations, names.STALE_SINCE, float(after.report.stale_since[row]))
        _stamp(annotations, names.PARTIAL_SINCE, float(after.report.partial_since[row]))
        _stamp(annotations, names.LAST_EVICTION, float(after.report.last_eviction[row]))
        changed = annotations != dict(group.metadata.annotations)
        out.append(
            attrs.evolve(group, metadata=attrs.evolve(group.metadata, annotations=annotations)) if changed else group
        )
    return tuple(out)


def _stamp(annotations: dict[str, str], key: str, instant: float) -> None:
    """Write an instant, or remove it when it is not a number."""
    if instant == instant:  # noqa: PLR0124 - the one value that differs from itself says "never"
        annotations[key] = values.instant_text(instant)
    else:
        annotations.pop(key, None)


@attrs.define
class Disruptions:
    """The disruption budgets of a cluster at an instant, and the number of rounds so far."""

    _budgets: Budgets
    _pods: dict[tuple[str, str], ApiPod]
    _rounds: int = 0
    _spared: frozenset[str] = frozenset()
    """UIDs of pods."""

    @classmethod
    def of(cls, objects: ClusterObjects, *, is_first: bool) -> "Disruptions | None":
        """Return the budgets among ``objects``; None if there are none.

        The first cycle uses their status; later cycles compute it from the pods.
        """
        if not objects.pod_disruption_budgets:
            return None
        # The status is that of the disruption controller, which does not run
        # here: it is right once, for the given objects.
        budgets = judged(objects.pod_disruption_budgets, objects.pods, anew=not is_first)
        return cls(Budgets(budgets), {(pod.metadata.namespace, pod.metadata.name): pod for pod in objects.pods})

    def sparing(self, snapshot: Snapshot, statements: Iterable[Sequence[Decision]]) -> Snapshot | None:
        """Return ``snapshot`` with the pods protected that ``statements`` may not evict; None if they may evict all.

        Later calls keep the pods of earlier ones protected. A statement that evicts protected pods anyway is let
        through: its action does not search for victims.
        """
        more = self._spared_by(snapshot, statements)
        if not more:
            return None
        self._spared |= more
        protected = tuple(sorted(self._spared.union(snapshot.past.protected)))
        return attrs.evolve(snapshot, past=attrs.evolve(snapshot.past, protected=protected))

    def _spared_by(self, snapshot: Snapshot, statements: Iterable[Sequence[Decision]]) -> frozenset[str]:
        """Return the UIDs of budget-protected pods in the first statement that evicts some not yet spared."""
        self._rounds += 1
        # Statements of one cycle draw on the same budgets, and each counts only once it may be carried out.
        taken: Counter[BudgetKey] = Counter()
        for statement in statements:
            victims = self._victims(snapshot, statement)
            found = self._budgets.obstacle(victims, taken)[1]
            uids = frozenset(map(_uid, found))
            # Ends the repeated decisions: once every covered pod is spared, no later round finds another one.
            if self._rounds >= MOST_ROUNDS and uids:
                uids = self._covered()
            if uids - self._spared:
                return uids
            if not found:
                taken.update({key: len(pods) for key, (_, pods) in self._budgets.wanted(victims).items()})
        return frozenset()

    def _victims(self, snapshot: Snapshot, statement: Sequence[Decision]) -> list[ApiPod]:
        facts = [snapshot.pods[each.pod] for each in statement if isinstance(each, Evict)]
        found = [self._pods.get((each.namespace, each.name)) for each in facts]
        return [pod for pod in found if pod is not None]

    def _covered(self) -> frozenset[str]:
        return frozenset(_uid(pod) for pod in self._pods.values() if self._budgets.covering(pod))


def _uid(pod: ApiPod) -> str:
    """Return the UID of a pod as a snapshot has it: a pod from a manifest may have none."""
    return pod.metadata.uid or pod.metadata.name
