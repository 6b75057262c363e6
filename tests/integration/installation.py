"""Applying what ``deploy`` ships to a control plane, in the order in which it can be applied."""

import json
from pathlib import Path
from typing import Any

from tests.integration.controlplane import ControlPlane
from tests.unit.deploy.rendering import DEPLOY, LASTING, Manifest, deployment, of_kind, render

CRDS = Path(__file__).parent / "crds"
"""The least of definitions of kinds that are not ours."""
# What an object may need before it can be created, or before it works.
_FIRST = ("Namespace", "CustomResourceDefinition")
_NOT_HERE = ("Deployment", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def install(
    plane: ControlPlane, folder: Path, *, but: tuple[str, ...] = (), lasting: Path | None = LASTING
) -> list[Manifest]:
    """Apply what must last and the objects of a folder of ``deploy``, except of some kinds; return what was applied.

    ``lasting``: None where it is there and stays as it is.
    Deployments are left out: no controller here would make pods of them, tests start the programs themselves. So are
    webhook configurations, which would have the API server ask a Service that leads nowhere.
    """
    left_out = {*_NOT_HERE, *but}
    found = (*(() if lasting is None else render(lasting)), *render(folder))
    manifests = [each for each in found if each["kind"] not in left_out]
    for manifest in of_kind(manifests, "Namespace"):
        plane.admin.apply(manifest)
    plane.define_all(of_kind(manifests, "CustomResourceDefinition"))
    for manifest in manifests:
        if manifest["kind"] not in _FIRST:
            plane.admin.apply(manifest)
    return manifests


def container_argument(flag: str) -> Any:
    """Return the JSON value that the shipped Deployment gives to a flag."""
    (container,) = deployment(render(DEPLOY))["spec"]["template"]["spec"]["containers"]
    (value,) = [argument.split("=", 1)[1] for argument in container["args"] if argument.startswith(f"{flag}=")]
    return json.loads(value)
