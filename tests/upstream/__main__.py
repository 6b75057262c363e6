"""Compares kai with Kubernetes' own code on drawn inputs, and prints how many differ and why: ``--devices 100000``."""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator

from kai.basics.kubernetes_version import KubernetesVersion
from tests.upstream import devices, requests
from tests.upstream.asking import VERSIONS, ask

_AT_ONCE = 1000
_SHOWN = 20


def differences(kind: str, version: KubernetesVersion, numbers: range) -> Iterator[tuple[int, str, str]]:
    """Yield the number, the difference and its row, "" without one, of each input that kai answers otherwise."""
    draw = devices.drawn if kind == "devices" else requests.drawn
    documents = list(map(draw, numbers))
    for number, document, theirs in zip(numbers, documents, ask(kind, version, documents), strict=True):
        if kind == "requests":
            text = requests.difference(document, theirs, version)
            row = requests.explained(document, text)
        else:
            found = devices.difference(document, theirs, version)
            text = "" if found is None else found[1]
            row = "" if found is None else devices.explained(document, theirs, version, found[0])
        if text:
            yield number, text, row


def compare(kind: str, version: KubernetesVersion, numbers: range, until: float) -> int:
    """Compare inputs until all are done or time is over; print the table, and return how many nothing explains."""
    rows: Counter[str] = Counter()
    done = 0
    for first in range(numbers.start, numbers.stop, _AT_ONCE):
        if time.monotonic() >= until:
            break
        some = range(first, min(first + _AT_ONCE, numbers.stop))
        done += len(some)
        for number, text, row in differences(kind, version, some):
            rows[row] += 1
            if not row and rows[row] <= _SHOWN:
                sys.stdout.write(f"{kind} {number} on {version}: {text}\n")
    sys.stdout.write(f"{kind} on {version}: {done} compared, {rows.total()} differ, {rows['']} unexplained\n")
    for row, count in sorted(rows.items()):
        sys.stdout.write(f"  {count:6d}  {row or 'unexplained'}\n")
    return rows[""]


def main() -> int:
    """Return the exit status: 1 if a difference is explained by nothing."""
    parser = argparse.ArgumentParser(prog="python -m tests.upstream", description=__doc__)
    parser.add_argument("--devices", type=int, default=100_000, help="how many clusters of devices (%(default)s)")
    parser.add_argument("--requests", type=int, default=100_000, help="how many pods (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first (%(default)s)")
    parser.add_argument("--minutes", type=float, default=600, help="begin nothing after so long (%(default)s)")
    given = parser.parse_args()
    until, unexplained = time.monotonic() + 60 * given.minutes, 0
    for kind, count in (("requests", given.requests), ("devices", given.devices)):
        for version in VERSIONS:
            unexplained += compare(kind, version, range(given.first, given.first + count), until)
    return int(unexplained > 0)


if __name__ == "__main__":
    sys.exit(main())
