"""What admission does to pods that get at GPUs by other ways than asking for them, with the flags that forbid that.

Source: the peer's end-to-end suites admission/deviceaccess and integrations/third_party/hamicore.
"""

import socket
import ssl
from contextlib import ExitStack, closing, suppress
from urllib.parse import urlsplit

import pytest

from tests.doubles.packets import LENGTHS
from tests.integration.client import PATIENCE, STRATEGIC, Refused, until
from tests.integration.installation import install
from tests.integration.kubelet import RESERVED, Kubelet
from tests.integration.together import GPU, add_node, add_queues, an_object, own_environment, running, serving_webhooks
from tests.unit.deploy.rendering import DEPLOY

SPACE = "default"
POD_GROUP = ("scheduling.run.ai/v2alpha2", "PodGroup")
VISIBLE, LIMIT = "NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_MEMORY_LIMIT"
MEMORY = 81920


@pytest.fixture(scope="module")
def admin(bare_control_plane, tmp_path_factory):
    """Return the administrator's view of a cluster with a node, in which kai runs and is asked about pods."""
    plane, folder = bare_control_plane, tmp_path_factory.mktemp("kai")
    install(plane, DEPLOY)
    admin = plane.admin
    admin.ensure(an_object("v1", "Namespace", SPACE))
    admin.ensure(an_object("node.k8s.io/v1", "RuntimeClass", "nvidia", handler="nvidia"))
    add_queues(admin)
    add_node(admin, "n1", {}, gpus=16)  # room for all tests, in any order
    kubelet = Kubelet(admin, plane.account(RESERVED, "kai-resource-reservation"))
    environment = own_environment(admin, "registry.example/kai:1")
    limits = '--plugins={"hamicore": {"enabled": true}}'
    webhooks = serving_webhooks(plane, folder, "--hami-core-enabled", components=("device-access",))
    with running(plane, folder, limits, environment=environment), webhooks:
        kubelet.start()
        until(lambda: is_asked(admin), "the API server to know of the webhooks")
        yield admin
        kubelet.stop()


def is_asked(admin):
    """Return whether both kinds of webhooks have their say; that takes the API server a moment."""
    if VISIBLE not in variables(admin.create(a_pod("probe"), dryRun="All"))["main"]:
        return False
    try:
        admin.create(a_pod("probe", container(visible="all", gpus=1)), dryRun="All")
    except Refused:
        return True
    return False


def container(name="main", *, visible=None, gpus=0):
    env = [] if visible is None else [{"name": VISIBLE, "value": visible}]
    resources = {"limits": {GPU: str(gpus)}, "requests": {GPU: str(gpus)}} if gpus else {}
    return {"name": name, "image": "none", "env": env, "resources": resources}


def a_pod(name, *containers, **annotations):
    labels = {"kai.scheduler/queue": "team"}
    found = {key.replace("_", "-"): value for key, value in annotations.items()}
    spec = {"schedulerName": "kai-scheduler", "containers": list(containers or (container(),))}
    return an_object("v1", "Pod", name, SPACE, metadata={"labels": labels, "annotations": found}, spec=spec)


def variables(pod):
    """Return the variables of each container, by its name."""
    return {each["name"]: {one["name"]: one for one in each.get("env", ())} for each in pod["spec"]["containers"]}


@pytest.mark.parametrize("devices", ["0", "0,1", "all"])
def test_a_pod_that_names_devices_is_refused(admin, devices):
    with pytest.raises(Refused, match=VISIBLE):
        admin.create(a_pod("greedy", container(visible=devices, gpus=1)))


@pytest.mark.parametrize("devices", ["void", "none"])
def test_a_pod_that_wants_no_devices_may_say_so(admin, devices):
    made = admin.create(a_pod(f"modest-{devices}", container(visible=devices, gpus=1)))
    assert variables(made)["main"][VISIBLE]["value"] == devices


def test_a_container_without_gpus_that_names_devices_gets_none(admin):
    made = admin.create(a_pod("hopeful", container(visible="all")))
    assert variables(made)["main"][VISIBLE]["value"] == "void"


def test_containers_without_gpus_are_told_that_they_see_none(admin):
    made = admin.create(a_pod("mixed", container("uses", gpus=1), container("looks")))
    found = variables(made)
    assert found["looks"][VISIBLE]["value"] == "void"
    assert VISIBLE not in found["uses"]


@pytest.mark.parametrize("visible", [None, "all"])
def test_an_added_ephemeral_container_sees_no_gpus(admin, visible):
    made = admin.create(a_pod(f"looked-into-{visible}".lower(), container(gpus=1)))
    added = {"name": "debug", "image": "none", "env": container(visible=visible)["env"]}
    patch = {"spec": {"ephemeralContainers": [added]}}
    found = admin.patch(made, patch, subresource="ephemeralcontainers", content_type=STRATEGIC)
    assert found["spec"]["ephemeralContainers"][0]["env"] == [{"name": VISIBLE, "value": "void"}]
    assert VISIBLE not in variables(found)["main"]


def test_silent_connections_and_bad_lengths_block_no_review(admin):
    (configuration,) = admin.list("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration")
    at = urlsplit(configuration["webhooks"][0]["clientConfig"]["url"])
    place = (at.hostname, at.port)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with ExitStack() as held:
        for _ in range(300):
            held.enter_context(closing(socket.create_connection(place)))
        for length in LENGTHS:
            head = f"POST {at.path} HTTP/1.1\r\nHost: x\r\nContent-Length: ".encode() + length + b"\r\n\r\n"
            bare = socket.create_connection(place, timeout=PATIENCE)
            with suppress(OSError), context.wrap_socket(bare) as stream:
                stream.sendall(head)
                stream.recv(1)
            assert is_asked(admin)


@pytest.mark.parametrize(
    ("name", "asked", "limit"),
    [("part", {"gpu_fraction": "0.25"}, MEMORY // 4), ("memory", {"gpu_memory": "20000"}, 20000)],
)
def test_a_share_is_told_how_much_memory_it_has(admin, name, asked, limit):
    made = admin.create(a_pod(name, **asked))
    source = variables(made)["main"][LIMIT]["valueFrom"]["configMapKeyRef"]

    def told():
        maps = {each["metadata"]["name"]: each for each in admin.list("v1", "ConfigMap", SPACE)}
        return maps.get(source["name"], {}).get("data", {}).get(source["key"])

    text = until(told, "the limit")
    assert text.endswith("m")
    assert limit - MEMORY // 100 <= int(text[:-1]) <= limit + MEMORY // 100


@pytest.mark.parametrize("asked", [{}, {"gpu_fraction": "0.1"}], ids=["plain", "a share"])
@pytest.mark.parametrize("name", ["drawn-", "l" * 253], ids=["drawn", "longest"])
def test_an_ownerless_pod_of_any_name_is_grouped(admin, name, asked):
    """A drawn name is drawn after admission; of the longest the group has a part."""
    manifest = a_pod(name, **asked)
    if name.endswith("-"):
        manifest["metadata"] |= {"generateName": manifest["metadata"].pop("name")}
    made = admin.create(manifest)
    try:
        found = until(lambda: bound(admin, made), "the pod to be bound")
        group = found["metadata"]["annotations"]["pod-group-name"]
        space = found["metadata"]["namespace"]
        until(lambda: group in {each["metadata"]["name"] for each in admin.list(*POD_GROUP, space)}, "its group")
    finally:
        admin.delete(made, gracePeriodSeconds=0)


def bound(admin, pod):
    """Return a pod once it has a node; None before."""
    found = admin.get(pod)
    return found if found["spec"].get("nodeName") else None
