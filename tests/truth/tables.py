"""What tables show, against sums of the objects of the scenario."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from tests.generate.laws import amount
from tests.truth.trial import Object, Trial, group_of

Table = Callable[[Trial], Iterator[str]]
_OVER = frozenset({"Succeeded", "Failed"})


def jobs_have_the_pods_that_are_written(trial: Trial) -> Iterator[str]:
    """PODS counts the pods of a job that have not ended, and GPUS adds up what they ask for."""
    pods: dict[str, list[Object]] = defaultdict(list)
    for pod in trial.objects("Pod"):
        if (name := group_of(pod)) is not None and pod["status"]["phase"] not in _OVER:
            pods[name].append(pod)
    for job in trial.jobs.values():
        if job.wanted != len(pods[job.name]):
            yield f"{job.name}: {job.wanted} pods, expected {len(pods[job.name])}"
        whole = [_whole_gpus(pod) for pod in pods[job.name]]
        if None not in whole and not job.gpu_memory:
            asked = sum((each for each in whole if each is not None), Fraction())
            if job.gpus != asked * 1000:
                yield f"{job.name}: {job.gpus / 1000} GPUs, expected {float(asked)}"
        if job.placed + job.held > job.wanted or job.started > job.placed:
            yield f"{job.name}: {job.placed} placed, {job.held} held, {job.started} started of {job.wanted}"


def _whole_gpus(pod: Object) -> Fraction | None:
    """Return the whole GPUs that the containers of a pod ask for; None where it asks in another way as well."""
    names = {name for each in pod["spec"]["containers"] for name in each["resources"].get("requests", {})}
    others = [key for key in pod["metadata"].get("annotations", {}) if "gpu" in key or "mig" in key]
    strange = {name for name in names if "mig" in name or (name.endswith("/gpu") and name != "nvidia.com/gpu")}
    if others or strange or pod["spec"].get("resourceClaims") or pod["spec"].get("initContainers"):
        return None
    found = [each["resources"].get("requests", {}).get("nvidia.com/gpu", "0") for each in pod["spec"]["containers"]]
    return sum((amount(each) for each in found), Fraction())


def queues_add_up(trial: Trial) -> Iterator[str]:
    """RUN/WAIT of a leaf counts its jobs; a parent has the sum of its children, in jobs and in amounts."""
    runs = Counter(job.queue for job in trial.jobs.values() if job.placed)
    waits = Counter(job.queue for job in trial.jobs.values() if job.waiting_reason is not None)
    for queue in trial.seen.queues:
        below = [each for each in trial.seen.queues if each.parent == queue.name]
        run = sum(each.running for each in below) if below else runs[queue.name]
        wait = sum(each.waiting for each in below) if below else waits[queue.name]
        if (queue.running, queue.waiting) != (run, wait):
            yield f"{queue.name}: RUN/WAIT {queue.running}/{queue.waiting}, expected {run}/{wait}"
        for at, share in enumerate(queue.shares) if below else ():
            for field in ("used", "used_non_preemptible", "wanted"):
                total = sum(getattr(each.shares[at], field) for each in below)
                if abs(getattr(share, field) - total) > 1e-6:
                    yield f"{queue.name}: {field} {getattr(share, field)} of resource {at}, expected {total}"


def users_add_up_to_what_their_queue_uses(trial: Trial) -> Iterator[str]:
    """``used by``: the amounts of all jobs together are what the queue is said to use in the end."""
    for each in trial.items:
        values = {one["label"]: one["values"] for one in each["evidence"]}
        bound = next((one for one in values.values() if "usedInTheEnd" in one), None)
        if bound is None:
            continue
        users = sum(values.get("used by", {}).get("users", {}).values())
        if abs(users - bound["usedInTheEnd"]) > 1e-6:
            yield f"{each['summary']}: {bound['usedInTheEnd']} used, by {values.get('used by')}"


TABLES: Sequence[Table] = (
    jobs_have_the_pods_that_are_written,
    queues_add_up,
    users_add_up_to_what_their_queue_uses,
)
