"""Every reason code, in order of dominance: its meaning, and what a user can do about it.

A group often waits for several reasons. The stages below decide which one is shown first: a reason of a later stage
does not matter as long as one of an earlier stage holds. The page of reason codes is generated from this list, and the
sentences of ``kai.deciding.explain.words`` have these codes.
"""

from enum import IntEnum

import attrs


class Stage(IntEnum):
    """How far a group came before it was stopped."""

    QUEUE = 0
    """The group or its queue cannot be used as it is written."""
    READINESS = 1
    """Too few pods exist, or gates keep them."""
    BIND = 2
    """A node was chosen, and the bind was refused."""
    IMPOSSIBLE = 3
    """The nodes could not hold it if they were empty."""
    LIMIT = 4
    QUOTA = 5
    """What may not be taken back is granted within quota only."""
    MATCH = 6
    """No node matches what a pod demands."""
    SPARED = 7
    """There is no room, and who could make some is spared."""
    ROOM = 8
    """The whole gang, or a domain of a topology, has no room."""
    FAIRNESS = 9
    """There is no room, and none may be taken."""
    OTHERS = 10
    """Others are in the way, or are leaving."""


@attrs.frozen(kw_only=True)
class ReasonCode:
    """One code with two sentences for its reader."""

    code: str
    stage: Stage
    means: str
    """What is the case."""
    help: str
    """What can be done."""


def _codes(stage: Stage, *rows: tuple[str, str, str]) -> tuple[ReasonCode, ...]:
    return tuple(ReasonCode(code=code, stage=stage, means=means, help=advice) for code, means, advice in rows)


