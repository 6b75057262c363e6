"""Draw what the pods of a group ask for."""

from attrs import evolve

from tests.generate.draft import GPU_DRIVER, UNKNOWN_GPU_MEMORY, ClaimShape, Demand, Draft, Gi
from tests.generate.nodes import MIG_PROFILES, MODELS

GPU_CLASS, NIC_CLASS, BIG_GPU_CLASS = "gpu.example.com", "nic.example.com", "big-gpu.example.com"
BIG_GPU_GI = 40

PERCENTS = (10, 20, 25, 30, 33, 50, 50, 60, 75)


def draw_demand(draft: Draft) -> Demand:
    """Draw one demand among the kinds that the scenario has."""
    random = draft.random
    makers = {
        "whole-gpus": _whole,
        "cpu-only": _cpu,
        "fractions": _fraction,
        "gpu-memory": _gpu_memory,
        "mig": _mig,
        "dra": _device_claim,
    }
    kinds = [kind for kind in makers if draft.has(kind) and (kind != "gpu-memory" or _known_memories(draft))]
    kinds = kinds or ["cpu-only"]
    demand = makers[random.choice(kinds)](draft)
    return _with_more_containers(draft, demand)


def _base(draft: Draft) -> dict[str, object]:
    """Draw CPU and memory, sometimes none, sometimes guaranteed."""
    random = draft.random
    if draft.sometimes("best-effort", 0.3):
        return {}
    cpu = random.choice((250, 500, 1000, 1000, 2000, 4000))
    memory = random.choice((Gi // 4, Gi, Gi, 2 * Gi, 8 * Gi))
    if draft.sometimes("numa", 0.6):
        return {"cpu": max(1, cpu // 1000) * 1000, "memory": memory, "guaranteed": True}
    return {"cpu": cpu, "memory": memory}


def _whole(draft: Draft) -> Demand:
    return Demand(gpus=draft.random.choice((1, 1, 1, 2, 2, 4, 8)), **_base(draft))


def _cpu(draft: Draft) -> Demand:
    return Demand(**_base(draft))


def _device_count(draft: Draft) -> int:
    return draft.random.choice((2, 2, 3)) if draft.sometimes("multi-device", 0.4) else 1


def _fraction(draft: Draft) -> Demand:
    return Demand(percent=draft.random.choice(PERCENTS), devices=_device_count(draft), **_base(draft))


def _known_memories(draft: Draft) -> list[int]:
    return sorted({node.gpu_memory for node in draft.nodes if node.gpu_memory > UNKNOWN_GPU_MEMORY})


def _gpu_memory(draft: Draft) -> Demand:
    """Ask for a part of the memory that the GPUs of some node have."""
    memory = max(1, draft.random.choice(_known_memories(draft)) * draft.random.choice((10, 25, 40, 50, 80)) // 100)
    return Demand(gpu_memory=memory, devices=_device_count(draft), **_base(draft))


def _mig(draft: Draft) -> Demand:
    random = draft.random
    profile = random.choice(tuple(MIG_PROFILES))
    if random.random() < 0.2:
        return Demand(mig=((profile, 1),), legacy_mig=True, **_base(draft))
    return Demand(mig=((profile, random.choice((1, 1, 2))),), **_base(draft))


def _device_claim(draft: Draft) -> Demand:
    random = draft.random
    shape = ClaimShape(
        device_class=random.choice((GPU_CLASS, GPU_CLASS, GPU_CLASS, BIG_GPU_CLASS, NIC_CLASS)),
        count=random.choice((1, 1, 2)),
        every=draft.sometimes("dra-all", 0.3),
        shared=draft.sometimes("dra-shared", 0.35),
    )
    if shape.device_class != NIC_CLASS and draft.sometimes("dra-cel", 0.5):
        model, least = random.choice(tuple(MODELS)), random.choice((0, 24, 40))
        shape = ClaimShape(
            shape.device_class, shape.count, shape.every, model if least == 0 else "", least, shape.shared
        )
    return Demand(claim=shape, **_base(draft))


def matches(shape: ClaimShape, driver: str, model: str, memory_gi: int) -> bool:
    """Tell whether a device is of the class of ``shape`` and passes its selectors."""
    if (driver == GPU_DRIVER) != (shape.device_class != NIC_CLASS):
        return False
    if shape.device_class == BIG_GPU_CLASS and memory_gi < BIG_GPU_GI:
        return False
    return (not shape.model or shape.model == model) and memory_gi >= shape.least_memory_gi


def _with_more_containers(draft: Draft, demand: Demand) -> Demand:
    """Sometimes add a container, an init container, a sidecar or the overhead of a runtime."""
    random = draft.random
    if not draft.sometimes("containers", 0.5) or not demand.cpu or demand.guaranteed:
        return demand
    more = {
        name: (random.choice((100, 250, 500, 3000)), random.choice((Gi // 8, Gi // 2, 4 * Gi)))
        for name in ("second", "initial", "sidecar", "overhead")
        if random.random() < 0.5
    }
    return evolve(demand, **more)
