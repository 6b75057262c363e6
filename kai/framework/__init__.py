"""The contract: what plugins are asked, what they see, and what they answer with. Plugin authors import this.

A plugin imports this package and nothing else of kai. ``docs/plugins.md`` lists all names by purpose. Records that only
one feature reads are in a module of their own: ``claims`` (devices).

The engine that keeps the contract is ``kai.engine``; actions import that.
"""

from kai.framework.decisions import Action, Bind, Cause, Decision, DecisionSink, Evict, Nominate, Recorder
from kai.framework.hooks import (
    Dependence,
    Domains,
    DomainTree,
    Effect,
    Extension,
    GroupOrder,
    NodeFilter,
    NodeScore,
    NodeWait,
    Partition,
    Placement,
    Plugin,
    PluginUse,
    PodFilter,
    PodOrder,
    Together,
    Told,
    VictimProposals,
    Victims,
)
from kai.framework.labels import LabelTable
from kai.framework.objects import Column, Objects, RawObject, Unreadable
from kai.framework.parameters import Parameters
from kai.framework.scenario import Batches, Outer, Scenario
from kai.framework.selectors import node_terms_of, selector_of
from kai.framework.terms import (
    Availability,
    CpuOnlyNodes,
    Density,
    DeviceOrder,
    ElasticOrder,
    FairShares,
    Fragmentation,
    PriorityOrder,
    SharedDevices,
    SubGroupFill,
)
from kai.framework.verdict import ACCEPTED, Code, Reason, Verdict
from kai.framework.view import SessionView
from kai.framework.words import Detail, Words
from kai.model.amounts import Amounts, amounts_of
from kai.model.axis import CPU, GPU, GPU_UNIT, MEMORY, PLUGGED_GPU, PODS, SHARED_RESOURCES, ResourceAxis
from kai.model.constraints import (
    AffinityTerm,
    HostPort,
    NodeTerm,
    Requirement,
    Selector,
    SpreadConstraint,
    Taint,
    Toleration,
    TopologyConstraint,
)
from kai.model.matching import tolerates
from kai.model.node import Node
from kai.model.placement import Quantities
from kai.model.pod import Constraints, ContainerRequest, GpuKind, GpuRequest, Pod, Shape
from kai.model.podgroup import DEFAULT_SUBGROUP, PodGroup, SubGroup
from kai.model.queue import UNLIMITED, Queue
from kai.model.rows import (
    NONE,
    Bools,
    Float64s,
    GroupRow,
    GroupRows,
    Int64s,
    NodeRow,
    NodeRows,
    PodRow,
    PodRows,
    QueueRow,
    Scores,
    SubGroupRow,
)
from kai.model.status import ACTIVE_ALLOCATED, ACTIVE_USED, ALIVE, COUNTED, Status, status_mask, within
from kai.model.units import mig_slices
from kai.quantity import amount
from kai.state.ledger import Tracked
from kai.state.snapshot import Snapshot

__all__ = [
    "ACCEPTED",
    "ACTIVE_ALLOCATED",
    "ACTIVE_USED",
    "ALIVE",
    "COUNTED",
    "CPU",
    "DEFAULT_SUBGROUP",
    "GPU",
    "GPU_UNIT",
    "MEMORY",
    "NONE",
    "PLUGGED_GPU",
    "PODS",
    "SHARED_RESOURCES",
    "UNLIMITED",
    "Action",
    "AffinityTerm",
    "Amounts",
    "Availability",
    "Batches",
    "Bind",
    "Bools",
    "Cause",
    "Code",
    "Column",
    "Constraints",
    "ContainerRequest",
    "CpuOnlyNodes",
    "Decision",
    "DecisionSink",
    "Density",
    "Dependence",
    "Detail",
    "DeviceOrder",
    "DomainTree",
    "Domains",
    "Effect",
    "ElasticOrder",
    "Evict",
    "Extension",
    "FairShares",
    "Float64s",
    "Fragmentation",
    "GpuKind",
    "GpuRequest",
    "GroupOrder",
    "GroupRow",
    "GroupRows",
    "HostPort",
    "Int64s",
    "LabelTable",
    "Node",
    "NodeFilter",
    "NodeRow",
    "NodeRows",
    "NodeScore",
    "NodeTerm",
    "NodeWait",
    "Nominate",
    "Objects",
    "Outer",
    "Parameters",
    "Partition",
    "Placement",
    "Plugin",
    "PluginUse",
    "Pod",
    "PodFilter",
    "PodGroup",
    "PodOrder",
    "PodRow",
    "PodRows",
    "PriorityOrder",
    "Quantities",
    "Queue",
    "QueueRow",
    "RawObject",
    "Reason",
    "Recorder",
    "Requirement",
    "ResourceAxis",
    "Scenario",
    "Scores",
    "Selector",
    "SessionView",
    "Shape",
    "SharedDevices",
    "Snapshot",
    "SpreadConstraint",
    "Status",
    "SubGroup",
    "SubGroupFill",
    "SubGroupRow",
    "Taint",
    "Together",
    "Told",
    "Toleration",
    "TopologyConstraint",
    "Tracked",
    "Unreadable",
    "Verdict",
    "VictimProposals",
    "Victims",
    "Words",
    "amount",
    "amounts_of",
    "mig_slices",
    "node_terms_of",
    "selector_of",
    "status_mask",
    "tolerates",
    "within",
]
