"""Compare the revision at hand with another one, on one machine and in turns.

Milliseconds of two days do not compare, and neither do those of two machines. So both revisions are measured in one
go, each workload by a process of the one and then by one of the other, and the least warm cycles are compared: what
neighbours add to a cycle is never negative.
"""

import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

from benchmarks.campaign import ROOT, RunFailedError, take_sample
from benchmarks.results import Sample
from benchmarks.workload import Workload

Take = Callable[[Path, str], Sample]
"""Measures a workload, named by its id, with the program in a folder."""


@frozen
class Compared:
    """The least warm cycles of one workload, in processor time."""

    workload: str
    before_ms: float
    now_ms: float

    @property
    def growth(self) -> float:
        """How much longer a cycle takes than it did: 0.15 is 15 percent."""
        return self.now_ms / self.before_ms - 1


@frozen
class Comparison:
    """All workloads that both revisions could be measured on, and why others could not."""

    compared: tuple[Compared, ...]
    failures: tuple[str, ...]

    def slower(self, slack: float) -> tuple[Compared, ...]:
        """Return the workloads that take longer than they did by more than ``slack``."""
        return tuple(each for each in self.compared if each.growth > slack)

    def table(self, slack: float) -> str:
        """Return a line for each workload."""
        lines = [f"{'WORKLOAD':<11} {'BEFORE ms':>10} {'NOW ms':>10} {'CHANGE':>8}"]
        for each in self.compared:
            verdict = "  slower" if each.growth > slack else ""
            numbers = f"{each.before_ms:>10.2f} {each.now_ms:>10.2f} {100 * each.growth:>+7.1f}%"
            lines.append(f"{each.workload:<11} {numbers}{verdict}")
        return "\n".join([*lines, *self.failures])


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """Show ``revision`` in a folder of its own for as long as this lasts.

    Raises: RunFailedError for a revision that there is not.
    """
    with tempfile.TemporaryDirectory(prefix="kai-benchmarks-") as folder:
        tree = Path(folder) / "tree"
        _git("worktree", "add", "--quiet", "--detach", str(tree), revision)
        try:
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*arguments: str) -> None:
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunFailedError(f"{' '.join(command[:3])}: {done.stderr.strip()}")


def process(rounds: int, timeout_seconds: float) -> Take:
    """Return a function that measures in a fresh process."""

    def measured(tree: Path, workload: str) -> Sample:
        return take_sample(workload, rounds, timeout_seconds, tree)

    return measured


def compare(workloads: Sequence[Workload], tree: Path, runs: int, take: Take, say: Callable[[str], None]) -> Comparison:
    """Measure ``workloads`` by turns with the program in ``tree`` and with this one.

    A workload that one of the two fails at is not compared: the other revision may not know it yet.
    """
    least: dict[tuple[Path, str], float] = {}
    failed: dict[str, str] = {}
    for run in range(runs):
        for workload in [each.id for each in workloads if each.id not in failed]:
            try:
                for root in (tree, ROOT):
                    fastest = min(cycle.cpu_ms for cycle in take(root, workload).warm)
                    least[root, workload] = min(fastest, least.get((root, workload), fastest))
            except RunFailedError as error:
                failed[workload] = f"{workload}: not compared, {str(error).splitlines()[-1]}"
                continue
            before, now = least[tree, workload], least[ROOT, workload]
            say(f"{workload} run {run + 1} of {runs}: {before:.2f} ms before, {now:.2f} ms now")
    compared = [
        Compared(each.id, least[tree, each.id], least[ROOT, each.id]) for each in workloads if each.id not in failed
    ]
    return Comparison(tuple(compared), tuple(failed.values()))
