"""Draw nodes: sizes, GPUs and their memory, MIG, devices, NUMA zones, labels, taints, health."""

from tests.generate.draft import (
    GPU,
    GPU_DRIVER,
    HOST_LABEL,
    NIC_DRIVER,
    RACK_LABEL,
    UNKNOWN_GPU_MEMORY,
    ZONE_LABEL,
    Device,
    Draft,
    Gi,
    Node,
    Zone,
)

MIG_PROFILES = {"nvidia.com/mig-1g.10gb": 4, "nvidia.com/mig-2g.20gb": 2, "nvidia.com/mig-3g.40gb": 1}
MODELS = {"a100": 40, "h100": 80, "l4": 24}
POLICIES = ("single-numa-node", "single-numa-node", "restricted", "best-effort", "none")
PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")


def draw_nodes(draft: Draft) -> None:
    """Draw one to sixteen nodes in racks of racks of zones."""
    random = draft.random
    count = random.choice((1, 2, 2, 3, 3, 4, 4, 5, 6, 8, 10, 12, 16))
    rack_size = random.choice((1, 2, 2, 3, 4))
    zone_size = rack_size * random.choice((1, 2, 2, 3))
    memory_known = random.choice((16384, 40960, 81559, 0, 0 if draft.has("gpu-memory") else UNKNOWN_GPU_MEMORY))
    for index in range(count):
        node = _bare_node(draft, index)
        node.labels[ZONE_LABEL] = f"zone-{index // zone_size}"
        node.labels[RACK_LABEL] = f"rack-{index // rack_size}"
        if draft.sometimes("topology", 0.06):
            del node.labels[random.choice((ZONE_LABEL, RACK_LABEL))]
        _equip(draft, node, memory_known)
        _mark(draft, node)
        draft.nodes.append(node)


def _bare_node(draft: Draft, index: int) -> Node:
    random = draft.random
    name = f"node-{index:02d}"
    pods = random.choice((2, 3, 5)) if draft.sometimes("few-pods", 0.5) else 110
    capacity = {
        "cpu": random.choice((4, 8, 8, 16, 32, 64)) * 1000,
        "memory": random.choice((16, 64, 256, 1024)) * Gi,
        "pods": pods,
    }
    labels = {HOST_LABEL: name, "example.com/disk": random.choice(("ssd", "hdd"))}
    labels["example.com/generation"] = str(random.randint(1, 4))
    return Node(name, labels, capacity, {})


def _equip(draft: Draft, node: Node, memory_known: int) -> None:
    """Give ``node`` its GPUs in one of the forms, and its zones."""
    random = draft.random
    form = "plain"
    if draft.sometimes("mig", 0.4):
        form = random.choice(("mixed", "mixed", "single"))
    elif draft.sometimes("dra", 0.5):
        form = "dra"
    elif draft.sometimes("cpu-only", 0.15):
        form = "none"
    if form == "mixed":
        for profile, most in MIG_PROFILES.items():
            if amount := random.randint(0, most):
                node.capacity[profile] = amount
    elif form in {"plain", "single"}:
        node.capacity[GPU] = random.choice((1, 2, 2, 4, 4, 8))
    if form in {"mixed", "single"}:
        node.mig = form
        node.labels["nvidia.com/mig.strategy"] = form
        node.labels["node-role.kubernetes.io/mig-enabled"] = "true"
    if form in {"plain", "single"}:
        memory = memory_known or random.choice((UNKNOWN_GPU_MEMORY, 16384, 40960, 81559))
        _label_gpus(draft, node, memory)
    if draft.has("dra"):
        _add_devices(draft, node, gpus=form == "dra")
    node.free = dict(node.capacity)
    if draft.sometimes("numa", 0.7):
        _add_zones(draft, node)


def _label_gpus(draft: Draft, node: Node, memory: int) -> None:
    """Label the GPUs; a hundred means that their memory is not known, as does no label at all."""
    node.labels["nvidia.com/gpu.count"] = str(node.gpus)
    node.labels["nvidia.com/gpu.product"] = draft.random.choice(tuple(MODELS))
    if memory != UNKNOWN_GPU_MEMORY or draft.random.random() < 0.5:
        node.labels["nvidia.com/gpu.memory"] = str(memory)
    node.gpu_memory = memory - memory % 100


def _add_devices(draft: Draft, node: Node, *, gpus: bool) -> None:
    random = draft.random
    if gpus:
        model = random.choice(tuple(MODELS))
        for index in range(random.choice((1, 2, 4, 4, 8))):
            node.devices.append(Device(f"gpu-{index}", GPU_DRIVER, model, MODELS[model]))
    for index in range(random.choice((0, 0, 1, 2))):
        node.devices.append(Device(f"nic-{index}", NIC_DRIVER, "cx7", 0))


def _add_zones(draft: Draft, node: Node) -> None:
    """Divide ``node`` into zones; what does not divide evenly stays outside of them."""
    random = draft.random
    count = random.choice((2, 2, 4))
    share = {"cpu": node.capacity["cpu"] // 1000 // count * 1000}
    if GPU in node.capacity:
        share[GPU] = node.capacity[GPU] // count
    share = {name: amount for name, amount in share.items() if amount}
    if share:
        node.zones = [Zone(f"node-{index}", dict(share), dict(share)) for index in range(count)]
        node.numa_policy = random.choice(POLICIES)
        node.numa_scope = random.choice(("pod", "container"))


def _mark(draft: Draft, node: Node) -> None:
    """Taint, cordon or break ``node`` where it must be."""
    random = draft.random
    if draft.sometimes("taints", 0.4):
        effect = random.choice(("NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule"))
        node.taints.append({"key": "example.com/team", "value": random.choice(("red", "blue")), "effect": effect})
    node.unschedulable = draft.sometimes("cordoned", 0.25)
    if draft.has("not-ready"):
        node.conditions |= dict.fromkeys(PRESSURES, "False")
        if random.random() < 0.15:
            node.conditions["Ready"] = random.choice(("False", "Unknown"))
        elif random.random() < 0.15:
            node.conditions[random.choice(PRESSURES)] = "True"
