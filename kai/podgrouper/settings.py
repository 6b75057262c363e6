"""What an administrator sets for the pod grouper, and custom kinds declared in the configuration.

Defaults are the peer's. A custom kind needs no code: a ``KindRule`` says which of the known groupers serves it, and a
Karta manifest in ``kartas`` describes it in the same words as a Karta object in the cluster would.
"""

from collections.abc import Mapping
from typing import Self

import attrs

from kai.api import names
from kai.errors import ConfigError
from kai.podgrouper.resource import Kind, Manifest

ANY_VERSION = "*"


@attrs.frozen
class KindPattern:
    """Which kinds something serves: a group, a kind, and a version, or ``*`` for every version not listed itself."""

    group: str
    version: str
    kind: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the pattern that is written as ``group/version/Kind``, or ``version/Kind`` for the core group.

        Raises: ConfigError when the text is neither.
        """
        *group, version, kind = text.split("/") if "/" in text else ("", "")
        if not version or not kind or len(group) > 1 or group == [""]:
            raise ConfigError.about(
                "kind", "pattern", found=text, wanted='"group/version/Kind", the version possibly "*"'
            )
        return cls("".join(group), version, kind)

    def __str__(self) -> str:
        """Return ``group/version/Kind``."""
        return str(Kind(self.group, self.version, self.kind))


@attrs.frozen
class KindRule:
    """A kind that the configuration hands to the grouper of that entry point name. It wins over what is built in."""

    pattern: KindPattern
    grouper: str


@attrs.frozen(kw_only=True)
class Settings:
    """Settings of the pod grouper.

    An empty label selector selects everything; an empty ``node_pool_label`` switches node pools off; defaults by kind
    are read only when ``defaults_namespace`` and ``defaults_name`` are both given.
    """

    scheduler_name: str = names.SCHEDULER_NAME
    queue_label: str = names.QUEUE
    node_pool_label: str = names.NODE_POOL
    knative_gangs: bool = True
    legacy_groups: bool = True
    """Keep a group that exists under the name an earlier release would have given it."""
    karta_fallback: bool = True
    defaults_namespace: str = ""
    defaults_name: str = ""
    namespace_labels: Mapping[str, str] = attrs.field(factory=dict)
    pod_labels: Mapping[str, str] = attrs.field(factory=dict)
    kind_rules: tuple[KindRule, ...] = ()
    kartas: tuple[Manifest, ...] = ()
    link_delay_seconds: float = 0.0
    """How long a pod's link to its group may wait for the binding to bring it along; only for a process that binds."""
