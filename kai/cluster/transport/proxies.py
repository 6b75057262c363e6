"""Which proxy leads to an address, as the environment says it: HTTPS_PROXY, HTTP_PROXY and NO_PROXY.

Python's own reading (urllib) knows no networks in NO_PROXY, which is how clusters are excepted.

Source: golang.org/x/net/http/httpproxy, by which kubectl and KAI-Scheduler find theirs.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Final, TypeAlias
from urllib.parse import urlsplit

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_PORTS: Final = {"http": 80, "https": 443}


def proxy_for(server: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """Return the address of the proxy that leads to a server, behind the variable that has it; "" where none does."""
    at = urlsplit(server)
    name, found = _variable(environment, f"{at.scheme}_proxy")
    excepted = _variable(environment, "no_proxy")[1]
    if not found or _is_excepted(at.hostname or "", at.port or _PORTS[at.scheme], excepted):
        return name, ""
    return name, found if "://" in found else f"http://{found}"


def _variable(environment: Mapping[str, str], name: str) -> tuple[str, str]:
    """Return how a variable is written where it is set, and its value; the one in capitals counts first."""
    return next(((each, environment[each]) for each in (name.upper(), name) if environment.get(each)), (name, ""))


def _is_excepted(host: str, port: int, excepted: str) -> bool:
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(_covers(entry.strip().lower(), host, port, address) for entry in excepted.split(","))


def _covers(entry: str, host: str, port: int, address: _Address | None) -> bool:
    """Return whether an entry of NO_PROXY means a host: all, a network, an address, a domain; with a port or without.

    A domain means the hosts below it as well, one with a dot before it these alone.
    """
    if entry == "*":
        return True
    if "/" in entry:
        return address is not None and _holds(entry, address)
    name, colon, number = entry.rpartition(":")
    has_port = bool(colon) and number.isdecimal() and (":" not in name or name.endswith("]"))
    if has_port and int(number) != port:
        return False
    name = (name if has_port else entry).strip("[]").removeprefix("*")
    if (alone := _address(name)) is not None:
        return alone == address
    return bool(name) and (host == name or host.endswith(f".{name.removeprefix('.')}"))


def _address(text: str) -> _Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _holds(network: str, address: _Address) -> bool:
    try:
        return address in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
