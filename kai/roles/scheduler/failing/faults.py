"""Decides whether a group or a plugin is at fault for a failure, and how cycles continue.

At first a failure counts as the group's fault: the group is set aside, and the others go on
(`kai.roles.scheduler.failing.suspects`). A hook that fails at a third group, or at no group in particular, is the
plugin's fault. Then no group is set aside for it. Instead the request is refused, the plugin's opinion is left out, or
cycles stop, by extension point (`kai.deciding.engine.failing`) or by configuration. After a minute without a failure
the plugin is trusted again.

Holds: a plugin that always fails costs three repeated cycles, and afterwards no group its turn. Where cycles must stop,
because no answer is a safe substitute, more groups have to fail before the plugin is at fault. So a tenant with three
odd groups does not stop the other tenants.

`place_of` says where an error came from: the innermost place in kai or a plugin.
"""

from __future__ import annotations

from traceback import walk_tb
from typing import TYPE_CHECKING, Final

import attrs

from kai.deciding.engine.cycle import Profile
from kai.deciding.engine.failing import OPEN, PluginFailure, reaction_to
from kai.framework.hooks import OnFailure, PluginUse

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

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
        known = self.known.copy().values()
        return "; ".join(f"{each.message} ({words[each.reaction]})" for each in known if each.reaction in words)

    def _learn(self, fault: PluginFault) -> None:
        self.known[fault.key] = fault
        self._profiles = None

    def _of(self, plugin: str) -> dict[str, OnFailure]:
        return {hook: fault.reaction for (name, hook), fault in self.known.items() if name == plugin}
