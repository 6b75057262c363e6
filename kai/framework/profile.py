"""A profile: which actions run in which order, which plugins answer with which options, and parameters."""

from typing import TYPE_CHECKING, Protocol

import attrs

from kai.framework.hooks import Plugin
from kai.framework.parameters import Parameters

if TYPE_CHECKING:
    from kai.framework.session import Session


class Action(Protocol):
    """What an entry point of ``kai.actions`` must be: an object with a name that works on a session."""

    name: str

    def run(self, session: "Session", /) -> None:
        """Decide what this action decides."""


@attrs.frozen(kw_only=True)
class PluginUse:
    """A plugin with the name under which the configuration asked for it."""

    name: str
    plugin: Plugin


@attrs.frozen(kw_only=True)
class Profile:
    """Everything about a cycle that is configuration."""

    actions: tuple[Action, ...]
    plugins: tuple[PluginUse, ...]
    parameters: Parameters = attrs.field(factory=Parameters)
