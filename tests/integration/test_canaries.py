"""Two hundred words lie where secrets lie, and kai runs, refuses, answers and fails: none of them is told anywhere."""

import base64
import contextlib
import http.client
import io
import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kai.cli.command import run
from tests.integration import processes
from tests.integration.canaries import Canaries, of_a_namespace, of_a_pod, of_an_owner
from tests.integration.client import until
from tests.integration.controlplane import ControlPlane, write_privately
from tests.integration.installation import install
from tests.integration.ports import HOST, free_ports
from tests.integration.together import add_node, add_queues, an_object
from tests.integration.touchy import LABEL, install_touchy
from tests.unit.deploy.rendering import DEPLOY

SPACE = "canaries"
PODS = {"binds-a": 0, "binds-b": 1, "binds-c": 0, "waits": 4, "waits-too": 3, "pinned": 1, "pinned-too": 0}
ENVIRONMENT = ("AWS_SECRET_ACCESS_KEY", "KUBE_TOKEN", "PROMETHEUS_PASSWORD", "GITHUB_TOKEN", "DATABASE_URL")
HEADERS = ("Authorization", "Cookie", "X-Api-Key", "Proxy-Authorization")
PATHS = ("/metrics", "/healthz", "/readyz", "/get-snapshot", "/get-job-order", "/api/v1/queues", "/no-such-page")
COMMANDS = (
    ("jobs",),
    ("jobs", "--pods", "-o", "wide"),
    ("jobs", "-o", "json"),
    ("queues", "-o", "json"),
    ("nodes", "-o", "yaml"),
    ("why", "waits", "--detail"),
    ("why", "--all", "-v"),
    ("doctor", "-v"),
    ("doctor", "-o", "json"),
    ("plugins", "-o", "json"),
    ("version",),
)


@pytest.fixture(scope="module")
def plane(bare_control_plane: ControlPlane) -> ControlPlane:
    install(bare_control_plane, DEPLOY)
    add_node(bare_control_plane.admin, "n1", {}, gpus=1)
    add_queues(bare_control_plane.admin)
    return bare_control_plane


def fill(plane: ControlPlane, canary: Canaries) -> None:
    """Create everything that has words."""
    admin = plane.admin
    admin.create(
        an_object("v1", "Namespace", SPACE, metadata={"annotations": {"a/b": canary("annotation of a Namespace")}})
    )
    for each in of_a_namespace(canary, SPACE):
        admin.create(each)
    owner = admin.create(of_an_owner(canary, SPACE))
    reference = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    for name, gpus in PODS.items():
        resources = {"limits": {"nvidia.com/gpu": str(gpus)}}
        spec = {
            "schedulerName": "kai-scheduler",
            "containers": [{"name": "main", "image": "x", "resources": resources}],
        }
        metadata = {"labels": {"kai.scheduler/queue": "team"}}
        pod = of_a_pod(canary, an_object("v1", "Pod", name, SPACE, metadata=metadata, spec=spec))
        if name == "binds-a":
            pod["metadata"]["ownerReferences"] = [reference]
        if name.startswith("pinned"):
            spec["nodeSelector"] = {"kubernetes.io/hostname": "nowhere"}
        admin.create(pod)


def fail(plane: ControlPlane, canary: Canaries, folder: Path) -> None:
    """Create a group that a plugin fails at, and wait for the file of the failed cycle."""
    admin, labels = plane.admin, {"kai.scheduler/queue": "team"}
    metadata = {"labels": {LABEL: "yes"}, "annotations": {"team.example/key": canary("annotation of a PodGroup")}}
    version = "scheduling.run.ai/v2alpha2"
    admin.create(an_object(version, "PodGroup", "fails", SPACE, metadata=metadata, spec={"queue": "team"}))
    spec = {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "x"}]}
    pod = of_a_pod(canary, an_object("v1", "Pod", "fails", SPACE, metadata={"labels": labels}, spec=spec))
    pod["metadata"]["annotations"]["pod-group-name"] = "fails"
    admin.create(pod)
    until(lambda: list(folder.glob("kai-failed-cycle-*.zip")), "the file of a failed cycle")


