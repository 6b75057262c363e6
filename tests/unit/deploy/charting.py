"""The parts of ``deploy/chart`` that are copies of what kustomize makes, so that the two cannot drift.

``python -m tests.unit.deploy.charting`` writes them; a test fails while they differ. Templates of the chart change
these objects as its values say, and add none but config maps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import yaml

from tests.unit.deploy.rendering import DEPLOY, LASTING, Manifest, key, load, render

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

CHART: Final = DEPLOY / "chart"
_HEAD: Final = "# Written by python -m tests.unit.deploy.charting from the kustomizations of deploy/; change those.\n"
_DASHBOARD: Final = ("service.yaml", "rights.yaml", "network-policy.yaml")


def files() -> Mapping[Path, str]:
    """Return the text of each copy, by its path."""
    out = {CHART / "crds" / path.name: path.read_text() for path in (DEPLOY / "crds").glob("*_*.yaml")}
    for name, manifests in _parts().items():
        out[CHART / "files" / f"{name}.yaml"] = _HEAD + yaml.safe_dump_all(manifests, explicit_start=True, width=120)
    return out


def _parts() -> Mapping[str, list[Manifest]]:
    shared = render(DEPLOY / "prerequisites")
    policies = render(DEPLOY / "policies")
    webhooks = DEPLOY / "components" / "webhooks"
    common = [*shared, *policies, *render(webhooks)]
    # Helm installs definitions by itself, and makes the namespace of a release before anything in it.
    lasting = [each for each in render(LASTING) if each["kind"] != "CustomResourceDefinition" and not _is_ours(each)]
    return {
        "lasting": lasting,
        "prerequisites": [each for each in shared if each["kind"] != "NetworkPolicy"],
        "network-policies": [each for each in shared if each["kind"] == "NetworkPolicy"],
        "policies": policies,
        "single": _without(render(DEPLOY / "base"), common),
        "split": _without(render(DEPLOY / "overlays" / "split"), common),
        "shadow": render(DEPLOY / "overlays" / "shadow"),
        "webhooks": render(webhooks),
        "webhooks-cert-manager": render(webhooks, DEPLOY / "components" / "certificates"),
        "monitoring": render(DEPLOY / "components" / "monitoring"),
        # What the component changes about a Deployment, the templates do.
        "dashboard": [each for name in _DASHBOARD for each in load(DEPLOY / "components" / "dashboard" / name)],
        "user-notes": render(DEPLOY / "components" / "user-notes"),
        "queue-access": load(DEPLOY / "components" / "queue-access" / "policy.yaml"),
    }


def _is_ours(manifest: Manifest) -> bool:
    return key(manifest) == ("Namespace", "", "kai-scheduler")


def _without(manifests: Iterable[Manifest], others: Iterable[Manifest]) -> list[Manifest]:
    known = {key(each) for each in others}
    return [each for each in manifests if key(each) not in known]


def main() -> None:
    """Write the copies."""
    for path, text in files().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
