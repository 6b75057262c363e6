"""Keep account of what active pods take, so that nothing is ever given twice.

``book`` puts a pod on a node if everything it needs is free there, ``unbook`` gives all of it back.
"""

from tests.generate.demands import matches
from tests.generate.draft import GPU, UNKNOWN_GPU_MEMORY, Amounts, Claim, Device, Draft, Node, Pod
from tests.generate.rules import admits


def book(draft: Draft, pod: Pod, node: Node) -> bool:
    """Put ``pod`` on ``node`` and say whether it could be done; otherwise nothing has changed."""
    shared = _choose_shared(draft, pod, node)
    zones = _choose_zones(pod, node)
    devices = _choose_devices(pod, node)
    if shared is None or zones is None or devices is None or not _suits(draft, pod, node):
        return False
    fresh = [name for name in shared if name not in node.shared]
    wanted = pod.demand.amounts()
    if fresh:
        wanted[GPU] = wanted.get(GPU, 0) + len(fresh)
    if any(node.free.get(name, 0) < amount for name, amount in wanted.items()):
        return False
    _take(node.free, wanted)
    for name in shared:
        node.shared.setdefault(name, node.gpu_memory)
        node.shared[name] -= pod.demand.memory_on(node)
    for zone in node.zones:
        _take(zone.free, zones.get(zone.name, {}))
    for claim, chosen in devices:
        _allocate(claim, chosen, node)
        claim.users.append(pod)
    node.ports |= dict.fromkeys(pod.rules.ports, pod.name)
    node.pods.append(pod)
    pod.node, pod.shared, pod.zones = node, shared, zones
    return True


def unbook(pod: Pod) -> None:
    """Take ``pod`` off its node."""
    node = pod.node
    if node is None:
        return
    returned = pod.demand.amounts()
    for name in pod.shared:
        node.shared[name] += pod.demand.memory_on(node)
        if node.shared[name] == node.gpu_memory:
            del node.shared[name]
            returned[GPU] = returned.get(GPU, 0) + 1
    for zone in node.zones:
        _give(zone.free, pod.zones.get(zone.name, {}))
    for claim in pod.claims:
        claim.users.remove(pod)
        if not claim.users:
            _release(claim)
    _give(node.free, returned)
    for port in pod.rules.ports:
        del node.ports[port]
    node.pods.remove(pod)
    pod.node, pod.shared, pod.zones = None, [], {}


def _take(pool: Amounts, wanted: Amounts) -> None:
    for name, amount in wanted.items():
        pool[name] -= amount


def _give(pool: Amounts, returned: Amounts) -> None:
    for name, amount in returned.items():
        pool[name] += amount


def _suits(draft: Draft, pod: Pod, node: Node) -> bool:
    """Tell whether ``node`` is of the kind that ``pod`` can use at all, and may be used."""
    demand = pod.demand
    if demand.mig:
        return node.mig == "mixed" and admits(draft, pod, node)
    if node.mig == "mixed" and (demand.gpus or demand.shares_gpu):
        return False
    if node.mig == "single" and demand.shares_gpu:
        return False
    return admits(draft, pod, node)


def _choose_shared(draft: Draft, pod: Pod, node: Node) -> list[str] | None:
    """Choose the devices that a sharing pod goes to: used ones where there are any, mostly."""
    demand = pod.demand
    if not demand.shares_gpu:
        return []
    memory = demand.memory_on(node)
    unknown = node.gpu_memory <= UNKNOWN_GPU_MEMORY
    if memory < 1 or memory > node.gpu_memory or (demand.gpu_memory and unknown):
        return None
    used = [name for name, left in node.shared.items() if left >= memory]
    draft.random.shuffle(used)
    if draft.random.random() < 0.25:
        used = []
    chosen = used[: demand.devices]
    index = 0
    while len(chosen) < demand.devices:
        name = f"{node.name}-gpu-{index}"
        index += 1
        if name not in node.shared:
            chosen.append(name)
    return chosen


def _choose_zones(pod: Pod, node: Node) -> dict[str, Amounts] | None:
    """Choose zones for what the kubelet would align: the lowest that fits, or several where the policy allows it."""
    demand = pod.demand
    wanted = {GPU: demand.gpus, "cpu": demand.cpu if demand.guaranteed else 0}
    wanted = {name: amount for name, amount in wanted.items() if amount}
    if not node.zones or node.numa_policy == "none" or not wanted:
        return {}
    wanted = {name: amount for name, amount in wanted.items() if name in node.zones[0].capacity}
    for zone in node.zones:
        if all(zone.free[name] >= amount for name, amount in wanted.items()):
            return {zone.name: wanted} if wanted else {}
    return _spread_over_zones(node, wanted) if node.numa_policy == "best-effort" else None


def _spread_over_zones(node: Node, wanted: Amounts) -> dict[str, Amounts] | None:
    left, taken = dict(wanted), {}
    for zone in node.zones:
        part = {name: min(amount, zone.free[name]) for name, amount in left.items()}
        part = {name: amount for name, amount in part.items() if amount}
        _take(left, part)
        if part:
            taken[zone.name] = part
    return None if any(left.values()) else taken


def _choose_devices(pod: Pod, node: Node) -> list[tuple[Claim, list[Device]]] | None:
    """Choose devices for every claim of ``pod``; a claim that has some already keeps them."""
    chosen: list[tuple[Claim, list[Device]]] = []
    taken: set[str] = set()
    for claim in pod.claims:
        if claim.node is not None:
            if claim.node is not node:
                return None
            chosen.append((claim, claim.devices))
            continue
        shape = claim.shape
        fitting = [d for d in node.devices if matches(shape, d.driver, d.model, d.memory_gi)]
        free = [device for device in fitting if not device.claim and device.name not in taken]
        if not free or len(free) < (len(fitting) if shape.every else shape.count):
            return None
        devices = free if shape.every else free[: shape.count]
        taken |= {device.name for device in devices}
        chosen.append((claim, devices))
    return chosen


def _allocate(claim: Claim, devices: list[Device], node: Node) -> None:
    claim.node, claim.devices = node, devices
    for device in devices:
        device.claim = claim.name


def _release(claim: Claim) -> None:
    for device in claim.devices:
        device.claim = ""
    claim.node, claim.devices = None, []
