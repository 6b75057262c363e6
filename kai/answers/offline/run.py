"""Running a case: snapshot, decide, let the cluster react, as often as the case says.

Kernels run as plain Python in simulations until compiling them pays (`kai.facts.compiled.pace`).

Commands bound the search for victims by a number of scenarios, not by time, so that the same input gives the same
answer. The service bounds it in seconds (`kai.roles.scheduler.cycle.cycle_input`). A user who asks why a job waits does
not need the full plan of all jobs, and a single group that no eviction helps may try every victim of a large cluster.

A fair-share case has no cluster: sibling queues and an amount to divide (`divide_case`).

Source: fair-share cases are those of the peer's resource division.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import attrs
import numpy as np

from kai.answers.cases.case import Case, FairShareCase
from kai.answers.offline.cluster_reaction import Aftermath, Disruptions, next_objects
from kai.api import values
from kai.api.cluster_objects import ClusterObjects
from kai.api.kinds import declare_all
from kai.api.memory import COMPILER, give_back
from kai.api.values import BadValue
from kai.basics.errors import InputError
from kai.basics.progress import report
from kai.deciding.configuration.profiles import make_profile
from kai.deciding.configuration.registry import Registry
from kai.deciding.engine.cycle import CycleReport, Profile, run_cycle
from kai.deciding.engine.host import Budget, BudgetAnswer, Observer, Silent, Unlimited
from kai.facts.compiled.jit import is_plain
from kai.facts.compiled.pace import WORTH_COMPILING, Pace, work_of
from kai.facts.model.axis import Float64s, Int64s, locked
from kai.facts.model.pod import TERMINATING
from kai.facts.state.snapshot import Snapshot
from kai.framework.decisions import Bind, Decision, Evict, Recorder
from kai.framework.division import divide, give_surplus
from kai.framework.hooks import PluginUse
from kai.intake import Intake

COMPILING: Final = "compiling kernels (once, a minute or two)"
WORTH_LOADING: Final = 400_000
"""Work above which a command loads compiled kernels, later than a service: it decides only a few cycles.

