"""Objects of kinds that only plugins read, as they were written."""

from collections.abc import Mapping
from typing import Any

import attrs


@attrs.frozen(kw_only=True, eq=False)
class RawObject:
    """An object of a plugin's kind; ``spec`` and ``status`` are as JSON has them, and are not to be changed."""

    name: str
    namespace: str = ""
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    spec: Mapping[str, Any]
    status: Mapping[str, Any]

    @property
    def key(self) -> str:
        """The name, behind the namespace and a slash where there is one."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name
