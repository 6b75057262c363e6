"""The binder: carries out the scheduler's decisions, and keeps shared GPUs and their users consistent.

Read `queue` first (which request is attempted when), then `attempt` (one attempt, from the request to its status), then
`bind` (the bind itself). `reservation` and `sweep` reserve and release shared GPUs; `volumes`, `claims` and `steps`
prepare what a pod needs; `sharers` verifies what the API server does not.

Everything is either a plan, a generator that yields requests to the API server (why: `kai.api.plans`), or a state
machine with a ``step``. Neither uses a network or a clock: a shell does (`service`), or a simulation.
"""

from kai.roles.binder.attempt import attempt
from kai.roles.binder.bind import Binder
from kai.roles.binder.outcome import BindOutcome, BindVerdict
from kai.roles.binder.queue import BindQueue
from kai.roles.binder.sharers import BinderSettings, ReservationSettings
from kai.roles.binder.steps import StepOptions, resolve_steps
from kai.roles.binder.sweep import sweep_everything, sweep_group

__all__ = [
    "BindOutcome",
    "BindQueue",
    "BindVerdict",
    "Binder",
    "BinderSettings",
    "ReservationSettings",
    "StepOptions",
    "attempt",
    "resolve_steps",
    "sweep_everything",
    "sweep_group",
]
