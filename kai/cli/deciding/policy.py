"""The configuration that decides in a command: that of a file, or that of the scheduler in a cluster.

Its settings replace those of the case, which keeps all others. That of a cluster is read from the installation.
kai's chart keeps the configuration in a config map. KAI-Scheduler's operator renders one from each SchedulingShard,
which also sets flags. Settings that neither gives have the defaults, which both schedulers share.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.api import names
from kai.basics.parsing import list_of, mapping_of, mappings_of

if TYPE_CHECKING:
    from kai.answers.cases.origin import Origin
    from kai.cli.running.flags import Given
    from kai.cluster.transport.access import Access
    from kai.deciding.configuration.registry import Registry
    from kai.lab.request import Policy

_KEY: Final = "config.yaml"
_DEFAULT: Final = "default"
_FILES: Final = frozenset({"config", "scheduler-conf"})
"""Flags that name a file in the service's pod; the config map behind the file is read instead."""
_PART_OF: Final = "app.kubernetes.io/part-of"
_OPERATORS: Final = "kai-scheduler-default"
"""The config map that KAI-Scheduler's operator makes for the shard called default."""


@attrs.frozen(kw_only=True)
class Chosen:
    """The configuration that decides, and its name."""

    policy: "Policy | None" = None
    """None for kai's default configuration, or the source's own."""
    name: str = _DEFAULT
    others: tuple[str, ...] = ()
    """Other configurations in the cluster."""
    hidden: str = ""
    """The missing right that may hide a configuration of the cluster."""
    flags: tuple[str, ...] = ()
    """Flags of the service that change decisions, as they are typed."""
    flags_hidden: str = ""
    """Why the flags of the service are unknown: the missing right, or a command line that cannot be read."""

    def line(self, origin: "Origin") -> str:
        """Return the closing line of an answer about a cluster: its source and configuration."""
        line = f"source: {origin.cluster} · configuration: {self.name}"
        if self.others:
            line += f" (also there: {', '.join(self.others)}; --config chooses)"
        if self.hidden:
            line += f" (that of the cluster is hidden: {self.hidden})"
        if self.flags:
            line += f" · flags of the service: {' '.join(self.flags)}"
        return f"{line} (flags of the service are unknown: {self.flags_hidden})" if self.flags_hidden else line


def load_policy(path: str) -> "Policy":
    """Return the policy in a file; for a SchedulingShard with the flags that it renders to, as for `kai run`.

    Raises: ConfigError.
    """
    from kai.cli.running.configuring import read_text

    return policy_of(read_text(path), path)


def policy_of(text: bytes, place: str, registry: "Registry | None" = None) -> "Policy":
    """Return the policy in a text, as ``load_policy``; ``place`` names the text in errors.

    Raises: ConfigError.
    """
    # Reading a cluster's own configuration needs these only where it has one.
    from kai.cli.running.configuring import setup_of, with_flags
    from kai.cli.running.flags import FLAGS, PARAMETER_OF, ROLES, SCHEDULER, SETTING_OF, TOGETHER, read_flags
    from kai.cli.running.roles import configuration_of, intake_of
    from kai.lab.request import Policy

    setup = setup_of(text, place, registry)
    if setup.shard is None:
        return Policy(configuration=setup.configuration, said=setup.said, document=setup.document)
    given = with_flags(read_flags([SCHEDULER], FLAGS, ROLES, TOGETHER), setup.shard, place)
    parameters = configuration_of(given)[0].parameters
    intake = intake_of(given)
    changed = {
        PARAMETER_OF[name]: getattr(parameters, PARAMETER_OF[name]) for name in given.named & PARAMETER_OF.keys()
    }
    own = setup.configuration
    return Policy(
        configuration=attrs.evolve(own, parameters=attrs.evolve(own.parameters, **changed)),
        said=setup.said | changed.keys(),
        document=setup.document,
        settings={SETTING_OF[name]: getattr(intake, SETTING_OF[name]) for name in given.named & SETTING_OF.keys()},
    )


def policy_of_cluster(access: "Access", registry: "Registry") -> Chosen:
    """Return the configuration of the scheduler that runs in a cluster.

    Raises: ConfigError for an invalid configuration, UnreachableError for a cluster that does not answer.
    """
    from kai.answers.cases.live_cluster import read_installed

    found = read_installed(access)
    texts = _texts(found.shards, found.configs, found.maps)
    name, *others = texts or (_DEFAULT,)
    chosen = Chosen(policy=policy_of(texts[name], name, registry) if texts else None, name=name, others=tuple(others))
    chosen = attrs.evolve(chosen, hidden="" if texts else found.hidden, flags_hidden=found.flags_hidden)
    return _with_flags(chosen, _command_lines(found.deployments))


