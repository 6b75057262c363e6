"""Slurm's accounts as queues, from ``sacctmgr dump``, ``sacctmgr -P show assoc``, or the accounts in ``sacct`` output.

Slurm guarantees no amounts: accounts share by ``Fairshare``, below a hard ``GrpTRES``. So a queue gets a weight and a
limit, and no quota.
"""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kai.basics.errors import InputError
from kai.basics.parsing import QuantityError, amount
from kai.manifests.proposals import UNLIMITED, Proposal, Share, named_queue, root_name

_LINE: Final = re.compile(r"^(Cluster|Parent|Account|User) - '?([^':]+)'?:?(.*)$")
_FIELD: Final = re.compile(r"([A-Za-z]+)=('[^']*'|[^:]*)")
_ROOT: Final = "root"
_SAME_AS_PARENT: Final = frozenset({"parent", "2147483647"})
_UNITS: Final = {"gres/gpu": ("gpu", 1.0), "cpu": ("cpu", 1000.0), "mem": ("memory", 1.0)}
_COLUMNS: Final = {
    "parent": ("ParentName", "Par Name"),
    "fairshare": ("Fairshare", "Share", "RawShares"),
    "grptres": ("GrpTRES",),
}
_MIB: Final = 1.048576
"""Megabytes of a mebibyte, Slurm's default unit of memory."""

Account = Mapping[str, str]


def is_slurm(text: str) -> bool:
    """Return whether a text is Slurm accounting: a dump of accounts, or a table with a column Account."""
    first = next(iter(text.splitlines()), "")
    return any(_LINE.match(line) for line in text.splitlines()[:40]) or "Account" in _split(first)


def queues_of_accounts(text: str, name: str) -> tuple[Proposal, ...]:
    """Return a queue for each account of a text, parents first; ``name`` is the name of the text in errors.

    Raises: InputError where there is no account.
    """
    accounts: dict[str, Account] = {}
    busy: set[str] = set()
    """Accounts that have users of their own."""
    for account, said in _dumped(text) if any(map(_LINE.match, text.splitlines())) else _tabled(text):
        if said is None:
            busy.add(account)
        else:
            accounts[account] = said
    if not accounts:
        raise InputError(f"{name}: found no account, expected sacctmgr dump, sacctmgr -P show assoc, or sacct -P")
    called = _names(accounts)
    above = {_ROOT: ""} if _ROOT in accounts else {}
    top = called[_ROOT] if above else root_name(set(called.values()))
    found = [] if above else [Proposal(name=top, shares=_free(), source="all accounts", reason="no bounds")]
    for account, said in accounts.items():
        parent = "" if account == _ROOT else called.get(said.get("parent", ""), top)
        found.append(_queue(account, called[account], parent, said))
    inner = {said.get("parent", "") for said in accounts.values()} - {_ROOT}
    found += [_of_users(account, called) for account in sorted(inner & busy)]
    return tuple(sorted(found, key=lambda each: bool(each.parent)))


def _free() -> Mapping[str, Share]:
    return {"gpu": Share(quota=0.0)}


def _of_users(account: str, called: Mapping[str, str]) -> Proposal:
    """Return a queue for the users of an account that also has child accounts."""
    name = f"{called[account]}-users"
    reason = "only a queue without children runs jobs"
    source = f"users of account {account}"
    return Proposal(name=name, parent=called[account], shares=_free(), source=source, reason=reason)


def _queue(account: str, name: str, parent: str, said: Account) -> Proposal:
    share = said.get("fairshare", "")
    weight = float(share) if share.replace(".", "", 1).isdecimal() and share not in _SAME_AS_PARENT else 1.0
    limits = dict(_limits(said.get("grptres", "")))
    shares = {
        resource: Share(
            quota=0.0 if resource == "gpu" else UNLIMITED, weight=weight, limit=limits.get(resource, UNLIMITED)
        )
        for resource in ("gpu", "cpu", "memory")
    }
    bounds = [f"weight: Fairshare={share}" if share else "", f"limit: GrpTRES={said['grptres']}" if limits else ""]
    return Proposal(
        name=name,
        parent=parent,
        shares=shares,
        source=f"account {account}",
        reason="; ".join(filter(None, bounds)) or "no bounds",
        title=account if account != name else "",
    )


def _names(accounts: Mapping[str, Account]) -> dict[str, str]:
    """Return unique queue names for the accounts."""
    called: dict[str, str] = {}
    for account in accounts:
        name, number = named_queue(account), 2
        while name in called.values():
            name, number = f"{named_queue(account)}-{number}", number + 1
        called[account] = name
    return called


def _limits(text: str) -> Iterator[tuple[str, float]]:
    for part in text.split(","):
        key, _, value = part.partition("=")
        if key not in _UNITS or not value or value == "-1":
            continue
        resource, unit = _UNITS[key]
        try:
            yield resource, _megabytes(value) if resource == "memory" else float(value) * unit
        except (ValueError, QuantityError):
            continue


def _megabytes(text: str) -> float:
    """Return the megabytes of an amount of memory in Slurm's notation: mebibytes, or K, M, G, T of 1024 each."""
    if text.isdecimal():
        return float(text) * _MIB
    return round(amount(f"{text.rstrip('Bb')}i", 1) / 1_000_000)


def _dumped(text: str) -> Iterator[tuple[str, Account | None]]:
    """Yield the accounts of a dump with their settings; None for a user of an account."""
    parent = ""
    for line in text.splitlines():
        found = _LINE.match(line.strip())
        if found is None:
            continue
        kind, name, rest = found.groups()
        if kind == "Cluster":
            yield _ROOT, {}
        elif kind == "Parent":
            parent = name
        elif kind == "User":
            yield parent, None
        elif kind == "Account":
            yield name, {"parent": parent, **{key.lower(): value.strip("'") for key, value in _FIELD.findall(rest)}}


def _tabled(text: str) -> Iterator[tuple[str, Account | None]]:
    """Yield the accounts of a table: of jobs all accounts named, of associations the accounts, and None for users."""
    lines = text.splitlines()
    head = _split(lines[0]) if lines else []
    if "Account" not in head:
        return
    is_of_jobs = "JobID" in head
    separator = "|" if "|" in lines[0] else ","
    for row in csv.DictReader(lines, delimiter=separator):
        account = (row.get("Account") or "").strip()
        if account and is_of_jobs:
            yield account, {}
        elif account and (row.get("User") or "").strip():
            yield account, None
        elif account:
            yield account, {key: _first(row, names) for key, names in _COLUMNS.items()}


def _split(line: str) -> list[str]:
    return [each.strip() for each in line.split("|" if "|" in line else ",")]


def _first(row: Mapping[str, str], names: Sequence[str]) -> str:
    return next((str(row[name]).strip() for name in names if row.get(name)), "")
