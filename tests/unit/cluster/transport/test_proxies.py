"""Proxies of the environment. The cases follow Go's golang.org/x/net/http/httpproxy, which kubectl uses."""

import pytest

from kai.cluster.transport.kubeconfig import proxy_for

PROXY = "http://proxy:3128"
SERVER = "https://api.cluster.example:6443"


def found(server=SERVER, **environment):
    return proxy_for(server, environment)[1]


def test_the_servers_scheme_chooses_the_variable_capitals_first():
    assert found(HTTPS_PROXY=PROXY, HTTP_PROXY="http://other:1") == PROXY
    assert found("http://api:80", HTTPS_PROXY=PROXY, http_proxy="http://other:1") == "http://other:1"
    assert found(HTTPS_PROXY=PROXY, https_proxy="http://other:1") == PROXY
    assert proxy_for(SERVER, {"HTTPS_PROXY": "", "https_proxy": PROXY}) == ("https_proxy", PROXY)
    assert found(HTTPS_PROXY="proxy:3128") == PROXY
    assert found(ALL_PROXY=PROXY) == ""


@pytest.mark.parametrize(
    "server", ["https://localhost:6443", "https://127.0.0.1:6443", "https://127.9.9.9", "https://[::1]:1"]
)
def test_this_machine_is_behind_no_proxy(server):
    assert found(server, HTTPS_PROXY=PROXY) == ""


@pytest.mark.parametrize(
    ("entry", "is_direct"),
    [
        ("*", True),
        ("example", True),
        ("cluster.example", True),
        ("api.cluster.example", True),
        ("API.Cluster.Example", True),
        (".cluster.example", True),
        ("*.cluster.example", True),
        (" other , cluster.example:6443 ", True),
        (".api.cluster.example", False),
        ("*.api.cluster.example", False),
        ("cluster.example:443", False),
        ("luster.example", False),
        ("10.0.0.0/8", False),
        ("", False),
        (",,", False),
        (":6443", False),
    ],
)
def test_domains_are_excepted_with_what_is_below_them(entry, is_direct):
    assert (found(HTTPS_PROXY=PROXY, NO_PROXY=entry) == "") is is_direct
    assert (found(HTTPS_PROXY=PROXY, no_proxy=entry) == "") is is_direct


@pytest.mark.parametrize(
    ("server", "entry", "is_direct"),
    [
        ("https://10.1.2.3:6443", "10.0.0.0/8", True),
        ("https://10.1.2.3:6443", "10.1.9.9/16", True),
        ("https://10.1.2.3:6443", "10.2.0.0/16", False),
        ("https://10.1.2.3:6443", "10.1.2.0/99", False),
        ("https://10.1.2.3:6443", "10.1.2.3", True),
        ("https://10.1.2.3:6443", "10.1.2.3:6443", True),
        ("https://10.1.2.3:6443", "10.1.2.3:443", False),
        ("https://10.1.2.3", "10.1.2.3:443", True),
        ("https://10.1.2.3:6443", "10.1.2.4", False),
        ("https://[fd00::1]:6443", "fd00::/8", True),
        ("https://[fd00::1]:6443", "fd00:0::1", True),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", True),
        ("https://[fd00::1]:6443", "[fd00::1]:443", False),
        ("https://[fd00::1]:6443", "10.0.0.0/8", False),
    ],
)
def test_networks_and_addresses_are_excepted(server, entry, is_direct):
    assert (found(server, HTTPS_PROXY=PROXY, NO_PROXY=entry) == "") is is_direct
