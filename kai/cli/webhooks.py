"""The webhooks of a process: which roles bring them, their settings from flags, and the doors that they open.

What serves them is imported where they are served: most processes start without it.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kai.cli.flags import Given
from kai.cli.roleflags import ADMISSION, POD_GROUPS, QUEUES
from kai.cluster.port import Store

if TYPE_CHECKING:
    from kai.admission import AdmissionSettings
    from kai.admission.serving import Certificate, Decide

_LETTERS: Final = string.ascii_lowercase + string.digits
_SWITCHES: Final = {QUEUES: "enable-webhook", POD_GROUPS: "enable-podgroup-webhook"}


def wanted_certificate(given: Given, roles: Collection[str]) -> Certificate | None:
    """Return the certificate with which this process serves webhooks; None where it serves none.

    The role admission always does. The two controllers do where they are not told otherwise and have a certificate:
    the peer's webhook configurations send queues to the one and pod groups to the other.
    """
    folder = Path(given.text("webhook-cert-dir"))
    is_admission = ADMISSION in roles
    switched_on = any(role in roles and given.truth(switch) for role, switch in _SWITCHES.items())
    if not is_admission and not (switched_on and folder.is_dir()):
        return None
    from kai.admission.serving import Certificate

    certificate = Certificate(folder=folder)
    return certificate if is_admission or certificate.exists else None


def admission_settings(given: Given) -> AdmissionSettings:
    """Return the settings of admission."""
    from kai.admission import AdmissionSettings

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
    """Return the function that decides, by path."""
    from kai.admission import mutate, validate
    from kai.admission.serving import MUTATING, VALIDATING, queue_finder

    change = partial(mutate, settings=settings, draw=_draw)
    check = partial(validate, settings=settings, find_queue=queue_finder(store))
    return {**dict.fromkeys(MUTATING, change), **dict.fromkeys(VALIDATING, check)}


def _draw(count: int) -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(count))
