"""What a decision takes for granted, because the input does not say it."""

from collections.abc import Iterator

from kai.api.cluster_objects import ClusterObjects
from kai.explain.phrases import listed
from kai.intake.traits import trait_key


def assumptions(objects: ClusterObjects) -> tuple[str, ...]:
    """Return what is assumed about pods that have no node yet."""
    return tuple(_config_maps(objects))


def _config_maps(objects: ClusterObjects) -> Iterator[str]:
    """Yield the config maps that pods need, where the input holds none at all."""
    if objects.config_maps:
        return
    needed = {
        f"{pod.metadata.namespace}/{name}"
        for pod in objects.pods
        if not pod.spec.node_name
        for name in trait_key(pod, finished=False).config_maps
    }
    if needed:
        yield f"config maps exist that pods need, because the input holds no config map: {listed(sorted(needed))}"


__all__ = ["assumptions"]
