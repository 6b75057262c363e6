"""The image, run as a pod runs it: as user 65532, on a root that cannot be written, with nothing of this machine.

`nox -s image` builds it first. Programs start in a mount namespace of their own, since there is no container engine.
"""

import json
import shlex
import subprocess
from contextlib import ExitStack, contextmanager

import pytest

from tests.image import building
from tests.integration.client import until
from tests.integration.controlplane import Daemon
from tests.integration.installation import install
from tests.integration.ports import free_ports
from tests.integration.processes import await_ready, shown
from tests.integration.together import NAMESPACE, add_node, add_queues, an_object, own_environment
from tests.unit.deploy.rendering import DEPLOY, of_kind, render

USER = 65532


@pytest.fixture(scope="module")
def folder():
    try:
        building.configuration()
    except (building.CannotBuildError, OSError):
        pytest.skip("the image is not built; `nox -s image` builds it")
    with building.unpacked() as found:
        yield found


def command(folder, outside, *words):
    """Return the command that runs a program of the image."""
    config = building.configuration()
    inside = [
        *("exec", "chroot", f"--userspec={USER}:{USER}", str(folder), "env", "-i", *config["Env"]),
        *("HOME=/", "POD_NAME=kai-0", f"POD_NAMESPACE={NAMESPACE}", *words),  # a runtime sets HOME where none is known
    ]
    root = shlex.quote(str(folder))
    steps = [
        f"mount --bind {root} {root}",
        f"mount --rbind /dev {root}/dev",
        f"mount -t proc proc {root}/proc",
        f"mount --bind {shlex.quote(str(outside))} {root}/mnt",
        f"mount -o remount,bind,ro {root}",
        shlex.join(inside),
    ]
    return ("unshare", "--mount", "--propagation", "private", "sh", "-ec", "\n".join(steps))


def ran(folder, outside, *words):
    done = subprocess.run(command(folder, outside, *words), capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_it_is_small_enough(folder):
    assert building.size(folder) <= building.LARGEST


@pytest.mark.usefixtures("folder")
def test_the_image_runs_kai_as_an_unprivileged_user():
    config = building.configuration()
    assert config["User"] == f"{USER}:{USER}"
    assert config["Entrypoint"] == ["kai"]


def test_it_says_its_version(folder, tmp_path):
    status, said = ran(folder, tmp_path, "kai", "version")
    assert status == 0, said
    assert building.VERSION in said


@pytest.mark.parametrize("place", ["/", "/tmp", "/opt/kai", "/opt/kai/kernels", "/home"])  # noqa: S108 - it is not used
def test_it_can_write_nowhere(folder, tmp_path, place):
    status, said = ran(folder, tmp_path, "python", "-c", f"open('{place}/x', 'w')")
    assert status != 0
    assert "Read-only file system" in said or "Permission denied" in said


def test_it_decides_without_compiling(folder, tmp_path):
    """A cluster on which kernels pay is decided by those that were compiled when the image was built."""
    (tmp_path / "lab").mkdir()
    for path in (building.ROOT / "examples" / "lab").glob("*"):
        (tmp_path / "lab" / path.name).write_bytes(path.read_bytes())
    tmp_path.chmod(0o755)
    status, said = ran(folder, tmp_path, "kai", "simulate", "/mnt/lab")
    assert status == 0, said
    assert "Plan: " in said
    assert "compil" not in said


# --- Roles ---------------------------------------------------------------------------------------------------------


def kubeconfig(plane, account, outside, name):
    """Write a file that names nothing of this machine; return where the program finds it."""
    api = plane.account(NAMESPACE, account)
    # As a file: authorities within a kubeconfig are put into a temporary one, for which there is no room.
    (outside / "ca.crt").write_bytes(plane.admin.ca_file.read_bytes())
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": api.url, "certificate-authority": "/mnt/ca.crt"}}],
        "users": [{"name": name, "user": {"token": api.token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
    }
    path = outside / f"{name}.json"
    path.write_text(json.dumps(config))
    path.chmod(0o644)
    return f"/mnt/{name}.json"


@contextmanager
def started(plane, folder, outside, deployment):
    """Run the program of a Deployment as it is shipped, on ports of this machine."""
    name = deployment["metadata"]["name"]
    spec = deployment["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    config = kubeconfig(plane, spec["serviceAccountName"], outside, name)
    probes, *others = free_ports(1 + len(container["args"]))
    words = []
    for each in container["args"]:
        flag, _, value = each.partition("=")
        port = probes if flag == "--health-probe-bind-address" else others.pop()
        if flag.endswith("-address"):
            value = f"127.0.0.1:{port}"
        elif flag.endswith(("-port", "-addr")):
            value = str(port)
        words.append(f"{flag}={value}" if value else flag)
    words.append(f"--kubeconfig={config}")
    daemon = Daemon(command(folder, outside, "kai", *words), outside / f"{name}.log")
    daemon.start()
    try:
        with shown(daemon):
            await_ready(daemon, probes, name)
            yield daemon
    finally:
        daemon.stop()


def test_all_roles_run_from_the_image_and_bind_together(folder, bare_control_plane, tmp_path):
    plane, admin = bare_control_plane, bare_control_plane.admin
    split = DEPLOY / "overlays" / "split"
    install(plane, split)
    admin.ensure(an_object("v1", "Namespace", "default"))
    add_queues(admin)
    add_node(admin, "n1", {})
    own_environment(admin, building.IMAGE)
    tmp_path.chmod(0o755)
    with ExitStack() as stack:
        daemons = [
            stack.enter_context(started(plane, folder, tmp_path, each)) for each in of_kind(render(split), "Deployment")
        ]
        resources = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}
        containers = [{"name": "main", "image": "none", "resources": resources}]
        spec = {"schedulerName": "kai-scheduler", "containers": containers}
        metadata = {"labels": {"kai.scheduler/queue": "team"}}
        pod = admin.create(an_object("v1", "Pod", "first", "default", metadata=metadata, spec=spec))
        until(lambda: admin.get(pod)["spec"].get("nodeName"), "the pod to be bound")
        assert len(daemons) == 7
        for daemon in daemons:
            assert "Traceback" not in daemon.log.read_text()
            assert "compil" not in daemon.log.read_text()
