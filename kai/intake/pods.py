"""Pods: one record for each pod object, made once for as long as the object does not change."""

from typing import TYPE_CHECKING, Final

import attrs

from kai.api import names
from kai.api.conventions.binding import GATE as REST
from kai.api.conventions.binding import Grant, grant_of, group_under, is_held
from kai.api.conventions.caps import GATE
from kai.api.conventions.gpu_sharing import gpu_groups
from kai.api.kubernetes import pod as api
from kai.facts.model.axis import NONE
from kai.facts.model.groups import DEFAULT_SUBGROUP
from kai.facts.model.pod import Pod, Status
from kai.framework.verdict import Code
from kai.intake.membership import Accounts, GroupKeys, Leaves, Packing
from kai.intake.requests import Demand, KnownRequests, ResourceKey, demand, resource_key
from kai.intake.settings import IntakeSettings
from kai.intake.traits import TraitKey, Traits, read_traits, trait_key

if TYPE_CHECKING:
    from kai.facts.state.memory import PodKind

PACKING: Final = Packing(8)
"""Packs the columns of ``kai.intake.table.PodColumns``, in that order."""
_IN_MEMORY: Final = ((GATE, Code.POD_REFUSED.value), (REST, Code.BIND_REFUSED.value))
"""Prefixes of gates that exist in memory only: the store, or the scheduler, shows a pod with them."""
_FINISHED = {"Succeeded": Status.SUCCEEDED, "Failed": Status.FAILED, "Unknown": Status.UNKNOWN}


@attrs.define(kw_only=True, eq=False, weakref_slot=False)
class PodRecord:
    """The record of one pod object. All of it follows from the object alone, except its shape."""

    source: api.Pod
    order: tuple[str, str]
    """Namespace and name: the sort key of rows."""
    pod: Pod
    row: bytes
    """The numbers of its columns, packed by ``PACKING``."""
    waiting: bool
    """Whether a live bind request makes the pod ``Binding``."""
    leaving_since: float | None
    """When a running pod was deleted."""
    node: str
    devices: tuple[str, ...]
    """Names of the shared devices in its grant, or in its labels."""
    granted: bool
    """Whether its grant was written with its binding."""
    demand: Demand
    traits: Traits
    shape: int = -1
    """The number in the table of shapes."""
    token: object = None
    """The state of its surroundings under which the shape is valid."""


class PodReader:
    """Reads pod objects; equal demands and equal traits become one object, so that identities tell shapes apart."""

    def __init__(
        self,
        settings: IntakeSettings,
        group_keys: GroupKeys,
        accounts: Accounts,
        leaves: Leaves,
        node_names: dict[str, int],
    ) -> None:
        self._settings = settings
        self._group_keys = group_keys
        self._accounts = accounts
        self._leaves = leaves
        self._node_names = node_names
        self._asked = KnownRequests(settings.kubernetes)
        self._demands: dict[ResourceKey, Demand] = {}
        self._traits: dict[TraitKey, Traits] = {}
        self.kinds: dict[PodKind, int] = {}
        """Numbers of kinds, in order of their first pod."""
        self._bare = Demand(((names.PODS, 1),), demand(ResourceKey(())).gpu)

    def __len__(self) -> int:
        """Return the number of interned values: a volume claim that no other pod has makes traits of its own."""
        return len(self._demands) + len(self._traits) + len(self.kinds)

    def read(self, source: api.Pod) -> PodRecord:
        """Return the record of a pod.

        A bound pod holds its grant. For pods of our scheduler without a grant, labels and annotations count; other
        schedulers assign no shares of devices, so the pods that they bound hold their requests.

        Source: the peer's pod_info; a finished pod keeps the columns that count it, not its requests.
        """
        metadata, spec, phase = source.metadata, source.spec, source.status.phase
        labels, deleted, finished = metadata.labels, metadata.deletion_timestamp, phase in _FINISHED
        status, waiting = _status(phase, deleted, spec)
        traits = self._traits_of(trait_key(source, finished=finished))
        # With a node only: the annotation comes with the binding, and on a waiting pod its owner may have written it.
        grant = grant_of(source) if spec.node_name else None
        group = group_under(grant, source)
        amounts = self._bare if finished else self._demand_of(source, grant)
        devices = () if not amounts.gpu.shared else gpu_groups(labels) if grant is None else tuple(sorted(grant.gpus))
        leaving_since = deleted if phase == "Running" else None
        subgroup = labels.get(names.SUBGROUP, DEFAULT_SUBGROUP)
        node, nodes, (code, refused) = spec.node_name, self._node_names, _refusal(spec)
        return PodRecord(
            source=source,
            order=(metadata.namespace, metadata.name),
            pod=Pod(
                name=metadata.name,
                namespace=metadata.namespace,
                uid=metadata.uid or metadata.name,
                created=metadata.creation_timestamp or 0.0,
                labels=labels,
                annotations=metadata.annotations,
                scheduler=spec.scheduler_name,
                group=group,
                subgroup=subgroup,
                signature=traits.signature,
                priority=spec.priority,
                refused=refused,
                refused_code=code,
                node_pool=self._settings.pool(labels) if grant is None else grant.pool,
            ),
            row=PACKING.pack(
                status,
                nodes.setdefault(node, len(nodes)),
                self._group_keys.of((group, metadata.namespace)),
                self._account_of(grant) if group and is_held(grant, phase) else NONE,
                self._leaves.name(subgroup),
                self.kinds.setdefault((spec.scheduler_name, *labels), len(self.kinds)),
                self._settings.holds_device(metadata),
                bool(devices) or leaving_since is not None,
            ),
            waiting=waiting,
            leaving_since=leaving_since,
            node=node,
            devices=devices,
            granted=grant is not None,
            demand=amounts,
            traits=traits,
        )

    def _account_of(self, grant: Grant) -> int:
        return self._accounts.of(grant.queue, grant.pool if self._settings.node_pool_label else "")

    def _demand_of(self, source: api.Pod, grant: Grant | None) -> Demand:
        key = resource_key(source, grant, self._settings.scheduler_name, self._asked.of(source))
        found = self._demands.get(key)
        if found is None:
            found = self._demands[key] = demand(key)
        return found

    def _traits_of(self, key: TraitKey) -> Traits:
        found = self._traits.get(key)
        if found is None:
            found = self._traits[key] = read_traits(key)
        return found


def _refusal(spec: api.PodSpec) -> tuple[str, str]:
    """Return code and text of why a pod is gated that exceeds a cap, or rests; "" as the text of other pods."""
    for gate in spec.scheduling_gates:
        for begin, code in _IN_MEMORY:
            if gate.name.startswith(begin):
                return code, gate.name[len(begin) :]
    return Code.POD_REFUSED.value, ""


def _status(phase: str, deleted: float | None, spec: api.PodSpec) -> tuple[Status, bool]:
    """Return the status by the pod alone, and whether a bind request would make it ``Binding``.

    A pod without a phase is pending, as the API server has it.
    """
    if phase in _FINISHED:
        return _FINISHED[phase], False
    # Before all other phases: a pod that is being deleted gives up what it holds, whether or not it runs.
    if deleted is not None:
        return Status.RELEASING, False
    if phase == "Running":
        return Status.RUNNING, False
    if spec.node_name:
        return Status.BOUND, False
    return (Status.GATED if spec.scheduling_gates else Status.PENDING), True
