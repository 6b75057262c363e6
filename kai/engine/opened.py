"""Opened plugins: what each of them answers in one session, and who is to blame when an answer fails.

A plugin returns small extensions. ``open_plugins`` is the one place where they become what the engine asks. Every
function of a plugin is wrapped there, so that whatever it raises names the plugin, where it comes from, and what it was
asked. Two plugins that claim the same exclusive thing are told there, too.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar, get_args

import attrs
import numpy as np

from kai.engine.observe import Observer
from kai.errors import ConfigError, KaiError, PluginError
from kai.framework.hooks import (
    Domains,
    Extension,
    GroupOrder,
    NodeFilter,
    NodeScore,
    NodeWait,
    Placement,
    PluginUse,
    PodFilter,
    PodOrder,
    VictimProposals,
    Victims,
)
from kai.framework.terms import FairShares, Term
from kai.framework.view import SessionView
from kai.model.rows import Bools

P = ParamSpec("P")
R = TypeVar("R")


@attrs.frozen(kw_only=True, eq=False)
class Opened:
    """Those extensions of one plugin that concern the same shapes; a plugin may have several of these."""

    name: str
    origin: str = ""
    concerns: Bools | None = None
    """bool[K]: for which shapes the plugin is asked; None: for all."""
    terms: tuple[Term, ...] = ()
    node_filter: NodeFilter | None = None
    node_score: NodeScore | None = None
    node_wait: NodeWait | None = None
    pod_filter: PodFilter | None = None
    pod_order: PodOrder | None = None
    group_order: GroupOrder | None = None
    domains: Domains | None = None
    placement: Placement | None = None
    victims: Victims | None = None
    proposals: VictimProposals | None = None

    def is_asked(self, shape: int) -> bool:
        """Say whether the plugin is asked about pods of ``shape``."""
        return self.concerns is None or bool(self.concerns[shape])

    @property
    def kind(self) -> str:
        """The kind of detail that the plugin keeps with placements."""
        return (self.placement.kind if self.placement is not None else "") or self.name


_PLACES: Final[dict[type[object], str]] = {
    NodeFilter: "node_filter",
    NodeScore: "node_score",
    NodeWait: "node_wait",
    PodFilter: "pod_filter",
    PodOrder: "pod_order",
    GroupOrder: "group_order",
    Domains: "domains",
    Placement: "placement",
    Victims: "victims",
    VictimProposals: "proposals",
}
_TERMS: Final = get_args(Term)


def open_plugins(uses: Sequence[PluginUse], view: SessionView, observer: Observer) -> list[Opened]:
    """Return what the plugins answer to what ``view`` shows, in their order; at least one entry for each plugin.

    Raises: PluginError for a plugin that cannot be opened, or that returns what is no extension; ConfigError for two
        plugins that claim the same.
    """
    found: list[Opened] = []
    for use in uses:
        observer.plugin(use.name)
        opening = guarded(use, "open", use.plugin.open)
        found += grouped(use, opening(view))
    observer.plugin("")
    _refuse_clashes(found)
    return found


def grouped(use: PluginUse, extensions: object) -> list[Opened]:
    """Return the extensions of one plugin by the shapes that they concern.

    Raises: PluginError for what is no extension, and for two of one class that concern the same shapes.
    """
    if not isinstance(extensions, Sequence) or isinstance(extensions, str):
        raise _blamed(use, "open", f"returned {type(extensions).__name__}, expected a sequence of extensions")
    out: list[dict[str, Any]] = []
    for extension in extensions:
        if isinstance(extension, _TERMS):
            fields = _fields_for(out, use, None)
            fields["terms"] = (*fields.get("terms", ()), extension)
            continue
        place = _PLACES.get(type(extension))
        if place is None:
            raise _blamed(use, "open", f"returned {type(extension).__name__} among extensions, which is none")
        fields = _fields_for(out, use, getattr(extension, "concerns", None))
        if place in fields:
            raise _blamed(use, "open", f"returned two of {type(extension).__name__} for the same pods, expected one")
        fields[place] = _guarded_extension(use, extension)
    return [Opened(**fields) for fields in out] or [Opened(name=use.name, origin=use.origin)]


def _fields_for(known: list[dict[str, Any]], use: PluginUse, concerns: Bools | None) -> dict[str, Any]:
    for fields in known:
        mine = fields["concerns"]
        if mine is concerns or (mine is not None and concerns is not None and np.array_equal(mine, concerns)):
            return fields
    known.append({"name": use.name, "origin": use.origin, "concerns": concerns})
    return known[-1]


def _guarded_extension(use: PluginUse, extension: Extension) -> Extension:
    """Return ``extension`` with each function wrapped by ``guarded``."""
    cls = type(extension)
    changes: dict[str, Any] = {}
    for field in attrs.fields(cls):
        value = getattr(extension, field.name)
        if callable(value):
            wrap = _guarded_generator if cls is VictimProposals else guarded
            changes[field.name] = wrap(use, f"{cls.__name__}.{field.name}", value)
    return attrs.evolve(extension, **changes)


def guarded(use: PluginUse, hook: str, function: Callable[P, R]) -> Callable[P, R]:
    """Return ``function``, which blames the plugin for whatever it raises. Cost: a tenth of a microsecond a call."""

    @wraps(function)
    def ask(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except KaiError:
            raise
        except Exception as error:
            raise _blamed(use, hook, f"raised {type(error).__name__}: {error}") from error

    return ask


def _guarded_generator(use: PluginUse, hook: str, function: Callable[P, Iterator[R]]) -> Callable[P, Iterator[R]]:
    """Do the same for a function whose results are made one by one."""

    @wraps(function)
    def ask(*args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        try:
            yield from function(*args, **kwargs)
        except KaiError:
            raise
        except Exception as error:
            raise _blamed(use, hook, f"raised {type(error).__name__}: {error}") from error

    return ask


def _blamed(use: PluginUse, hook: str, message: str) -> PluginError:
    return PluginError(message, plugin=use.name, origin=use.origin, hook=hook)


def _refuse_clashes(plugins: Sequence[Opened]) -> None:
    """Refuse two plugins that claim what only one can have.

    Raises: ConfigError.
    """
    owners: dict[str, str] = {}
    for plugin in plugins:
        for claim in claims(plugin):
            owner = owners.setdefault(claim, plugin.name)
            if owner != plugin.name:
                raise ConfigError(f"plugins: found {owner} and {plugin.name} that both {claim}, expected one of them")


def claims(plugin: Opened) -> Iterator[str]:
    """Yield what ``plugin`` does that only one plugin can do, in words."""
    if any(isinstance(term, FairShares) for term in plugin.terms):
        yield "give the shares of queues"
    if plugin.placement is not None and plugin.placement.choose is not None:
        yield f"keep the detail {plugin.kind!r} of placements"
    if plugin.victims is not None and plugin.victims.may_reclaim is not None:
        yield "say who may reclaim"


__all__ = ["Opened", "claims", "grouped", "guarded", "open_plugins"]