def repeated(dump: Path, policy: Path, variables: dict[str, str]) -> tuple[str, str]:
    """Repeat a failed cycle: return what the command prints, and the report of the bug that it ends with."""
    before = set(dump.parent.glob("kai-*.txt"))
    words = (sys.executable, "-m", "kai", "simulate", str(dump), f"--config={policy}")
    environment = {**os.environ, **variables}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 5, done.stderr
    (report,) = set(dump.parent.glob("kai-*.txt")) - before
    return f"{done.stdout} {done.stderr}", report.read_text()


def ask(port: int, path: str, headers: dict[str, str]) -> str:
    """Return the whole answer of a listener, an error's too."""
    connection = http.client.HTTPConnection(HOST, port, timeout=30)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return f"{answer.status} {answer.headers} {answer.read().decode(errors='replace')}"
    finally:
        connection.close()


class Collector(ThreadingHTTPServer):
    """Takes traces as a collector does, and keeps what it was sent."""

    def __init__(self) -> None:
        """Listen on this machine."""
        super().__init__((HOST, 0), _Export)
        self.sent: list[str] = []

    @contextlib.contextmanager
    def listening(self) -> Iterator[str]:
        """Answer in a thread of its own; yield the address."""
        thread = threading.Thread(target=self.serve_forever, name="collector", daemon=True)
        thread.start()
        try:
            yield f"http://{HOST}:{self.server_address[1]}"
        finally:
            self.shutdown()
            self.server_close()
            thread.join()


