"""One cycle: a pure function from a snapshot to decisions. Start reading here."""

from kai.engine.budget import Budget
from kai.engine.observe import Observer, Phase, Silent
from kai.engine.profile import Action, Profile
from kai.engine.report import CycleReport, report
from kai.engine.session import UNLIMITED, Session
from kai.engine.unchanged import WatchedBudget, remember, report_at_rest
from kai.errors import ActionError, KaiError, told
from kai.framework.decisions import DecisionSink
from kai.state.snapshot import Snapshot

SILENT = Silent()


def run_cycle(
    snapshot: Snapshot, profile: Profile, sink: DecisionSink, observer: Observer = SILENT, budget: Budget = UNLIMITED
) -> CycleReport:
    """Decide once which pods to bind, which to evict and which to promise a place.

    Holds: the same snapshot and profile give the same decisions in the same order; all decisions of one statement
        reach the sink together. A cycle that could only repeat one without decisions returns that one's report.
    """
    rested = report_at_rest(snapshot, profile)
    if rested is not None:
        return rested
    watched = WatchedBudget(budget)
    with observer.phase(Phase.OPEN):
        session = Session(snapshot, profile, sink, observer, watched)
    for action in profile.actions:
        with observer.phase(action.name):
            budget.begin_action(action.name)
            _run(action, session)
    with observer.phase(Phase.CLOSE):
        made = report(session)
    remember(session, profile, made, watched)
    session.release()
    return made


def _run(action: Action, session: Session) -> None:
    """Let ``action`` decide; what one of another package raises is told to be its own.

    Raises: ActionError.
    """
    try:
        action.run(session)
    except (KaiError, KeyboardInterrupt):
        raise
    except BaseException as error:
        module = type(action).__module__
        if module.partition(".")[0] == "kai":
            raise
        raise ActionError(f"raised {told(error)}", action=action.name, origin=module) from error
