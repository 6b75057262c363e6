"""The flags of every role, with KAI-Scheduler's names and defaults; ``docs/reference/flags.md`` explains them.

They are parsed as Go programs do: ``--name=value``, ``--name value``, ``-name``; a boolean needs no value.
KAI-Scheduler's operator writes such flags into its Deployments, and they must mean the same here.

Source: the options of KAI-Scheduler's programs, cmd/*/app.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.basics import parsing
from kai.basics.errors import CommandLineError, ConfigError
from kai.basics.wording import shown
from kai.cli.running.flagrows import (
    ADMISSION,
    BINDER,
    INERT,
    OWN,
    POD_GROUPS,
    PODGROUPER,
    QUEUES,
    ROLES,
    SCALE,
    SCHEDULER,
    SHARED,
    TOGETHER,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kai.manifests.faults import Fault


_SAME: Final = (("metrics-bind-address", "listen-address", "metrics-listen-address"),)
"""Groups of flags with the same meaning: KAI-Scheduler's programs name them differently."""
_ALONE: Final = {"truth": "true", "address": "127.0.0.1:8085"}
"""The value of a flag without one, by kind; flags of other kinds take the next word."""
_LIMIT: Final = 10**9
_HIGHEST_PORT: Final = 65535


@attrs.frozen(kw_only=True)
class Flag:
    """One flag: its kind, the roles that take it, and its default."""

    name: str
    kind: str
    default: object
    roles: frozenset[str]
    inert: str = ""
    """For a flag that is accepted and ignored: what has its effect here."""


@attrs.frozen(kw_only=True)
class Given:
    """A parsed command line."""

    roles: tuple[str, ...]
    values: Mapping[str, Any]
    """Every flag by name; the default where it was not given."""
    named: frozenset[str]
    """The flags that were given."""

    def text(self, name: str) -> str:
        """Return the value of a text flag."""
        return str(self.values[name])

    def truth(self, name: str) -> bool:
        """Return the value of a boolean flag."""
        return bool(self.values[name])

    def whole(self, name: str) -> int:
        """Return the value of an integer flag."""
        return int(self.values[name])

    def number(self, name: str) -> float:
        """Return a number, or a duration in seconds."""
        return float(self.values[name])

    def mapping(self, name: str) -> Mapping[str, Any]:
        """Return the value of a flag that holds a mapping."""
        found: Mapping[str, Any] = self.values[name]
        return found


def read_flags(
    arguments: Sequence[str], flags: Mapping[str, Flag], roles: Sequence[str], together: Sequence[str]
) -> Given:
    """Parse a command line; words without dashes are roles, and ``together`` is the default for none.

    Raises: CommandLineError for an unknown role or flag, and for an invalid value.
    """
    try:
        return _read(arguments, flags, roles, together)
    except ConfigError as error:
        raise CommandLineError(*error.messages) from None


def _read(arguments: Sequence[str], flags: Mapping[str, Flag], roles: Sequence[str], together: Sequence[str]) -> Given:
    chosen: list[str] = []
    found: dict[str, tuple[str, str]] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            chosen.append(_role(word, roles))
            continue
        name, equals, text = word.lstrip("-").partition("=")
        flag = flags.get(name)
        if flag is None:
            raise ConfigError(_unknown(name, flags))
        if not equals:
            if flag.kind in _ALONE:
                text = _ALONE[flag.kind]
            elif rest:
                text = rest.pop(0)
            else:
                raise ConfigError(f"--{name}: found nothing, expected a value")
        found[name] = (text, f"--{name}")
    serving = frozenset(chosen or together)
    for name in found:
        if not flags[name].roles & serving:
            others = ", ".join(sorted(flags[name].roles))
            wanted = f"one of {', '.join(sorted(serving))}{_same_there(name, flags, serving)}"
            raise ConfigError(f"--{name}: found a flag of {others}, expected {wanted}")
    values = {name: flag.default for name, flag in flags.items()}
    values |= {name: _READERS[flags[name].kind](text, place) for name, (text, place) in found.items()}
    return Given(roles=tuple(dict.fromkeys(chosen)), values=values, named=frozenset(found))


