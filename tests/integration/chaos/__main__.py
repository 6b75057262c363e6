"""``python -m tests.integration.chaos``: kill and freeze kai, and say what came of it; 1 if anything was violated.

With ``--points``: faults at each kind of write instead, before it is sent, once it is done, and once it is answered.
With ``--stale``: plans on old knowledge instead, with two API servers of one etcd.
With ``--upgrades``: replicas of this revision and of an earlier one take over from each other instead.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.integration import programs
from tests.integration.chaos.points import POINTS, Fault, Points, trials
from tests.integration.chaos.report import told
from tests.integration.chaos.rig import Plan, Rig, rigged
from tests.integration.chaos.stale import made_stale
from tests.integration.chaos.upgrades import Upgrades, unpacked
from tests.integration.controlplane import ControlPlane
from tests.integration.proxy import proxied
from tests.unit.deploy.rendering import LASTING

_LONGER = 2.0
"""So much longer than a term lasts without a renewal a pause is."""
_ROUNDS = 60


def main() -> int:
    """Run a plan, print the report, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.chaos", description=__doc__)
    parser.add_argument("--restarts", type=int, default=60, help="kills of the only replica, which starts again")
    parser.add_argument("--standbys", type=int, default=40, help="kills of the leader of two replicas")
    parser.add_argument("--freezes", type=int, default=50, help="freezes of the leader of two replicas")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lease", default="15,10,2", help="duration, renew deadline and retry period in seconds")
    parser.add_argument("--unfenced", action="store_true", help="without the policy that refuses earlier terms")
    parser.add_argument("--report", type=Path, help="where to write the report as JSON")
    parser.add_argument("--points", action="store_true", help="faults at the writes themselves")
    parser.add_argument("--stale", type=int, default=0, metavar="ROUNDS", help="plans on old knowledge")
    parser.add_argument("--upgrades", type=int, default=0, metavar="ROLLS", help="upgrades and rollbacks in turn")
    parser.add_argument("--from", dest="revision", default="HEAD~50", help="with --upgrades: the earlier revision")
    given = parser.parse_args()
    duration, renew, retry = (float(each) for each in given.lease.split(","))
    plan = Plan(
        restarts=given.restarts,
        standbys=given.standbys,
        freezes=given.freezes,
        seed=given.seed,
        lease=(duration, renew, retry),
        fenced=not given.unfenced,
        **({"nodes": 2, "is_patient": False} if given.points or given.stale else {}),
    )
    with tempfile.TemporaryDirectory(prefix="kai-chaos-") as folder:
        plane = ControlPlane.start(programs.find_or_build(), Path(folder) / "plane")
        try:
            with rigged(plane, Path(folder), plan) as rig:
                try:
                    if given.upgrades:
                        found = try_upgrades(rig, Path(folder), given.revision, given.upgrades)
                        sys.stdout.writelines(f"VIOLATION {each}\n" for each in found)
                    elif given.stale:
                        try_stale(rig, Path(folder), given.stale)
                    else:
                        try_points(rig) if given.points else rig.run()
                finally:
                    sys.stdout.write(f"{rig.report.text()}\n")
                    if given.report:
                        given.report.write_text(json.dumps(rig.report.document(), indent=1))
                    if rig.report.violations:
                        sys.stdout.write(f"{rig.stage.logs()}\n")
        finally:
            plane.stop()
    return 1 if rig.report.violations else 0


def try_points(rig: Rig) -> None:
    """Let each fault meet each kind of write at each moment, and say how many did."""
    wanted = trials(Fault)
    with proxied(rig.stage.plane) as proxy:
        rig.stage.plane.front = proxy.url
        left = Points.of(rig, proxy, pause=rig.plan.lease[1] + _LONGER).run(wanted, rounds=_ROUNDS, at_once=1)
    met = Counter(each.fault.value for each in set(wanted) - set(left))
    sys.stdout.write(
        f"{len(POINTS)} kinds of writes: {', '.join(f'{count} x {what}' for what, count in met.items())}\n"
    )
    sys.stdout.writelines(f"not met: {each}\n" for each in left)


def try_upgrades(rig: Rig, folder: Path, revision: str, rolls: int) -> list[str]:
    """Upgrade from a revision and roll back in turn; return what must not have been."""
    upgrades = Upgrades(rig, LASTING.parents[1], unpacked(revision, folder / "older"))
    try:
        upgrades.run(rolls)
    finally:
        sys.stdout.write(f"{upgrades.rolls} rolls; first bind after {told(upgrades.hand_overs)}\n")
    return upgrades.violations


def try_stale(rig: Rig, folder: Path, rounds: int) -> None:
    """Draw plans on old knowledge, and say after how many seconds kai knew what there is."""
    done: Counter[str] = Counter()
    with made_stale(rig, folder) as stale:
        try:
            while stale.rounds < rounds:
                name, play = stale.drawn()
                play()
                done[name] += 1
        finally:
            rounds_done = ", ".join(f"{count} x {name}" for name, count in sorted(done.items()))
            sys.stdout.write(f"{stale.rounds} rounds: {rounds_done}; current again after {told(stale.current_after)}\n")


if __name__ == "__main__":
    sys.exit(main())