def _command_lines(deployments: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    """Yield the arguments of ``kai run`` in each Deployment of kai."""
    for each in deployments:
        if _labels(each).get(_PART_OF) != "kai":
            continue
        for container in mappings_of(each, "spec", "template", "spec", "containers"):
            words = [str(word) for word in (*list_of(container, "command"), *list_of(container, "args"))]
            if "run" in words:
                yield words[words.index("run") + 1 :]


def _without_files(words: Iterable[str]) -> Iterator[str]:
    """Yield the words of a command line without the flags that name files, which exist in the service's pod only."""
    rest = iter(words)
    for word in rest:
        name, equals, _ = word.partition("=")
        if not word.startswith("-") or name.lstrip("-") not in _FILES:
            yield word
        elif not equals:
            next(rest, None)


def _decides(given: "Given") -> bool:
    """Return whether a process decides and carries its decisions out, which a shadow does not."""
    return (not given.roles or "scheduler" in given.roles) and not given.truth("shadow")


def _with_flags(chosen: Chosen, lines: Iterable[list[str]]) -> Chosen:
    """Return the configuration with the decision-changing flags of the first deciding service."""
    from kai.basics.errors import ConfigError
    from kai.cli.running.flags import FLAGS, PARAMETER_OF, ROLES, SETTING_OF, TOGETHER, read_flags
    from kai.cli.running.roles import configuration_of, intake_of
    from kai.deciding.configuration.profile_reading import default_configuration
    from kai.lab.request import Policy

    try:
        all_given = [read_flags(list(_without_files(words)), FLAGS, ROLES, TOGETHER) for words in lines]
        given = next((each for each in all_given if _decides(each)), None)
        if given is None:
            return chosen
        parameters, intake = configuration_of(given)[0].parameters, intake_of(given)
    except ConfigError:
        return attrs.evolve(chosen, flags_hidden="its command line cannot be read")
    named = {name: PARAMETER_OF[name] for name in given.named & PARAMETER_OF.keys()}
    settings = {SETTING_OF[name]: getattr(intake, SETTING_OF[name]) for name in given.named & SETTING_OF.keys()}
    if not named and not settings:
        return chosen
    base = chosen.policy or Policy(configuration=default_configuration())
    said = {field: getattr(parameters, field) for field in named.values()}
    configuration = attrs.evolve(base.configuration, parameters=attrs.evolve(base.configuration.parameters, **said))
    policy = attrs.evolve(
        base, configuration=configuration, said=base.said | said.keys(), settings={**base.settings, **settings}
    )
    chosen_flags = sorted(given.named & (PARAMETER_OF.keys() | SETTING_OF.keys()))
    texts = {name: given.text(name) for name in chosen_flags}
    flags = tuple(f"--{name}={text.lower() if text in {'True', 'False'} else text}" for name, text in texts.items())
    return attrs.evolve(chosen, policy=policy, flags=flags)


def _texts(
    shards: Sequence[Mapping[str, Any]], configs: Sequence[Mapping[str, Any]], maps: Sequence[Mapping[str, Any]]
) -> dict[str, bytes]:
    """Return the configurations of one form by name, that of the default shard first."""
    held = {_name(each): each for each in maps if _KEY in mapping_of(each, "data")}
    own = {name: each for name, each in held.items() if _labels(each).get(_PART_OF) == "kai"}
    if not own and shards:
        found = {f"schedulingshard {_name(each)}": _list([each, *configs[:1]], "kai.scheduler/v1") for each in shards}
        return dict(sorted(found.items(), key=lambda pair: (not pair[0].endswith(f" {_DEFAULT}"), pair[0])))
    chosen = own or {name: each for name, each in held.items() if name == _OPERATORS}
    return {
        f"configmap {names.KAI_NAMESPACE}/{name}": _text("ConfigMap", "v1", chosen[name]) for name in sorted(chosen)
    }


def _list(manifests: Sequence[Mapping[str, Any]], api_version: str) -> bytes:
    shard, *config = manifests
    kinds = zip(("SchedulingShard", "Config"), (shard, *config), strict=False)
    items = [{**each, "apiVersion": api_version, "kind": kind} for kind, each in kinds]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()


def _text(kind: str, api_version: str, manifest: Mapping[str, Any]) -> bytes:
    return json.dumps({**manifest, "apiVersion": api_version, "kind": kind}).encode()


def _name(manifest: Mapping[str, Any]) -> str:
    return str(mapping_of(manifest, "metadata").get("name", ""))


def _labels(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping_of(manifest, "metadata", "labels")
