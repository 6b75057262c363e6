"""Draw pod groups with their pods, and pods of another scheduler."""

from datetime import timedelta

from tests.generate.demands import NIC_CLASS, draw_demand
from tests.generate.draft import Claim, Demand, Draft, Gi, Group, Pod, Volume, stamp
from tests.generate.rules import APPS, draw_rules
from tests.generate.settling import place_foreign, settle
from tests.generate.structure import draw_structure

PRIORITIES = {"low": 10, "train": 50, "build-preemptible": 75, "edge": 99, "build": 100, "inference": 125}
_MOST_GROUPS = 24


def draw_groups(draft: Draft) -> None:
    """Draw groups, older ones first, and settle each before the next is drawn."""
    random = draft.random
    count = min(random.randint(1, 3 + 2 * len(draft.nodes)), _MOST_GROUPS)
    age = count * 60 + 3600
    for index in range(count):
        group = _group(draft, index)
        group.created = stamp(timedelta(seconds=age))
        draft.groups.append(group)
        settle(draft, group)
        age -= 0 if random.random() < 0.05 else random.randint(1, 60)
    if draft.has("foreign"):
        for index in range(random.randint(1, 4)):
            _add_foreign(draft, index)


def _group(draft: Draft, index: int) -> Group:
    random = draft.random
    queue = "nowhere" if draft.sometimes("unknown-queue", 0.3) else random.choice(draft.leaf_queues())
    priority = random.choice(tuple(PRIORITIES)) if draft.has("priorities") else "train"
    group = Group(f"job-{index:02d}", queue, priority)
    leaves = draw_structure(draft, group)
    _vary(draft, group)
    demand, rules = draw_demand(draft), draw_rules(draft)
    app, shared_claim, shared_volume = random.choice(APPS), _shared_claim(draft, group, demand), None
    if draft.sometimes("volumes", 0.1):
        shared_volume = Volume(f"{group.name}-data", "standard", random.choice((10, 50)), bound=True)
        draft.volumes.append(shared_volume)
    for leaf, size in leaves:
        if leaf and random.random() < 0.5:
            demand = draw_demand(draft)
            shared_claim = _shared_claim(draft, group, demand)
        for _ in range(size):
            pod = Pod(f"{group.name}-{len(group.pods)}", group, demand, rules, {"app": app}, sub_group=leaf)
            _role(draft, pod)
            _give_claim(draft, pod, shared_claim)
            _give_volumes(draft, pod, shared_volume)
            group.pods.append(pod)
    return group


def _vary(draft: Draft, group: Group) -> None:
    """Draw the fields that only some groups have."""
    random = draft.random
    if draft.sometimes("preemptibility", 0.5):
        group.fields["preemptibility"] = random.choice(("preemptible", "non-preemptible"))
    if draft.sometimes("preemption-delay", 0.4):
        group.fields["preemptionDelay"] = random.choice(("10s", "5m", "24h"))
        if random.random() < 0.3:
            group.annotations["kai.scheduler/last-eviction-timestamp"] = stamp(timedelta(minutes=2))
    if draft.sometimes("stale", 0.3):
        group.fields["stalenessGracePeriod"] = random.choice(("0s", "30s", "10m", "-1s"))


def _role(draft: Draft, pod: Pod) -> None:
    """Sometimes label ``pod`` with what decides the order of pods in a group."""
    random = draft.random
    if draft.sometimes("roles", 0.4):
        key, values = random.choice(
            (
                ("kai.scheduler/task-priority", ("1", "2", "10")),
                ("training.kubeflow.org/job-role", ("master", "worker")),
                ("ray.io/node-type", ("head", "worker")),
            )
        )
        pod.labels[key] = random.choice(values)
    if draft.sometimes("roles", 0.3):
        pod.created = stamp(timedelta(seconds=random.randint(1, 600)))


def _shared_claim(draft: Draft, group: Group, demand: Demand) -> Claim | None:
    """Make the claim that all pods of ``group`` use, where they share one."""
    if demand.claim is None or not demand.claim.shared:
        return None
    name = f"{group.name}-devices-{len(draft.claims)}"
    wrong = demand.claim.device_class != NIC_CLASS and draft.random.random() < 0.15
    queue = draft.random.choice(("", "elsewhere")) if wrong else group.queue
    claim = Claim(name, demand.claim, queue=queue)
    draft.claims.append(claim)
    return claim


def _give_claim(draft: Draft, pod: Pod, shared: Claim | None) -> None:
    if pod.demand.claim is None:
        return
    if shared is None:
        shared = Claim(f"{pod.name}-devices", pod.demand.claim, owner=pod)
        draft.claims.append(shared)
    pod.claims.append(shared)


def _give_volumes(draft: Draft, pod: Pod, shared: Volume | None) -> None:
    """Give ``pod`` the volume of its group, or sometimes one of its own; where it is bound is settled later."""
    random = draft.random
    if shared is not None:
        pod.volumes.append(shared)
    elif draft.sometimes("volumes", 0.3):
        storage_class = random.choice(("fast", "fast", "local", "standard"))
        volume = Volume(f"{pod.name}-data", storage_class, random.choice((5, 10, 50, 200)), bound=False)
        volume.owner = pod if random.random() < 0.5 else None
        draft.volumes.append(volume)
        pod.volumes.append(volume)


def _add_foreign(draft: Draft, index: int) -> None:
    """Add a pod of the default scheduler: on a node if it fits there, else waiting for one."""
    random = draft.random
    demand = Demand(cpu=random.choice((500, 1000, 4000)), memory=Gi, gpus=random.choice((0, 0, 1, 2)))
    pod = Pod(f"other-{index}", None, demand, labels={"app": random.choice(APPS)}, scheduler="default-scheduler")
    draft.foreign.append(pod)
    place_foreign(draft, pod)
