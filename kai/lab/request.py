"""One simulation as a command requests it: the case, the overrides of the command line, and the result."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import attrs

from kai.answers.cases.case import (
    Case,
    FairShareCase,
    low_limits,
    missing_nodes,
    other_pools,
    other_schedulers,
    unknown_hour,
    unread,
)
from kai.answers.offline.run import Outcome, Searches, divide_case, simulate
from kai.answers.outcomes.job_lines import JobLine, job_lines, refused_jobs, refused_lines
from kai.answers.outcomes.overview import Job, Overview, overview
from kai.answers.outcomes.plan import answer
from kai.api import values
from kai.api.fields import EMPTY
from kai.api.values import BadValue
from kai.basics.errors import CommandLineError
from kai.deciding.configuration.profile_reading import Configuration
from kai.deciding.configuration.registry import Registry
from kai.deciding.engine.host import Observer
from kai.lab.comparing.expected_answer import Differences, compare, differences
from kai.lab.sources.loading import read_case

if TYPE_CHECKING:
    from kai.answers.why.explanation import Explained
    from kai.manifests import Finding, Unused
    from kai.manifests.adoption import Adoption


def reportable(findings: "Iterable[Finding]") -> "tuple[Finding, ...]":
    """Return the findings to report; a finding that makes a job wait is left to the job's reason."""
    return tuple(each for each in findings if each.meaning != "wait")


