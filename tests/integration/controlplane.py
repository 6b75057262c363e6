"""A real control plane for tests: etcd, kube-apiserver and kube-controller-manager on the loopback interface.

There is no scheduler and no kubelet; what those would do, a test does or does without. What is on is what protects:
RBAC, admission by Pod Security Standards, an audit log that records who asked for what and by which rule it was
granted. Of the controllers those run that make, count or collect what kai looks at (`CONTROLLERS`), each with an
account and the rights of its own, as in a cluster. Off are two plugins of the API server: ServiceAccount (a pod would
wait until its namespace has a default account) and TaintNodesByCondition (no node controller runs that would take the
taint of new nodes away).

Tokens of service accounts are real ones, made by the TokenRequest API.
"""

import base64
import json
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterable
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final, Self

import attrs

from tests.integration.client import PATIENCE, Api, Manifest, Refused, until
from tests.integration.ports import HOST, free_ports
from tests.integration.programs import Programs, minor
from tests.unit.deploy.rendering import load, of_kind

CONTROLLERS: Final = (
    "cronjob",
    "daemonset",
    "deployment",
    "disruption",
    "garbage-collector",
    "job",
    "namespace",
    "persistentvolume-binder",
    "persistentvolume-protection",
    "persistentvolumeclaim-protection",
    "replicaset",
    "resourceclaim",
    "resourcequota",
    "root-ca-certificate-publisher",
    "statefulset",
    "ttl-after-finished",
)
"""What runs of kube-controller-manager: 0.3 s of processor to start, 100 MB, and next to nothing while idle."""
SWITCHED_ON: Final = {
    "1.35": ("DRAConsumableCapacity", "DRADeviceTaints", "DRAExtendedResource", "DRAPartitionableDevices"),
}
"""What kai uses and a version of Kubernetes has only if it is told to, while later ones have it on."""
_WITHOUT: Final = ("ServiceAccount", "TaintNodesByCondition")
_ATTEMPTS: Final = 3
# The form of an elliptic-curve key (P-256) in which only the number itself is free.
_KEY_BEFORE: Final = bytes.fromhex("30310201010420")
_KEY_AFTER: Final = bytes.fromhex("a00a06082a8648ce3d030107")
_MANAGER: Final = "system:kube-controller-manager"
_AUDIT_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "users": ["admin", _MANAGER, "system:apiserver", "system:anonymous"]},
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},  # the controllers
        # Which pod an eviction is for, of all that ever had the name, only its body says.
        {"level": "Request", "resources": [{"group": "", "resources": ["pods/eviction"]}]},
        {"level": "Metadata"},
    ],
}


class DiedError(RuntimeError):
    """A program of the control plane ended although nobody asked it to."""


@attrs.define
class Daemon:
    """A program in the background, with its output in a file."""

    command: tuple[str, ...]
    log: Path
    _process: subprocess.Popen[bytes] | None = attrs.field(default=None, init=False)

    def start(self) -> None:
        """Start the program; it dies with us even if we are killed, where the system has a tool for that."""
        tied = ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*tied, *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.log.parent,
            )

    @property
    def pid(self) -> int:
        """Return the id of the process, to pause it or to read what it costs.

        Raises: DiedError if it is not running.
        """
        if self._process is None or self._process.poll() is not None:
            status = "not started" if self._process is None else f"exit status {self._process.returncode}"
            raise DiedError(f"{Path(self.command[0]).name}: {status}\n{self.tail()}")
        return self._process.pid

    def stop(self, *, kill: bool = False) -> None:
        """End the program and wait for it."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            self._process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def tail(self, lines: int = 20) -> str:
        """Return the last lines that it wrote."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""


