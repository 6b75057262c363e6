"""Which steps a bind goes through, as configured.

Steps run in descending priority and stop at the first failure. All are undone then, those that did not run included:
after a crash the binder does not know which did, so every `undo` must do nothing where nothing was done.

Source: names, priorities and arguments are those of the peer's binder plugins, so that its configuration is understood.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import attrs

from kai.api.fields import EMPTY
from kai.binder.claims import DynamicResources
from kai.binder.context import BindStep
from kai.binder.gpusharing import GpuSharing, HamiCore
from kai.binder.volumes import VolumeBinding
from kai.errors import ConfigError
from kai.numerals import signed, truth

BIND_TIMEOUT: Final = "bindTimeoutSeconds"
CDI_ENABLED: Final = "cdiEnabled"

Build = Callable[[Mapping[str, str]], BindStep]


@attrs.frozen(kw_only=True)
class StepOptions:
    """What is configured about one step; what is not given stays as it is by default.

    `arguments` replace the default arguments as a whole.
    """

    enabled: bool | None = None
    priority: int | None = None
    arguments: Mapping[str, str] | None = None


@attrs.frozen(kw_only=True)
class _Known:
    """A step that exists, with its defaults."""

    build: Build
    priority: int
    enabled: bool = True
    arguments: Mapping[str, str] = EMPTY


def _volumes(arguments: Mapping[str, str]) -> BindStep:
    return VolumeBinding(timeout_seconds=_seconds("volumebinding", arguments))


def _claims(arguments: Mapping[str, str]) -> BindStep:
    _seconds("dynamicresources", arguments)
    return DynamicResources()


def _sharing(arguments: Mapping[str, str]) -> BindStep:
    return GpuSharing(uses_cdi=_flag("gpusharing", arguments))


def _hami(_: Mapping[str, str]) -> BindStep:
    return HamiCore()


_KNOWN: Final[Mapping[str, _Known]] = {
    "volumebinding": _Known(build=_volumes, priority=300, arguments={BIND_TIMEOUT: "120"}),
    "dynamicresources": _Known(build=_claims, priority=200, arguments={BIND_TIMEOUT: "120"}),
    "gpusharing": _Known(build=_sharing, priority=100, arguments={CDI_ENABLED: "false"}),
    "hamicore": _Known(build=_hami, priority=50, enabled=False),
}


def resolve_steps(options: Mapping[str, StepOptions] = EMPTY) -> tuple[BindStep, ...]:
    """Return the enabled steps in the order in which they run.

    Raises: ConfigError for an unknown step, a bad argument, or a memory limit without the maps that it is written into.
    """
    unknown = sorted(options.keys() - _KNOWN.keys())
    if unknown:
        raise ConfigError.about(
            "binder", f"plugins.{unknown[0]}", found=unknown[0], wanted=f"one of {', '.join(_KNOWN)}"
        )
    enabled: list[tuple[float, str]] = []
    for name, known in _KNOWN.items():
        given = options.get(name, StepOptions())
        if known.enabled if given.enabled is None else given.enabled:
            enabled.append((-(known.priority if given.priority is None else given.priority), name))
    order = [name for _, name in sorted(enabled)]
    if "hamicore" in order:
        ranks = {name: rank for rank, name in enabled}
        if not ranks.get("gpusharing", math.inf) < ranks["hamicore"]:
            wanted = (
                "gpusharing enabled with a higher priority, since it makes the config map that hamicore writes into"
            )
            raise ConfigError.about("binder", "plugins.hamicore", found="enabled", wanted=wanted)
    return tuple(_KNOWN[name].build(_arguments(name, options)) for name in order)


def _arguments(name: str, options: Mapping[str, StepOptions]) -> Mapping[str, str]:
    given = options.get(name, StepOptions()).arguments
    return _KNOWN[name].arguments if given is None else given


def _seconds(step: str, arguments: Mapping[str, str]) -> float:
    text = arguments.get(BIND_TIMEOUT)
    seconds = signed(text) if text is not None else None
    if seconds is None or seconds < 0:
        path = f"plugins.{step}.arguments.{BIND_TIMEOUT}"
        raise ConfigError.about("binder", path, found=text, wanted="a whole number of seconds")
    return float(seconds)


def _flag(step: str, arguments: Mapping[str, str]) -> bool:
    text = arguments.get(CDI_ENABLED)
    value = truth(text) if text is not None else None
    if value is None:
        path = f"plugins.{step}.arguments.{CDI_ENABLED}"
        raise ConfigError.about("binder", path, found=text, wanted="true or false")
    return value
