"""The patch of the documentation that leaves the user out, where a cluster chooses one, tried as it is written."""

import re

import pytest
import yaml

from tests.unit.deploy.rendering import DEPLOY, ENTRIES, of_kind, render

ROOT = DEPLOY.parent
SECTION = (ROOT / "docs" / "install.md").read_text().partition("\n## OpenShift\n")[2].partition("\n## ")[0]
FORMS = (*ENTRIES, "overlays/shadow")


@pytest.fixture
def patched(tmp_path):
    (written,) = re.findall(r"```yaml\n(.+?)```", SECTION, re.DOTALL)

    def show(form):
        kustomization = yaml.safe_load(written)
        (place,) = kustomization["resources"]
        assert place.startswith("<a copy or a remote reference")
        kustomization["resources"] = [str(DEPLOY / form)]
        (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        return render(tmp_path)

    return show


@pytest.mark.parametrize("form", FORMS)
def test_no_openshift_pod_names_a_user_or_is_root(patched, form):
    deployments = of_kind(patched(form), "Deployment")
    assert deployments
    for each in deployments:
        context = each["spec"]["template"]["spec"]["securityContext"]
        assert context == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


@pytest.mark.parametrize("form", FORMS)
def test_nothing_else_changes(patched, form):
    changed, before = patched(form), render(DEPLOY / form)
    for each in of_kind(before, "Deployment"):
        context = each["spec"]["template"]["spec"]["securityContext"]
        assert (context.pop("runAsUser"), context.pop("runAsGroup")) == (65532, 65532)
    assert changed == before


def test_the_images_user_is_a_number_above_root():
    """The kubelet cannot see that a name is not root, and refuses the pod where it may not be."""
    users = re.findall(r"^USER (.+)$", (ROOT / "Containerfile").read_text(), re.MULTILINE)
    assert users == ["65532:65532"]
