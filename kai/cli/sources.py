"""The shared part of every reading command: the source, the selection, and the output.

``source_options`` adds the flags; they arrive as ``source`` and ``console``. A running cluster, a file, a folder, a
snapshot and standard input are all read into the same case and decided by the same engine.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs
import click

from kai.basics.errors import CommandLineError, UnreachableError
from kai.basics.wording import shown
from kai.cli.arguments import Selector, read_selector
from kai.cli.completing import complete_contexts, complete_namespaces
from kai.cli.console import NAMED_FORMATS, Console, console_options
from kai.cli.failures import keep_logs_off

if TYPE_CHECKING:
    from kai.answers.cases.case import Case
    from kai.answers.why.own_jobs import OwnJobs
    from kai.cli.deciding.policy import Chosen
    from kai.cli.serving import Served
    from kai.cluster.transport.access import Access
    from kai.lab.request import Request, Result
    from kai.lab.virtual.experiments import Reached
    from kai.manifests.adoption import Adoption

F = TypeVar("F", bound=Callable[..., Any])

STANDARD_INPUT = "-"
_SERVICE: Final = re.compile(r"https?://[^/].*|[a-z0-9.-]+/[a-z0-9.-]+")


@attrs.frozen(kw_only=True, slots=False)
class Source:
    """The source that a command reads, and the selected part of it."""

    place: str = ""
    """A path, or - for standard input; "" for the cluster of the kubeconfig."""
    namespace: str = ""
    everywhere: bool = False
    selector: Selector = attrs.field(factory=Selector)
    context: str = ""
    kubeconfig: str = ""
    user: str = ""
    """The user to impersonate in the cluster."""
    watch: bool = False
    config: str = ""
    """A file with the configuration that decides; "" for that of the cluster, or of the snapshot."""
    service: str = ""
    """The service to ask instead of the cluster; "" to list the cluster, if the user may."""
    schedulers: tuple[str, ...] = ()
    """Other schedulers whose pods are decided on as well."""
    queue_from: str = ""
    """Where workloads without a queue get theirs from; "" for nowhere."""
    at: str = ""
    """The time within a run over virtual time to look at; "" for its end."""
    again: int = 0
    """The expected number of further decisions on the same input, for verifying changes."""
    command: str = "kai"
    """The command as it was typed, for hints."""
    subjects: tuple[str, ...] = ()
    """Its arguments: names and files."""

    @property
    def is_live(self) -> bool:
        """Whether a running cluster is read."""
        return not self.place

    def read(self) -> "Case":
        """Return the present contents of the source.

        Raises: UnreachableError for a cluster, InputError and ConfigError for everything else.
        """
        from kai.answers.cases.case import cluster_of
        from kai.lab.sources.loading import read_case

        if self.is_live:
            return self._at_clock(self._read_cluster())
        if self.reached is not None:
            case = self.reached.case
        else:
            case = self._at_clock(cluster_of(read_case(self.place, self.request.registry, self.adoption)))
        return case if self.chosen.policy is None else self.chosen.policy.over(case)

    def _at_clock(self, case: "Case") -> "Case":
        """Return a case at the time of day that ``--at`` names, the next one after its own; without one as it is.

        Raises: CommandLineError.
        """
        from kai.basics.schedules import is_clock, next_clock

        if not is_clock(self.at):
            return case
        try:
            return attrs.evolve(case, now=next_clock(self.at, case.now))
        except ValueError as error:
            raise CommandLineError(f"command line: --at: {error}") from None

    def decide(self, request: "Request | None" = None) -> "Result":
        """Return what the scheduler would decide on the source now; nothing is written.

        Raises: as ``read``.
        """
        return (request or self.request).decide(self.read())

    @staticmethod
    def case_of(result: "Result") -> "Case":
        """Return the cluster of a result of ``decide``.

        Raises: InputError.
        """
        from kai.answers.cases.case import cluster_of

        return cluster_of(result.case)

    def shows(self, case: "Case", namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether an object with this namespace and these labels is selected."""
        wanted = self.namespace_of(case)
        return (not wanted or wanted == namespace) and self.selector.matches(labels)

    def namespace_of(self, case: "Case") -> str:
        """Return the selected namespace, "" for all: by default the context's own for a cluster, and all for files."""
        if self.everywhere:
            return ""
        return self.namespace or case.origin.namespace

    @cached_property
    def reached(self) -> "Reached | None":
        """The selected moment of a run over virtual time; None if the source is no result of such a run.

        Raises: CommandLineError for an invalid time, InputError for a run that cannot be repeated.
        """
        from kai.basics.schedules import is_clock
        from kai.cli.deciding.runs import run_at

        # Standard input can be read only once, and the cluster is read from it later.
        experiment = None if self.place in {"", STANDARD_INPUT} else run_at(self.place)
        if experiment is None:
            if self.at and not is_clock(self.at):
                raise CommandLineError(
                    f"--at {self.at}: found no run over time at {self.place}, expected a result of one"
                )
            return None
        if self.schedulers or self.queue_from:
            flag = "--scheduler-name" if self.schedulers else "--queue-from"
            raise CommandLineError(f"{flag} cannot be used with {self.place}: a run over time keeps to its own")
        from kai.lab.virtual.experiments import look_at

        at, is_date = _time_of(self.at)
        return look_at(experiment, at, self.place, is_date=is_date)

    @cached_property
    def request(self) -> "Request":
        """The request of a reading command, cached so that installed plugins are looked up once."""
        from kai.answers.offline.run import READING
        from kai.lab.request import Request

        return Request(searches=READING, again=self.again)

    @cached_property
    def chosen(self) -> "Chosen":
        """The configuration that decides: that of the command line, or that of the cluster in question.

        Raises: ConfigError for an invalid one, UnreachableError for a cluster.
        """
        from kai.cli.deciding.policy import Chosen, policy_of_cluster

        if self.config:
            from kai.cli.deciding.policy import load_policy

            return Chosen(policy=load_policy(self.config), name=self.config)
        return policy_of_cluster(self.access, self.request.registry) if self.is_live else Chosen()

    @property
    def adopts(self) -> bool:
        """Whether to decide on workloads of other schedulers, or to create queues for workloads."""
        return bool(self.schedulers or self.queue_from)

    @property
    def adoption(self) -> "Adoption | None":
        """Return the adoption of other schedulers' workloads by flags and configuration; None without any.

        Raises: as ``chosen``.
        """
        from kai.lab.request import adoption_under

        return adoption_under(self.chosen.policy, self.schedulers, self.queue_from)

    def read_own(self, refused: UnreachableError) -> "OwnJobs":
        """Return the part of a cluster that a restricted user may see.

        Raises: ``refused`` itself if that is nothing.
        """
        from kai.answers.why.own_jobs import read_own

        access = self.access
        try:
            return read_own(access, self._namespace_in(access), refused)
        except UnreachableError:
            raise refused from None

    def served(self, *, is_optional: bool = False) -> "Served":
        """Return a client of the service for the selected namespace."""
        from kai.answers.documents.asking import Service
        from kai.cli.serving import Served

        access = self._access  # the client of the service logs nothing, so logs stay on
        service = Service(access=access, place=self.service, is_optional=is_optional)
        return Served(service=service, namespace=self._namespace_in(access))

    def _namespace_in(self, access: "Access") -> str:
        return "" if self.everywhere else self.namespace or access.chosen.namespace or "default"

    @property
    def access(self) -> "Access":
        """The access to the cluster: which one and as which user. Log lines of the client are dropped."""
        keep_logs_off()
        return self._access

    @property
    def _access(self) -> "Access":
        from kai.cluster.transport.access import Access

        return Access(kubeconfig=self.kubeconfig, context=self.context, impersonated=self.user)

    def _with_adopted(self, case: "Case") -> "Case":
        adoption = self.adoption
        if adoption is None:
            return case
        from kai.lab.sources.adopting import with_adopted_of_cluster

        return with_adopted_of_cluster(case, self.access, adoption)

    def _read_cluster(self) -> "Case":
        from kai.answers.cases.live_cluster import read_cluster

        access = self.access
        try:
            policy = self.chosen.policy
            configuration = None if policy is None else policy.configuration
            case = self._with_adopted(read_cluster(access, self.request.registry, configuration=configuration))
            return case if policy is None else policy.over(case)
        except UnreachableError as error:
            others = access.others
            # The hint is a line to copy, so names with blanks are quoted.
            asked = shlex.join((*self.command.split(), *self.subjects))
            elsewhere = f"{asked} --context {others[0]}   or offline:  " if others else ""
            with_what = f"the context {self.context}" if self.context else "the kubeconfig's current context"
            detail = f"{error.detail} with {with_what}" if error.detail.startswith("tried") else error.detail
            hint = f"{elsewhere}{asked} --from snapshot.zip"
            raise UnreachableError(
                str(error), detail=detail, is_forbidden=error.is_forbidden, help=hint, missing=error.missing
            ) from None


