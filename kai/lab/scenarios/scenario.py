"""Scenario documents: a cluster as objects, with the time, the actions, the configuration and the expectation.

The format is that of the conformance cases; ``tests/conformance/README.md`` describes it field by field.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import attrs

from kai.answers.cases.case import Case, FairShareCase, intake_settings, read_past_usage, with_claims_of_templates
from kai.answers.cases.origin import MOST_CYCLES
from kai.api import values
from kai.api.cluster_objects import ClusterObjects, collect
from kai.api.codec import structuring
from kai.api.values import BadValue
from kai.basics.errors import InputError
from kai.basics.kubernetes_version import NEWEST, KubernetesVersion
from kai.basics.parsing import is_whole
from kai.basics.wording import shown
from kai.deciding.configuration.peer import Settings
from kai.deciding.configuration.profile_reading import (
    Configuration,
    merged,
    read_configuration,
    read_peer,
    read_tiers,
    refuse_unknown,
)
from kai.deciding.configuration.registry import UnknownNameError, suggestion
from kai.facts.model.placement import Past
from kai.intake import IntakeSettings
from kai.lab.scenarios.shorthand import NOW, expand, is_short
from kai.lab.scenarios.validation import mapping, read_expected

Document = Mapping[str, Any]

_KEYS = (
    "name",
    "description",
    "source",
    "kind",
    "now",
    "actions",
    "cycles",
    "stableCycles",
    "config",
    "keepTerminating",
    "pastUsage",
    "notes",
    "objects",
    "expected",
)
_CONFIG_KEYS = (
    "params",
    "tiers",
    "addPlugins",
    "disablePlugins",
    "actions",
    "queueDepthPerAction",
    "scenarioSearchBudgets",
    "usageDBConfig",
)
_PARAMETERS = (
    "schedulerName",
    "maxConsolidationPreemptees",
    "allowConsolidatingReclaim",
    "useSchedulingSignatures",
    "victims",
    "defaultStalenessGracePeriod",
    "restrictNodeScheduling",
    "detailedFitErrors",
    "fullHierarchyFairness",
    "scheduleCSIStorage",
    "stuckInReleasingThreshold",
    "nodePoolLabelKey",
    "nodePoolLabelValue",
    "queueLabelKey",
)


def is_scenario(document: object) -> bool:
    """Return whether a document is a scenario or a case of another kind, rather than a manifest."""
    if not isinstance(document, Mapping) or "apiVersion" in document:
        return False
    return is_short(document) or "objects" in document or "kind" in document


def read_scenario(document: Document, name: str) -> Case | FairShareCase:
    """Return the case that ``document`` describes; ``name`` is the path it came from.

    Raises: InputError or ConfigError that names the field.
    """
    if is_short(document):
        return read_short(document, name)
    kind = document.get("kind", "scheduling")
    title = str(document.get("description") or document.get("name") or name)
    if kind == "fairshare":
        return FairShareCase(name=name, title=title, document=document, expected=document.get("expected"))
    if kind != "scheduling":
        raise InputError.about(name, "kind", found=kind, wanted="a scheduling or a fairshare case")
    refuse_unknown(document, _KEYS, name)
    objects, notes = read_objects(document.get("objects"), f"{name}: objects")
    config = mapping(document.get("config"), f"{name}: config")
    settings = read_parameters(config, name)
    configuration = read_config(config, name)
    actions = document.get("actions")
    if actions is not None:
        configuration = attrs.evolve(configuration, actions=_names(actions, f"{name}: actions"))
    parameters = settings.parameters(configuration.parameters)
    return Case(
        name=name,
        title=title,
        objects=objects,
        now=_instant(document.get("now"), f"{name}: now"),
        configuration=attrs.evolve(configuration, parameters=parameters),
        settings=intake_settings(settings),
        cycles=max(1, _count(document.get("cycles", 1), f"{name}: cycles")),
        stable_cycles=_count(document.get("stableCycles", 0), f"{name}: stableCycles"),
        keep_terminating=frozenset(_names(document.get("keepTerminating") or (), f"{name}: keepTerminating")),
        past=Past(usage=read_past_usage(document.get("pastUsage"), name, "pastUsage")),
        expected=mapping(document["expected"], f"{name}: expected") if document.get("expected") else None,
        notes=notes + configuration.notes,
    )


def read_short(document: Document, name: str) -> Case:
    """Return the case of a scenario in the short form.

    ``run`` lists the actions, ``plugins`` replaces the default plugins, ``with`` adds to them, as in kai's own
    configuration.

    Raises: InputError or ConfigError that names the key.
    """
    objects, notes = read_objects(expand(document, name), f"{name}: objects")
    objects = with_claims_of_templates(objects)
    own = {key: document[key] for key in ("plugins", "with", "parameters") if key in document}
    configuration = read_configuration(own or None, name)
    if document.get("run") is not None:
        configuration = attrs.evolve(configuration, actions=_names(document["run"], f"{name}: run"))
    return Case(
        name=name,
        title=str(document.get("about") or name),
        objects=objects,
        now=NOW if document.get("now") is None else _instant(document["now"], f"{name}: now"),
        configuration=configuration,
        settings=IntakeSettings(
            scheduler_name=configuration.parameters.scheduler_name,
            restrict_node_scheduling=configuration.parameters.restrict_node_scheduling,
            kubernetes=_kubernetes(document.get("kubernetes"), name),
        ),
        cycles=max(1, _count(document.get("cycles", 1), f"{name}: cycles")),
        past=Past(usage=read_past_usage(document.get("past_usage"), name, "past_usage")),
        sentences=read_expected(document, name),
        short_groups=frozenset(mapping(document.get("groups"), f"{name}: groups")),
        notes=notes,
    )


def _kubernetes(said: object, name: str) -> KubernetesVersion:
    """Return the version of the API server.

    Raises: InputError.
    """
    found = NEWEST if said is None else KubernetesVersion.of(str(said))
    if found is None:
        raise InputError.about(name, "kubernetes", found=said, wanted='a version, such as "1.36"')
    return found


def read_config(config: Mapping[str, Any], name: str) -> Configuration:
    """Return the configuration of a scenario: the default, with its tiers replaced and its plugins added.

    Raises: ConfigError.
    """
    refuse_unknown(config, _CONFIG_KEYS, f"{name}: config")
    peer = {key: value for key, value in config.items() if key not in {"params", "addPlugins", "disablePlugins"}}
    configuration = read_peer(peer, f"{name}: config", None)
    added = config.get("addPlugins")
    if not added:
        return configuration
    notes: list[str] = []
    more = read_tiers([{"plugins": added}], f"{name}: config.addPlugins", None, notes)
    return attrs.evolve(
        configuration, plugins=merged([*configuration.plugins, *more]), notes=(*configuration.notes, *notes)
    )


def read_parameters(config: Mapping[str, Any], name: str) -> Settings:
    """Return the parameters of a scenario.

    Raises: ConfigError for an unknown parameter.
    """
    params = mapping(config.get("params"), f"{name}: config.params")
    strangers = [key for key in params if key not in _PARAMETERS]
    if strangers:
        message = f"{name}: config.params: found {shown(strangers[0])}, expected the name of a parameter"
        raise UnknownNameError(message, help=suggestion(strangers[0], _PARAMETERS))
    return Settings(params, f"{name}: config.params")


def read_objects(value: object, place: str) -> tuple[ClusterObjects, tuple[str, ...]]:
    """Return the cluster of a list of manifests, and notes about skipped kinds.

    Raises: InputError.
    """
    if not isinstance(value, list | tuple) or not all(isinstance(item, Mapping) for item in value):
        raise InputError(f"{place}: found {_kind_of(value)}, expected a list of Kubernetes objects")
    try:
        found = structuring.structure_all(value)
    except InputError as error:
        named = [InputError(f"{place.partition(': ')[0]}: {message}") for message in error.messages]
        raise InputError.joined(named) from None
    notes = skipped_notes(found)
    return collect(found.objects), notes


def skipped_notes(found: structuring.Structured) -> tuple[str, ...]:
    """Return one note for each unknown kind of object."""
    kinds = Counter(skipped.kind for skipped in found.skipped)
    return tuple(f"passed over {count} of kind {kind}" for kind, count in sorted(kinds.items()))


# -------------------------------------------------------------------------------------------------------------- values


def _kind_of(value: object) -> str:
    return "nothing" if value is None else f"a value of type {type(value).__name__}"


def _names(value: object, place: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise InputError.about(*_split(place), found=value, wanted="a list of names")
    return tuple(value)


def _count(value: object, place: str) -> int:
    if is_whole(value) and 0 <= value <= MOST_CYCLES:
        return value
    raise InputError.about(*_split(place), found=value, wanted=f"a whole number from 0 to {MOST_CYCLES}")


def _instant(value: object, place: str) -> float:
    if isinstance(value, str):
        try:
            return values.instant(value)
        except BadValue:
            pass
    raise InputError.about(*_split(place), found=value, wanted=values.WANTED_TIME)


def _split(place: str) -> tuple[str, str]:
    subject, _, field = place.rpartition(": ")
    return subject, field
