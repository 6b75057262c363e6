import re
from collections import Counter
from pathlib import Path

import pytest

from kai.basics.kubernetes_version import KubernetesVersion
from tests.upstream import devices, requests
from tests.upstream.asking import VERSIONS, recorded

DIFFERENCES = (Path(__file__).parents[2] / "docs" / "differences.md").read_text()
versions = pytest.mark.parametrize("version", VERSIONS, ids=str)


def is_told(row: str) -> bool:
    """Say whether docs/differences.md has a row for what a difference is explained by."""
    return re.search(rf"^\| {re.escape(row)}", DIFFERENCES, re.MULTILINE | re.IGNORECASE) is not None


@versions
def test_devices_are_allocated_as_by_kubernetes(version):
    """Each version has every second cluster, and those in which the versions differ."""
    others = dict(enumerate(answer for _, answer in recorded("devices", KubernetesVersion(1, 73 - version.minor))))
    unexplained, rows = [], Counter()
    for number, (cluster, theirs) in enumerate(recorded("devices", version)):
        if number % 2 != version.minor % 2 and theirs == others[number]:
            continue
        found = devices.difference(cluster, theirs, version)
        if found is not None:
            row = devices.explained(cluster, theirs, version, found[0])
            rows[row] += 1
            if not row:
                unexplained.append((number, found[1]))
    assert unexplained == []
    assert all(map(is_told, rows)), rows


@versions
def test_pods_count_for_what_kubernetes_counts(version):
    unexplained, rows = [], Counter()
    for number, (pod, theirs) in enumerate(recorded("requests", version)):
        found = requests.difference(pod, theirs, version)
        if found:
            row = requests.explained(pod, found)
            rows[row] += 1
            if not row:
                unexplained.append((number, found))
    assert unexplained == []
    assert all(map(is_told, rows)), rows