def _time_of(text: str) -> tuple[float | None, bool]:
    """Return the seconds of ``--at``, None for the end of the run, and whether they are those of a date.

    Raises: CommandLineError.
    """
    from kai.basics import parsing
    from kai.lab.traces.columns import instant_of

    if not text:
        return None, False
    try:
        # No duration begins with four digits and a hyphen.
        if text[:4].isdecimal() and text[4:5] == "-":
            return instant_of(text), True
        seconds = parsing.seconds(text)
    except ValueError:
        wanted = f"{parsing.DURATION_WANTED}, or a time such as 2026-01-31T12:00:00"
        raise CommandLineError.about("command line", "--at", found=text, wanted=wanted) from None
    if seconds < 0:
        raise CommandLineError.about("command line", "--at", found=text, wanted="0 or more")
    return seconds, False


def source_options(formats: tuple[str, ...] = NAMED_FORMATS, *, watch: bool = True) -> Callable[[F], F]:
    """Return a decorator that adds the flags of sources and of output; they arrive as ``source`` and ``console``."""

    def decorate(function: F) -> F:
        @wraps(function)
        def command(  # noqa: PLR0913 - one parameter for each flag, as click passes them
            *,
            console: Console,
            place: str | None,
            namespace: str,
            everywhere: bool,
            labels: str,
            context: str,
            kubeconfig: str,
            config: str,
            user: str,
            at: str,
            is_watch: bool = False,
            schedulers: tuple[str, ...],
            queue_from: str | None,
            service: str = "",
            **options: object,
        ) -> object:
            _refuse_contradictions(place, namespace, service, everywhere=everywhere, is_watch=is_watch)
            _refuse_served(service, schedulers, queue_from or "")
            _refuse_time(at, place, service)
            _refuse_cluster_of_file(place, {"--context": context, "--kubeconfig": kubeconfig, "--as": user})
            source = Source(
                place=place or "",
                namespace=namespace,
                everywhere=everywhere,
                selector=read_selector(labels),
                context=context,
                kubeconfig=kubeconfig,
                config=config,
                at=at,
                user=user,
                watch=is_watch,
                service=service,
                schedulers=schedulers,
                queue_from=queue_from or "",
                command=click.get_current_context().command_path,
                subjects=_subjects(click.get_current_context()),
            )
            return function(source=source, console=console, **options)

        decorated: Any = console_options(formats)(command)
        for flag in reversed(_flags(watch=watch)):
            decorated = flag(decorated)
        result: F = decorated
        return result

    return decorate


