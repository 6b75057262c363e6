"""The port to a cluster: what services read, write and lead by. Start reading at `port`."""

from kai.cluster.port import Api, Change, Changes, Clock, Cluster, Cpu, Draw, Index, Leadership, Rejected, Store, Term
from kai.cluster.requests import (
    Apply,
    BudgetExhausted,
    Evict,
    Fetch,
    FetchAll,
    Forbidden,
    JsonPatch,
    NoSuchKind,
    NotLeading,
    Request,
)

__all__ = [
    "Api",
    "Apply",
    "BudgetExhausted",
    "Change",
    "Changes",
    "Clock",
    "Cluster",
    "Cpu",
    "Draw",
    "Evict",
    "Fetch",
    "FetchAll",
    "Forbidden",
    "Index",
    "JsonPatch",
    "Leadership",
    "NoSuchKind",
    "NotLeading",
    "Rejected",
    "Request",
    "Store",
    "Term",
]
