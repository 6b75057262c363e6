"""Upgrades and rollbacks under load: replicas of two revisions take over from each other, as a Deployment rolls.

A *roll* applies what the other revision ships in ``deploy``, and replaces two replicas one after the other: a new one
becomes ready, then an old one is asked to end. So both revisions run for a while, and each follows the other as leader,
with its groups, orders, grants and leases. Definitions stay those of the newer one, as `docs/upgrade.md` says.
"""

import subprocess
import time
from pathlib import Path

import attrs

from tests.archives import unpack
from tests.integration.chaos.rig import Rig
from tests.integration.installation import install
from tests.unit.deploy.rendering import LASTING

KINDS = ("lone", "lone", "gang", "half", "half")
"""What has enough room, so that kai has nothing to evict."""
SHARE = 0.6
"""How much of the cluster that may want."""
_SETTLE_EVERY = 4


@attrs.define
class Upgrades:
    """Rolls between two trees, each a folder with ``kai`` and ``deploy``."""

    rig: Rig
    newer: Path
    older: Path
    hand_overs: list[float] = attrs.field(factory=list)
    """Seconds from when a leader is asked to end to the next bind."""
    rolls: int = 0

    def run(self, times: int) -> None:
        """Begin with the older tree, then upgrade and roll back in turn. Raises: TimeoutError, see `Rig.telling`."""
        rig = self.rig
        rig.load.kinds, rig.load.most = KINDS, SHARE
        with rig.telling():
            for _ in range(2):
                self._begin(self.older)
            rig.recovery()
            while self.rolls < times:
                self._roll(self.older if self.rolls % 2 else self.newer)
                rig.look()
                self.rolls += 1
                if self.rolls % _SETTLE_EVERY == 0:
                    rig.settle()
            rig.settle()
            rig.finish()

    @property
    def violations(self) -> list[str]:
        """Return what must not have been, in words."""
        evictions = self.rig.report.evictions
        return [*self.rig.report.violations, *([f"{evictions} evictions"] if evictions else [])]

    def _begin(self, tree: Path) -> None:
        # The folder of this process comes before any path that is named, unless Python is told to leave it out.
        self.rig.variables = {"PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
        self.rig.begin()
        self.rig.stage.await_ready()

    def _roll(self, tree: Path) -> None:
        rig = self.rig
        install(rig.stage.plane, tree / "deploy" / "base", lasting=LASTING if tree == self.newer else None)
        for replica in tuple(rig.replicas):
            self._begin(tree)
            leads, since = rig.leader() is replica, time.monotonic()
            rig.stage.stop(replica.program)
            rig.replicas.remove(replica)
            if leads:
                self.hand_overs.append(rig.recovery(since))


def unpacked(revision: str, folder: Path) -> Path:
    """Return a folder with ``kai`` and ``deploy`` as they were at a revision of this repository."""
    git = ("git", "archive", revision, "kai", "deploy")
    packed = subprocess.run(git, cwd=LASTING.parents[1], check=True, capture_output=True).stdout
    unpack(packed, folder)
    return folder