def with_texts(given: Given, texts: Mapping[str, tuple[str, str]], flags: Mapping[str, Flag]) -> Given:
    """Return the command line, completed by ``texts`` for flags that it does not name; each has the place of its text.

    Raises: ConfigError for an invalid value.
    """
    more = {name: each for name, each in texts.items() if name not in given.named}
    values = {name: _READERS[flags[name].kind](text, place) for name, (text, place) in more.items()}
    return attrs.evolve(given, values={**given.values, **values}, named=given.named | values.keys())


def _role(word: str, roles: Sequence[str]) -> str:
    if word in roles:
        return word
    near = difflib.get_close_matches(word, roles, n=1)
    wanted = near[0] if near else f"one of {', '.join(roles)}"
    raise ConfigError(f"role: found {shown(word)}, expected {wanted}")


def _same_there(name: str, flags: Mapping[str, Flag], serving: frozenset[str]) -> str:
    """Return the end of a message that names the equivalent flag of these roles; "" if there is none."""
    alike = next((each for each in _SAME if name in each), ())
    found = [f"--{each}" for each in alike if each in flags and flags[each].roles & serving]
    return f", where the same is called {found[0]}" if found else ""


def _unknown(name: str, flags: Mapping[str, Flag]) -> str:
    near = difflib.get_close_matches(name, flags, n=1)
    return f"--{name}: found an unknown flag, expected {'--' + near[0] if near else 'one that a role takes'}"


# --- Values --------------------------------------------------------------------------------------------------------


def _text(text: str, place: str) -> object:
    del place
    return text


def _truth(text: str, place: str) -> object:
    value = parsing.truth(text)
    if value is None:
        raise ConfigError(f"{place}: found {shown(text)}, expected true or false")
    return value


def _whole(text: str, place: str) -> object:
    value = parsing.signed(text)
    if value is None or abs(value) >= _LIMIT:
        raise ConfigError(f"{place}: found {shown(text)}, expected a whole number")
    return value


def _port(text: str, place: str) -> object:
    value = parsing.signed(text)
    if value is None or not 0 <= value <= _HIGHEST_PORT:
        raise ConfigError(f"{place}: found {shown(text)}, expected a port from 0 to {_HIGHEST_PORT}")
    return value


def _number(text: str, place: str) -> object:
    value = parsing.floating(text)
    if value is None or not abs(value) < float("inf"):
        raise ConfigError(f"{place}: found {shown(text)}, expected a number")
    return value


def _duration(text: str, place: str) -> object:
    try:
        return parsing.seconds(text)
    except parsing.DurationError:
        raise ConfigError(f"{place}: found {shown(text)}, expected {parsing.DURATION_WANTED}") from None


def _json(text: str, place: str) -> object:
    if not text:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ConfigError(f"{place}: found {shown(text[:80])}, expected a JSON object")
    return value


def _labels(text: str, place: str) -> object:
    out: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = part.partition("=")
        if not equals or not key:
            raise ConfigError(f"{place}: found {shown(part)}, expected key=value, separated by commas")
        out[key.strip()] = value.strip()
    return out


def _label_key(text: str, place: str) -> object:
    from kai.manifests.faults import key_fault

    return _faultless(text, place, key_fault((), text))


def _label_value(text: str, place: str) -> object:
    from kai.manifests.faults import value_fault

    return _faultless(text, place, value_fault((), text))


def _faultless(text: str, place: str, faults: Iterable[Fault]) -> str:
    """Return a text that is a valid label value. With an invalid one a scheduler would silently match nothing."""
    for each in faults:
        raise ConfigError(f"{place}: found {each.found}, expected {each.expected}")
    return text


