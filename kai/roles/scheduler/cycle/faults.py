"""Whether a group or a plugin is at fault for a failure, how cycles continue, and what users read of it.

At first a failure counts as the group's fault: the group is set aside, and the others go on
(`kai.roles.scheduler.cycle.suspects`). A hook that fails at a third group, or at no group in particular, is the
plugin's fault. Then no group is set aside for it. Instead the request is refused, the plugin's opinion is left out, or
cycles stop, by extension point (`kai.deciding.engine.failing`) or by configuration. After a minute without a failure
the plugin is trusted again.

Holds: a plugin that always fails costs three repeated cycles, and afterwards no group its turn. Where cycles must stop,
because no answer is a safe substitute, more groups have to fail before the plugin is at fault. So a tenant with three
odd groups does not stop the other tenants.

`place_of` says where an error came from: the innermost place in kai or a plugin.

`with_aside` adds accounts of objects that are left out because cycles failed at them.

`with_early` adds accounts of pods that replace moved ones while the rest of their gang is missing. A cycle does not see
these pods: stand-ins take their places, so their group seems to run, and no message would say why they have no node
(`kai.roles.scheduler.feedback.moved_pods`). They get an event but no condition: a condition that says that a pod is
unschedulable makes cluster autoscalers add a node, and these pods have their places.
"""

from __future__ import annotations

from collections import Counter
from traceback import walk_tb
from typing import TYPE_CHECKING, Final

import attrs

from kai.api.kinds import key_of
from kai.api.kubernetes.pod import ENDED, Pod
from kai.api.scheduling.pod_group import PodGroup, UnschedulableReason, least_members
from kai.deciding.engine.cycle import Profile
from kai.deciding.engine.failing import OPEN, PluginFailure, reaction_to
from kai.deciding.explain.code_texts import not_ready
from kai.deciding.explain.phrases import listed
from kai.facts.model.groups import DEFAULT_SUBGROUP
from kai.framework.hooks import OnFailure, PluginUse
from kai.intake.aside import Suspect, suspect_of_pod
from kai.roles.scheduler.cycle.suspects import Blame, Record
from kai.roles.scheduler.feedback.moved_pods import group_of, is_stand_in
from kai.roles.scheduler.publishing.explanations import NOT_READY, GroupAccount, Overall, PodAccount, Waiting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from kai.api.cluster_objects import ClusterObjects
    from kai.basics.errors import PluginError


def place_of(error: Exception, origins: frozenset[str]) -> str:
    """Return the message and place of an error in one line, without the object that it concerned.

    The place is the innermost one in the packages ``origins``, since a library beneath them is seldom at fault.
    """
    causes: list[BaseException] = [error]
    # An error may be its own cause, or part of a longer cycle of causes.
    while (cause := causes[-1].__cause__) is not None and all(cause is not each for each in causes):
        causes.append(cause)
    places = list(_places(causes[-1].__traceback__)) or list(_places(error.__traceback__))
    mine = [place for place in places if place[0].partition(".")[0] in origins]
    module, function, line = (mine or places)[-1]
    message = str(error).splitlines()[0] if str(error) else type(error).__name__
    return f"{message} (at {function} in {module}, line {line})"


def _places(trace: TracebackType | None) -> Iterable[tuple[str, str, int]]:
    for frame, line in walk_tb(trace):
        yield str(frame.f_globals.get("__name__", "")), frame.f_code.co_name, line


Hook = tuple[str, str]
"""The name of a plugin and of its hook."""

_FEW: Final = 3
"""Count of groups at which a hook fails before it counts as the fault."""
_MANY: Final = 8
"""The same for a hook whose fault stops all cycles."""
_PROBATION: Final = 60.0
"""Seconds without a failure after which a plugin is trusted again."""


@attrs.frozen(kw_only=True)
class PluginFault:
    """A hook that is known to fail."""

    plugin: str
    origin: str
    hook: str
    message: str
    groups: int
    """Count of groups at which it failed before it was known; 0: at no group in particular."""
    reaction: OnFailure
    last: float
    """When it last failed, on the monotonic clock."""
    dump: str = ""
    is_everywhere: bool = False
    """Whether it failed although suspected objects were left out."""

    @property
    def key(self) -> Hook:
        """The plugin and the hook."""
        return self.plugin, self.hook


