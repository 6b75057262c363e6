"""How the scheduler of a cluster is configured: what its installation says, in the form that it was installed with.

kai's chart keeps its configuration in a config map. KAI-Scheduler's operator makes one of each SchedulingShard, of
which the shard says more: its flags. What is not said is as both have it by default.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.api import names
from kai.lenient import mapping_of

if TYPE_CHECKING:
    from kai.cluster.transport.access import Access
    from kai.configuration.registry import Registry
    from kai.simulation.cases.origin import Origin
    from kai.simulation.request import Policy

_KEY: Final = "config.yaml"
_DEFAULT: Final = "default"
_PART_OF: Final = "app.kubernetes.io/part-of"
_OPERATORS: Final = "kai-scheduler-default"
"""The config map that KAI-Scheduler's operator makes for the shard called default."""


@attrs.frozen(kw_only=True)
class Chosen:
    """The configuration that decides, and what it is called."""

    policy: "Policy | None" = None
    """None for the one that kai has by default, or that the source has itself."""
    name: str = _DEFAULT
    others: tuple[str, ...] = ()
    """What the cluster has besides."""
    hidden: str = ""
    """The right without which a configuration of the cluster could not be seen."""

    def line(self, origin: "Origin") -> str:
        """Return what is said last about a cluster that was read."""
        line = f"source: {origin.cluster} · configuration: {self.name}"
        if self.others:
            line += f" (also there: {', '.join(self.others)}; --config chooses)"
        return f"{line} (that of the cluster is hidden: {self.hidden})" if self.hidden else line


def policy_of_cluster(access: "Access", registry: "Registry") -> Chosen:
    """Return the configuration of the scheduler that runs in a cluster.

    Raises: ConfigError for one that cannot be used, UnreachableError for a cluster that cannot be asked.
    """
    from kai.cli.deciding.policy import policy_of
    from kai.simulation.sources.live_cluster import read_installed

    found = read_installed(access)
    texts = _texts(found.shards, found.configs, found.maps)
    if not texts:
        return Chosen(hidden=found.hidden)
    name, *others = texts
    return Chosen(policy=policy_of(texts[name], name, registry), name=name, others=tuple(others))


def _texts(
    shards: Sequence[Mapping[str, Any]], configs: Sequence[Mapping[str, Any]], maps: Sequence[Mapping[str, Any]]
) -> dict[str, bytes]:
    """Return the configurations of one form by what they are called, that of the default shard first."""
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
