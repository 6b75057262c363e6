"""Plugins that are known to fail: whether a group or the plugin is at fault, and how cycles go on.

What a plugin fails at is the group's fault at first: it is set aside, and the others go on (`kai.scheduler.suspects`).
A hook that fails at a third group, or at none in particular, is the plugin's fault. Then no group is set aside for it:
what the hook fails at is refused, its opinion is left out, or cycles stop, by its extension point
(`kai.engine.failing`) or by choice in the configuration. A minute without a failure, and all is as before.

Holds: a plugin that fails at everything costs three repeated cycles, and no group its turn afterwards. Where nothing
safe can stand for an answer, so that cycles must stop, more groups have to fail before the plugin is at fault: a tenant
with three odd groups stops no other tenant.

Where an error came from: the innermost place of kai or of a plugin.
"""

from __future__ import annotations

from traceback import walk_tb
from typing import TYPE_CHECKING, Final

import attrs

from kai.engine.cycle import Profile
from kai.engine.failing import OPEN, PluginFailure, reaction_to
from kai.framework.hooks import OnFailure, PluginUse

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from kai.errors import PluginError


def place_of(error: Exception, origins: frozenset[str]) -> str:
    """Return what failed and where, on one line, without what it was about.

    Where: the innermost place in one of the packages ``origins``, since the library beneath it is seldom at fault.
    """
    causes: list[BaseException] = [error]
    # An error may be raised from itself, or from one that came of it.
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
"""The name of a plugin, and what it was asked."""

_FEW: Final = 3
"""A hook that failed at so many groups is at fault itself."""
_MANY: Final = 8
"""The same where cycles stop then."""
_PROBATION: Final = 60.0
"""Seconds without a failure after which a plugin is trusted again."""


@attrs.frozen(kw_only=True)
class Fault:
    """A hook that is known to fail."""

    plugin: str
    origin: str
    hook: str
    message: str
    groups: int
    """At how many groups it failed before it was known; 0: at none in particular."""
    reaction: OnFailure
    last: float
    """When it failed last, by the monotonic clock."""
    dump: str = ""
    is_everywhere: bool = False
    """Whether leaving objects out did not help."""

    @property
    def key(self) -> Hook:
        """The plugin and the hook."""
        return self.plugin, self.hook


@attrs.define
class Faults:
    """The hooks that are known to fail."""

    known: dict[Hook, Fault] = attrs.field(factory=dict)
    fresh: list[Fault] = attrs.field(factory=list)
    """What became known since the log was told."""
    over: list[Fault] = attrs.field(factory=list)
    """What is known no longer since the log was told."""
    _profiles: tuple[Profile, Profile] | None = None
    """The last profile, and what was made of it."""

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
        """Return how cycles go on after a failure; None if a group may be at fault.

        ``groups`` says at how many groups the hook failed, this one included; 0: at none in particular.
        ``is_everywhere``: leaving objects out did not help, so none of them is at fault.
        """
        use = next((each for each in profile.plugins if each.name == error.plugin), None)
        if use is None:
            return None
        key = (error.plugin, error.hook)
        if key in self.known:  # it failed although its answers have a stand-in: there is nothing else to do
            if self.known[key].is_everywhere and not is_everywhere:
                return None  # by now an object may be at fault: it is looked for again
            self._learn(attrs.evolve(self.known[key], reaction=OnFailure.STOP, last=now))
            return OnFailure.STOP
        reaction = reaction_to(use.on_failure, error.hook)
        if not (is_everywhere or self._is_at_fault(use, error.hook, reaction, groups)):
            return None
        self._learn(
            Fault(
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
        # Asked to open or to sort, a plugin looks at many at once: whose fault it is cannot be told.
        return groups >= _FEW or groups == 0 or hook == OPEN

    def ended(self, failures: Iterable[PluginFailure], now: float) -> None:
        """Take that a cycle came to its end, and what hooks failed at in it that are known to fail."""
        failed = {(each.plugin, each.hook): each for each in failures}
        for key, fault in list(self.known.items()):
            if key in failed:
                self.known[key] = attrs.evolve(fault, last=now)
            elif fault.reaction is OnFailure.STOP or now - fault.last >= _PROBATION:
                self.over.append(self.known.pop(key))
                self._profiles = None

    def in_force(self, profile: Profile) -> Profile:
        """Return the profile in which hooks that are known to fail have stand-ins; the same as long as these are."""
        if not self.known:
            return profile
        if self._profiles is None or self._profiles[0] is not profile:
            uses = tuple(attrs.evolve(use, failing=self._of(use.name)) for use in profile.plugins)
            self._profiles = (profile, attrs.evolve(profile, plugins=uses))
        return self._profiles[1]

    def due(self) -> float | None:
        """Return when a plugin is to be trusted again, if it does not fail; None if none fails."""
        return min((fault.last + _PROBATION for fault in self.known.values()), default=None)

    @property
    def problem(self) -> str:
        """Return in words which plugins stop cycles; "" if none does; callable in any thread."""
        return "; ".join(each.message for each in self.known.copy().values() if each.reaction is OnFailure.STOP)

    @property
    def note(self) -> str:
        """Return in words which plugins fail without stopping cycles; "" if none does; callable in any thread."""
        words = {OnFailure.REFUSE: "refused", OnFailure.LEAVE_OUT: "left out"}
        known = self.known.copy().values()
        return "; ".join(f"{each.message} ({words[each.reaction]})" for each in known if each.reaction in words)

    def _learn(self, fault: Fault) -> None:
        self.known[fault.key] = fault
        self._profiles = None

    def _of(self, plugin: str) -> dict[str, OnFailure]:
        return {hook: fault.reaction for (name, hook), fault in self.known.items() if name == plugin}