Measured with searches as far as commands search: loading takes a second of processor, and 230,000 pairs (500 nodes,
4,000 pods, 50 waiting) take 0.4 seconds plain.
"""
_PACE: Final = Pace(WORTH_LOADING)
SCENARIO: Final = 3_000
"""Work of a scenario in a search for victims, in pairs that take as long in plain Python: 5 ms against 1.7 us."""
TRIALS: Final = 5
"""How often a cycle is decided again for one job that is explained, about."""
_HOSTS: Final[list[str]] = []
"""The services of this process that choose how kernels run, so that this module does not."""


def leave_to(host: str) -> None:
    """Leave the choice of kernels to a service of this process, whose cycles run concurrently with simulations.

    If both chose, each would switch kernels while the other runs.
    """
    _HOSTS.append(host)


def settle_for(objects: ClusterObjects, profile: Profile, again: int = 0) -> None:
    """Choose how kernels run, before a cluster is read that is decided once and about ``again`` more times."""
    waiting = sum(not pod.spec.node_name for pod in objects.pods)
    _settle(work_of(len(objects.nodes), len(objects.pods), waiting) * (1 + again), profile)


def settle_on(snapshot: Snapshot, profile: Profile, again: int = 0) -> None:
    """Choose how kernels run before a snapshot is decided, and count its work.

    About ``again`` more like it will follow.
    """
    waiting = int(np.count_nonzero(snapshot.pod_node < 0))
    work = work_of(len(snapshot.nodes), len(snapshot.pods), waiting)
    _settle(work * (1 + again), profile)
    _PACE.add(work)


def settle_again(before: "Cycle", profile: Profile, jobs: int) -> None:
    """Choose how kernels run before ``before`` is decided again with changes, for each of ``jobs``.

    Kernels that are in no cache are not compiled for it: that takes longer than many trials.
    """
    snapshot = before.snapshot
    waiting = int(np.count_nonzero(snapshot.pod_node < 0))
    once = work_of(len(snapshot.nodes), len(snapshot.pods), waiting) + SCENARIO * before.scenarios
    _settle(min(once * TRIALS * jobs, max(0, WORTH_COMPILING - _PACE.done)), profile)


def _settle(work: int, profile: Profile) -> None:
    if _HOSTS:
        return
    modules, was_plain = tuple(type(use.plugin).__module__ for use in profile.plugins), is_plain()
    _PACE.settle(work, modules, lambda done, total: report(COMPILING, done, total))
    if is_plain() is False and was_plain is not False:
        give_back(COMPILER)  # the import of a compiler reads half of it


@attrs.frozen
class Searches:
    """The most scenarios that a search tries."""

    of_all: int
    """In one cycle."""
    of_one: int
    """For one group by one generator."""


READING: Final = Searches(of_all=4_000, of_one=400)
"""For read-only commands: the largest measured workload, 500 groups that reclaim from 4,000 pods, takes 1,000."""
PASSED_FOR_ONE: Final = 4
"""Number of skipped scenarios that cost as much as one that is tried."""
TRYING: Final = Searches(of_all=400, of_one=100)
"""For each change that is tried for a single job."""


@attrs.define
class Counted:
    """A budget of scenarios for one cycle."""

    most: Searches
    has_ended: bool = False
    """Whether the budget ended a search."""
    scenarios: int = 0
    """Number of scenarios that were tried."""
    _left: int = attrs.field(init=False)
    _left_here: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        """Begin with the full budget."""
        self._left = self.most.of_all * PASSED_FOR_ONE

    def begin_action(self, action: str, /) -> None:
        """Nothing to start."""

    def go_on(self) -> BudgetAnswer:
        """Return GO: idle resources are always handed out completely."""
        return BudgetAnswer.GO

    def begin_group(self) -> BudgetAnswer:
        """Return STOP once all scenarios are spent."""
        return BudgetAnswer.GO if self._left > 0 else self._ended(BudgetAnswer.STOP)

    def begin_generator(self, generator: str, /) -> None:
        """Start the scenarios of a generator."""
        self._left_here = self.most.of_one * PASSED_FOR_ONE

    def grant(self) -> BudgetAnswer:
        """Return whether another scenario may be tried, within the budgets of the generator and of the cycle."""
        answer = self._spend(PASSED_FOR_ONE)
        self.scenarios += answer is BudgetAnswer.GO
        return answer

    def pass_over(self) -> BudgetAnswer:
        """Return whether the generator may propose more after a scenario was skipped."""
        return self._spend(1)

    def _spend(self, cost: int) -> BudgetAnswer:
        if self._left <= 0:
            return self._ended(BudgetAnswer.STOP)
        if self._left_here <= 0:
            return self._ended(BudgetAnswer.NEXT_GENERATOR)
        self._left -= cost
        self._left_here -= cost
        return BudgetAnswer.GO

    def _ended(self, grant: BudgetAnswer) -> BudgetAnswer:
        self.has_ended = True
        return grant


def budget_of(searches: Searches | None) -> Budget:
    """Return the budget of one cycle; None is unlimited."""
    return Unlimited() if searches is None else Counted(searches)


DECIDING: Final = "deciding"


@attrs.frozen(kw_only=True)
class Cycle:
    """One cycle: its snapshot, its decisions and its results."""

    number: int
    snapshot: Snapshot
    report: CycleReport
    decisions: tuple[Decision, ...]
    was_cut_short: bool = False
    """Whether a search for victims ended before it had tried everything."""
    scenarios: int = attrs.field(default=0, eq=False)
    """Number of scenarios that searches tried; 0 where nothing bounds them."""

    @property
    def aftermath(self) -> Aftermath:
        """The aftermath, from which the cluster reacts."""
        return Aftermath.of(self.snapshot, self.report, self.decisions, self.number)

    @cached_property
    def origins(self) -> Int64s:
        """Return int64[P]: the node of each pod before its eviction, -1 for none.

        A pod that was bound in this cycle may also be evicted in it: its node is the one that it was bound to.
        """
        nodes = self.snapshot.pod_node.copy()
        for decision in self.decisions:
            if isinstance(decision, Bind) and nodes[decision.pod] < 0:
                nodes[decision.pod] = decision.node
        return locked(nodes)

    # Cached: tables and pages read it for each node and each waiting job.
    @cached_property
    def places(self) -> Int64s:
        """Return int64[P]: the node that each pod is on or is promised after the last action, -1 for none.

        Terminating pods stay on their original node. The engine books such a pod on its last place, which may be a node
        that it was only promised.
        """
        leaves = (TERMINATING >> self.report.status & 1).astype(np.bool_)
        return locked(np.where(leaves, self.origins, self.report.node))


@attrs.frozen(kw_only=True)
class Outcome:
    """All cycles of a case, and their results."""

    case: Case
    profile: Profile
    cycles: tuple[Cycle, ...]
    stable: tuple[Cycle, ...] = ()
    settled: Snapshot | None = None
    """The cluster after it reacted to the last of ``cycles``; pods are reported from it if stable cycles follow."""
    searches: Searches | None = None
    """A bound on the search for victims; None: no bound."""
    intake: Intake | None = attrs.field(default=None, repr=False, eq=False)
    """The intake that took the snapshots: when a changed case is decided again, it reads only what changed."""

    @property
    def last(self) -> Cycle:
        """The last of ``cycles``."""
        return self.cycles[-1]


def simulate(
    case: Case,
    registry: Registry | None = None,
    observer: Observer | None = None,
    more: tuple[PluginUse, ...] = (),
    searches: Searches | None = None,
    again: int = 0,
) -> Outcome:
    """Return the outcome of ``case``; plugins in ``more`` come after those of its configuration.

    ``searches``: a bound on the search for victims in each cycle; None: no bound. ``again``: an estimate of how often
    the outcome will be decided again.

    Holds: the same case gives the same outcome. A cycle that changes nothing for the next one stands for all that
           follow: they are not decided again, unless an observer is to see them.
    Raises: ConfigError for names and options that cannot be used, InputError for objects that cannot.
    """
    known = registry or Registry.installed()
    profile = make_profile(case.configuration, known)
    declare_all(known.objects(use.name for use in profile.plugins).items())
    profile = attrs.evolve(profile, plugins=profile.plugins + more)
    settle_for(case.objects, profile, again)
    intake = Intake(case.settings)
    cycles = tuple(_cycles(case, profile, intake, observer, searches))
    if is_plain() is False and not _HOSTS:
        give_back(COMPILER)  # the kernels of a cycle are loaded now, and what follows needs 40 MB less
    stable = cycles[case.cycles :]
    return Outcome(
        case=case,
        profile=profile,
        cycles=cycles[: case.cycles],
        stable=stable,
        settled=stable[0].snapshot if stable else None,
        searches=searches,
        intake=intake,
    )


def _cycles(
    case: Case, profile: Profile, intake: Intake, observer: Observer | None, searches: Searches | None
) -> Iterator[Cycle]:
    """Yield each cycle, and report progress where there are several."""
    objects, past = case.objects, case.past
    total = case.cycles + case.stable_cycles
    last: Cycle | None = None
    for number in range(1, total + 1):
        if total > 1:
            report(DECIDING, number - 1, total, f"cycle {number} of {total}")
        if last is not None:  # a fixed point: the cycle before changed nothing
            yield attrs.evolve(last, number=number)
            continue
        snapshot = intake.take(objects, case.now, past, revision=number)
        cycle = decide(snapshot, profile, number, observer, searches, Disruptions.of(objects, is_first=number == 1))
        yield cycle
        if number < total:
            before = objects, past
            past = attrs.evolve(past, awaited=cycle.report.awaited, evicted=_with_evicted(past.evicted, cycle))
            objects = next_objects(objects, cycle.aftermath, case.keep_terminating)
            # Where namespaces take turns, the groups of a cycle depend on its number, even if no object changed.
            is_still = before == (objects, past) and not snapshot.crowds.by_namespace
            last = cycle if is_still and observer is None else None
    if total > 1:
        report(DECIDING, total, total, "")


def _with_evicted(before: tuple[tuple[str, int], ...], cycle: Cycle) -> tuple[tuple[str, int], ...]:
    """Return the evicted GPUs of queues so far: all cycles of a case are within one hour."""
    totals, snapshot = Counter(dict(before)), cycle.snapshot
    for each in cycle.decisions:
        group = int(snapshot.pod_group[each.pod])
        if isinstance(each, Evict) and group >= 0:
            totals[snapshot.groups[group].queue] += each.gpus
    return tuple(sorted(totals.items()))


def decide(
    snapshot: Snapshot,
    profile: Profile,
    number: int,
    observer: Observer | None = None,
    searches: Searches | None = None,
    disruptions: Disruptions | None = None,
) -> Cycle:
    """Return the decision on ``snapshot`` as the cycle ``number``.

    Where ``disruptions`` protect victims, it is decided again without their groups, as a running service does in the
    following cycles.
    """
    settle_on(snapshot, profile)

    def run(snapshot: Snapshot) -> tuple[CycleReport, Recorder, Budget]:
        sink, budget = Recorder(), budget_of(searches)
        return run_cycle(snapshot, profile, sink, observer or Silent(), budget), sink, budget

    decided, sink, budget = run(snapshot)
    # Terminates: each round spares at least one more pod.
    while disruptions is not None and (sees := disruptions.sparing(snapshot, sink.statements)) is not None:
        decided, sink, budget = run(sees)
    return Cycle(
        number=number,
        snapshot=snapshot,
        report=decided,
        decisions=tuple(sink.decisions),
        was_cut_short=isinstance(budget, Counted) and budget.has_ended,
        scenarios=budget.scenarios if isinstance(budget, Counted) else 0,
    )


DIVISIONS = ("all", "resource", "overquota")


def divide_case(case: FairShareCase) -> dict[str, Any]:
    """Return the fair share of every queue, and the undivided remainder of every resource.

    Raises: InputError for a case that cannot be read.
    """
    document = case.document
    try:
        queues = document["queues"]
        totals = document["totalResources"]
        k = max(0.0, float(document.get("kValue", 0.0)))
        if document["divide"] not in DIVISIONS:
            raise InputError.about(
                case.name, "divide", found=document["divide"], wanted=f"one of {', '.join(DIVISIONS)}"
            )
        shares: dict[str, dict[str, float]] = {queue["uid"]: dict.fromkeys(queue["resources"], 0.0) for queue in queues}
        remaining: dict[str, float] = {}
        for resource, total in totals.items():
            members = [queue for queue in queues if resource in queue["resources"]]
            left, found = _divide(members, resource, float(total), k, surplus_only=document["divide"] == "overquota")
            remaining[resource] = left
            for queue, share in zip(members, found, strict=True):
                shares[queue["uid"]][resource] = float(share)
    except KeyError as error:
        raise InputError(f"{case.name}: found a fair-share case without {error}, expected queues and totals") from error
    except (TypeError, AttributeError, ValueError, OverflowError, BadValue) as error:
        raise InputError(
            f"{case.name}: found what no fair-share case has ({error}), expected queues and totals"
        ) from error
    return {"scenario": case.name, "fairShare": shares, "remaining": remaining}


def _divide(
    queues: Sequence[Mapping[str, Any]], resource: str, total: float, k: float, *, surplus_only: bool
) -> tuple[float, Float64s]:
    def column(key: str, default: float = 0.0) -> Float64s:
        return np.array([float(queue["resources"][resource].get(key, default)) for queue in queues], np.float64)

    created = [_instant(queue.get("creationTimestamp")) for queue in queues]
    ranked = sorted(range(len(queues)), key=lambda at: (created[at], str(queues[at]["uid"])))
    order = np.array(ranked, np.int64)
    priority = np.array([int(queue.get("priority", 0)) for queue in queues], np.int64)
    weight, usage, request = column("overQuotaWeight"), column("usage"), column("request")
    limit, shares = column("limit", -1.0), column("fairShare")
    if surplus_only:
        left = give_surplus(total, order, priority, weight, usage, request, limit, k, shares)
    else:
        left = divide(total, order, priority, column("deserved"), limit, weight, usage, request, k, shares)
    return float(left), shares


def _instant(text: object) -> float:
    return values.instant(text) if isinstance(text, str) and text else 0.0
