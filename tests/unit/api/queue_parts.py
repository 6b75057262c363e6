"""What complete manifests of queues say about models of GPUs, users, windows, budgets, and what was used of these."""

from typing import Final

MODELS: Final = {"h100": {"quota": 2, "limit": 4}}
PER_USER: Final = {"gpu": {"limit": 4}, "cpu": {"limit": 8000}, "memory": {"limit": 64000}}
SCHEDULES: Final = [
    {
        "name": "nights",
        "timeZone": "Europe/Berlin",
        "start": "0 22 * * *",
        "duration": "8h0m0s",
        "resources": {
            **{at: {"quota": 1, "overQuotaWeight": 2, "limit": 3} for at in ("gpu", "cpu", "memory")},
            "models": MODELS,
            "perUser": PER_USER,
        },
        "onClose": "evict",
        "notice": "10m0s",
    }
]
BUDGETS: Final = [
    {
        "name": "month",
        "amount": 400.5,
        "weights": [{"model": "H100", "weight": 2.5}],
        "period": "once",
        "timeZone": "Europe/Berlin",
        "from": "2026-01-01T00:00:00Z",
        "until": "2026-07-01T00:00:00Z",
        "carryOver": 0.5,
        "enforce": "stop",
        "refund": ["nodeFailure", "preempted"],
        "slice": "30m0s",
    }
]
BUDGET_STATUSES: Final = [
    {
        "name": "month",
        "since": "2026-01-01T00:00:00Z",
        "until": "2026-02-01T00:00:00Z",
        "at": "2026-01-02T00:00:00Z",
        "spent": 12.5,
        "committed": 3.5,
        "carried": 1.5,
        "userHours": {"ada": 10.5},
    }
]
