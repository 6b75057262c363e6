"""How much of each capacity of a device a request has: as it asks, rounded up to what the device's driver shares.

Source: the consumable capacity of Kubernetes' allocator (resource.k8s.io/v1, CapacityRequestPolicy).
"""

from collections.abc import Mapping, Sequence

from kai.framework.claims import Device, SharePolicy


def consumption(device: Device, asked: Sequence[tuple[str, int]]) -> Mapping[str, int] | None:
    """Return how much of each capacity of ``device`` a request has that asks for ``asked``, by name.

    None if the device cannot serve it, though it be unused: it lacks a capacity, has less of one than is asked for, or
    shares it in other amounts.
    """
    wanted = dict(asked)
    if not wanted.keys() <= device.capacity.keys():
        return None
    found: dict[str, int] = {}
    for name in sorted(device.capacity):
        whole = device.capacity[name]
        had = _share(wanted.get(name), whole, device.policies.get(name))
        if had is None or had > whole:
            return None
        found[name] = had
    return found


def _share(asked: int | None, whole: int, policy: SharePolicy | None) -> int | None:
    """Return what one has that asks for ``asked`` (None: for nothing), None if ``policy`` has no such amount."""
    if policy is None:
        return whole if asked is None else asked
    if asked is None:
        if policy.default is not None:
            return policy.default
        asked = whole
    if policy.ranged:
        return _in_range(asked, policy)
    if policy.values:
        return min((value for value in policy.values if value >= asked), default=None)
    return asked


def _in_range(asked: int, policy: SharePolicy) -> int | None:
    over = max(0, asked - policy.least)
    found = policy.least + (-(-over // policy.step) * policy.step if policy.step else over)
    return None if policy.most is not None and found > policy.most else found
