"""Bills of materials: which packages, in which versions, the wheel is tested with and the image consists of.

    requirements/runtime.txt ─────────────────────── packages of the wheel ─┐
    dist-info and dpkg's status of the unpacked image ─ packages of the image ─┴→ CycloneDX, as JSON

``python -m tests.image.contents DIR`` writes both and has them checked against CycloneDX's own schema (`nox -s sbom`
brings the package for that). The same packages give the same bytes: there is no time and no number drawn by chance.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from tests.image import building

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PROJECT: Final[Mapping[str, Any]] = tomllib.loads((building.ROOT / "pyproject.toml").read_text())["project"]
_PIN: Final = re.compile(r"([A-Za-z0-9._-]+)==([^ ;\\]+)")
_WITHIN: Final = ("opt", "kai", "venv", "lib")
Graph = dict[str, set[str]]
"""Packages by their addresses, with those that each of them needs."""


def address(kind: str, name: str, version: str, **qualifiers: str) -> str:
    """Return the address of a package, as package-url writes it."""
    more = "&".join(f"{key}={quote(value)}" for key, value in sorted(qualifiers.items()))
    return f"pkg:{kind}/{quote(name, safe='/')}@{quote(version)}{'?' if more else ''}{more}"


def python_address(name: str, version: str) -> str:
    """Return the address of a package of Python."""
    return address("pypi", re.sub(r"[-_.]+", "-", name).lower(), version)


OURS: Final = python_address(PROJECT["name"], PROJECT["version"])


def pinned(text: str) -> Graph:
    """Return the packages of a compiled requirements file; its comments say which needs which."""
    found: Graph = {OURS: set()}
    addresses = {"kai-scheduler": OURS}
    needed_by: list[tuple[str, str]] = []
    at = ""
    for line in text.splitlines():
        if pin := _PIN.match(line):
            at = python_address(pin[1], pin[2])
            addresses[pin[1]] = at
            found[at] = set()
        elif (via := re.fullmatch(r" +# +(?:via +)?([A-Za-z0-9._-]+)(?: .*)?", line)) and via[1] != "via":
            needed_by.append((via[1], at))
    for parent, child in needed_by:
        found[addresses[parent]].add(child)
    return found


def installed(root: Path) -> Graph:
    """Return the packages of an unpacked image, of Python and of Debian."""
    found: Graph = {OURS: set()}
    for folder in sorted(root.joinpath(*_WITHIN).glob("python*/site-packages")):
        for each in distributions(path=[str(folder)]):
            found.setdefault(python_address(each.metadata["Name"], each.version), set())
    status = root / "var" / "lib" / "dpkg" / "status"
    release = dict(re.findall(r'^([A-Z_]+)="?([^"\n]*)"?$', (root / "etc" / "os-release").read_text(), re.MULTILINE))
    distro = f"{release['ID']}-{release['VERSION_ID']}"
    for paragraph in status.read_text().split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", paragraph, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            name, version, arch = (fields[key] for key in ("Package", "Version", "Architecture"))
            found[address("deb", f"debian/{name}", version, arch=arch, distro=distro)] = set()
    found[OURS] = set(found) - {OURS}
    return found


def bill(graph: Graph, kind: str) -> dict[str, Any]:
    """Return packages as a CycloneDX document about us: an ``application`` or a ``container``."""
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**_component(OURS), "type": kind, "licenses": [{"expression": PROJECT["license"]}]}},
        "components": [_component(each) for each in sorted(graph) if each != OURS],
        "dependencies": [
            {"ref": each, **({"dependsOn": sorted(needs)} if needs else {})} for each, needs in sorted(graph.items())
        ],
    }


def _component(where: str) -> dict[str, Any]:
    name, _, version = where.partition("?")[0].rpartition("/")[2].partition("@")
    return {"type": "library", "bom-ref": where, "name": name, "version": version.replace("%2B", "+"), "purl": where}


def write(folder: Path, name: str, document: Mapping[str, Any]) -> Path:
    """Write a bill, and return where it is."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"kai-{PROJECT['version']}-{name}.cdx.json"
    path.write_text(json.dumps(document, indent=2) + "\n")
    return path


def check(paths: Iterable[Path]) -> list[str]:
    """Return what CycloneDX's own schema says against some bills."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    validator = JsonStrictValidator(SchemaVersion.V1_6)
    return [f"{path.name}: {error}" for path in paths if (error := validator.validate_str(path.read_text()))]


def main(folder: Path) -> int:
    """Write the bills, say how many packages each names, and return the exit status."""
    graphs = {"wheel": ("application", pinned((building.ROOT / "requirements" / "runtime.txt").read_text()))}
    try:
        building.configuration()
        with building.unpacked() as root:
            graphs["image"] = ("container", installed(root))
    except (building.CannotBuildError, OSError):
        sys.stderr.write("the image is not built, so only the wheel has a bill; `nox -s image` builds it\n")
    paths = []
    for name, (kind, graph) in graphs.items():
        paths.append(write(folder, name, bill(graph, kind)))
        sys.stdout.write(f"{paths[-1]}: {len(graph) - 1} packages\n")
    faults = check(paths)
    sys.stderr.write("".join(f"{fault}\n" for fault in faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
