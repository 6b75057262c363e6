"""What an administrator decides about admission."""

from __future__ import annotations

import attrs

from kai.api import names


@attrs.frozen(kw_only=True)
class AdmissionSettings:
    """Switches of the webhooks, with the defaults of the peer's flags."""

    scheduler_name: str = names.SCHEDULER_NAME
    gpu_sharing_enabled: bool = False
    hami_core_enabled: bool = False
    block_nvidia_visible_devices: bool = False
    gpu_fraction_runtime_class_name: str = "nvidia"
    """The runtime class of pods that share GPUs and name none; empty leaves them alone."""
    queue_quota_validation: bool = False
