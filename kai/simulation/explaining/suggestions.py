"""What would let a waiting group run: changes of one field, by the least amount, each proved before it is told."""

from collections.abc import Callable

import attrs

from kai.explain.codes import Stage, stage_of
from kai.simulation.explaining.candidates import families
from kai.simulation.explaining.changes import Site
from kai.simulation.explaining.family import Family
from kai.simulation.explaining.trials import ChangeTrial, ChangeTrials, Result

MOST_TOLD = 4
MOST_DECISIONS = 240
"""How often all groups of an outcome together are decided again."""
MOST_FOR_ONE = 40
LEAST_FOR_ONE = 6
WORTH = 50_000
"""Pods and nodes that a command which reads decides on again for one group at most: about a second of processor."""


@attrs.frozen(kw_only=True)
class Suggestions:
    """Proved changes, the best outcome first."""

    told: tuple[ChangeTrial, ...] = ()
    all_tried: bool = True
    """False when changes were left out because too many had been tried."""


def allowance(groups: int, size: int = 0) -> int:
    """Return how often one of ``groups`` that wait may be decided again.

    ``size``: the pods and nodes of the cluster, where the answer must not take long; 0: it may.
    """
    quick = WORTH // size if size else MOST_FOR_ONE
    return max(LEAST_FOR_ONE, min(MOST_FOR_ONE, quick, MOST_DECISIONS // max(1, groups)))


def suggest(site: Site, trials: ChangeTrials) -> Suggestions:
    """Return the changes that help; what starts without an eviction comes first, then as they were tried."""
    best: dict[str, list[ChangeTrial]] = {}
    for family in families(site):
        known = best.get(family.topic)
        if known is not None and _is_harmless(known[-1]):
            continue  # another way to say the same
        if any(_is_whole(trial) for topic in family.instead_of for trial in best.get(topic, ())):
            continue
        found = _proved(family, site, trials, known)
        if found and (known is None or _order(found[-1]) < _order(known[-1])):
            best[family.topic] = found
    told = sorted((trial for found in best.values() for trial in found), key=_order)[:MOST_TOLD]
    return Suggestions(told=tuple(told), all_tried=not trials.refused)


def _order(trial: ChangeTrial) -> tuple[int, bool]:
    return -trial.result.score, bool(trial.losses)


def _is_whole(trial: ChangeTrial) -> bool:
    return _is_harmless(trial) and not trial.waiting


def _is_harmless(trial: ChangeTrial) -> bool:
    return trial.result is Result.STARTS and not trial.losses


def _proved(family: Family, site: Site, trials: ChangeTrials, known: list[ChangeTrial] | None) -> list[ChangeTrial]:
    """Return the trials of a family that are told, the least change first; none if no step helps.

    ``known`` is what another way to say the same leads to: a family whose greatest step leads no further is not gone
    through.
    """
    if family.ordered:
        return _least(family, site, trials, known)
    found = _first(family, site, trials)
    return [] if found is None else [found]


def _first(family: Family, site: Site, trials: ChangeTrials) -> ChangeTrial | None:
    """Return the best of alternatives; they are tried until one lets the group start without an eviction."""
    best: ChangeTrial | None = None
    for step in family.steps:
        trial = trials.run(site, step())
        if trial is None:
            break
        if trial.result.score and (best is None or _order(trial) < _order(best)):
            best = trial
        if best is not None and _is_harmless(best):
            break
    return best


def _least(family: Family, site: Site, trials: ChangeTrials, known: list[ChangeTrial] | None) -> list[ChangeTrial]:
    """Return the least step that gives the group a place, and the least that does so at no other's expense.

    A group that can never run is told the least step that makes it possible. Where no step reaches that, the least
    step is told that is as good as the greatest.
    Holds: the step before each of them was tried and does not do as much.
    Cost: two decisions more than halvings, for each of the two.
    """
    tried: dict[int, ChangeTrial] = {}
    last = len(family.steps) - 1
    best = _tried(family, last, site, trials, tried)
    if best is None or not best.result.score:
        return []
    if known is not None and _order(best) >= _order(known[-1]):
        return []
    possible = stage_of(site.reasons[0].code) is Stage.IMPOSSIBLE
    goal = Result.WAITS.score if possible else min(best.result.score, Result.HELD.score)
    at = _bisected(family, 0, site, trials, tried, lambda trial: trial.result.score >= goal)
    if at is None:
        return []  # the least step is not known, and more than the least is not told
    found = [tried[at]]
    if _is_harmless(best) and not _is_harmless(tried[at]):
        more = _bisected(family, at + 1, site, trials, tried, _is_harmless)
        found += [] if more is None else [tried[more]]
    return found


def _bisected(
    family: Family,
    low: int,
    site: Site,
    trials: ChangeTrials,
    tried: dict[int, ChangeTrial],
    reaches: Callable[[ChangeTrial], bool],
) -> int | None:
    """Return the first step from ``low`` on that ``reaches``; the last does. None if no more may be decided."""
    high = len(family.steps) - 1
    while low < high:
        middle = (low + high) // 2
        trial = _tried(family, middle, site, trials, tried)
        if trial is None:
            return None
        if reaches(trial):
            high = middle
        else:
            low = middle + 1
    return high


def _tried(
    family: Family, at: int, site: Site, trials: ChangeTrials, tried: dict[int, ChangeTrial]
) -> ChangeTrial | None:
    """Return what happens with a step; each is decided once."""
    if at not in tried:
        trial = trials.run(site, family.steps[at]())
        if trial is None:
            return None
        tried[at] = trial
    return tried[at]
