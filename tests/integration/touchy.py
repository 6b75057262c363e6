"""A plugin from elsewhere that fails at pod groups with a label: a cycle that meets one of them fails, or lasts."""

from __future__ import annotations

import os
from pathlib import Path

LABEL = "tests/touchy"
ENDLESS = "endless"
"""The value of the label with which a cycle never ends."""
_PLUGIN = f"""\
import attrs
from kai.framework import NodeFilter


@attrs.frozen
class Touchy:
    def open(self, session):
        snapshot = session.snapshot

        def filter_nodes(pod, nodes):
            word = snapshot.groups[snapshot.pod_group[pod]].labels.get("{LABEL}")
            while word == "{ENDLESS}":
                pass
            if word:
                raise RuntimeError("cannot bear it")
            return nodes >= 0

        return [NodeFilter(filter_nodes)]
"""
_DISTRIBUTION = {
    "touchy.py": _PLUGIN,
    "touchy-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: touchy\nVersion: 1.0\n",
    "touchy-1.0.dist-info/entry_points.txt": "[kai.plugins]\ntouchy = touchy:Touchy\n",
    "policy.yaml": "with:\n  touchy: {}\n",
}


def install_touchy(folder: Path) -> tuple[Path, dict[str, str]]:
    """Write the plugin into a folder; return a policy that has it, and variables with which a program finds it."""
    for name, text in _DISTRIBUTION.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(text)
    paths = os.pathsep.join([str(folder), str(Path(__file__).parents[2])])
    return folder / "policy.yaml", {"PYTHONPATH": paths}
