"""Read the configuration that the command line names: a file of the scheduler, or a SchedulingShard."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.api.codec.manifest_text import load_documents, load_values
from kai.basics.errors import ConfigError, InputError
from kai.basics.parsing import mapping_of, part_of
from kai.basics.wording import found_by, shown
from kai.cli.running.flags import FLAGS, SCHEDULER, Given, with_texts
from kai.cli.running.shards import Rendered, is_shard, render
from kai.deciding.configuration.profile_reading import Configuration, read_configuration

if TYPE_CHECKING:
    from kai.deciding.configuration.registry import Registry

_KEY: Final = "config.yaml"


@attrs.frozen(kw_only=True)
class Setup:
    """A configuration with the document that it was read from."""

    configuration: Configuration
    document: Mapping[str, Any] | None
    """The document of the file, or the one that a shard renders to; None for an empty file."""
    shard: Rendered | None = None
    """The rendered SchedulingShard; None for a file of the scheduler."""
    said: frozenset[str] = frozenset()
    """The scheduler's parameters that the document sets."""


def load_setup(path: str, registry: Registry | None = None) -> Setup:
    """Return the configuration in a file: kai's or KAI-Scheduler's form, bare or in a config map, or a SchedulingShard.

    Raises: ConfigError.
    """
    return setup_of(read_text(path), path, registry)


def setup_of(text: bytes, place: str, registry: Registry | None = None) -> Setup:
    """Return the configuration in a text, as ``load_setup``; ``place`` names the text in errors.

    Raises: ConfigError.
    """
    document, shard = _found(text, place)
    configuration = read_configuration(document, place, registry)
    if shard is not None:
        configuration = attrs.evolve(configuration, notes=(*shard.notes, *configuration.notes))
    return Setup(configuration=configuration, document=document, shard=shard, said=_said(document))


def load_configuration(path: str, registry: Registry | None = None) -> Configuration:
    """Return the configuration in a file; of a shard without its flags.

    Raises: ConfigError.
    """
    return load_setup(path, registry).configuration


def with_shard(given: Given, path: str) -> Given:
    """Return the flags, completed by those of a SchedulingShard in the file; flags of the command line win.

    Raises: ConfigError.
    """
    return with_flags(given, _found(read_text(path), path)[1], path)


def with_flags(given: Given, shard: Rendered | None, place: str) -> Given:
    """Return the flags, completed by those of a shard at ``place``; flags of the command line win."""
    if shard is None:
        return given
    return with_texts(given, {name: (text, f"{place}: --{name}") for name, text in shard.flags.items()}, FLAGS)


def read_text(path: str) -> bytes:
    """Return the contents of a file.

    Raises: ConfigError.
    """
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{path}: found {found_by(error)}, expected a configuration file") from None


def _found(text: str | bytes, path: str) -> tuple[Any, Rendered | None]:
    try:
        values = load_values(text, path)
        if len(values) == 1 and isinstance(values[0], Mapping) and values[0].get("kind") == "ConfigMap":
            text = _carried(values[0], path)
            values = load_values(text, f"{path}: data.{_KEY}")
        documents = load_documents(text, path) if values and _is_manifest(values[0]) else ()
    except InputError as error:
        raise ConfigError(*error.messages) from None
    if documents:
        known = (name for name, flag in FLAGS.items() if SCHEDULER in flag.roles)
        shard = render(documents, path, known)
        return shard.document, shard
    if len(values) > 1:
        raise ConfigError(f"{path}: found {len(values)} documents, expected one")
    return (values[0] if values else None), None


def _carried(config_map: Mapping[str, Any], path: str) -> str:
    """Return the configuration in a config map, such as KAI-Scheduler's operator makes for a shard.

    Raises: ConfigError for a config map without one.
    """
    held = mapping_of(config_map, "data")
    text = held.get(_KEY)
    if not isinstance(text, str):
        if text is not None:
            raise ConfigError(f"{path}: data.{_KEY}: found {shown(text)}, expected the text of a configuration")
        keys = ", ".join(map(str, held))
        raise ConfigError(f"{path}: data: found {keys or 'nothing'}, expected {_KEY} with a configuration")
    return text


def _is_manifest(value: object) -> bool:
    return is_shard(value) or (str(part_of(value, "kind")).endswith("List"))


def _said(document: object) -> frozenset[str]:
    """Return the scheduler's parameters that a document sets."""
    if not isinstance(document, Mapping):
        return frozenset()
    theirs = {"queueDepthPerAction": "queue_depth", "scenarioSearchBudgets": "budgets"}
    found = {ours for key, ours in theirs.items() if document.get(key)}
    return frozenset(found | set(mapping_of(document, "parameters")))
