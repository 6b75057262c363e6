"""What would let a waiting group run: changes of one field, by the least amount, each proved before it is told."""

import attrs

from kai.simulation.candidates import Family, families
from kai.simulation.changes import Site
from kai.simulation.trials import Result, Trial, Trials

MOST_TOLD = 4
MOST_DECISIONS = 240
"""How often all groups of an outcome together are decided again."""
MOST_FOR_ONE = 40
LEAST_FOR_ONE = 6


@attrs.frozen(kw_only=True)
class Suggestions:
    """Proved changes, the best outcome first."""

    told: tuple[Trial, ...] = ()
    all_tried: bool = True
    """False when changes were left out because too many had been tried."""


def allowance(groups: int) -> int:
    """Return how often one of ``groups`` that wait may be decided again."""
    return max(LEAST_FOR_ONE, min(MOST_FOR_ONE, MOST_DECISIONS // max(1, groups)))


def suggest(site: Site, trials: Trials) -> Suggestions:
    """Return the changes that help; what starts without an eviction comes first, then as they were tried."""
    best: dict[str, Trial] = {}
    for family in families(site):
        known = best.get(family.topic)
        if known is not None and known.result is Result.STARTS and not known.losses:
            continue  # another way to say the same
        found = _proved(family, site, trials)
        if found is not None and (known is None or _order(found) < _order(known)):
            best[family.topic] = found
    told = sorted(best.values(), key=_order)[:MOST_TOLD]
    return Suggestions(told=tuple(told), all_tried=not trials.refused)


def _order(trial: Trial) -> tuple[int, bool]:
    return -trial.result.score, bool(trial.losses)


def _proved(family: Family, site: Site, trials: Trials) -> Trial | None:
    """Return the trial of the least step with the best outcome; None if no step helps."""
    return _least(family, site, trials) if family.ordered else _first(family, site, trials)


def _first(family: Family, site: Site, trials: Trials) -> Trial | None:
    """Return the best of alternatives; they are tried until one lets the group start without an eviction."""
    best: Trial | None = None
    for step in family.steps:
        trial = trials.run(site, step())
        if trial is None:
            break
        if trial.result.score and (best is None or _order(trial) < _order(best)):
            best = trial
        if best is not None and best.result is Result.STARTS and not best.losses:
            break
    return best


def _least(family: Family, site: Site, trials: Trials) -> Trial | None:
    """Return the least step that is as good as the greatest. Cost: two decisions more than halvings."""
    best = trials.run(site, family.steps[-1]())
    if best is None or not best.result.score:
        return None
    low, high = 0, len(family.steps) - 1
    while low < high:
        middle = (low + high) // 2
        trial = trials.run(site, family.steps[middle]())
        if trial is None:
            return None  # the least step is not known, and more than the least is not told
        if _order(trial) <= _order(best):
            best, high = trial, middle
        else:
            low = middle + 1
    return best
