"""What a process serves beside its probes: the dashboard, and the webhooks of the roles that have some.

For the dashboard that is its address, its access control, and how it receives the cycles of the scheduler; for webhooks
their settings from flags, and their paths. The servers are imported only where they are wanted: most processes start
without either.
"""

from __future__ import annotations

import secrets
import string
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import attrs
import structlog

from kai.basics.errors import CommandLineError
from kai.basics.wording import shown
from kai.cli.running.flags import ADMISSION, POD_GROUPS, QUEUES
from kai.cluster.process.listener import Address, is_local, read_address
from kai.cluster.signals import Observe, unobserved

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from anyio.abc import TaskStatus

    from kai.cli.running.flags import Given
    from kai.cluster.connect import Connection
    from kai.cluster.port import Cluster, Store
    from kai.cluster.process.listener import Probes
    from kai.dashboard.feed import Feed
    from kai.dashboard.pages import HealthChecks
    from kai.dashboard.server import Dashboard
    from kai.deciding.engine.cycle import Profile
    from kai.roles.admission import AdmissionSettings
    from kai.roles.admission.serving import Decide, ServerIdentity
    from kai.roles.scheduler.cycle.cycling import Done
    from kai.roles.scheduler.service import Scheduler
    from kai.roles.scheduler.settings import SchedulerSettings


FLAG: Final = "dashboard"
_AUTH: Final = ("local", "token")
_SNAPSHOT: Final = "/get-snapshot"
_SHADOW: Final = "/api/v1/shadow"


@attrs.frozen(kw_only=True)
class Place:
    """The address of a dashboard, and who may read it."""

    address: Address
    asks_for_tokens: bool
    certificate: Path | None


def wanted_dashboard(given: Given) -> Place | None:
    """Return the address and access control from the flags; None without a dashboard.

    Raises: CommandLineError for an address that other machines could reach without a token.
    """
    address = read_address(given.text(FLAG), f"--{FLAG}")
    auth, folder = given.text("dashboard-auth"), given.text("dashboard-cert-dir")
    # Also without a dashboard: a typing error should show at once, not on the day that one is wanted.
    if auth not in _AUTH:
        raise CommandLineError(f"--dashboard-auth: found {shown(auth)}, expected one of {', '.join(_AUTH)}")
    if address is None:
        return None
    # Any other name may resolve to an address that other machines reach.
    is_own = address.host == "localhost" or is_local(address.host)
    if auth != "token" and not is_own:
        wanted = "--dashboard-auth=token beside it, or an address of this machine such as 127.0.0.1:8085"
        raise CommandLineError(f"--{FLAG}: found {address}, which others can reach, expected {wanted}")
    if not is_own and not folder:
        log = structlog.get_logger()
        log.warning("dashboard without encryption", address=str(address), flag="--dashboard-cert-dir")
    return Place(address=address, asks_for_tokens=auth == "token", certificate=Path(folder) if folder else None)


