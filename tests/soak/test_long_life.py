"""A long life: what kai holds does not depend on what has passed; storms and long cycles leave it the lease."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.soak import census, live
from tests.soak.churn import Sample, grown, soak
from tests.soak.slopes import slope
from tests.soak.storm import long_cycles, storm

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ROUNDS = 12
_WARM = 3


@pytest.fixture
def everything_counts() -> Iterator[None]:
    """Count what was there before a test as well: the collector passes over it in tests."""
    with census.counting():
        yield


@pytest.mark.usefixtures("everything_counts")
def test_holdings_do_not_depend_on_what_passed() -> None:
    moments = soak(_ROUNDS, 16)
    before, after = moments[:_WARM], moments[-1]
    assert grown(moments, _WARM) == {}
    assert after.tasks <= max(each.tasks for each in before)
    assert after.passed - before[-1].passed > 100
    assert after.bound > before[-1].bound


def test_only_a_steadily_rising_count_has_grown() -> None:
    restless = [1, 1, 1, 0, 6, 2, 1, 3, 3]
    steady = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    moments = [
        Sample(number, 0.0, Counter(restless=one, steady=other), tasks=0, bound=0, evicted=0, passed=0)
        for number, (one, other) in enumerate(zip(restless, steady, strict=True))
    ]
    assert grown(moments, _WARM) == {"steady": (3, 7)}


def test_a_bounded_count_grows_only_beyond_its_bound() -> None:
    name = "kai.cluster.requesting.sending.Sender.sent"

    def seen(*counts: int) -> list[Sample]:
        samples = (Counter({name: count}) for count in counts)
        return [Sample(number, 0.0, each, 0, 0, 0, 0) for number, each in enumerate(samples)]

    assert grown(seen(22, 22, 22, 23, 23, 23), _WARM) == {}
    assert grown(seen(22, 22, 22, 100, 201, 202), _WARM) == {name: (22, 201)}


@pytest.mark.usefixtures("everything_counts")
def test_what_is_never_forgotten_is_found_by_its_name() -> None:
    holder = type("Holder", (), {"__module__": "kai.soak"})()
    holder.kept = {}
    before = census.census()
    holder.kept.update({number: [number] * 2 for number in range(10)})
    assert census.growth(before, census.census())["kai.soak.Holder.kept"] == (0, 30)


def test_what_was_there_before_is_counted_as_well() -> None:
    holder = type("Holder", (), {"__module__": "kai.soak"})()
    holder.kept = {}
    with census.counting():
        before = census.census()
        holder.kept.update({number: [number] * 2 for number in range(10)})
        assert census.growth(before, census.census())["kai.soak.Holder.kept"] == (0, 30)


@pytest.mark.usefixtures("everything_counts")
def test_a_storm_delays_neither_lease_nor_newest_state() -> None:
    seen = storm(seconds=1.0)
    assert seen.events >= 10_000
    assert len(seen.leaders) == len(seen.epochs) == 1
    assert seen.longest_without_renewal < 4.0
    assert {"early", "amid"} <= seen.bound_at.keys()
    assert seen.differences == []
    # What waits to be looked at is the newest of each object, however often that changed. Kernels are loaded or even
    # compiled meanwhile, or were before.
    held = [
        sum(count for name, count in each.items() if not name.startswith("kai.facts.kernels.")) for each in seen.counts
    ]
    assert max(held) < 4 * held[0]


def test_a_cycle_of_two_minutes_keeps_the_lease() -> None:
    seen = long_cycles()
    assert len(seen.leaders) == len(seen.epochs) == 1
    assert seen.longest_without_renewal < 4.0
    assert len([each for each in seen.bound_at if each.startswith("job-")]) == seen.events > 5


_STARTS_ONE = """
import os, sys
from pathlib import Path
os.environ["PATH"] = ""  # without the tool that ties a program to the life of this process
from tests.integration.controlplane import Daemon
from tests.soak.live import unwinding
daemon = Daemon((sys.executable, "-c", "import time; time.sleep(600)"), Path(sys.argv[1]))
with unwinding():
    daemon.start()
    try:
        print(daemon.pid, flush=True)
        sys.stdin.read()
    finally:
        daemon.stop()
"""


def test_a_terminated_soak_ends_its_own_processes(tmp_path: Path) -> None:
    command = (sys.executable, "-c", _STARTS_ONE, str(tmp_path / "log"))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as soaking:
        assert soaking.stdout is not None
        started = int(soaking.stdout.readline())
        soaking.terminate()
        assert soaking.wait(timeout=60) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(started, 0)


def test_a_metric_with_more_series_is_named() -> None:
    shown = [
        live.series_of('# TYPE a counter\na{pod="p"} 1.0\nb 2.0\n'),
        live.series_of('a{pod="p"} 1.0\na{pod="q {}"} 1.0\nb 2.0\n'),
    ]
    assert live.Samples(times=[0.0, 10.0], shown=shown).more_series(0.0) == [("a", 1)]


def test_a_curve_has_first_and_last_and_some_samples() -> None:
    samples = live.Samples(
        times=[60.0 * number for number in range(25)], values={"threads": [float(number) for number in range(25)]}
    )
    assert samples.curve("threads").startswith("0 min 0, 2 min 2, 4 min 4")
    assert samples.curve("threads").endswith("22 min 22, 24 min 24")
    assert live.Samples(times=[5.0], values={"threads": [3.0]}).curve("threads") == "0 min 3"


def test_warm_up_samples_and_pairs_make_no_line() -> None:
    times = [60.0 * number for number in range(10)]
    samples = live.Samples(times=times, values={"threads": [30.0, 20.0, *[6.0] * 8]})
    assert [(each.name, each.percent) for each in samples.slopes(since=120.0)] == [("threads", pytest.approx(0.0))]
    assert samples.slopes(since=0.0)[0].percent < 0.0
    assert samples.slopes(since=480.0) == []


@pytest.mark.parametrize(("an_hour", "found"), [(0.0, 0.0), (4.0, 2.0), (-2.0, -1.0)])
def test_a_slope_is_relative_to_the_lines_beginning(an_hour: float, found: float) -> None:
    times = [60.0 * number for number in range(30)]
    line = slope("memory", times, [200.0 + an_hour * each / 3600.0 for each in times])
    assert line.percent == pytest.approx(found, abs=1e-6)
    assert line.error == pytest.approx(0.0, abs=1e-6)


def test_a_wave_is_no_trend_but_one_below_is() -> None:
    times = [10.0 * number for number in range(720)]
    wave = [900.0 + 50.0 * math.sin(each / 500.0) for each in times]
    line = slope("series", times, wave)
    assert line.an_hour < 3.0 * line.error
    line = slope("series", times, [value + 100.0 * each / 3600.0 for each, value in zip(times, wave, strict=True)])
    assert line.an_hour > 3.0 * line.error
