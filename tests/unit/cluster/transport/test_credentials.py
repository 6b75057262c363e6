import base64
import json

import pytest

from kai.basics.errors import ConfigError
from kai.cluster.transport.credentials import Credentials, Source

PEM = "-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----\n"


def kubeconfig(folder, *, user=None, cluster=None, **changed):
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://there:6443/", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        **changed,
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return path


def loaded(path, **options):
    return Source(kubeconfig=str(path), **{"environment": {}, **options}).load()


@pytest.fixture
def account(tmp_path):
    (tmp_path / "ca.crt").write_text(PEM)
    (tmp_path / "token").write_text("first\n")
    return tmp_path


def in_pod(account, host="10.0.0.1"):
    return Source(
        environment={"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"},
        account=account,
    )


def test_a_pods_account_is_read_anew_each_time(account):
    source = in_pod(account)
    first = source.load()
    assert (first.server, first.authority, first.authorization) == ("https://10.0.0.1:443", PEM, "Bearer first")
    (account / "token").write_text("second")
    second = source.load()
    assert second.authorization == "Bearer second"
    assert second.tls == first.tls


def test_an_address_of_the_sixth_version_stands_in_brackets(account):
    assert in_pod(account, "fd00::1").load().server == "https://[fd00::1]:443"


@pytest.mark.parametrize("token", ["", " \n", "two words", "töken"])
def test_a_token_that_is_none_is_refused(account, token):
    (account / "token").write_text(token)
    with pytest.raises(ConfigError, match="credentials: token: found"):
        in_pod(account).load()


def test_a_file_that_is_missing_is_named(account):
    (account / "token").unlink()
    with pytest.raises(ConfigError, match="token: found no such file or folder, expected a readable file"):
        in_pod(account).load()


def test_no_file_outside_a_pod_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match=r"^no cluster: give --kubeconfig or set KUBECONFIG"):
        Source(environment={"HOME": str(tmp_path)}).load()


def test_a_file_in_the_home_folder_is_found(tmp_path):
    (tmp_path / ".kube").mkdir()
    kubeconfig(tmp_path, user={"token": "t"}).rename(tmp_path / ".kube" / "config")
    assert Source(environment={"HOME": str(tmp_path)}).load().authorization == "Bearer t"


def test_a_file_that_the_environment_names_is_found(tmp_path):
    path = kubeconfig(tmp_path, user={"token": "t"})
    assert Source(environment={"KUBECONFIG": f"{path}:/other"}).load().server == "https://there:6443"


def test_certificates_come_from_files_or_from_the_text_itself(tmp_path):
    (tmp_path / "ca.pem").write_text(PEM)
    data = base64.b64encode(b"key").decode()
    found = loaded(
        kubeconfig(
            tmp_path,
            cluster={"certificate-authority": "ca.pem", "tls-server-name": "api"},
            user={"client-certificate-data": base64.b64encode(PEM.encode()).decode(), "client-key-data": data},
        )
    )
    assert (found.authority, found.certificate, found.key, found.server_name) == (PEM, PEM, "key", "api")


def test_a_user_may_have_token_file_or_password(tmp_path):
    (tmp_path / "token").write_text("t\n")
    assert loaded(kubeconfig(tmp_path, user={"tokenFile": "token"})).authorization == "Bearer t"
    basic = loaded(kubeconfig(tmp_path, user={"username": "a", "password": "b"})).authorization
    assert basic == "Basic " + base64.b64encode(b"a:b").decode()
    assert loaded(kubeconfig(tmp_path)).authorization == ""


def test_a_file_without_its_token_is_refused_and_named(tmp_path):
    (tmp_path / "token").write_text("")
    with pytest.raises(ConfigError, match=r"users\.u\.tokenFile: found an empty file, expected one with a token"):
        loaded(kubeconfig(tmp_path, user={"tokenFile": "token"}))
    (tmp_path / "token").unlink()
    with pytest.raises(ConfigError, match=r"found nothing to use \(\S+/token: no such file or folder\)"):
        loaded(kubeconfig(tmp_path, user={"tokenFile": "token"}))


def test_an_address_may_be_given_beside_the_file(tmp_path):
    assert loaded(kubeconfig(tmp_path), server="http://else:1/").server == "http://else:1"


