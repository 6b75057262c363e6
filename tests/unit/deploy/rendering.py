"""What ``kubectl kustomize`` would print for a folder of ``deploy``: as much of it as our own files use.

Whatever else a kustomization may say is refused, so that nothing is passed over in silence. Where kubectl is installed,
`test_rendering` compares the two.
"""

import copy
import re
from pathlib import Path
from typing import Any, Final

import yaml

Manifest = dict[str, Any]

DEPLOY: Final = Path(__file__).parents[3] / "deploy"
LASTING: Final = DEPLOY / "lasting"
"""What is applied before any of the entries, and stays when they go."""
ENTRIES: Final = ("base", "overlays/ha", "overlays/split", "overlays/split-ha", "overlays/cert-manager")
"""The folders that an operator may apply; ``deploy`` itself is ``deploy/base``."""

_HEAD: Final = {"apiVersion", "kind"}


def render(folder: Path, *components: Path) -> list[Manifest]:
    """Return the manifests of a kustomization, patched, with components that somebody adds to it."""
    manifests = _rendered(folder, [])
    for component in components:
        manifests = _rendered(component, manifests)
    return manifests


def _rendered(folder: Path, so_far: list[Manifest]) -> list[Manifest]:
    (kustomization,) = load(folder / "kustomization.yaml")
    # Configurations say where names are referred to; nothing here changes names.
    unknown = (
        kustomization.keys()
        - _HEAD
        - {
            "resources",
            "components",
            "patches",
            "configurations",
            "configMapGenerator",
        }
    )
    assert not unknown, f"{folder}: this reader does not know {sorted(unknown)}"
    manifests = list(so_far)
    for entry in kustomization.get("resources", ()):
        path = folder / entry
        manifests += _rendered(path, []) if path.is_dir() else load(path)
    for entry in kustomization.get("components", ()):
        manifests = _rendered(folder / entry, manifests)
    manifests += [_generated(folder, values) for values in kustomization.get("configMapGenerator", ())]
    for patch in kustomization.get("patches", ()):
        manifests = _patched(manifests, patch)
    return manifests


def _generated(folder: Path, values: Manifest) -> Manifest:
    """Return the config map of files that a generator makes; one whose name carries no hash."""
    options = values["options"]
    assert values.keys() == {"name", "namespace", "files", "options"}, values.keys()
    assert options.keys() == {"disableNameSuffixHash", "labels"}, options.keys()
    assert options["disableNameSuffixHash"] is True
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": values["name"], "namespace": values["namespace"], "labels": options["labels"]},
        "data": {name: (folder / name).read_text() for name in values["files"]},
    }


def load(path: Path) -> list[Manifest]:
    """Return the manifests of a file."""
    # The parser that is written in C is seven times as quick, and the suite renders what is shipped a hundred times.
    return [manifest for manifest in yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader) if manifest]


def _patched(manifests: list[Manifest], patch: Manifest) -> list[Manifest]:
    target = patch["target"]
    out, met = [], 0
    for manifest in manifests:
        found = {"kind": manifest["kind"], "name": manifest["metadata"]["name"]}
        if all(re.fullmatch(wanted, found[part]) for part, wanted in target.items()):
            met += 1
            manifest = copy.deepcopy(manifest)  # noqa: PLW2901 - what is patched takes its place
            for step in yaml.safe_load(patch["patch"]):
                _apply(manifest, step)
        out.append(manifest)
    named = len(target["name"].split("|")) if "name" in target else met
    assert met == named > 0, f"a patch for {target} meets {met} objects"
    return out


def _apply(manifest: Manifest, step: Manifest) -> None:
    place, last = _found(manifest, step["path"])
    match step["op"]:
        case "add" if isinstance(place, list) and last == "-":
            place.append(step["value"])
        case "add" if isinstance(place, dict):
            place[last] = step["value"]
        case "copy" if isinstance(place, list) and last == "-":
            source, name = _found(manifest, step["from"])
            place.append(copy.deepcopy(source[name]))
        case "remove" if isinstance(place, dict) and last in place:
            del place[last]
        case "replace" if isinstance(place, dict) and last in place:
            place[last] = step["value"]
        case _:
            raise AssertionError(f"this reader does not know {step}")


def _found(manifest: Manifest, path: str) -> tuple[Any, str]:
    """Return the mapping or list that a path leads into, and the last part of the path."""
    *parents, last = path.strip("/").split("/")
    place: Any = manifest
    for name in parents:
        place = place[int(name)] if isinstance(place, list) else place[name.replace("~1", "/")]
    return place, last.replace("~1", "/")


def key(manifest: Manifest) -> tuple[str, str, str]:
    """Return the kind, namespace and name of a manifest."""
    metadata = manifest["metadata"]
    return manifest["kind"], metadata.get("namespace", ""), metadata["name"]


def deployment(manifests: list[Manifest], name: str = "kai") -> Manifest:
    """Return the Deployment of this name."""
    (found,) = [each for each in of_kind(manifests, "Deployment") if each["metadata"]["name"] == name]
    return found


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    """Return the manifests of a kind."""
    return [manifest for manifest in manifests if manifest["kind"] == kind]
