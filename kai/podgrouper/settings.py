"""What an administrator sets for the pod grouper, and how a grouper names its kinds. Defaults are the peer's."""

from collections.abc import Mapping

import attrs

from kai.api import names
from kai.podgrouper.resource import Kind

ANY_VERSION = "*"


@attrs.frozen
class KindPattern:
    """Which kinds something serves: a group, a kind, and a version, or ``*`` for every version not listed itself."""

    group: str
    version: str
    kind: str

    def __str__(self) -> str:
        """Return ``group/version/Kind``."""
        return str(Kind(self.group, self.version, self.kind))


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
    link_delay_seconds: float = 0.0
    """How long a pod's link to its group may wait for the binding to bring it along; only for a process that binds."""