def two_files(folder):
    """Return the paths of a file with a context and of one with its cluster, its user, and another context."""
    first, second = folder / "first", folder / "second"
    first.write_text(json.dumps({"contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}]}))
    kubeconfig(folder, user={"token": "t"}, contexts=[{"name": "d", "context": {"cluster": "k"}}]).rename(second)
    return f"{first}:{second}"


def test_files_that_the_environment_names_are_read_as_one(tmp_path):
    paths = two_files(tmp_path)
    assert Source(environment={"KUBECONFIG": paths}).load().authorization == "Bearer t"
    assert Source(environment={"KUBECONFIG": paths}, context="d").load().authorization == ""


def test_how_a_server_is_reached_is_read(tmp_path):
    cluster = {"insecure-skip-tls-verify": True, "tls-server-name": "api", "proxy-url": "http://proxy:3128"}
    found = loaded(kubeconfig(tmp_path, cluster=cluster))
    assert (found.is_insecure, found.server_name, found.proxy) == (True, "api", "http://proxy:3128")
    with pytest.raises(
        ConfigError, match=r"clusters\.proxy-url: found 'socks5://p', expected an http or https address"
    ):
        loaded(kubeconfig(tmp_path, cluster={"proxy-url": "socks5://p"}))


def test_the_environments_proxy_applies_if_the_file_names_none(tmp_path):
    environment = {"HTTPS_PROXY": "http://e:1", "NO_PROXY": "10.0.0.0/8"}
    plain, other = kubeconfig(tmp_path), {"server": "https://api.example:6443"}
    assert loaded(plain, environment=environment, server="https://api.example").proxy == "http://e:1"
    assert loaded(plain, environment=environment, server="https://10.1.1.1").proxy == ""
    own = kubeconfig(tmp_path, cluster=other | {"proxy-url": "http://own:2"})
    assert loaded(own, environment=environment).proxy == "http://own:2"


def test_an_unusable_proxy_is_named_without_its_password(tmp_path):
    environment = {"https_proxy": "socks5://me:secret@p:1"}
    with pytest.raises(
        ConfigError, match=r"^environment: https_proxy: found 'socks5://p:1', expected an http or https"
    ):
        loaded(kubeconfig(tmp_path), environment=environment, server="https://api.example")
    with pytest.raises(ConfigError, match=r"clusters\.proxy-url: found 'socks5://p', expected"):
        loaded(kubeconfig(tmp_path, cluster={"proxy-url": "socks5://me:secret@p"}))


@pytest.mark.parametrize("server", ["api", "https://", "ftp://api", "https://a b", "https://api:99999"])
def test_an_address_beside_the_file_must_be_one(tmp_path, server):
    with pytest.raises(ConfigError, match=r"^flags: --server: found '.*', expected an http or https address$"):
        loaded(kubeconfig(tmp_path), server=server)


def test_an_empty_file_is_called_so(tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_text("")
    with pytest.raises(
        ConfigError, match=r"kubeconfig: found nothing to use \(it is empty, or a part of it has another"
    ):
        loaded(str(path))


def test_what_is_no_text_is_called_so(tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_bytes(b"\xff\xfe\x00binary")
    with pytest.raises(ConfigError, match=r"kubeconfig: found nothing to use \(it is no text\), expected a kubeconfig"):
        loaded(str(path))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"current-context": "x"}, "object with name x in"),
        ({"current-context": None}, "found nothing to use (Expected key current-context in"),
        (
            {"clusters": 7},
            "found nothing to use (it is empty, or a part of it has another type), expected a kubeconfig",
        ),
        ({"clusters": []}, "object with name k in"),
        ({"clusters": [{"name": "k", "cluster": {"server": "ftp://x"}}]}, "expected an http or https address"),
        ({"clusters": [{"name": "k", "cluster": {"server": "http://[x"}}]}, "expected an http or https address"),
        ({"clusters": [{"name": "k", "cluster": {"server": "http://x:99999"}}]}, "expected an http or https address"),
        (
            {"clusters": [{"name": "k", "cluster": {"tls-server-name": "a"}}]},
            "clusters.server: found nothing, expected",
        ),
        ({"users": []}, "object with name u in"),
    ],
)
def test_a_file_that_does_not_fit_together_says_where(tmp_path, changed, words):
    with pytest.raises(ConfigError) as caught:
        loaded(kubeconfig(tmp_path, **changed))
    assert words in str(caught.value)
    assert str(tmp_path / "kubeconfig") in str(caught.value)


@pytest.mark.parametrize(
    "user",
    [
        {"auth-provider": {"name": "oidc", "config": {"refresh-token": "SECRET"}}},
        {"exec": {"command": "false", "env": [{"name": "SECRET"}]}},
        {"exec": {"args": ["SECRET"]}},
    ],
    ids=["identity provider", "environment", "no command"],
)
def test_an_error_shows_no_secret_and_the_log_neither(tmp_path, caplog, user):
    with pytest.raises(ConfigError) as caught:
        loaded(kubeconfig(tmp_path, user=user))
    assert "SECRET" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caplog.text == ""


@pytest.mark.parametrize("text", ["", "- a", "{", "a: 1\n---\nb: 2\n"])
def test_a_file_that_is_no_configuration_is_refused(tmp_path, text):
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(ConfigError, match="kubeconfig"):
        loaded(path)


def test_what_is_no_certificate_is_refused(tmp_path):
    found = loaded(kubeconfig(tmp_path, cluster={"certificate-authority-data": base64.b64encode(b"x").decode()}))
    with pytest.raises(ConfigError, match="credentials: TLS: found"):
        found.ssl_context()
    with pytest.raises(ConfigError, match="certificate-authority: found nothing, expected PEM"):
        loaded(kubeconfig(tmp_path, cluster={"certificate-authority-data": "%%%"}))


def test_secrets_are_not_shown(account):
    assert "first" not in repr(in_pod(account).load())


def test_the_account_is_the_one_that_a_token_names():
    claims = base64.urlsafe_b64encode(b'{"sub":"system:serviceaccount:kai-scheduler:kai"}').decode().rstrip("=")
    token = Credentials(server="https://s", authorization=f"Bearer e30.{claims}.c2ln", user="admin")
    assert token.account == "system:serviceaccount:kai-scheduler:kai"


@pytest.mark.parametrize(
    "text", ["", "Bearer abc", "Bearer a.b.c", "Bearer e30.bm8.x", "Bearer e30.W10.x", "Basic YTpi"]
)
def test_without_a_readable_token_the_kubeconfig_names_the_account(text):
    assert Credentials(server="https://s", authorization=text, user="admin").account == "admin"
    assert Credentials(server="https://s", authorization=text).account == "unknown"
