"""Write names, metadata, quantities and references as the API has them."""

from tests.generate.draft import Amounts, Claim, Gi, Manifest, Pod

NAMESPACE = "default"
_MEBI, _GIGA = 2**20, 10**9


def kubernetes_object(api_version: str, kind: str, metadata: Manifest, **rest: object) -> Manifest:
    """Put an object together."""
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


def cluster_wide(name: str, **more: object) -> Manifest:
    """Write metadata of an object without a namespace; its uid is its name, empty fields are left out."""
    return {"name": name, "uid": name, **{key: value for key, value in more.items() if value}}


def namespaced(name: str, **more: object) -> Manifest:
    """Write metadata of an object in the namespace of the scenario; its uid is its name, empty fields are left out."""
    return {"name": name, "namespace": NAMESPACE, "uid": name, **{key: value for key, value in more.items() if value}}


def quantities(amounts: Amounts) -> dict[str, str]:
    """Write amounts as quantities: millicores, bytes and pieces in the shortest usual form."""
    return {name: _quantity(name, amount) for name, amount in amounts.items()}


def cpu_and_memory(amounts: tuple[int, int] | None) -> dict[str, str]:
    """Write what is asked for of the two, leaving out zeros."""
    cpu, memory = amounts or (0, 0)
    return quantities({name: amount for name, amount in (("cpu", cpu), ("memory", memory)) if amount})


def _quantity(name: str, amount: int) -> str:
    if name == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if name == "memory":
        for unit, suffix in ((Gi, "Gi"), (_MEBI, "Mi"), (_GIGA, "G")):
            if amount % unit == 0:
                return f"{amount // unit}{suffix}"
    return str(amount)


def pod_reference(pod: Pod) -> Manifest:
    """Write an owner reference to ``pod``."""
    return {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.name}


def zone_amounts(pod: Pod) -> list[Manifest]:
    """Write what ``pod`` takes of each NUMA zone."""
    return [{"zone": zone, "amount": quantities(amounts)} for zone, amounts in pod.zones.items()]


def template_name(pod: Pod) -> str:
    """Name the template that the claim of ``pod`` is made from: there is one for each group and leaf."""
    group = pod.group.name if pod.group else "other"
    return f"{group}-{pod.sub_group or 'all'}-devices"


def allocation_of(claim: Claim) -> Manifest:
    """Write the devices that ``claim`` has; they can be used from their node only."""
    node = claim.node.name if claim.node else ""
    results = [
        {"request": "devices", "driver": device.driver, "pool": node, "device": device.name} for device in claim.devices
    ]
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    return {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]}}
