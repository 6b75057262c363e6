"""What an installation of kai brings to a cluster, so that files need not say it."""

from __future__ import annotations

from collections.abc import Iterable

from kai.api.kubernetes.core import PriorityClass
from kai.api.kubernetes.meta import ObjectMeta
from kai.manifests.grouping import PRIORITY_CLASSES


def installed_classes(given: Iterable[PriorityClass]) -> list[PriorityClass]:
    """Return the priority classes of an installation that are not given."""
    known = {each.metadata.name for each in given}
    return [
        PriorityClass(metadata=ObjectMeta(name=name), value=value)
        for name, value in PRIORITY_CLASSES.items()
        if name not in known
    ]