REASON_CODES: tuple[ReasonCode, ...] = (
    *_codes(
        Stage.QUEUE,
        (
            "PodGroupRefused",
            "The pod group is written in a way that the scheduler cannot follow.",
            "Correct the field that the message names; pods that run already keep their places.",
        ),
        (
            "QueueNotAllowed",
            "The queue does not allow the namespace of the job.",
            "Use a queue that allows the namespace, or have its owner allow it: kai.scheduler/allowed-namespaces.",
        ),
        (
            "PriorityNotAllowed",
            "The namespace may not use the priority class of the job, or may not run non-preemptible jobs.",
            "Use one of the classes that the message lists, or let the job be preemptible.",
        ),
        (
            "TimeLimit",
            "The job has run for as long as it may, and kai has ended it.",
            "Lengthen kai.scheduler/max-runtime of the pod group, or submit the job again; a job that requeues waits.",
        ),
        (
            "QueueDoesNotExist",
            "The job names a queue that does not exist.",
            "Correct the label kai.scheduler/queue of the workload, or create the queue.",
        ),
        (
            "QueueOrphaned",
            "The queue exists, but a parent of it does not, so kai schedules neither its jobs nor its children's.",
            "Create the missing parent, or correct spec.parentQueue of the queue that names it.",
        ),
        (
            "QueueCycle",
            "The queue exists, but its parents lead back to itself, so it belongs to no tree.",
            "Correct spec.parentQueue of one queue of the cycle.",
        ),
        (
            "QueueTooDeep",
            "The queue is nested deeper than kai allows: 32 levels.",
            "Move the queue, or one of its parents, further up.",
        ),
        (
            "QueueOfAnotherPool",
            "The queue exists, but its node pool label gives it to another scheduler.",
            "Use a queue of this pool, or correct the label of the queue.",
        ),
        (
            "QueueNotLeaf",
            "The queue has children, and only a queue without children runs jobs.",
            "Submit the job to one of the leaf queues that the message lists.",
        ),
        (
            "SubGroupsInvalid",
            "The sub-groups form no tree: a name occurs twice, a parent is missing, or is its own child.",
            "Correct spec.subGroups of the pod group; until then kai ignores the sub-groups of its pods.",
        ),
        (
            "UnknownSubGroup",
            "A pod carries the label of a sub-group that its pod group does not declare.",
            "Correct the pod's label kai.scheduler/subgroup-name, or declare the sub-group.",
        ),
    ),
    *_codes(
        Stage.READINESS,
        (
            "Gated",
            "Scheduling gates hold the waiting pods of the job.",
            "Wait for the controller that owns the gate, or remove the gate from spec.schedulingGates.",
        ),
        (
            "NotReady",
            "Fewer pods, or sub-groups, exist than must start together.",
            "Wait until the owner has created the pods, see why it does not, or lower minMember or minSubGroup.",
        ),
    ),
    *_codes(
        Stage.BIND,
        (
            "BindRefused",
            "A node was chosen, but the bind was refused; the message says by what and when kai tries again.",
            "Correct what the message names, such as a quota; kai tries the pod again within 5 minutes.",
        ),
    ),
    *_codes(
        Stage.IMPOSSIBLE,
        (
            "NoNodes",
            "There are no nodes.",
            "Add nodes, or correct the node pool that the scheduler serves.",
        ),
        (
            "NoNodeLargeEnough",
            "A pod asks for more than any node has, even an empty one.",
            "Ask for less in each pod, or add larger nodes.",
        ),
        (
            "GpuMemoryUnknown",
            "The pods ask for GPU memory, and no node has a label with the memory of its GPUs.",
            "Set the label nvidia.com/gpu.memory on the nodes; GPU feature discovery does so.",
        ),
        (
            "ClusterTooSmall",
            "All nodes together, empty, do not hold the pods that must start together.",
            "Let fewer pods start together, ask for less in each, or add nodes.",
        ),
        (
            "TopologyMissing",
            "The job names a topology that does not exist.",
            "Create the Topology, or correct the topology that the job names.",
        ),
        (
            "TopologyLevelMissing",
            "The topology that the job names does not have the level that it asks for.",
            "Name a level of the topology, or add the level to it.",
        ),
        (
            "DomainTooSmall",
            "The pods must share a domain of a topology, and no domain holds them, even if it were empty.",
            "Prefer the level instead of requiring it, require a wider level, or let fewer pods start together.",
        ),
    ),
    *_codes(
        Stage.LIMIT,
        (
            "OverLimit",
            "With this job the queue, or a parent of it, would pass its limit.",
            "Wait until the queue uses less, ask for less, or raise the limit.",
        ),
        (
            "OverUserLimit",
            "With this job the user would hold more than the queue, or a parent of it, lets each user hold.",
            "Wait until other jobs of the user end, ask for less, or raise the limit of users.",
        ),
        (
            "OverModelLimit",
            "The nodes that could take the pods have a GPU model whose limit, of the queue or a parent, is reached.",
            "Wait until the queue uses less of it, let the job use another model, or raise the limit of the model.",
        ),
        (
            "BudgetUsed",
            "A budget of the queue, or of a queue above it, may not have enough GPU-hours left for the job.",
            "Wait for the next period, which the message names, give the job a shorter limit, or raise the budget.",
        ),
    ),
    *_codes(
        Stage.QUOTA,
        (
            "NonPreemptibleOverQuota",
            "The job is non-preemptible, so it must fit into the quota of the queue, and it does not.",
            "Let the job be preemptible, ask for less, or raise the quota.",
        ),
    ),
    *_codes(
        Stage.MATCH,
        (
            "PodRefused",
            "A plugin refuses the pod on every node; the message names the plugin.",
            "Provide what the message says is missing, such as a volume claim or a config map.",
        ),
        (
            "NoNodeMatches",
            "A selector, an affinity, a taint or the state of nodes excludes all nodes that are large enough.",
            "Change the selector or affinity, tolerate the taint, ask for less, or make a node match.",
        ),
    ),
    *_codes(
        Stage.SPARED,
        (
            "EvictionsCapped",
            "There is no room; a cap on evictions ended the search for victims. Other rules may protect them, too.",
            "Wait, or have an administrator raise the cap; the message says which, and what would be evicted.",
        ),
        (
            "VictimsProtected",
            "There is no room, and disruption budgets protect the possible victims, or kai is moving them.",
            "Wait: a move takes two minutes at most. Or let the disruption budgets of those jobs allow more.",
        ),
    ),
    *_codes(
        Stage.ROOM,
        (
            "Plugin",
            "A plugin failed, and its configuration says that jobs are refused then.",
            "Read the log of the scheduler for the failure, or disable the plugin.",
        ),
        (
            "TopologyHasNoRoom",
            "The pods must, or should, share a domain of a topology, and none has room now.",
            "Wait, prefer the level instead of requiring it, or let fewer pods start together.",
        ),
        (
            "GangDoesNotFit",
            "The pods must start together, and only some of them find room now.",
            "Wait, let fewer pods start together, or ask for less in each.",
        ),
    ),
    *_codes(
        Stage.FAIRNESS,
        (
            "AtFairShare",
            "There is no room, and with this job the queue would pass its fair share, so it may not evict others.",
            "Wait until others end, ask for less, or raise the quota of the queue.",
        ),
        (
            "ModelOwedToOthers",
            "There is no room, and other queues hold the GPUs of the model within their quotas of that model.",
            "Wait until others end, let the job run on another model, or change the quotas of the model.",
        ),
        (
            "PreemptionDelayNotElapsed",
            "There is no room, and the job itself asked to evict others only after a delay.",
            "Wait until the delay is over, or shorten spec.preemptionDelay.",
        ),
    ),
    *_codes(
        Stage.OTHERS,
        (
            "PodSchedulingErrors",
            "No node took the pod. Conditions of pod groups use this code where kai why has a more specific one.",
            "Run kai why for the specific reason.",
        ),
        (
            "NoScore",
            "A plugin scored all nodes that have room with NaN, which excludes them; the message names the plugin.",
            "Correct the plugin, or disable it.",
        ),
        (
            "NoRoom",
            "Other jobs use the resources that the job asks for.",
            "Wait until others end, or ask for less.",
        ),
        (
            "TriesSpent",
            "The job has nested sub-groups, and kai has tried the most sets of nodes that it tries for one group.",
            "Use fewer levels of sub-groups, or fewer that ask for a topology level of their own.",
        ),
        (
            "NotTried",
            "No action has tried the job in this cycle.",
            "Look at the configured actions and at queueDepthPerAction; a later cycle may try it.",
        ),
        (
            "WaitsForTurn",
            "This cycle left the job out: its namespace has very many pods or shapes, or kernels are being compiled.",
            "Wait, or use fewer distinct shapes.",
        ),
        (
            "HeldForLeaving",
            "The job has its place; terminating pods still occupy it.",
            "Nothing: the job starts when they have terminated.",
        ),
        (
            "Moves",
            "Pods of the job move to other nodes, so that another job finds room.",
            "Nothing: they start again on the other node; preemptible pods may be moved.",
        ),
    ),
)

BY_CODE = {each.code: each for each in REASON_CODES}
NEVER = frozenset(each.code for each in REASON_CODES if each.stage is Stage.IMPOSSIBLE) | {"PodGroupRefused"}
"""Codes of jobs that cannot start until their nodes or the job itself change."""


def stage_of(code: str) -> Stage:
    """Return the stage of a code in the order of dominance; codes of plugins count as lack of room."""
    known = BY_CODE.get(code)
    return Stage.ROOM if known is None else known.stage
