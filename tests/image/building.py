"""Builds the image as an operator would, where there is no engine and perhaps no registry: with buildah, as root.

``python -m tests.image.building`` builds it from the Containerfile and says how large it is. The store is a folder of
its own below ``XDG_CACHE_HOME``. Where the base that the Containerfile asks for cannot be pulled, mmdebstrap makes one
of Debian's python3 and it gets that name; it has what kai needs of the other, and no more.

What is missing is said in one line, and the exit status is 1: this runs only where it is asked for (``nox -s image``).
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
VERSION: Final[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
IMAGE: Final = f"localhost/kai:{VERSION}"
LARGEST: Final = 450_000_000
# What kai needs of the bases that the Containerfile asks for, by how their names end.
_PACKAGES: Final = {
    "": ("python3", "python3-venv", "libstdc++6", "binutils"),
    "-slim": ("python3", "libstdc++6"),
}
# It merges folders by itself; the package that would do it brings the whole of Perl.
_MERGED: Final = Path("/usr/share/mmdebstrap/hooks/merged-usr")
_PIP_SETTINGS: Final = {"PIP_CERT": "cert", "PIP_INDEX_URL": "index-url", "PIP_DEFAULT_TIMEOUT": "timeout"}


class CannotBuildError(RuntimeError):
    """The image cannot be built here; the message says what is missing."""


def store() -> Path:
    """Return the folder of images."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "kai-image"


def buildah(*words: str) -> str:
    """Run buildah on our store and return what it printed.

    Raises: CannotBuildError if it fails.
    """
    folder = store()
    own = ("--root", str(folder / "store"), "--runroot", str(folder / "run"), "--storage-driver", "vfs")
    done = subprocess.run(["buildah", *own, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        said = "\n".join(done.stderr.strip().splitlines()[-15:])
        raise CannotBuildError(f"buildah {words[0]}: ended with {done.returncode}: {said}")
    return done.stdout.strip()


def check_tools() -> None:
    """Return if the image can be built here.

    Raises: CannotBuildError.
    """
    if os.geteuid() != 0:
        raise CannotBuildError(f"user: found {os.geteuid()}, expected root, who may change its root folder")
    for program in ("buildah", "unshare", "chroot"):
        if shutil.which(program) is None:
            raise CannotBuildError(f"{program}: found none on PATH, expected it (Debian: apt-get install buildah)")


def bases() -> dict[str, tuple[str, ...]]:
    """Return the bases that the Containerfile asks for, by their whole names, with the packages that make one."""
    text = (ROOT / "Containerfile").read_text()
    found = re.search(r"^ARG PYTHON_VERSION=(\S+)$", text, re.MULTILINE)
    asked = set(re.findall(r"^FROM python:\$\{PYTHON_VERSION\}(\S*) AS", text, re.MULTILINE))
    if found is None or asked != set(_PACKAGES):
        wanted = "python:${PYTHON_VERSION} and the same with -slim"
        raise CannotBuildError(f"Containerfile: found other bases, expected {wanted}")
    return {f"docker.io/library/python:{found[1]}{end}": packages for end, packages in _PACKAGES.items()}


def find_or_make_bases() -> None:
    """Have the bases in the store: those of the registry, or made of the packages of this machine's Debian."""
    there = buildah("images", "--format", "{{.Name}}:{{.Tag}}").split()
    for name, packages in bases().items():
        if name in there:
            continue
        try:
            buildah("pull", name)
        except CannotBuildError:
            sys.stderr.write(f"{name} cannot be pulled; mmdebstrap makes a base of Debian's python3\n")
            _make_base(name, packages)


def _make_base(name: str, packages: tuple[str, ...]) -> None:
    if shutil.which("mmdebstrap") is None:
        raise CannotBuildError(f"{name}: cannot be pulled, and mmdebstrap, which would make one: found none on PATH")
    codename = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    # Those who run the image read neither manuals nor translations; the image of the registry has none either.
    left_out = [f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ("doc", "man", "locale")]
    with tempfile.TemporaryDirectory(dir=store()) as work:
        archive = Path(work) / "base.tar"
        options = ["--variant=essential", f"--include={','.join(packages)}", f"--hook-dir={_MERGED}"]
        hook = '--customize-hook=ln -s python3 "$1/usr/bin/python"'
        command = ["mmdebstrap", "--quiet", *options, *left_out, hook, codename, str(archive)]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise CannotBuildError(f"mmdebstrap: ended with {done.returncode}: {done.stderr.strip()[-500:]}")
        container = buildah("from", "scratch")
        buildah("add", container, str(archive), "/")
        buildah("commit", "--squash", "--rm", container, name)


def build() -> None:
    """Build the image.

    Raises: CannotBuildError if that is impossible here.
    """
    check_tools()
    store().mkdir(parents=True, exist_ok=True)
    find_or_make_bases()
    with tempfile.TemporaryDirectory(dir=store()) as work:
        pip = Path(work) / "pip.conf"
        settings = {name: os.environ[variable] for variable, name in _PIP_SETTINGS.items() if variable in os.environ}
        pip.write_text("".join(("[global]\n", *(f"{name} = {value}\n" for name, value in settings.items()))))
        pip.chmod(0o644)
        volumes = [f"--volume={pip}:/etc/pip.conf:ro"]
        if "cert" in settings:
            folder = Path(settings["cert"]).parent
            volumes.append(f"--volume={folder}:{folder}:ro")
        how = ("--isolation", "chroot", "--pull-never", "--layers=false")
        buildah("bud", *how, *volumes, "--tag", IMAGE, str(ROOT))


def configuration() -> dict[str, Any]:
    """Return how the image wants to be run: Env, User, Entrypoint.

    Raises: CannotBuildError if it was not built.
    """
    found: dict[str, Any] = json.loads(buildah("inspect", "--type", "image", IMAGE))["OCIv1"]["config"]
    return found


@contextmanager
def unpacked() -> Iterator[Path]:
    """Give the folder with the files of the image.

    Raises: CannotBuildError if it was not built.
    """
    container = buildah("from", "--pull-never", IMAGE)
    try:
        yield Path(buildah("mount", container))
    finally:
        buildah("rm", container)


def size(folder: Path) -> int:
    """Return how many bytes all files have, each counted once."""
    found = {(each.st_dev, each.st_ino): each.st_size for each in map(Path.lstat, folder.rglob("*"))}
    return sum(found.values())


def main() -> int:
    """Build the image and say how large it is; return the exit status."""
    try:
        build()
        with unpacked() as folder:
            bytes_ = size(folder)
    except CannotBuildError as error:
        sys.stderr.write(f"cannot build the image: {error}\n")
        return 1
    sys.stdout.write(f"{IMAGE}: {bytes_ / 1e6:.0f} MB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
