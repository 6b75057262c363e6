"""Shortcuts: the fast forms of operations that also have a plain form, in one table.

A shortcut makes the same decisions as its plain form, statement for statement. ``takes`` is the one place that reads
whether a shortcut is on; ``Parameters.shortcuts`` turns all of them off, ``Parameters.without`` some. Each row states
what the shortcut gains alone, as processor time of a warm cycle without and with it. A shortcut that gains less than
5 % on the workload that justifies it is deleted (``docs/design/0013-shortcuts.md``).
"""

from typing import Final

import attrs

from kai.framework.parameters import Parameters


@attrs.frozen(kw_only=True)
class Shortcut:
    """One operation with two forms. The names of forms are modules with a function or class of theirs."""

    name: str
    plain: str
    fast: str
    applies: str
    """When the fast form is used, if it is on."""
    workload: str
    """The workload that justifies it: one of ``benchmarks``, or derived from one."""
    gain: str
    """Milliseconds of processor time without it → with it, all others on."""


ALLOCATE: Final = Shortcut(
    name="allocate",
    plain="kai.actions.placing.place_group",
    fast="kai.deciding.engine.fast_path.FastPath",
    applies="groups of one leaf, of shapes whose answers do not change while pods are placed",
    workload="w1",
    gain="909 → 22.4",
)
DOMAINS: Final = Shortcut(
    name="domains",
    plain="kai.actions.placing.place_group",
    fast="kai.facts.kernels.domains.place_in_domain",
    applies="groups of one leaf whose plugin gives a tree of domains",
    workload="w6",
    gain="121 → 36.2",
)
SAME_TRY: Final = Shortcut(
    name="same-try",
    plain="kai.actions.placing.place_group",
    fast="kai.actions.placing.place_group",
    applies="sub-groups that did not fit into the same nodes before, while all else was as it is",
    workload="one group of 12 sub-groups within each other that prefer a level each, which fits nowhere",
    gain="140 → 22",
)
BATCH: Final = Shortcut(
    name="batch",
    plain="kai.actions.placing.place_group",
    fast="kai.framework.hooks.Batch",
    applies="groups of one leaf whose pods ask for the same, if their plugin counts the room of nodes for it",
    workload="class-gpus",
    gain="189 → 21.8",
)
ONE_ANSWER: Final = Shortcut(
    name="one-answer",
    plain="kai.deciding.engine.policy.Policy.answers",
    fast="kai.deciding.engine.policy.Policy.first_answers",
    applies="groups of one pod, for shapes with one plugin to ask, which looks at the group only",
    workload="w1 with a plugin that looks at groups",
    gain="1,008 → 19.6",
)
RATED: Final = Shortcut(
    name="rated",
    plain="kai.deciding.engine.statement.Statement.place_pods",
    fast="kai.facts.kernels.place.place_rated",
    applies="chunks of one shape, for which one plugin only filters and rates nodes",
    workload="w2 with a plugin that looks at groups",
    gain="1,295 → 546",
)
SEARCH: Final = Shortcut(
    name="search",
    plain="kai.actions.search.outer.PlainVictims",
    fast="kai.actions.search.outer.CompiledVictims",
    applies="always; groups with a tree of sub-groups are handed back",
    workload="w9",
    gain="34.8 → 19.4",
)
TRIAL: Final = Shortcut(
    name="trial",
    plain="kai.actions.search.replacing.Replacing",
    fast="kai.actions.search.replacing.try_at_once",
    applies="scenarios of groups of one leaf that no plugin is asked about",
    workload="w9",
    gain="21.9 → 18.8",
)
KEPT_HEAPS: Final = Shortcut(
    name="kept-heaps",
    plain="kai.facts.kernels.trying.try_victims",
    fast="kai.facts.kernels.filling.fill_waiting",
    applies="trials after the first one, below queues where nothing changed since the one before",
    workload="queues-reclaim",
    gain="511 → 419",
)
FIRST_PROBE: Final = Shortcut(
    name="first-probe",
    plain="kai.actions.search.solver.Search",
    fast="kai.facts.kernels.prefix.propose_first",
    applies="searches for one pod, where the plugin proposes the victims of one node",
    workload="w7",
    gain="484 → 50.6",
)
LAST_PROBE: Final = Shortcut(
    name="last-probe",
    plain="kai.actions.search.solver.Search",
    fast="kai.actions.search.solver.Search",
    applies="the probe of the whole chunk evicted just what it would record",
    workload="w7",
    gain="570 → 64.2",
)
ONE_CALL: Final = Shortcut(
    name="one-call",
    plain="kai.actions.search.solver.Search",
    fast="kai.actions.search.one_call.OneCall",
    applies="searches of reclaim for one pod, by the rules of fair shares alone, whose first scenario succeeds",
    workload="w7",
    gain="373 → 54.9",
)
NEXT_SCENARIO: Final = Shortcut(
    name="next-scenario",
    plain="kai.actions.search.solver.Search",
    fast="kai.facts.kernels.prefix.propose_next",
    applies="searches of `one-call` in which victims take back the places that they left",
    workload="levels-reclaim",
    gain="2,476 → 1,233",
)
TRANSITIONS: Final = Shortcut(
    name="transitions",
    plain="kai.actions.search.solver.Search",
    fast="kai.framework.hooks.Transitions",
    applies="searches of `one-call` for pods about which one plugin is asked, if it has a table of states of nodes",
    workload="sockets-reclaim",
    gain="286 → 50.4",
)
HELD: Final = Shortcut(
    name="held",
    plain="kai.actions.search.replacing.Replacing.holds",
    fast="kai.actions.search.replacing.Replacing.is_held",
    applies="trials for one pod that plugins are asked about, in which no victim got another place",
    workload="sockets-reclaim without `transitions`",
    gain="532 → 350",
)
PROSPECTS: Final = Shortcut(
    name="prospects",
    plain="kai.actions.search.solver.Search",
    fast="kai.actions.search.hopeless.Prospects",
    applies="consolidations that sums over queues, nodes and victims rule out",
    workload="w9 with its queues at their limits, 200 groups, scheduling signatures off",
    gain="1,796 → 49.4",
)
HOPELESS: Final = Shortcut(
    name="hopeless",
    plain="kai.actions.search.solver.Search",
    fast="kai.framework.hooks.Victims",
    applies="chunks of several pods, and of one after a search in vain, if a plugin knows that none helps",
    workload="16 nodes whose devices are held for pods that are gone, one pod that wants one",
    gain="4,909 → 23.7",
)
TOO_FEW: Final = Shortcut(
    name="too-few",
    plain="kai.actions.search.solver.Search",
    fast="kai.actions.search.outer.Filters",
    applies="scenarios for pods that ask for the same whole number of GPUs, where too few become free",
    workload="gang-reclaim",
    gain="3,880 → 93.5",
)
ONE_NODE: Final = Shortcut(
    name="one-node",
    plain="kai.actions.search.solver.Search",
    fast="kai.facts.kernels.prefix.extend",
    applies="outer scenarios from which victims of one node at a time are proposed, where none of them can serve",
    workload="packing",
    gain="297 → 63.7",
)
NO_DOMAIN: Final = Shortcut(
    name="no-domain",
    plain="kai.actions.search.solver.Search",
    fast="kai.framework.hooks.Domains",
    applies="scenarios for groups whose plugin knows that no part of the nodes in reach will do",
    workload="parts-reclaim",
    gain="3,241 → 555",
)
ALIKE: Final = Shortcut(
    name="alike",
    plain="kai.actions.search.waiting.EvictionPass",
    fast="kai.deciding.engine.readiness.EquivalenceClasses",
    applies="groups that only names tell apart, after one of them was passed over",
    workload="w1b",
    gain="151 → 30.4",
)
NO_LESS: Final = Shortcut(
    name="no-less",
    plain="kai.actions.search.waiting.EvictionPass",
    fast="kai.actions.search.hopeless.NoLess",
    applies="groups of one pod that differ in amounts, after a search that each of them may make failed",
    workload="shapes-full",
    gain="665 → 457",
)
FULL_QUEUES: Final = Shortcut(
    name="full-queues",
    plain="kai.deciding.engine.fast_path.FastPath",
    fast="kai.deciding.engine.refusals.FullQueues",
    applies="groups of one leaf whose queues are full, after some were refused one by one",
    workload="1,000 gangs of two sizes that take turns, of a full queue",
    gain="84.4 → 20",
)
UNCHANGED: Final = Shortcut(
    name="unchanged",
    plain="kai.deciding.engine.cycle.run_cycle",
    fast="kai.deciding.engine.cycle.report_at_rest",
    applies="the same facts as in a cycle that decided nothing, and no deadline has come",
    workload="w4d",
    gain="5.24 → 0.03",
)
TABLE: Final = (
    ALLOCATE,
    DOMAINS,
    SAME_TRY,
    BATCH,
    ONE_ANSWER,
    RATED,
    SEARCH,
    TRIAL,
    KEPT_HEAPS,
    FIRST_PROBE,
    LAST_PROBE,
    ONE_CALL,
    NEXT_SCENARIO,
    TRANSITIONS,
    HELD,
    PROSPECTS,
    HOPELESS,
    TOO_FEW,
    ONE_NODE,
    NO_DOMAIN,
    ALIKE,
    NO_LESS,
    FULL_QUEUES,
    UNCHANGED,
)


def takes(parameters: Parameters, shortcut: Shortcut) -> bool:
    """Return whether ``shortcut`` is on."""
    return parameters.shortcuts and shortcut.name not in parameters.without
