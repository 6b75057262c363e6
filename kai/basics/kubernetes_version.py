"""The version of a Kubernetes API server, for behaviour of the scheduler that differs between versions."""

import re
from typing import Final

import attrs

_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)")


@attrs.frozen(order=True)
class KubernetesVersion:
    """Major and minor number; all patches of a minor version behave alike."""

    major: int
    minor: int

    @classmethod
    def of(cls, text: str) -> "KubernetesVersion | None":
        """Return the version that a text begins with (``v1.37.2``, ``1.36+``), None if it begins with none."""
        found = _VERSION.match(text)
        return None if found is None else cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        """Return the version as users write it."""
        return f"{self.major}.{self.minor}"


V1_36: Final = KubernetesVersion(1, 36)
V1_37: Final = KubernetesVersion(1, 37)
NEWEST: Final = V1_37
"""The version that kai assumes if the API server reports none: the newest that kai was compared with."""


def newest() -> KubernetesVersion:
    """Return the version to assume for an API server that has not reported one."""
    return NEWEST