def _subjects(context: click.Context) -> tuple[str, ...]:
    """Return the arguments of a command line, without its flags."""
    named = [context.params.get(each.name or "") for each in context.command.params if isinstance(each, click.Argument)]
    words = (word for value in named for word in (value if isinstance(value, tuple) else (value,)))
    return tuple(str(word) for word in words if word)


def _refuse_contradictions(
    place: str | None, namespace: str, service: str, *, everywhere: bool, is_watch: bool
) -> None:
    # An unset variable in a script leaves an empty path; to read the cluster then would be a surprise.
    if place is not None and not place:
        raise click.UsageError("-f: found an empty path, expected a file or a folder")
    if is_watch and place == STANDARD_INPUT:
        raise click.UsageError("-w cannot be used with -f -: standard input is read once")
    if service and place:
        raise click.UsageError("--service and -f cannot be used together")
    if service and not _SERVICE.fullmatch(service):
        raise click.UsageError(f"--service: found {shown(service)}, expected a URL or NAMESPACE/NAME")
    if everywhere and namespace:
        raise click.UsageError("-n and -A cannot be used together")


def _refuse_time(at: str, place: str | None, service: str) -> None:
    """Refuse a time of a run without a run, and a time of day for the service, which answers for its last cycle."""
    from kai.basics.schedules import is_clock

    if at and not place and not is_clock(at):
        raise click.UsageError("--at is used with --from: the result of kai simulate --out")
    if at and service:
        raise click.UsageError("--at and --service cannot be used together: the service shows its last cycle")


