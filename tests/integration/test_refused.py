"""A real API server refuses the cases about which kai lint says that it does, and takes what they are made of."""

from typing import Any

import pytest

from tests.integration.client import Refused
from tests.integration.controlplane import ControlPlane
from tests.unit.manifests.test_refused import REFUSED, merged


@pytest.fixture(scope="module", autouse=True)
def account(bare_control_plane: ControlPlane) -> None:
    """Make what each pod names; the controller that makes it in a cluster does not run."""
    head = {"apiVersion": "v1", "kind": "ServiceAccount"}
    bare_control_plane.admin.ensure({**head, "metadata": {"name": "default", "namespace": "default"}})


@pytest.mark.parametrize("kind", REFUSED["bases"])
def test_the_bases_are_taken(bare_control_plane: ControlPlane, kind: str) -> None:
    bare_control_plane.admin.create(REFUSED["bases"][kind], dryRun="All", fieldValidation="Strict")


@pytest.mark.parametrize("case", REFUSED["cases"], ids=lambda case: case["about"])
def test_the_server_refuses_what_lint_does(bare_control_plane: ControlPlane, case: dict[str, Any]) -> None:
    manifest = merged(REFUSED["bases"][case["kind"]], case["with"])
    with pytest.raises(Refused) as refusal:
        bare_control_plane.admin.create(manifest, dryRun="All", fieldValidation="Strict")
    assert refusal.value.code in {400, 422}
