"""What an administrator decides about the binder, with the defaults of the peer's flags."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kai.api import names
from kai.api.fields import EMPTY, JsonObject


@attrs.frozen(kw_only=True)
class PodResources:
    """CPU and memory of reservation pods; what is said about GPUs here is passed over."""

    requests: Mapping[str, str] = EMPTY
    limits: Mapping[str, str] = EMPTY


@attrs.frozen(kw_only=True)
class ReservationSettings:
    """Where and how GPUs that are shared are held by reservation pods."""

    namespace: str = names.RESERVATION_NAMESPACE
    service_account: str = names.RESERVATION_APP
    app_label: str = names.RESERVATION_APP
    image: str = ""
    args: tuple[str, ...] = ()
    """What is given to the image, where it can do other things as well."""
    runtime_class: str = ""
    timeout_seconds: float = 40.0
    fake_gpu_nodes: bool = False
    """Nodes without real GPUs, in tests: the pod only sleeps, and something else names its device."""
    resources: PodResources = PodResources()
    pod_security_context: JsonObject = EMPTY
    container_security_context: JsonObject = EMPTY


@attrs.frozen(kw_only=True)
class BinderSettings:
    """How binds are carried out."""

    scheduler_name: str = names.SCHEDULER_NAME
    node_pool_label: str = names.NODE_POOL
    reservation: ReservationSettings = ReservationSettings()
    concurrency: int = 10
    """Binds under way at once, those not counted that wait for others."""
    first_delay_seconds: float = 1.0
    """The pause after the first attempt at a bind that failed; it doubles with each further one."""
    longest_delay_seconds: float = 300.0
    """The longest pause between two attempts at the same bind."""
    patience: int = 8
    """How often an attempt that was interrupted is started again before it counts as failed."""