class _Export(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.sent.append(f"{self.path} {self.headers} {body.decode('latin-1')}")
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write nothing to standard error."""


def command(*words: str) -> str:
    """Return what a command of kai prints on both streams."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run([*words])
    return f"{code} {out.getvalue()} {err.getvalue()}"


def stripped(text: bytes) -> str:
    """Return the one member of an archive."""
    return zipfile.ZipFile(io.BytesIO(text)).read("snapshot.json").decode()


def kept(plane: ControlPlane) -> dict[str, str]:
    """Return what kai wrote into the cluster."""
    admin = plane.admin
    kinds = ("scheduling.run.ai/v2alpha2 PodGroup", "scheduling.run.ai/v2 Queue", "v1 Pod")
    return {
        "events": json.dumps(admin.list("v1", "Event", SPACE)),
        **{
            f"status of {kind}": json.dumps([each.get("status") for each in admin.list(*kind.split())])
            for kind in kinds
        },
        "bind requests": json.dumps(admin.list("scheduling.run.ai/v1alpha2", "BindRequest")),
        "leases": json.dumps(admin.list("coordination.k8s.io/v1", "Lease")),
    }


def asked(program: processes.Program, dashboard: int, canary: Canaries) -> dict[str, str]:
    """Return what the listeners of a program answer to requests that carry words."""
    told = {}
    ports = {
        "metrics": program.metrics_port,
        "probes": program.probes_port,
        "plugins": program.plugins_port,
        "dashboard": dashboard,
    }
    for name, port in ports.items():
        headers = {each: f"Bearer {canary(f'request to {name}: {each}')}" for each in HEADERS}
        query = canary(f"request to {name}: query")
        for path in PATHS:
            if path != "/get-snapshot" or name != "plugins":
                told[f"{name} {path}"] = ask(port, f"{path}?token={query}", headers)
        told[f"{name} /"] = ask(port, "/", headers)
    return told


def commanded(kubeconfig: str, folder: Path) -> tuple[dict[str, str], str]:
    """Return what commands print and snapshots hold, and the snapshot that leaves nothing out."""
    told, plain = {}, ""
    for words in COMMANDS:
        more = () if words[0] in {"version", "plugins"} else (f"--kubeconfig={kubeconfig}",)
        if more and words[0] != "doctor":
            more = (*more, "-n", SPACE)
        told[f"kai {' '.join(words)}"] = command(*words, *more)
    for redact in ("annotations", "names", "none"):
        file = folder / f"{redact}.zip"
        said = command("snapshot", str(file), f"--kubeconfig={kubeconfig}", f"--redact={redact}")
        assert file.exists(), said
        snapshot = stripped(file.read_bytes())
        if redact == "none":
            plain = snapshot
        else:
            told[f"snapshot, {redact}"] = snapshot
    return told, plain


def test_two_hundred_canaries_are_told_nowhere(plane: ControlPlane, tmp_path: Path) -> None:
    canary, admin, decisions = Canaries(), plane.admin, tmp_path / "decisions.jsonl"
    account = plane.account(processes.NAMESPACE, "kai")
    canary.words["token of kai's account"] = account.token
    canary.words["signature of kai's token"] = account.token.rpartition(".")[2]
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    policy, ways = install_touchy(tmp_path / "plugin")
    ways["TMPDIR"] = str(dumps)
    variables = {name: canary(f"environment of kai: {name}") for name in ENVIRONMENT} | ways
    (dashboard,) = free_ports(1)
    told: dict[str, str] = {}
    with contextlib.ExitStack() as open_now:
        traces = Collector()
        endpoint = open_now.enter_context(traces.listening())
        flags = (
            f"--decision-log={decisions}",
            f"--dashboard={HOST}:{dashboard}",
            f"--otlp-endpoint={endpoint}",
            f"--config={policy}",
            "--v=10",
        )
        program = processes.start(plane, account, tmp_path, "canaries", flags=flags, environment=variables)
        open_now.enter_context(processes.shown(program.daemon))
        processes.wait(program)
        fill(plane, canary)
        for name in ("binds-a", "binds-b"):
            until(
                lambda name=name: admin.get(an_object("v1", "Pod", name, SPACE))["spec"].get("nodeName"),
                f"{name} bound",
            )
        until(lambda: decisions.exists() and "waits" in decisions.read_text(), "a refusal in the decision log")
        until(lambda: admin.list("v1", "Event", SPACE), "events")
        fail(plane, canary, dumps)
        told |= asked(program, dashboard, canary)
        plain = stripped(processes.fetch(program.plugins_port, "/get-snapshot"))
        canary.words["token of a person"] = admin.token
        said, snapshot = commanded(str(plane.kubeconfig(admin, "person")), tmp_path)
        told |= said
        plain += snapshot
        in_cores = int(Path(f"/proc/{program.daemon.pid}/coredump_filter").read_text(), 16)
        told["log"] = program.daemon.log.read_text()
        program.daemon.stop()
        told["log of the end"] = program.daemon.log.read_text()
        told["traces"] = "\n".join(traces.sent)
    told |= {"decision log": decisions.read_text(), **kept(plane)}
    told |= refused(plane, tmp_path, canary)
    (dump,) = dumps.glob("kai-failed-cycle-*.zip")
    failed = stripped(dump.read_bytes())
    told["kai simulate, failed cycle"], told["report of a bug"] = repeated(dump, policy, ways)

    assert len(canary.words) >= 200
    assert in_cores == 0, "a core file has no memory"
    assert len(told["log"].splitlines()) > 20
    assert "waits" in told["kai why --all -v"]
    assert "allocate" in told["traces"], "cycles were traced"
    assert "please log in" in told["kai jobs, program with environment, here"]
    assert canary.found(told) == []
    assert all("cannot bear it" in told[each] for each in ("log", "report of a bug")), "a cycle failed"
    plains = {"plain snapshots": plain, "dump of a failed cycle": failed}
    assert canary.found(plains, but=["annotation"]) == []
    assert canary.words["annotation of pod fails"] in failed, "the failed pod is in the dump, with its annotations"


def test_a_word_is_found_plain_and_inside_base64() -> None:
    canary = Canaries()
    word = canary("somewhere")
    for before in range(4):
        encoded = base64.b64encode(b"x" * before + word.encode() + b":y").decode()
        assert canary.found({"there": f"a {encoded} b"}) == ["somewhere in there"]
    assert canary.found({"there": f"<{word}>"}) == ["somewhere in there"]
    assert canary.found({"there": word[:-1]}) == []


def refused(plane: ControlPlane, folder: Path, canary: Canaries) -> dict[str, str]:
    """Return what kai says where its credentials are refused, cannot be read, or lead nowhere."""
    certificate = f"-----BEGIN CERTIFICATE-----\n{canary('certificate that is none')}\n-----END CERTIFICATE-----\n"
    made: dict[str, object] = {
        "token": {"token": canary("kubeconfig: token")},
        "token of two words": {"token": f"a {canary('kubeconfig: token of two words')}"},
        "password": {"username": "u", "password": canary("kubeconfig: password")},
        "key": {"client-certificate-data": certificate, "client-key-data": canary("kubeconfig: key")},
        "program": {"exec": program(folder, "good", canary("kubeconfig: token of a program"))},
        "program that talks": {
            "exec": program(folder, "talks", canary("kubeconfig: text of a program"), is_json=False)
        },
        "program with environment": {
            "exec": {
                **program(folder, "fails", canary("kubeconfig: output of a program that fails"), status=3),
                "env": [{"name": "TOKEN", "value": canary("kubeconfig: env of a program")}],
                "args": [canary("kubeconfig: args of a program")],
            }
        },
        "provider": {
            "auth-provider": {
                "name": "oidc",
                "config": {
                    each: canary(f"kubeconfig: {each} of a provider")
                    for each in ("id-token", "refresh-token", "client-secret", "idp-certificate-authority-data")
                },
            }
        },
        "list": [canary("kubeconfig: user that is a list")],
        "text": canary("kubeconfig: user that is a text"),
    }
    told = {}
    for name, user in made.items():
        for way in ("here", "nowhere", "proxy"):
            proxy = f"http://u:{canary(f'kubeconfig: {name}: proxy')}@{HOST}:9" if way == "proxy" else ""
            path = folder / f"{name}-{way}.kubeconfig"
            address = plane.admin.url if way == "here" else f"https://{HOST}:9"
            cluster = {"server": address, "certificate-authority": str(plane.admin.ca_file)}
            config = {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "clusters": [{"name": "c", "cluster": {**cluster, **({"proxy-url": proxy} if proxy else {})}}],
                "users": [{"name": "u", "user": user}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            }
            write_privately(path, json.dumps(config))
            for words in (("jobs", "-v"), ("doctor",)):
                told[f"kai {words[0]}, {name}, {way}"] = command(*words, f"--kubeconfig={path}")
    userinfo = canary("kubeconfig: password in the address")
    bad = folder / "userinfo.kubeconfig"
    cluster = {"server": f"https://u:{userinfo}@{HOST}:9"}
    write_privately(
        bad,
        json.dumps(
            {
                "current-context": "c",
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}],
            }
        ),
    )
    told["kai jobs, password in the address"] = command("jobs", "-v", f"--kubeconfig={bad}")
    broken = folder / "broken.kubeconfig"
    write_privately(broken, f"users: [{{user: {{token: {canary('kubeconfig: file that is no YAML')}")
    told["kai jobs, no YAML"] = command("jobs", "-v", f"--kubeconfig={broken}")
    return told


def program(folder: Path, name: str, word: str, *, is_json: bool = True, status: int = 0) -> dict[str, object]:
    """Return how a kubeconfig names a program that makes credentials of a word.

    What it writes to standard error is told where it fails, as kubectl tells it: it says what to do.
    """
    path = folder / f"{name}.py"
    version = "client.authentication.k8s.io/v1"
    answer = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": word}}
    written = json.dumps(answer) if is_json else word
    lines = ["import sys", f"print({written!r})", "print('please log in', file=sys.stderr)", f"sys.exit({status})"]
    path.write_text("\n".join((f"#!{sys.executable}", *lines, "")))
    path.chmod(0o700)
    return {"apiVersion": version, "command": str(path), "interactiveMode": "Never"}
