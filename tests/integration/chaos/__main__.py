"""``python -m tests.integration.chaos``: kill and freeze kai, and say what came of it; 1 if anything was violated."""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.integration import programs
from tests.integration.chaos.rig import Plan, rigged
from tests.integration.controlplane import ControlPlane


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
    given = parser.parse_args()
    duration, renew, retry = (float(each) for each in given.lease.split(","))
    plan = Plan(
        restarts=given.restarts,
        standbys=given.standbys,
        freezes=given.freezes,
        seed=given.seed,
        lease=(duration, renew, retry),
        fenced=not given.unfenced,
    )
    with tempfile.TemporaryDirectory(prefix="kai-chaos-") as folder:
        plane = ControlPlane.start(programs.find_or_build(), Path(folder) / "plane")
        try:
            with rigged(plane, Path(folder), plan) as rig:
                try:
                    rig.run()
                finally:
                    sys.stdout.write(f"{rig.report.text()}\n")
                    if given.report:
                        given.report.write_text(json.dumps(rig.report.document(), indent=1))
                    if rig.report.violations:
                        sys.stdout.write(f"{rig.stage.logs()}\n")
        finally:
            plane.stop()
    return 1 if rig.report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
