"""Makes profiles: loads the actions and plugins that a configuration names, with their options."""

from typing import cast

from kai.basics.errors import ConfigError, error_text
from kai.basics.wording import shown
from kai.deciding.configuration import peer
from kai.deciding.configuration.options import build, described
from kai.deciding.configuration.peer import PluginEntry
from kai.deciding.configuration.profile_reading import ON_FAILURE, Configuration, default_configuration
from kai.deciding.configuration.registry import Registry, UnknownNameError, origin_of, suggestion
from kai.deciding.engine.cycle import Action, Profile
from kai.framework.hooks import OnFailure, Plugin, PluginUse


def make_profile(configuration: Configuration, registry: Registry | None = None) -> Profile:
    """Return the profile of a configuration, with actions and plugins loaded and options checked.

    Raises: ConfigError with every name and option that cannot be used.
    """
    known = registry or Registry.installed()
    errors: list[ConfigError] = []
    actions: list[Action] = []
    plugins: list[PluginUse] = []
    for name in configuration.actions:
        try:
            actions.append(_action(name, f"{configuration.place}: actions", known))
        except ConfigError as error:
            errors.append(error)
    for entry in configuration.plugins:
        try:
            plugins.append(_use(entry, configuration.place, known))
        except ConfigError as error:
            errors.append(error)
    if errors:
        raise UnknownNameError(
            *(message for error in errors for message in error.messages),
            helps=[line for error in errors for line in error.helps],
        )
    return Profile(actions=tuple(actions), plugins=tuple(plugins), parameters=configuration.parameters)


def _action(name: str, place: str, registry: Registry) -> Action:
    """Return the action that is installed as ``name``.

    Bounds in the configuration, reports and metrics use the action's own name, so the two must be equal.

    Raises: ConfigError.
    """
    made = registry.action(name, place)
    subject = f"{place}: action {shown(name)} of {origin_of(registry.actions[name][0])}"
    try:
        action = made()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        wanted = "expected a class that is made without arguments"
        raise ConfigError(f"{subject}: found that {made.__name__}() raised {error_text(error)}, {wanted}") from error
    own = getattr(action, "name", None)
    if own != name:
        raise ConfigError(
            f"{subject}: found the attribute name {shown(own)}, expected {shown(name)}, as it is installed"
        )
    return cast("Action", action)


def _use(entry: PluginEntry, place: str, registry: Registry) -> PluginUse:
    where = f"{place}: {entry.key}.{entry.name}"
    elsewhere = {option: f"{place}: {key}.{entry.name}" for option, key in entry.elsewhere.items()}
    if entry.name not in registry.plugins and peer.ours(entry.name):
        raise UnknownNameError(
            f"{where}: found KAI-Scheduler's name of a plugin", help=f"did you mean {peer.ours(entry.name)}?"
        )
    cls = registry.plugin(entry.name, where)
    owner = origin_of(registry.plugins[entry.name][0])
    origin = str(owner) if owner.distribution else ""
    options = dict(entry.options)
    wanted = None if any(field.name == ON_FAILURE for field in described(cls)) else options.pop(ON_FAILURE, None)
    plugin = cast("Plugin", build(cls, options, where, origin or entry.name, elsewhere))
    return PluginUse(
        name=entry.name, plugin=plugin, origin=origin, on_failure=_on_failure(wanted, elsewhere.get(ON_FAILURE, where))
    )


def _on_failure(wanted: object, where: str) -> OnFailure | None:
    if wanted is None:
        return None
    known = [each.value for each in OnFailure]
    if wanted not in known:
        raise UnknownNameError(
            f"{where}.{ON_FAILURE}: found {shown(wanted)}, expected one of {', '.join(known)}",
            help=suggestion(str(wanted), known),
        )
    return OnFailure(wanted)


def default_profile(registry: Registry | None = None) -> Profile:
    """Return the peer's built-in profile."""
    return make_profile(default_configuration(), registry)
