"""Objects of kinds that only plugins read: their metadata are kai's business, the rest is the plugin's.

``kai.api.plugin_kinds`` makes such a kind known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from kai.api.fields import EMPTY
from kai.api.kubernetes.meta import ObjectMeta


@attrs.frozen(kw_only=True)
class Foreign:
    """An object that a plugin reads; each of their kinds is a class of its own beneath this one."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Mapping[str, Any] = EMPTY
    status: Mapping[str, Any] = EMPTY
