"""A profile: which actions run in which order, which plugins answer with which options, and parameters."""

import attrs

from kai.engine.session import Session
from kai.framework import decisions
from kai.framework.hooks import PluginUse
from kai.framework.parameters import Parameters

Action = decisions.Action[Session]
"""What an entry point of ``kai.actions`` must be."""


@attrs.frozen(kw_only=True)
class Profile:
    """Everything about a cycle that is configuration."""

    actions: tuple[Action, ...]
    plugins: tuple[PluginUse, ...]
    parameters: Parameters = attrs.field(factory=Parameters)
