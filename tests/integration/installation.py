"""Applying what ``deploy`` ships to a control plane, in the order in which it can be applied."""

import json
from pathlib import Path
from typing import Any

from tests.integration.controlplane import ControlPlane
from tests.unit.deploy.rendering import DEPLOY, Manifest, of_kind, render

CRDS = Path(__file__).parent / "crds"
"""The least of definitions of kinds that are not ours."""
# What an object may need before it can be created, or before it works.
_FIRST = ("Namespace", "CustomResourceDefinition")


def install(plane: ControlPlane, folder: Path, *, but: tuple[str, ...] = ("Deployment",)) -> list[Manifest]:
    """Apply the objects of a folder of ``deploy`` except of some kinds, and return them.

    Deployments are left out by default: nobody here would make pods of them, tests start the programs themselves.
    """
    manifests = [manifest for manifest in render(folder) if manifest["kind"] not in but]
    for manifest in of_kind(manifests, "Namespace"):
        plane.admin.apply(manifest)
    plane.define_all(of_kind(manifests, "CustomResourceDefinition"))
    for manifest in manifests:
        if manifest["kind"] not in _FIRST:
            plane.admin.apply(manifest)
    return manifests


def container_argument(flag: str) -> Any:
    """Return the JSON value that the shipped Deployment gives to a flag."""
    (deployment,) = of_kind(render(DEPLOY), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (value,) = [argument.split("=", 1)[1] for argument in container["args"] if argument.startswith(f"{flag}=")]
    return json.loads(value)
