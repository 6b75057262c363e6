"""A profile: which actions run in which order, which plugins answer with which options, and parameters."""

from typing import Protocol

import attrs

from kai.engine.session import Session
from kai.framework.hooks import PluginUse
from kai.framework.parameters import Parameters


class Action(Protocol):
    """What an entry point of ``kai.actions`` must be: an object with a name that works on a session."""

    name: str

    def run(self, session: Session, /) -> None:
        """Decide what this action decides."""


@attrs.frozen(kw_only=True)
class Profile:
    """Everything about a cycle that is configuration."""

    actions: tuple[Action, ...]
    plugins: tuple[PluginUse, ...]
    parameters: Parameters = attrs.field(factory=Parameters)
