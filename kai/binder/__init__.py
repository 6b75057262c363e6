"""The binder: carries out what the scheduler decided, and keeps shared GPUs in order.

Read `queue` first (which request is attempted when), then `attempt` (one attempt, from the request to its status), then
`bind` (what happens in between). `reservation` and `sweep` hold and release shared GPUs; `volumes`, `claims`,
`gpusharing` prepare what a pod needs; `checks` looks last at what the API server does not.

Everything is either a plan, a generator that yields requests to the API server (why: `kai.api.plans`), or a machine
with a ``step``. Nothing here talks to a network or reads a clock; a shell does, or a simulation.
"""

from kai.binder.attempt import attempt
from kai.binder.bind import Binder
from kai.binder.outcome import Outcome, Verdict
from kai.binder.queue import BindQueue
from kai.binder.sharers import BinderSettings, ReservationSettings
from kai.binder.steps import StepOptions, resolve_steps
from kai.binder.sweep import sweep_everything, sweep_group

__all__ = [
    "BindQueue",
    "Binder",
    "BinderSettings",
    "Outcome",
    "ReservationSettings",
    "StepOptions",
    "Verdict",
    "attempt",
    "resolve_steps",
    "sweep_everything",
    "sweep_group",
]
