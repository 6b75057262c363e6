"""The webhooks of a process: the roles that serve them, their settings from flags, and their endpoints.

The server is imported only where webhooks are served: most processes start without it.
"""

from __future__ import annotations

import secrets
import string
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from kai.basics.errors import CommandLineError
from kai.cli.running.roleflags import ADMISSION, POD_GROUPS, QUEUES
from kai.cluster.signals import Observe, unobserved

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kai.cli.running.flags import Given
    from kai.cluster.port import Cluster, Store
    from kai.cluster.process.listener import Probes
    from kai.roles.admission import AdmissionSettings
    from kai.roles.admission.serving import Decide, ServerIdentity

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
    from kai.roles.admission.serving import MUTATING, VALIDATING, queue_finder

    change = partial(mutate, settings=settings, draw=_draw)
    check = partial(validate, settings=settings, find_queue=queue_finder(store))
    return {**dict.fromkeys(MUTATING, change), **dict.fromkeys(VALIDATING, check)}


def _draw(count: int) -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(count))