@attrs.define
class Faults:
    """The hooks that are known to fail."""

    known: dict[Hook, PluginFault] = attrs.field(factory=dict)
    fresh: list[PluginFault] = attrs.field(factory=list)
    """Faults that are not logged yet."""
    over: list[PluginFault] = attrs.field(factory=list)
    """Ended faults that are not logged yet."""
    _profiles: tuple[Profile, Profile] | None = None
    """Memoized: the last profile, and the one with stand-ins that was made of it."""

    def judge(
        self,
        error: PluginError,
        profile: Profile,
        groups: int,
        now: float,
        dump: str = "",
        *,
        is_everywhere: bool = False,
    ) -> OnFailure | None:
        """Return how cycles continue after a failure; None if a group may be at fault.

        ``groups``: count of groups at which the hook failed, including this one; 0: at no group in particular.
        ``is_everywhere``: it failed although suspected objects were left out, so none of them is at fault.
        """
        use = next((each for each in profile.plugins if each.name == error.plugin), None)
        if use is None:
            return None
        key = (error.plugin, error.hook)
        if key in self.known:  # it failed although a stand-in answers for it: only stopping is left
            if self.known[key].is_everywhere and not is_everywhere:
                return None  # by now an object may be at fault: search again
            self._learn(attrs.evolve(self.known[key], reaction=OnFailure.STOP, last=now))
            return OnFailure.STOP
        reaction = reaction_to(use.on_failure, error.hook)
        if not (is_everywhere or self._is_at_fault(use, error.hook, reaction, groups)):
            return None
        self._learn(
            PluginFault(
                plugin=error.plugin,
                origin=error.origin,
                hook=error.hook,
                message=str(error),
                groups=groups,
                reaction=reaction,
                last=now,
                dump=dump,
                is_everywhere=is_everywhere,
            )
        )
        self.fresh.append(self.known[key])
        return reaction

    def _is_at_fault(self, use: PluginUse, hook: str, reaction: OnFailure, groups: int) -> bool:
        if use.on_failure is OnFailure.STOP:
            return True
        if reaction is OnFailure.STOP:
            return groups >= _MANY
        # When it opens a session or sorts, a plugin handles many groups at once: the failure names none of them.
        return groups >= _FEW or groups == 0 or hook == OPEN

    def ended(self, failures: Iterable[PluginFailure], now: float) -> None:
        """Record the end of a cycle with the failures of known hooks; end faults after a minute without one."""
        failed = {(each.plugin, each.hook): each for each in failures}
        for key, fault in list(self.known.items()):
            if key in failed:
                self.known[key] = attrs.evolve(fault, last=now)
            # A hook that stops cycles is trusted at once: this cycle has ended, so it did not stop it.
            elif fault.reaction is OnFailure.STOP or now - fault.last >= _PROBATION:
                self.over.append(self.known.pop(key))
                self._profiles = None

    def in_force(self, profile: Profile) -> Profile:
        """Return the profile with stand-ins for hooks that are known to fail; unchanged while these are."""
        if not self.known:
            return profile
        if self._profiles is None or self._profiles[0] is not profile:
            uses = tuple(attrs.evolve(use, failing=self._of(use.name)) for use in profile.plugins)
            self._profiles = (profile, attrs.evolve(profile, plugins=uses))
        return self._profiles[1]

    def due(self) -> float | None:
        """Return when the next plugin will be trusted again, if it does not fail; None if none is failing."""
        return min((fault.last + _PROBATION for fault in self.known.values()), default=None)

    @property
    def problem(self) -> str:
        """Text that names the plugins that stop cycles; "" if none does; callable in any thread."""
        return "; ".join(each.message for each in self.known.copy().values() if each.reaction is OnFailure.STOP)

    @property
    def note(self) -> str:
        """Text that names the plugins that fail without stopping cycles; "" if none does; callable in any thread."""
        words = {OnFailure.REFUSE: "refused", OnFailure.LEAVE_OUT: "left out"}
        # A copy in one step: a thread that serves probes reads this while a cycle adds a fault.
        known = self.known.copy().values()
        return "; ".join(f"{each.message} ({words[each.reaction]})" for each in known if each.reaction in words)

    def _learn(self, fault: PluginFault) -> None:
        self.known[fault.key] = fault
        self._profiles = None

    def _of(self, plugin: str) -> dict[str, OnFailure]:
        return {hook: fault.reaction for (name, hook), fault in self.known.items() if name == plugin}


SET_ASIDE: Final = "SetAside"
_FEW_GROUPS: Final = 20
"""How many groups may fail alike before the common error is reported."""


@attrs.frozen(kw_only=True)
class Common:
    """One error that set aside more than half of the waiting groups."""

    blame: Blame
    """The error as one of the groups met it."""
    where: str
    groups: int
    waiting: int


def common_error(overall: Overall, records: Mapping[Suspect, Record]) -> Common | None:
    """Return the error that set aside most waiting groups; None if there is none, or if only a few groups failed.

    Errors are equal if their types and places are, because their messages may name the group.
    Cost: O(objects set aside); if these are many, O(accounts) as well.
    """
    blames = [record.blame for suspect, record in records.items() if suspect.kind == "PodGroup"]
    if len(blames) <= _FEW_GROUPS:
        return None
    ((place, count),) = Counter((each.kind, _where(each)) for each in blames).most_common(1)
    waiting = sum(each.condition is not None and not each.waits_for_turn for each in overall.groups)
    # A few groups that fail alike are a tenant with one odd template. More than half of all that wait are an error of
    # kai or of a plugin.
    if count <= _FEW_GROUPS or 2 * count <= waiting:
        return None
    blame = next(each for each in blames if (each.kind, _where(each)) == place)
    return Common(blame=blame, where=place[1], groups=count, waiting=waiting)


def _where(blame: Blame) -> str:
    return blame.message.rpartition(" (at ")[2].rstrip(")")