def _refuse_served(service: str, schedulers: tuple[str, ...], queue_from: str) -> None:
    """Refuse --service with flags about other schedulers' pods, on which a service never decides."""
    if service and (schedulers or queue_from):
        flag = "--scheduler-name" if schedulers else "--queue-from"
        raise click.UsageError(f"{flag} and --service cannot be used together: a service decides on its own pods")


def _refuse_cluster_of_file(place: str | None, flags: Mapping[str, str]) -> None:
    """Refuse flags of a cluster together with a file: an answer about the file would pass for one about the cluster."""
    for flag, value in flags.items():
        if place and value:
            raise click.UsageError(f"{flag} and -f cannot be used together: {place} is read, and no cluster")


def _flags(*, watch: bool) -> tuple[Callable[[F], F], ...]:
    flags: tuple[Callable[[F], F], ...] = (
        click.option(
            "-f",
            "--from",
            "place",
            metavar="SOURCE",
            type=click.Path(allow_dash=True, readable=False),
            help="A scenario, manifests in a file or folder, a snapshot (zip), what kai simulate --out wrote, or - for "
            "standard input. Default: the cluster of the current kubeconfig.",
        ),
        click.option(
            "--at",
            default="",
            metavar="TIME",
            help="Look at a run over time at this time of it: 3h, 3d, a date. Default: its end. Or decide on the pods "
            'of now with the quotas of the next such time of day: "Fri 22:00", "22:00 Europe/Berlin".',
        ),
        click.option(
            "-n", "--namespace", default="", shell_complete=complete_namespaces, help="Show this namespace only."
        ),
        click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Show all namespaces."),
        click.option("-l", "--selector", "labels", default="", help="Show what has these labels: app=x,tier!=y,z."),
        *_cluster_flags(),
        click.option(
            "--config",
            default="",
            type=click.Path(),
            help="Configuration, or SchedulingShard, in place of that of the cluster or the snapshot.",
        ),
        *_adoption_flags(),
    )
    if not watch:
        return flags
    again = click.option("-w", "--watch", "is_watch", is_flag=True, help="Show again whenever something changed.")
    asked = click.option(
        "--service",
        default="",
        metavar="URL|NAMESPACE/NAME",
        help="Ask the service, and not the API server for everything. Without it, kai-scheduler/kai-dashboard is asked "
        "by kai why JOB, and for users who may not list pods and nodes.",
    )
    return (*flags, again, asked)


def _cluster_flags() -> tuple[Callable[[F], F], ...]:
    return (
        click.option(
            "--context",
            default="",
            shell_complete=complete_contexts,
            help="Context of the kubeconfig in place of the current one.",
        ),
        click.option(
            "--kubeconfig",
            default="",
            type=click.Path(readable=False),
            help="Kubeconfig file in place of kubectl's.",
        ),
        click.option("--as", "user", default="", metavar="USER", help="Ask the cluster in the name of this user."),
    )


def _adoption_flags() -> tuple[Callable[[F], F], ...]:
    return (
        click.option(
            "--scheduler-name",
            "schedulers",
            multiple=True,
            metavar="NAME",
            help="Decide on the pods of this scheduler as well, as default-scheduler, or of an operator that gives "
            "them to kai by itself, by its API group, such as ray.io; repeatable.",
        ),
        click.option(
            "--queue-from",
            type=click.Choice(("namespace", "kueue", "volcano")),
            help="Make queues, for workloads that name none: of namespaces, or of the queues of Kueue or Volcano.",
        ),
    )


def adoption_options(function: F) -> F:
    """Add the flags that adopt workloads of other schedulers; they arrive as ``schedulers`` and ``queue_from``."""
    for flag in reversed(_adoption_flags()):
        function = flag(function)
    return function


def cluster_options(function: F) -> F:
    """Add the flags that choose a cluster; they arrive as ``context``, ``kubeconfig`` and ``user``."""
    for flag in reversed(_cluster_flags()):
        function = flag(function)
    return function