@attrs.define
class ControlPlane:
    """A running control plane, with all its files in one folder."""

    folder: Path
    etcd: Daemon
    apiserver: Daemon
    controllers: Daemon | None
    """None where a test is alone with the API server."""
    url: str
    admin: Api
    etcd_url: str
    front: str = ""
    """Where kai connects to, if not to the API server itself."""
    _audit: list[dict[str, Any]] = attrs.field(factory=list, init=False, repr=False)
    _read: int = attrs.field(default=0, init=False, repr=False)
    """How many bytes of the audit log are in ``_audit``: it is read before and after each test, and only grows."""

    @classmethod
    def start(
        cls,
        programs: Programs,
        folder: Path,
        *,
        flags: tuple[str, ...] = (),
        controllers: tuple[str, ...] = CONTROLLERS,
    ) -> Self:
        """Start a control plane in an empty folder; ``flags`` are added to those of the API server.

        Without any ``controllers`` their program does not run. They begin once the API server is ready, and are not
        waited for.

        Somebody may take a port between our finding it free and the program's using it, so a start that dies is
        repeated with others.

        Raises: DiedError if it does not come up at all.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            plane = cls._prepared(programs, folder / f"attempt-{attempt}", flags, controllers)
            try:
                plane.etcd.start()
                plane.apiserver.start()
                plane.wait()
                if plane.controllers is not None:
                    plane.controllers.start()
            except (DiedError, TimeoutError):
                plane.stop()
                if attempt == _ATTEMPTS:
                    raise
            except BaseException:
                plane.stop()
                raise
            else:
                return plane
        raise AssertionError("unreachable")

    @classmethod
    def _prepared(cls, programs: Programs, folder: Path, flags: tuple[str, ...], controllers: tuple[str, ...]) -> Self:
        folder.mkdir(parents=True)
        client_port, peer_port, port = free_ports(3)
        token, token_of_manager = secrets.token_hex(16), secrets.token_hex(16)
        users = (f'{token},admin,admin,"system:masters"', f"{token_of_manager},{_MANAGER},{_MANAGER}")
        write_privately(folder / "tokens.csv", "".join(f"{user}\n" for user in users))
        write_privately(folder / "accounts.key", signing_key())
        (folder / "audit.yaml").write_text(json.dumps(_AUDIT_POLICY))
        etcd_url, url = f"http://{HOST}:{client_port}", f"https://{HOST}:{port}"
        certificate = folder / "certificates" / "apiserver.crt"
        config = kubeconfig(url, certificate, token_of_manager, "controllers")
        write_privately(folder / "controllers.kubeconfig", json.dumps(config))
        managed = controllers_command(programs.controllers, folder, controllers)
        return cls(
            folder=folder,
            etcd=Daemon(etcd_command(programs.etcd, folder, etcd_url, peer_port), folder / "etcd.log"),
            apiserver=Daemon(
                (*apiserver_command(programs.apiserver, folder, etcd_url, port), *flags),
                folder / "kube-apiserver.log",
            ),
            controllers=Daemon(managed, folder / "kube-controller-manager.log") if controllers else None,
            url=url,
            admin=Api(url, certificate, token),
            etcd_url=etcd_url,
        )

    def wait(self) -> None:
        """Wait until the API server says that it is ready."""
        until(self._is_ready, "the API server")

    def _is_ready(self) -> bool:
        _ = self.etcd.pid, self.apiserver.pid  # raises when either has died
        if not self.admin.ca_file.exists():  # the server makes its certificate itself
            return False
        try:
            return bool(self.admin.request("GET", "/readyz") == "ok")
        except (Refused, HTTPException, OSError):
            return False

    def stop(self) -> None:
        """End all programs and leave their files; the API server before its store, for which it would wait.

        They are killed: asked to end, the API server waits up to a minute for each watch that is open, though nothing
        comes after. What it did is in its audit log, which it writes before it answers.
        """
        self.admin.close()
        if self.controllers is not None:
            self.controllers.stop(kill=True)
        self.apiserver.stop(kill=True)
        self.etcd.stop(kill=True)

    def restart_controllers(self) -> None:
        """Kill the controllers, if any run, and start them again: what they knew may be from another history."""
        if self.controllers is not None:
            self.controllers.stop(kill=True)
            self.controllers.start()

    def restart_apiserver(self, *, kill: bool = False) -> None:
        """End the API server and start it again on the same port with the same store.

        Ready does not mean that custom kinds are served: for a moment their lists are answered with 429.
        """
        self.apiserver.stop(kill=kill)
        self.apiserver.start()
        self.wait()
        for manifest in self.admin.list("apiextensions.k8s.io/v1", "CustomResourceDefinition"):
            self._wait_until_served(manifest)

    # --- Users ---------------------------------------------------------------------------------------------------

    def account(self, namespace: str, name: str, *, seconds: int = 172_800) -> Api:
        """Return the view of a service account that exists, with a token of its own, which outlives a night."""
        reference = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": namespace, "name": name}}
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        answer = self.admin.request("POST", self.admin.path(reference, "token"), request)
        return Api(self.url, self.admin.ca_file, answer["status"]["token"])

    def kubeconfig(self, api: Api, name: str) -> Path:
        """Write the configuration with which kubectl and kai connect as this user; return its path."""
        path = self.folder / f"{name}.kubeconfig"
        server = self.front if self.front and api.url == self.url else api.url
        write_privately(path, json.dumps(kubeconfig(server, self.admin.ca_file, api.token, name)))
        return path

    def audited(self, user: str = "") -> list[dict[str, Any]]:
        """Return what the audit log says, of everybody but the administrator or of one user."""
        log = self.folder / "audit.log"
        if log.exists():
            with log.open("rb") as file:
                file.seek(self._read)
                whole = file.read().rpartition(b"\n")[0]  # what follows the last end of a line is being written
            self._audit += map(json.loads, whole.splitlines())
            self._read += len(whole) + bool(whole)
        return [event for event in self._audit if not user or event["user"].get("username") == user]

    # --- Objects -------------------------------------------------------------------------------------------------

    def define(self, *folders: Path) -> None:
        """Apply the custom resource definitions of folders of YAML files, and wait until they are served."""
        manifests = [each for folder in folders for path in sorted(folder.glob("*.yaml")) for each in load(path)]
        self.define_all(of_kind(manifests, "CustomResourceDefinition"))

    def define_all(self, definitions: Iterable[Manifest]) -> None:
        """Apply custom resource definitions, and wait until they are served."""
        applied = [self.admin.apply(manifest) for manifest in definitions]
        for manifest in applied:
            self._wait_until_served(manifest)

    def _wait_until_served(self, definition: Manifest) -> None:
        until(lambda: self._serves(definition), f"{definition['metadata']['name']} to be served")

    def _serves(self, definition: Manifest) -> bool:
        conditions = self.admin.get(definition).get("status", {}).get("conditions") or []  # null at first
        if not any(each["type"] == "Established" and each["status"] == "True" for each in conditions):
            return False
        spec = definition["spec"]
        try:
            # Established is said a moment before the path exists.
            self.admin.request("GET", f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}")
        except Refused:
            return False
        return True


def etcd_command(program: Path, folder: Path, client_url: str, peer_port: int) -> tuple[str, ...]:
    """Return how etcd is started: alone, and without waiting for a disk that nobody needs to trust."""
    peer_url = f"http://{HOST}:{peer_port}"
    return (
        str(program),
        "--name=test",
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={client_url}",
        f"--advertise-client-urls={client_url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=test={peer_url}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    )


def apiserver_command(program: Path, folder: Path, etcd_url: str, port: int) -> tuple[str, ...]:
    """Return how the API server is started."""
    return (
        str(program),
        f"--etcd-servers={etcd_url}",
        f"--bind-address={HOST}",
        f"--advertise-address={HOST}",
        f"--secure-port={port}",
        "--endpoint-reconciler-type=none",
        f"--cert-dir={folder / 'certificates'}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        f"--disable-admission-plugins={','.join(_WITHOUT)}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={folder / 'accounts.key'}",
        f"--service-account-signing-key-file={folder / 'accounts.key'}",
        f"--audit-policy-file={folder / 'audit.yaml'}",
        f"--audit-log-path={folder / 'audit.log'}",
        *_gates(),
    )


def controllers_command(program: Path, folder: Path, names: Iterable[str]) -> tuple[str, ...]:
    """Return how the controllers are started: at once, as the only ones, and listening nowhere.

    All kinds of objects are read through one list each; what each controller may do, its own role says.
    """
    return (
        str(program),
        f"--kubeconfig={folder / 'controllers.kubeconfig'}",
        f"--controllers={','.join(f'{name}-controller' for name in names)}",
        "--use-service-account-credentials=true",
        f"--root-ca-file={folder / 'certificates' / 'apiserver.crt'}",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=500",
        "--kube-api-burst=500",
        *_gates(),
    )


def _gates() -> tuple[str, ...]:
    return tuple(f"--feature-gates={name}=true" for name in SWITCHED_ON.get(minor(), ()))


def kubeconfig(server: str, ca_file: Path, token: str, name: str) -> Manifest:
    """Return the configuration with which a program connects to a server as the user of a token."""
    cluster = {"server": server, "certificate-authority": str(ca_file)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
    }


def signing_key() -> str:
    """Return a new private key for the tokens of service accounts, as PEM.

    A number is all that is secret about such a key, and its form is fixed: no library and no program is needed.
    """
    number = (secrets.randbelow(2**255) + 1).to_bytes(32, "big")
    lines = base64.encodebytes(_KEY_BEFORE + number + _KEY_AFTER).decode()
    return f"-----BEGIN EC PRIVATE KEY-----\n{lines}-----END EC PRIVATE KEY-----\n"


def write_privately(path: Path, text: str) -> None:
    """Write a file that only we can read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