def with_aside(
    overall: Overall, objects: ClusterObjects, records: Mapping[Suspect, Record], left_out: frozenset[Suspect]
) -> Overall:
    """Return the accounts, with those of objects that are set aside.

    Objects on trial get no account, and their conditions stay.
    Cost: nothing if nothing is left out; else O(pods + groups).
    """
    if not left_out:
        return overall
    groups = {key_of(each): each for each in objects.pod_groups}
    mine = {(each.namespace, each.name) for each in left_out if each.kind == "PodGroup"}
    accounts = {(each.namespace, each.name): each for each in overall.groups if (each.namespace, each.name) not in mine}
    waiting = _waiting(objects.pods, groups, records)
    tally = Counter(overall.waiting)
    if count := sum(map(len, waiting.values())):
        tally[SET_ASIDE] += count
    for suspect, record in records.items():
        text = message(suspect, record)
        pods = tuple(_pod(pod, text) for pod in waiting.get(suspect, ()))
        if suspect.kind == "PodGroup" and (suspect.namespace, suspect.name) in groups:
            metadata = groups[suspect.namespace, suspect.name].metadata
            reasons = (UnschedulableReason(reason=SET_ASIDE, message=text),)
            accounts[suspect.namespace, suspect.name] = GroupAccount(
                name=metadata.name,
                namespace=metadata.namespace,
                uid=metadata.uid,
                stamps={},
                unschedulable=text,
                condition=Waiting(message=text, reasons=reasons),
                pods=pods,
            )
    settled = overall.settled - mine
    return attrs.evolve(overall, groups=tuple(accounts.values()), settled=settled, waiting=dict(tally))


def message(suspect: Suspect, record: Record) -> str:
    """Return why an object is set aside, and what ends that."""
    return (
        f"{SET_ASIDE}: scheduling failed at this {suspect.kind} ({record.blame.kind}: {record.blame.message}), so it is"
        " left out and the others go on. Change or delete it; it is tried again when it or one of its pods changes, and"
        " every few minutes. The log of the scheduler names the place"
    )


def _waiting(
    pods: Iterable[Pod], groups: Mapping[tuple[str, str], PodGroup], records: Mapping[Suspect, Record]
) -> dict[Suspect, list[Pod]]:
    found: dict[Suspect, list[Pod]] = {}
    for pod in pods:
        suspect = suspect_of_pod(pod, groups)
        if suspect in records and not pod.spec.node_name:
            found.setdefault(suspect, []).append(pod)
    return found


def _pod(pod: Pod, text: str) -> PodAccount:
    metadata = pod.metadata
    return PodAccount(name=metadata.name, namespace=metadata.namespace, uid=metadata.uid, message=text)


def with_early(overall: Overall, objects: ClusterObjects, early: Iterable[Pod]) -> Overall:
    """Return the accounts, with those of the groups of ``early``, which ``objects`` lacks.

    Cost: nothing if there are none; else O(pods + groups).
    """
    mine: dict[tuple[str, str], list[Pod]] = {}
    for pod in early:
        mine.setdefault(group_of(pod), []).append(pod)
    if not mine:
        return overall
    members: dict[tuple[str, str], list[Pod]] = {key: [] for key in mine}
    for pod in objects.pods:
        key = group_of(pod)
        if key in mine and pod.metadata.deletion_timestamp is None and pod.status.phase not in ENDED:
            members[key].append(pod)
    accounts = {(each.namespace, each.name): each for each in overall.groups}
    for group in objects.pod_groups:
        key = key_of(group)
        if key in mine:
            accounts[key] = _account(accounts.get(key), group, mine[key], members[key])
    waiting = Counter(overall.waiting)
    waiting[NOT_READY] += sum(map(len, mine.values()))
    settled = overall.settled - mine.keys()
    return attrs.evolve(overall, groups=tuple(accounts.values()), settled=settled, waiting=dict(waiting))


def _account(known: GroupAccount | None, group: PodGroup, early: list[Pod], members: list[Pod]) -> GroupAccount:
    """Return the account of a group: that it lacks pods, and that the places of its moved pods are kept."""
    metadata = group.metadata
    stand_ins = [pod for pod in members if is_stand_in(pod.metadata.name)]
    there = len(members) - len(stand_ins) + len(early)
    missing = ((DEFAULT_SUBGROUP, least_members(group.spec), there, 0),)
    nodes = sorted({pod.spec.node_name for pod in stand_ins})
    kept = f" Pods of it were moved; their places on {listed(nodes)} are kept for two minutes at most." if nodes else ""
    text = f"{not_ready({'missing': missing})}.{kept}"
    unready = tuple(
        PodAccount(
            name=pod.metadata.name,
            namespace=pod.metadata.namespace,
            uid=pod.metadata.uid,
            message=text,
            on_pod=False,
        )
        for pod in early
    )
    base = known or GroupAccount(name=metadata.name, namespace=metadata.namespace, uid=metadata.uid, stamps={})
    return attrs.evolve(base, not_ready=text, pods=(*base.pods, *unready))