@attrs.frozen(kw_only=True, slots=False)
class Result:
    """The result of one case."""

    case: Case | FairShareCase
    outcome: Outcome | None = None
    division: Mapping[str, Any] = EMPTY
    """The shares of a fair-share case."""

    @cached_property
    def answer(self) -> Mapping[str, Any]:
        """The machine-readable answer; fair-share cases have no other result."""
        return self.division if self.outcome is None else answer(self.outcome)

    @property
    def was_cut_short(self) -> bool:
        """Whether a search for victims ended before it had tried everything."""
        return self.outcome is not None and any(cycle.was_cut_short for cycle in self.outcome.cycles)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was skipped or changed while the case was read."""
        return self.case.notes if isinstance(self.case, Case) else ()

    @cached_property
    def doubts(self) -> tuple[str, ...]:
        """Contradictions in the input; shown even where no notes are requested."""
        if not isinstance(self.case, Case):
            return ()
        limits = (f"queue {queue}: {text}" for queue, text in low_limits(self.case.objects))
        return (
            *self.case.adopted,
            *other_schedulers(self.case),
            *missing_nodes(self.case),
            *limits,
            *unknown_hour(self.case),
            *other_pools(self.case),
        )

    @property
    def unused(self) -> "tuple[Unused, ...]":
        """Objects that had no part in the result, counted by kind and reason."""
        return self.case.unused if isinstance(self.case, Case) else ()

    @property
    def findings(self) -> "tuple[Finding, ...]":
        """Faults of the input, unless they make a job wait: its reason names them."""
        return reportable(self.case.findings) if isinstance(self.case, Case) else ()

    @property
    def is_refused(self) -> bool:
        """Whether a part of the input was refused, and has no part in the result."""
        return any(each.is_refusal for each in self.findings)

    @property
    def refused(self) -> tuple[Job, ...]:
        """Refused workloads, as jobs."""
        return refused_jobs(self.case.refused) if isinstance(self.case, Case) else ()

    @property
    def is_mute(self) -> bool:
        """Whether there were workloads for this scheduler, and none became a job."""
        has_workloads = isinstance(self.case, Case) and self.case.workloads > 0
        return has_workloads and self.overview is not None and not self.overview.jobs and not self.refused

    @cached_property
    def overview(self) -> Overview | None:
        """The outcome for people."""
        return None if self.outcome is None else overview(self.outcome)

    @cached_property
    def lines(self) -> tuple[JobLine, ...]:
        """All jobs: waiting ones in the order of their queues, refused ones last."""
        if self.outcome is None or self.overview is None:
            return ()
        return (*job_lines(self.outcome, self.overview), *refused_lines(self.outcome.case.refused))

    def lines_called(self, name: str) -> tuple[JobLine, ...]:
        """Return those of ``lines`` with this name or key. Cost: of these jobs, and of those that wait."""
        if self.outcome is None or self.overview is None:
            return ()
        refused = (each for each in refused_lines(self.outcome.case.refused) if name in {each.job.name, each.job.key})
        return (*job_lines(self.outcome, self.overview, self.overview.named(name)), *refused)

    @cached_property
    def explained(self) -> "Explained | None":
        """Why jobs wait and what would help, and why pods are evicted. Cost: many further cycles."""
        from kai.answers.why.explanation import explained
        from kai.basics.progress import report

        if self.outcome is None or self.overview is None:
            return None
        return explained(self.outcome, self.overview, on_progress=report)

    def differences(self) -> Differences:
        """Return the differences between the answer and the expectation of the case."""
        if isinstance(self.case, Case) and self.case.sentences is not None and self.outcome is not None:
            return differences(self.case.sentences, self.outcome)
        stable = self.case.stable_cycles if isinstance(self.case, Case) else 0
        return compare(self.case.expected, self.answer, stable_cycles=stable)


@attrs.frozen(kw_only=True)
class Policy:
    """A configuration that replaces that of a case."""

    configuration: Configuration
    said: frozenset[str] = frozenset()
    """Names of the parameters that it sets; the others keep the value of the case."""
    settings: Mapping[str, Any] = EMPTY
    """Its intake settings, which shape the snapshot, by name."""
    document: Mapping[str, Any] | None = None
    """Its source document, as a snapshot carries it; None for the default policy."""

    @property
    def scheduler_name(self) -> str:
        """Return the scheduler name that kai decides under; "" where the policy sets none."""
        return self.configuration.parameters.scheduler_name if "scheduler_name" in self.said else ""

    def over(self, case: Case) -> Case:
        """Return a case under this policy."""
        known = self.configuration.parameters
        said = {name: getattr(known, name) for name in self.said}
        parameters = attrs.evolve(case.configuration.parameters, **said)
        both = {name: getattr(parameters, name) for name in ("scheduler_name", "restrict_node_scheduling")}
        configuration = attrs.evolve(self.configuration, parameters=parameters)
        return attrs.evolve(
            case,
            notes=case.notes + configuration.notes + unread(configuration, case.past.usage),
            configuration=configuration,
            settings=attrs.evolve(case.settings, **{**self.settings, **both}),
            document=self.document,
        )


def adoption_under(
    policy: Policy | None, schedulers: Iterable[str] = (), queue_from: str | None = None
) -> "Adoption | None":
    """Return what kai adopts when it decides as the policy's scheduler; None for nothing.

    A snapshot without adoption is read without loading the rules for manifests.
    """
    name = "" if policy is None else policy.scheduler_name
    chosen = frozenset(schedulers)
    if not (name or chosen or queue_from):
        return None
    from kai.manifests.adoption import Adoption

    asked = Adoption(schedulers=chosen, queue_from=queue_from or "")
    return attrs.evolve(asked, ours=name) if name else asked


@attrs.frozen(kw_only=True, slots=False)
class Request:
    """The overrides that the command line applies to every case."""

    policy: Policy | None = None
    actions: tuple[str, ...] | None = None
    cycles: int | None = None
    now: float | None = None
    searches: Searches | None = None
    """A bound on the search for victims; None: no bound."""
    again: int = 0
    """Estimate of how often the outcome will be decided again."""
    schedulers: tuple[str, ...] = ()
    """Other schedulers whose pods are included in the decision."""
    queue_from: str | None = None
    """The source of the queue for workloads without one."""

    @classmethod
    def of(cls, policy: Policy | None, *, actions: str | None, cycles: int | None, now: str | None) -> "Request":
        """Return the request that the flags describe.

        Raises: CommandLineError for an invalid time.
        """
        instant: float | None = None
        if now is not None:
            try:
                instant = values.instant(now)
            except BadValue:
                raise CommandLineError.about("command line", "--now", found=now, wanted=values.WANTED_TIME) from None
        names = None if actions is None else tuple(name.strip() for name in actions.split(",") if name.strip())
        return cls(policy=policy, actions=names, cycles=cycles, now=instant)

    @cached_property
    def registry(self) -> Registry:
        """The installed plugins and actions, looked up once for all cases."""
        return Registry.installed()

    def run(self, path: str, observer: Observer | None = None) -> Result:
        """Read the case at ``path`` and simulate it; ``observer`` watches.

        Raises: InputError or ConfigError that names the fault.
        """
        adoption = adoption_under(self.policy, self.schedulers, self.queue_from)
        return self.decide(read_case(path, self.registry, adoption), observer)

    def decide(self, case: Case | FairShareCase, observer: Observer | None = None) -> Result:
        """Simulate a case that was read; ``observer`` watches.

        Raises: InputError or ConfigError that names the fault.
        """
        if isinstance(case, FairShareCase):
            return Result(case=case, division=divide_case(case))
        outcome = simulate(self._changed(case), self.registry, observer, searches=self.searches, again=self.again)
        return Result(case=outcome.case, outcome=outcome)

    def _changed(self, case: Case) -> Case:
        if self.policy is not None:
            case = self.policy.over(case)
        configuration = case.configuration
        if self.actions is not None:
            configuration = attrs.evolve(configuration, actions=self.actions, place="command line")
        return attrs.evolve(
            case,
            configuration=configuration,
            cycles=case.cycles if self.cycles is None else self.cycles,
            stable_cycles=case.stable_cycles if self.cycles is None else 0,
            now=case.now if self.now is None else self.now,
        )
