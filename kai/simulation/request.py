"""One simulation as the command asks for it: the case with what the command line changes about it, and the result."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import attrs

from kai.api import values
from kai.api.fields import EMPTY
from kai.api.values import BadValue
from kai.configuration.reading import Configuration
from kai.configuration.registry import Registry
from kai.engine.host import Observer
from kai.errors import CommandLineError
from kai.simulation.cases.case import (
    Case,
    FairShareCase,
    low_limits,
    missing_nodes,
    other_pools,
    other_schedulers,
    unread,
)
from kai.simulation.comparing.expected_answer import Differences, compare
from kai.simulation.comparing.expected_states import differences
from kai.simulation.deciding.fair_share_division import divide_case
from kai.simulation.deciding.run import Outcome, Searches, simulate
from kai.simulation.outcomes.job_lines import JobLine, job_lines
from kai.simulation.outcomes.overview import Job, Overview, overview
from kai.simulation.outcomes.plan import answer
from kai.simulation.outcomes.refused_jobs import refused_jobs, refused_lines
from kai.simulation.sources.loading import read_case

if TYPE_CHECKING:
    from kai.manifests import Finding, Unused
    from kai.manifests.adoption import Adoption
    from kai.simulation.explaining.explanation import Explained


def told(findings: "Iterable[Finding]") -> "tuple[Finding, ...]":
    """Return the findings that are reported beside the reasons of jobs that wait."""
    return tuple(each for each in findings if each.meaning != "wait")


@attrs.frozen(kw_only=True, slots=False)
class Result:
    """What came out of one case."""

    case: Case | FairShareCase
    outcome: Outcome | None = None
    division: Mapping[str, Any] = EMPTY
    """What a fair-share case comes to."""

    @cached_property
    def answer(self) -> Mapping[str, Any]:
        """For machines; fair-share cases have nothing else."""
        return self.division if self.outcome is None else answer(self.outcome)

    @property
    def was_cut_short(self) -> bool:
        """Whether a search for victims ended before it had tried everything."""
        return self.outcome is not None and any(cycle.was_cut_short for cycle in self.outcome.cycles)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was passed over or changed while the case was read."""
        return self.case.notes if isinstance(self.case, Case) else ()

    @cached_property
    def doubts(self) -> tuple[str, ...]:
        """What cannot be as the input says; it is told without a request for notes, too."""
        if not isinstance(self.case, Case):
            return ()
        limits = (f"queue {queue}: {text}" for queue, text in low_limits(self.case.objects))
        return (
            *self.case.adopted,
            *other_schedulers(self.case),
            *missing_nodes(self.case),
            *limits,
            *other_pools(self.case),
        )

    @property
    def unused(self) -> "tuple[Unused, ...]":
        """What had no part in the result, counted by kind and reason."""
        return self.case.unused if isinstance(self.case, Case) else ()

    @property
    def findings(self) -> "tuple[Finding, ...]":
        """What is wrong with the input, but for what makes jobs wait: their reasons say that."""
        return told(self.case.findings) if isinstance(self.case, Case) else ()

    @property
    def is_refused(self) -> bool:
        """Whether something of the input was refused, and has no part in the result."""
        return any(each.is_refusal for each in self.findings)

    @property
    def refused(self) -> tuple[Job, ...]:
        """Workloads that were refused, as jobs."""
        return refused_jobs(self.case.refused) if isinstance(self.case, Case) else ()

    @property
    def is_mute(self) -> bool:
        """Whether there were workloads for this scheduler, and no job came of them."""
        has_workloads = isinstance(self.case, Case) and self.case.workloads > 0
        return has_workloads and self.overview is not None and not self.overview.jobs and not self.refused

    @cached_property
    def overview(self) -> Overview | None:
        """The same for people."""
        return None if self.outcome is None else overview(self.outcome)

    @cached_property
    def lines(self) -> tuple[JobLine, ...]:
        """All jobs, those that wait in the order of their queues; last those that were refused."""
        if self.outcome is None or self.overview is None:
            return ()
        return (*job_lines(self.outcome, self.overview), *refused_lines(self.outcome.case.refused))

    @cached_property
    def explained(self) -> "Explained | None":
        """Why jobs wait and what would help, and why pods have to go. Cost: many more cycles."""
        from kai.basics.progress import report
        from kai.simulation.explaining.explanation import explained

        if self.outcome is None or self.overview is None:
            return None
        return explained(self.outcome, self.overview, tell=report)

    def differences(self) -> Differences:
        """Return in what the answer differs from what the case expects."""
        if isinstance(self.case, Case) and self.case.sentences is not None and self.outcome is not None:
            return differences(self.case.sentences, self.outcome)
        stable = self.case.stable_cycles if isinstance(self.case, Case) else 0
        return compare(self.case.expected, self.answer, stable_cycles=stable)


@attrs.frozen(kw_only=True)
class Policy:
    """A configuration in place of a case's own."""

    configuration: Configuration
    said: frozenset[str] = frozenset()
    """Which parameters it speaks of; the others stay as the case has them."""
    settings: Mapping[str, Any] = EMPTY
    """What it says of how the cluster becomes a snapshot, by name."""
    document: Mapping[str, Any] | None = None
    """Its own words, as a snapshot carries them; None for the default one."""

    @property
    def scheduler_name(self) -> str:
        """Return the scheduler that kai decides as; "" where the policy does not say."""
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
    """Return what is taken over where kai decides as the scheduler that a policy names; None for nothing.

    A snapshot in which nothing is taken over is read without the rules for manifests.
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
    """What the command line changes about every case."""

    policy: Policy | None = None
    actions: tuple[str, ...] | None = None
    cycles: int | None = None
    now: float | None = None
    searches: Searches | None = None
    """How far victims are searched for; None: to the end."""
    again: int = 0
    """About how often the outcome will be decided again."""
    schedulers: tuple[str, ...] = ()
    """Other schedulers whose pods are decided on as well."""
    queue_from: str | None = None
    """What workloads without a queue get theirs from."""

    @classmethod
    def of(cls, policy: Policy | None, *, actions: str | None, cycles: int | None, now: str | None) -> "Request":
        """Return the request that the flags describe.

        Raises: CommandLineError for a time that is none.
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
        """What is installed, looked up once for all cases."""
        return Registry.installed()

    def run(self, path: str, observer: Observer | None = None) -> Result:
        """Read the case at ``path`` and simulate it, watched by ``observer``.

        Raises: InputError or ConfigError that names what is wrong.
        """
        adoption = adoption_under(self.policy, self.schedulers, self.queue_from)
        return self.decide(read_case(path, self.registry, adoption), observer)

    def decide(self, case: Case | FairShareCase, observer: Observer | None = None) -> Result:
        """Simulate a case that was read, watched by ``observer``.

        Raises: InputError or ConfigError that names what is wrong.
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
