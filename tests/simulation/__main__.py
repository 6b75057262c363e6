"""Run schedules: ``python -m tests.simulation --seeds 1..300``, or one of them again with ``--replay SEED``."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

from tests.simulation.bugs import BUGS, planted
from tests.simulation.evictions import FUTILE, PLACED
from tests.simulation.faults import NUMBERS
from tests.simulation.schedule import Plan, Result, run
from tests.simulation.shrinking import shrunk

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def main() -> int:
    """Run what the command line asks for; 1 if an invariant was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default="1..20", help="the first and the last seed")
    parser.add_argument("--replay", type=int, help="run one seed, and print its timeline")
    parser.add_argument("--shrink", type=int, help="find out how little of one seed still breaks an invariant")
    parser.add_argument("--bugs", nargs="*", help="plant deliberate bugs, all or these, and tell which are caught")
    parser.add_argument("--whole", action="store_true", help="with --bugs: schedules of full length, not of half of it")
    parser.add_argument("--flips", action="store_true", help="schedules of nodes that flip, and of short gangs")
    parser.add_argument("--evictions", action="store_true", help="say at the end what evictions were good for")
    parser.add_argument("--seconds", type=float, default=0.0, help="stop after so much time")
    arguments = parser.parse_args()
    plan_of = Plan.of_flips if arguments.flips else Plan.of
    if arguments.replay is not None:
        return _replay(plan_of(arguments.replay))
    if arguments.shrink is not None:
        return _shrink(plan_of(arguments.shrink))
    first, _, last = arguments.seeds.partition("..")
    plans = map(plan_of, range(int(first), int(last or first) + 1))
    if arguments.bugs is not None:
        is_whole = arguments.whole or arguments.flips
        return _catch(arguments.bugs or sorted(BUGS), [plan if is_whole else plan.hastened() for plan in plans])
    return _run_all(plans, arguments.seconds, tells_evictions=arguments.evictions)


def _replay(plan: Plan) -> int:
    result = run(plan)
    for when, text in result.timeline:
        _say(f"{when:9.3f}  {text}")
    _tell(result, 0.0)
    return int(not result.is_good)


def _shrink(plan: Plan) -> int:
    if run(plan).is_good:
        _say(f"seed {plan.seed} breaks nothing")
        return 0
    plan = shrunk(plan)
    result = run(plan)
    for when, text in result.timeline:
        _say(f"{when:9.3f}  {text}")
    _say(f"{plan.replicas} replicas, {plan.seconds:g} s, shuffle {plan.shuffle:g}, faults:")
    for episode in plan.episodes:
        _say(f"  {episode}")
    return 1


def _catch(names: list[str], plans: Sequence[Plan]) -> int:
    """Plant each bug, and run plans until one breaks an invariant."""
    missed = []
    for name in names:
        with planted(name):
            caught = next((result for result in map(run, plans) if not result.is_good), None)
        if caught is None:
            missed.append(name)
            _say(f"{name}: missed by {len(plans)} seeds")
        else:
            _say(f"{name}: caught by seed {caught.plan.seed}: {caught.violations[0]}")
    _say(f"{len(names) - len(missed)} of {len(names)} caught; missed: {', '.join(missed) or 'none'}")
    return 0


def _run_all(plans: Iterable[Plan], most: float, *, tells_evictions: bool) -> int:
    begun, bad, faults, total = time.monotonic(), [], Counter[str](), Counter[str]()
    seeds, became = Counter[str](), Counter[str]()
    for plan in plans:
        since = time.process_time()
        result = run(plan)
        faults.update(result.happened)
        seeds.update(result.happened.keys())
        became.update(result.became)
        total.update(schedules=1, binds=result.binds, evictions=result.evictions, virtual=int(result.seconds))
        if not result.is_good:
            bad.append(plan.seed)
        _tell(result, time.process_time() - since)
        if most and time.monotonic() - begun > most:
            break
    spent = time.process_time()
    _say(
        f"{total['schedules']} schedules, {total['binds']} binds, {total['evictions']} evictions, "
        f"{total['virtual']} s of virtual time in {spent:.0f} s of CPU; broken by seeds {bad or 'none'}"
    )
    for kind, number in sorted(NUMBERS.items(), key=lambda each: (each[1], each[0])):
        _say(f"fault {number:2} {kind}: {faults[kind]} times in {seeds[kind]} seeds")
    if tells_evictions:
        _tell_evictions(became)
    return int(bool(bad))


def _tell_evictions(became: Counter[str]) -> None:
    with_reason = became.total() - became[PLACED] - became[FUTILE]
    _say(
        f"{became.total()} evictions of workers: {became[PLACED]} with a beneficiary, {with_reason} with a reason, "
        f"{became[FUTILE]} futile"
    )
    for name, number in sorted(became.items(), key=lambda each: (-each[1], each[0])):
        _say(f"evictions, {name}: {number}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _tell(result: Result, cpu: float) -> None:
    words = "; ".join(map(str, result.violations[:3])) or "good"
    _say(
        f"seed {result.plan.seed}: {result.binds} binds, {result.evictions} evictions, {result.seconds:.0f} s, "
        f"settled after {result.settled_after:.0f} s, {result.callbacks} callbacks, {cpu:.2f} s CPU, "
        f"{result.history[:12]}: {words}"
    )


if __name__ == "__main__":
    sys.exit(main())
