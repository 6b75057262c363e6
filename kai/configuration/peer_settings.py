"""The peer's settings that are no plugin's: search budgets, queue depths, parameters of its snapshots and flags.

Source: the peer's cmd/scheduler/app/options and pkg/scheduler/conf.
"""

from collections.abc import Mapping
from typing import Literal

import attrs

from kai import durations
from kai.configuration.registry import UnknownNameError, suggestion
from kai.errors import ConfigError
from kai.framework.parameters import AS_PEER, LEAST_HARM, UNBOUNDED, Parameters, SearchBudgets
from kai.notation import shown
from kai.numerals import is_whole

_NANOSECONDS = 10**9
BUDGETED = ("default", "reclaim", "preempt", "consolidation")
"""The actions that search, and the name for all others."""
_BUDGET_KEYS = ("maxActionSearchDuration", "maxJobSearchDuration", "minJobSearchDuration", "maxGeneratorSearchDuration")


def read_depths(value: object, place: str) -> Mapping[str, int]:
    """Return how many groups of a queue each action looks at.

    Raises: ConfigError.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{place}: found {shown(value)}, expected a mapping from action names to numbers")
    for name, depth in value.items():
        if not is_whole(depth) or depth < 0:
            raise ConfigError(f"{place}.{name}: found {shown(depth)}, expected a whole number, 0 or more")
    return {str(name): depth for name, depth in value.items()}


def read_budgets(value: object, place: str) -> SearchBudgets | None:
    """Return the search budgets; None when the file does not speak of them.

    Raises: ConfigError.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ConfigError(f"{place}: found {shown(value)}, expected a mapping of durations")
    strangers = [key for key in value if key not in _BUDGET_KEYS]
    if strangers:
        message = f"{place}: found key {shown(strangers[0])}, expected one of {', '.join(_BUDGET_KEYS)}"
        raise UnknownNameError(message, help=suggestion(str(strangers[0]), _BUDGET_KEYS))
    default = SearchBudgets()
    action, group, least, generator = (value.get(key) for key in _BUDGET_KEYS)
    return SearchBudgets(
        action={**default.action, **_durations(action, f"{place}.{_BUDGET_KEYS[0]}")},
        group=default.group if group is None else _limit(group, f"{place}.{_BUDGET_KEYS[1]}"),
        group_minimum=default.group_minimum if least is None else _limit(least, f"{place}.{_BUDGET_KEYS[2]}"),
        generator={**default.generator, **_durations(generator, f"{place}.{_BUDGET_KEYS[3]}")},
    )


def _durations(value: object, place: str) -> Mapping[str, float]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{place}: found {shown(value)}, expected a mapping of durations")
    return {str(name): _limit(each, f"{place}.{name}") for name, each in value.items()}


def _limit(value: object, place: str) -> float:
    """Return how long something may take, 0 for as long as it likes."""
    found = duration(value, place)
    if found < 0:
        raise ConfigError(f"{place}: found {shown(value)}, expected 0s or more")
    return found


def duration(value: object, place: str) -> float:
    """Return a duration in seconds: text as Go writes it, or whole nanoseconds.

    Raises: ConfigError.
    """
    if is_whole(value):
        return value / _NANOSECONDS
    try:
        if isinstance(value, str):
            return durations.seconds(value)
    except ValueError:
        pass
    raise ConfigError(f"{place}: found {shown(value)}, expected {durations.WANTED}")


def read_victims(value: object, place: str) -> Literal["least-harm", "as-peer"]:
    """Return how victims are chosen.

    Raises: ConfigError.
    """
    if value == AS_PEER:
        return AS_PEER
    if value == LEAST_HARM:
        return LEAST_HARM
    raise ConfigError(f"{place}: found {shown(value)}, expected {LEAST_HARM} or {AS_PEER}")


@attrs.frozen
class Settings:
    """What the peer calls scheduler parameters, by its names; only those that change decisions are known here.

    A snapshot leaves out what is zero, so absent means zero there (``zeroed``); in a scenario absent means the default.
    """

    values: Mapping[str, object]
    place: str
    zeroed: bool = False

    def parameters(self, base: Parameters) -> Parameters:
        """Return ``base`` with these settings.

        Raises: ConfigError for a value of the wrong type.
        """
        preemptees = "maxNumberConsolidationPreemptees" if self.zeroed else "maxConsolidationPreemptees"
        grace = "globalDefaultStalenessGracePeriod" if self.zeroed else "defaultStalenessGracePeriod"
        restrict = "restrictSchedulingNodes" if self.zeroed else "restrictNodeScheduling"
        return attrs.evolve(
            base,
            scheduler_name=self.text("schedulerName", base.scheduler_name),
            max_consolidation_preemptees=max(UNBOUNDED, self.whole(preemptees, base.max_consolidation_preemptees)),
            allow_consolidating_reclaim=self.truth(
                "allowConsolidatingReclaim", default=base.allow_consolidating_reclaim
            ),
            victims=read_victims(self.values.get("victims", base.victims), f"{self.place}.victims"),
            use_scheduling_signatures=self.truth("useSchedulingSignatures", default=base.use_scheduling_signatures),
            default_staleness_grace_seconds=self.seconds(grace, base.default_staleness_grace_seconds),
            restrict_node_scheduling=self.truth(restrict, default=base.restrict_node_scheduling),
            detailed_fit_errors=self.truth("detailedFitErrors", default=base.detailed_fit_errors),
            schedule_csi_storage=self.truth("scheduleCSIStorage", default=base.schedule_csi_storage),
        )

    def truth(self, key: str, *, default: bool) -> bool:
        """Return a truth value."""
        value = self.values.get(key, False if self.zeroed else default)
        if isinstance(value, bool):
            return value
        raise ConfigError(f"{self.place}.{key}: found {shown(value)}, expected true or false")

    def whole(self, key: str, default: int) -> int:
        """Return a whole number."""
        value = self.values.get(key, 0 if self.zeroed else default)
        if is_whole(value):
            return value
        raise ConfigError(f"{self.place}.{key}: found {shown(value)}, expected a whole number")

    def text(self, key: str, default: str) -> str:
        """Return a text; an empty one is the default."""
        value = self.values.get(key) or default
        if isinstance(value, str):
            return value
        raise ConfigError(f"{self.place}.{key}: found {shown(value)}, expected text")

    def seconds(self, key: str, default: float) -> float:
        """Return a duration in seconds."""
        if key not in self.values:
            return 0.0 if self.zeroed else default
        return duration(self.values[key], f"{self.place}.{key}")
