"""Resource claims over virtual time: who has which device, from the binding of a pod until it is gone."""

from kai.deciding.configuration.profile_reading import default_configuration
from kai.deciding.configuration.profiles import make_profile
from kai.lab.virtual.results.metrics import result_of
from kai.lab.virtual.running.simulation import Simulation, run
from tests.unit.lab.virtual.builders import cluster, job, scene_of

HOUR = 3600.0
TEMPLATE = """---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one, namespace: default}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}}
"""


def drivers(*devices: str, driver: str = "gpu.example.com", more: str = "") -> str:
    """Return a class that is called ``gpu``, whatever its driver, and devices of n1."""
    listed = ", ".join(f"{{name: {each}}}" for each in devices)
    return f"""---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {{name: gpu}}
spec: {{selectors: [{{cel: {{expression: "device.driver == '{driver}'"}}}}]{more}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {{name: n1}}
spec:
  driver: {driver}
  nodeName: n1
  pool: {{name: n1, generation: 1, resourceSliceCount: 1}}
  devices: [{listed}]
"""


def templated(workload: str) -> str:
    """Return a workload each of whose pods has a claim of the template."""
    return workload.replace(
        "schedulerName", "resourceClaims: [{name: mine, resourceClaimTemplateName: one}]\n      schedulerName"
    )


def started(text: str, hours: float = 4) -> dict[str, tuple[float | None, float | None]]:
    """Return when each job starts and ends."""
    result = result_of(run(scene_of(text), until=hours * HOUR))
    return {each.name: (each.start_seconds, each.end_seconds) for each in result.jobs}


def test_each_pod_of_a_template_has_its_own_claim():
    two = templated(job("two", 0, spec="  parallelism: 3\n  completions: 3\n", duration="1h"))
    scene = scene_of(cluster(gpus=0) + drivers("a", "b") + TEMPLATE + two)
    result = result_of(run(scene, until=4 * HOUR))
    assert [(each.end_seconds, each.gpus) for each in result.jobs] == [(2 * HOUR, 3)]


def test_a_device_is_held_until_its_pod_is_gone():
    def claim(name: str) -> str:
        asked = "{deviceClassName: gpu, selectors: [{cel: {expression: \"device.attributes['x'].slot == 1\"}}]}"
        return f"""---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {{name: {name}, namespace: default, labels: {{kai.scheduler/queue: work}}}}
spec: {{devices: {{requests: [{{name: r, exactly: {asked}}}]}}}}
"""

    def having(name: str) -> str:
        return job(name, 0, duration="1h").replace(
            "schedulerName", f"resourceClaims: [{{name: mine, resourceClaimName: {name}}}]\n      schedulerName"
        )

    slots = drivers("a, attributes: {x/slot: {int: 1}}", "b, attributes: {x/slot: {int: 2}}")
    text = cluster(gpus=0) + slots + claim("left") + claim("right") + having("left") + having("right")
    assert started(text) == {"left": (0.0, HOUR), "right": (HOUR, 2 * HOUR)}


def test_devices_that_are_no_gpus_are_taken_too():
    text = cluster(gpus=0) + drivers("a", driver="nic.example.com").replace("name: gpu}", "name: nic}")
    text += TEMPLATE.replace("ClassName: gpu", "ClassName: nic")
    text += templated(job("left", 0, duration="1h")) + templated(job("right", 0, duration="1h"))
    assert started(text) == {"left": (0.0, HOUR), "right": (HOUR, 2 * HOUR)}


def test_devices_for_extended_resources_are_taken_too():
    backed = drivers("a", driver="nic.example.com", more=", extendedResourceName: example.com/nic")
    jobs = job("left", 1, duration="1h") + job("right", 1, duration="1h")
    text = cluster(gpus=0) + backed + jobs.replace("nvidia.com/gpu", "example.com/nic")
    assert started(text) == {"left": (0.0, HOUR), "right": (HOUR, 2 * HOUR)}


def test_a_recreated_pod_gets_a_new_claim():
    low = templated(job("low", 0, duration="2h"))
    high = templated(job("high", 0, arrival="1h", duration="1h")).replace("Name: train", "Name: build")
    scene = scene_of(cluster(gpus=0) + drivers("a") + TEMPLATE + low + high)
    simulation = Simulation(scene, make_profile(default_configuration()), scene.settings, 5 * HOUR)
    simulation.begin()
    seen: list[list[str]] = []
    while simulation.next < 5 * HOUR:
        simulation.step()
        claims = simulation.cluster.objects().resource_claims
        held = [each.metadata.name for each in claims if each.status.allocation is not None]
        if not seen or seen[-1] != held:
            seen.append(held)
    assert seen == [["low-0-mine-0"], ["high-0-mine-0"], ["low-0-r1-mine-0"], []]
    assert simulation.cluster.objects().resource_claims == ()


HALVES = """---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: half}
spec: {selectors: [{cel: {expression: "device.attributes['gpu.example.com'].type == 'half'"}}]}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: whole}
spec: {selectors: [{cel: {expression: "device.attributes['gpu.example.com'].type == 'whole'"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: n1}
spec:
  driver: gpu.example.com
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  sharedCounters: [{name: card, counters: {memory: {value: 80Gi}}}]
  devices:
"""


def test_gpu_partitions_are_held_while_their_pods_run():
    def wanting(name: str) -> str:
        return TEMPLATE.replace("name: one", f"name: {name}").replace("ClassName: gpu", f"ClassName: {name}")

    def having(name: str, template: str) -> str:
        return templated(job(name, 0, duration="1h")).replace("TemplateName: one", f"TemplateName: {template}")

    def drawing(name: str, kind: str, amount: str) -> str:
        drawn = f"[{{counterSet: card, counters: {{memory: {{value: {amount}}}}}}}]"
        return f"    - {{name: {name}, attributes: {{type: {{string: {kind}}}}}, consumesCounters: {drawn}}}\n"

    devices = drawing("all", "whole", "80Gi") + drawing("left", "half", "40Gi") + drawing("right", "half", "40Gi")
    text = cluster(gpus=0) + HALVES + devices + wanting("half") + wanting("whole")
    text += having("a", "half") + having("b", "half") + having("c", "whole") + having("d", "half")
    result = result_of(run(scene_of(text), until=4 * HOUR))
    assert {each.name: (each.start_seconds, each.gpus) for each in result.jobs} == {
        "a": (0.0, 0.5),
        "b": (0.0, 0.5),
        "c": (HOUR, 1.0),
        "d": (2 * HOUR, 0.5),
    }