def _verbosity(text: str, place: str) -> object:
    from kai.cluster.process.logs import verbosity_of

    value = verbosity_of(text)
    if value is None:
        raise ConfigError(f"{place}: found {shown(text)}, expected a number, or a level such as info")
    return value


_READERS: Final[Mapping[str, Callable[[str, str], object]]] = {
    "text": _text,
    "address": _text,
    "truth": _truth,
    "whole": _whole,
    "port": _port,
    "number": _number,
    "duration": _duration,
    "json": _json,
    "labels": _labels,
    "label-key": _label_key,
    "label-value": _label_value,
    "verbosity": _verbosity,
}


def _all() -> Iterator[Flag]:
    for roles, rows in (*SHARED.items(), *(((role,), rows) for role, rows in OWN.items())):
        for name, kind, default in rows:
            yield Flag(name=name, kind=kind, default=default, roles=frozenset(roles), inert=INERT.get(name, ""))


FLAGS: Final[Mapping[str, Flag]] = {flag.name: flag for flag in _all()}

LEASES: Final[Mapping[str, str]] = {
    BINDER: "2ad35f9c.kai.scheduler",
    PODGROUPER: "54dff599.kai.scheduler",
    POD_GROUPS: "o1x22tjj.kai.scheduler",
    QUEUES: "ov3xj497.kai.scheduler",
    SCALE: "7n7h49uc.kai.scheduler",
    ADMISSION: "ojptxr84.kai.scheduler",
}
"""The leases of roles that run alone, with KAI-Scheduler's names, so that its component and kai's never run at once."""

REPORTED_AS: Final[Mapping[str, str]] = {PODGROUPER: "pod-grouper"}
"""The source in events of roles that run alone, where it is not their name: as in KAI-Scheduler's events."""

PARAMETER_OF: Final[Mapping[str, str]] = {
    "scheduler-name": "scheduler_name",
    "max-consolidation-preemptees": "max_consolidation_preemptees",
    "allow-consolidating-reclaim": "allow_consolidating_reclaim",
    "use-scheduling-signatures": "use_scheduling_signatures",
    "default-staleness-grace-period": "default_staleness_grace_seconds",
    "restrict-node-scheduling": "restrict_node_scheduling",
    "cpu-worker-node-label-key": "cpu_worker_label",
    "gpu-worker-node-label-key": "gpu_worker_label",
    "detailed-fit-errors": "detailed_fit_errors",
    "schedule-csi-storage": "schedule_csi_storage",
}
"""The flags that change decisions, and the parameter that each sets."""

SETTING_OF: Final[Mapping[str, str]] = {
    "nodepool-label-key": "node_pool_label",
    "partition-label-value": "node_pool",
    "stuck-in-releasing-threshold": "stuck_in_releasing_seconds",
    "full-hierarchy-fairness": "full_hierarchy_fairness",
    "scheduler-name": "scheduler_name",
    "resource-reservation-namespace": "reservation_namespace",
    "resource-reservation-app-label": "reservation_app",
    "queue-label-key": "queue_label_key",
    "restrict-node-scheduling": "restrict_node_scheduling",
    "cpu-worker-node-label-key": "cpu_worker_label",
    "gpu-worker-node-label-key": "gpu_worker_label",
    "mig-worker-node-label-key": "mig_worker_label",
    "max-pending-shapes-per-namespace": "namespace_shapes",
    "max-pending-pods-per-namespace": "namespace_pods",
    "queue-access": "queue_access",
}
"""The flags that change how a cluster becomes a snapshot, and the setting of each."""

__all__ = [
    "ADMISSION",
    "BINDER",
    "FLAGS",
    "LEASES",
    "PARAMETER_OF",
    "PODGROUPER",
    "POD_GROUPS",
    "QUEUES",
    "REPORTED_AS",
    "ROLES",
    "SCALE",
    "SCHEDULER",
    "SETTING_OF",
    "TOGETHER",
    "Flag",
    "Given",
    "read_flags",
    "with_texts",
]
