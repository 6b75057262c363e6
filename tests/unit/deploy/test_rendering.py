import shutil
import subprocess

import pytest
import yaml

from tests.unit.deploy.charting import CHART
from tests.unit.deploy.rendering import DEPLOY, ENTRIES, key, render

KUBECTL = shutil.which("kubectl")


@pytest.mark.parametrize("entry", [".", *ENTRIES, "lasting", "queues"])
def test_every_object_is_there_once(entry):
    keys = [key(manifest) for manifest in render(DEPLOY / entry)]
    assert keys
    assert len(keys) == len(set(keys))


def test_the_folder_itself_is_the_base():
    assert render(DEPLOY) == render(DEPLOY / "base")


def test_every_file_is_used_by_a_kustomization():
    kustomizations = set(DEPLOY.rglob("kustomization.yaml"))
    used = {
        (path.parent / entry).resolve()
        for path in kustomizations
        for part in ("resources", "configurations")
        for entry in yaml.safe_load(path.read_text()).get(part, ())
    }
    files = {path.resolve() for path in set(DEPLOY.rglob("*.yaml")) - kustomizations if CHART not in path.parents}
    assert files == {path for path in used if path.is_file()}


@pytest.mark.skipif(KUBECTL is None, reason="kubectl, with which the reader is compared, is not installed")
@pytest.mark.parametrize("entry", [".", *ENTRIES, "lasting", "queues"])
def test_kubectl_reads_the_same(entry):
    printed = subprocess.run([KUBECTL, "kustomize", DEPLOY / entry], capture_output=True, check=True, text=True).stdout
    theirs = {key(manifest): manifest for manifest in yaml.safe_load_all(printed)}
    ours = {key(manifest): manifest for manifest in render(DEPLOY / entry)}
    assert ours == theirs