class Board:
    """A dashboard, ready to serve."""

    def __init__(self, place: Place, feed: Feed, dashboard: Dashboard) -> None:
        """Serve ``dashboard`` at ``place``; it shows the cycles in ``feed``."""
        self.place = place
        self.feed = feed
        self.dashboard = dashboard

    async def run(self, *, task_status: TaskStatus[int] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; the start of the task returns the port.

        Raises: ConfigError if the port is taken, or the certificate is invalid.
        """
        from kai.cluster.process.connections import serve
        from kai.dashboard.server import LIMITS

        address, respond = self.place.address, self.dashboard.respond
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.feed.run)
            tasks.start_soon(self.dashboard.answers.run)
            if self.place.certificate is None:
                await serve(address.host, address.port, respond, LIMITS, task_status=task_status)
                return
            from kai.roles.admission.serving import Certificate, CertificateOfFiles

            identity = CertificateOfFiles(Certificate(folder=self.place.certificate))
            await identity.ready()
            tasks.start_soon(identity.keep)
            await serve(
                address.host, address.port, respond, LIMITS, context=lambda: identity.context, task_status=task_status
            )


def make_board(
    place: Place, scheduler: Scheduler, settings: SchedulerSettings, connection: Connection, facts: HealthChecks
) -> Board:
    """Return the dashboard of a scheduler, and subscribe it to the scheduler's cycles."""
    from kai.answers.offline.run import leave_to
    from kai.cluster.requesting.reviews import Reviews
    from kai.dashboard.access import LocalAccess, TokenAccess
    from kai.dashboard.answer_cache import AnswerCache
    from kai.dashboard.feed import Feed, Past
    from kai.dashboard.pages import make_pages
    from kai.dashboard.server import Dashboard
    from kai.deciding.configuration.profiles import make_profile

    leave_to("scheduler")
    feed, routes = Feed(), scheduler.routes()
    history = "" if scheduler.history is None else scheduler.history.path
    answers = AnswerCache(feed, connection.clock)
    access = TokenAccess(Reviews(connection.sender.send, connection.clock)) if place.asks_for_tokens else LocalAccess()
    dashboard = Dashboard(
        answers=answers,
        access=access,
        pages=make_pages(answers, access, connection.clock, facts, Past(history, connection.clock)),
        is_encrypted=place.certificate is not None,
        snapshot=routes[_SNAPSHOT].answer,
        shadow=routes[_SHADOW].answer if _SHADOW in routes else None,
    )
    # The dashboard gets plugin instances of its own: those of a cycle are in use in another thread.
    scheduler.onlooker = _onlooker(feed, make_profile(settings.configuration), settings)
    return Board(place, feed, dashboard)


def _onlooker(feed: Feed, profile: Profile, settings: SchedulerSettings) -> Callable[[Done | None, float], None]:
    from kai.answers.cases.case import Case
    from kai.answers.cases.origin import Origin
    from kai.answers.offline.run import READING, Cycle, Outcome
    from kai.dashboard.feed import EndedCycle
    from kai.intake import Intake

    # A trial of a change re-reads only the objects that the change touches, and decides as a command would.
    intake = Intake(settings.intake)

    def look(done: Done | None, seconds: float) -> None:
        if done is None:
            feed.hide()
            return
        case = Case(
            name="service",
            title="service",
            objects=done.objects,
            now=done.snapshot.now,
            configuration=settings.configuration,
            settings=settings.intake,
            origin=Origin(type="service"),
        )
        number = done.snapshot.revision
        cycle = Cycle(number=number, snapshot=done.snapshot, report=done.report, decisions=done.decided)
        failing = tuple(f"{each.plugin}.{each.hook}" for each in done.report.failures)
        phases: Mapping[str, float] = {str(name): took for name, took in done.seconds.items()}
        feed.show(
            EndedCycle(
                outcome=Outcome(case=case, profile=profile, cycles=(cycle,), searches=READING, intake=intake),
                took=seconds,
                phases=phases,
                groups=done.groups,
                plugins_failing=failing,
            )
        )

    return look


_LETTERS: Final = string.ascii_lowercase + string.digits
_PROBE: Final = "certificate"
_SHORTEST: Final = 10.0  # seconds; certificates have whole seconds, and a renewal takes four steps
_SWITCHES: Final = {QUEUES: "enable-webhook", POD_GROUPS: "enable-podgroup-webhook"}


@attrs.frozen(kw_only=True)
class CertificateSource:
    """The source of the certificate: a folder, or a Secret in which kai keeps a certificate that it issues itself."""

    folder: Path
    secret: str = ""
    lifetime: float = 0.0

    def identity(
        self, cluster: Cluster, namespace: str, probes: Probes, observe: Observe = unobserved
    ) -> ServerIdentity:
        """Return the certificate for the server; problems with it show in ``probes``.

        Raises: ConfigError for a missing certificate in a folder.
        """
        if not self.secret:
            from kai.roles.admission.serving import Certificate, CertificateOfFiles

            return CertificateOfFiles(Certificate(folder=self.folder), observe)
        from kai.roles.admission.rotation import RotatedCertificate, Rotation, Timing

        service = f"{ADMISSION}.{namespace}.svc"
        rotation = Rotation(hosts=(service, f"{service}.cluster.local"), timing=Timing(lifetime=self.lifetime))
        made = RotatedCertificate(cluster.api, cluster.clock, namespace, self.secret, rotation, observe)
        probes.add(_PROBE, made.problem)
        probes.add_note(_PROBE, made.note)
        return made


def wanted_certificate(given: Given, roles: Collection[str]) -> CertificateSource | None:
    """Return the source of the webhooks' certificate; None if this process serves no webhooks.

    The role admission always serves them. The two controllers do unless a flag disables it and if there is a
    certificate: KAI-Scheduler's webhook configurations send queues to the one and pod groups to the other.

    Raises: CommandLineError for a lifetime that is too short to renew within.
    """
    folder = Path(given.text("webhook-cert-dir"))
    if ADMISSION in roles:
        lifetime = given.number("webhook-certificate-lifetime")
        if lifetime < _SHORTEST:
            found = f"{lifetime:g}s"
            raise CommandLineError(f"--webhook-certificate-lifetime: found {found}, expected {_SHORTEST:g}s or more")
        return CertificateSource(folder=folder, secret=given.text("webhook-secret"), lifetime=lifetime)
    switched_on = any(role in roles and given.truth(switch) for role, switch in _SWITCHES.items())
    if not switched_on or not folder.is_dir():
        return None
    from kai.roles.admission.serving import Certificate

    return CertificateSource(folder=folder) if Certificate(folder=folder).exists else None


def admission_settings(given: Given) -> AdmissionSettings:
    """Return the settings of admission."""
    from kai.roles.admission import AdmissionSettings

    runtime_class = given.text("gpu-fraction-runtime-class-name")
    # The older name of the flag counts only where the newer one is not given.
    if "gpu-pod-runtime-class-name" in given.named and "gpu-fraction-runtime-class-name" not in given.named:
        runtime_class = given.text("gpu-pod-runtime-class-name")
    return AdmissionSettings(
        scheduler_name=given.text("scheduler-name"),
        gpu_sharing_enabled=given.truth("gpu-sharing-enabled"),
        hami_core_enabled=given.truth("hami-core-enabled"),
        block_nvidia_visible_devices=given.truth("block-nvidia-visible-devices"),
        gpu_fraction_runtime_class_name=runtime_class,
        queue_quota_validation=given.truth("enable-quota-validation"),
    )


def doors(settings: AdmissionSettings, store: Store) -> Mapping[str, Decide]:
    """Return the review function of each path."""
    from kai.roles.admission import mutate, validate
    from kai.roles.admission.serving import MUTATING, NO_USER_NOTE, USER_NOTE, VALIDATING, queue_finder
    from kai.roles.admission.webhooks import drop_user, note_user, readable

    change = partial(mutate, settings=settings, draw=_draw)
    check = partial(validate, settings=settings, find_queue=queue_finder(store))
    notes: dict[str, Decide] = {USER_NOTE: partial(readable, note_user), NO_USER_NOTE: partial(readable, drop_user)}
    return {**dict.fromkeys(MUTATING, change), **dict.fromkeys(VALIDATING, check), **notes}


def _draw(count: int) -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(count))
