"""What Kubernetes' own code answers: asked now, or recorded before.

``python -m tests.upstream.asking`` builds the program below ``program`` for each version and records its answers to the
first inputs in ``recorded``; tests compare kai with these, so that they need no Go. The program is built once into the
cache of `tests.integration.programs`, in a minute or two. An input is drawn from its number; a recording has the sum of
all inputs, so that one which is drawn otherwise by now is not taken for that of before.
"""

import hashlib
import json
import lzma
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kai.basics.kubernetes_version import KubernetesVersion
from tests.integration import programs
from tests.upstream import devices, requests

Document = dict[str, Any]
HERE: Final = Path(__file__).parent
PROGRAM: Final = HERE / "program"
VERSIONS: Final = (KubernetesVersion(1, 36), KubernetesVersion(1, 37))
KINDS: Final[Mapping[str, tuple[Callable[[int], Document], int]]] = {
    "devices": (devices.drawn, 2000),
    "requests": (requests.drawn, 10_000),
}
"""What is drawn from a number, and how many answers are recorded of each version."""


def build(version: KubernetesVersion, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the program with Kubernetes' code of a version, built now if this is the first time.

    Raises: CannotBuildError without Go; CalledProcessError if it cannot be built.
    """
    sources = [PROGRAM / name for name in (f"v{version}.mod", f"v{version}.sum", "main.go")]
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in sources)).hexdigest()
    target = programs.cache(environment) / f"upstream-{version}-{digest[:12]}" / "upstream"
    if not target.is_file():
        sys.stderr.write(f"building the program with Kubernetes' code of {version} (once; a minute or two) ...\n")
        command = [programs.go(PROGRAM, environment), "build", f"-modfile={sources[0].name}", "-mod=readonly"]
        built = target.with_suffix(f".{os.getpid()}")
        environment = {**environment, "CGO_ENABLED": "0"}
        subprocess.run([*command, "-o", str(built), "."], cwd=PROGRAM, env=environment, check=True)
        built.replace(target)
    return target


def ask(kind: str, version: KubernetesVersion, documents: Iterable[Document]) -> list[Any]:
    """Return what Kubernetes answers to each document."""
    lines = "\n".join(map(json.dumps, documents))
    done = subprocess.run([build(version), kind], input=lines, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return list(map(json.loads, done.stdout.splitlines()))


# --- Recorded ------------------------------------------------------------------------------------------------------


def recorded(kind: str, version: KubernetesVersion) -> Iterator[tuple[Document, Any]]:
    """Yield the first inputs, each with what Kubernetes answered.

    Raises: ValueError if inputs are drawn otherwise than when they were recorded.
    """
    draw, _ = KINDS[kind]
    sums, answers = json.loads(lzma.decompress(_path(kind, version).read_bytes()))
    documents = list(map(draw, range(len(answers))))
    if _sum(documents) != sums:
        raise ValueError(f"{kind}: drawn otherwise than recorded; run python -m tests.upstream.asking")
    return zip(documents, answers, strict=True)


def record(kind: str, version: KubernetesVersion) -> None:
    """Write down what Kubernetes answers to the first inputs."""
    draw, count = KINDS[kind]
    documents = list(map(draw, range(count)))
    for each in (answers := ask(kind, version, documents)):
        for pod in each if kind == "devices" else ():
            # Why the scheduler gives up: the kind of fault is enough, and texts of it are long.
            if "aborts" in pod:
                pod["aborts"] = "CEL" if "CEL" in pod["aborts"] else "other"
    text = json.dumps([_sum(documents), answers], separators=(",", ":"))
    _path(kind, version).write_bytes(lzma.compress(text.encode(), preset=9))


def _path(kind: str, version: KubernetesVersion) -> Path:
    return HERE / "recorded" / f"{kind}-{version}.json.xz"


def _sum(documents: Iterable[Document]) -> str:
    return hashlib.sha256(json.dumps(list(documents)).encode()).hexdigest()


def main() -> None:
    """Record all answers."""
    (HERE / "recorded").mkdir(exist_ok=True)
    for kind in KINDS:
        for version in VERSIONS:
            record(kind, version)
            sys.stdout.write(f"{_path(kind, version)}: {KINDS[kind][1]} answers\n")


if __name__ == "__main__":
    main()
