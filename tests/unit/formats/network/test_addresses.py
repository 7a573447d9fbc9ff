"""The endpoints of a session's settings: variables, URLs, a kubeconfig; passwords are no part of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.formats.network.addresses import Endpoint, endpoints_in, endpoints_of_environment, joined, servers_in


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://mcp.example/sse", [("mcp.example", 443)]),
        ("http://MCP.example:8931/sse?x=http://evil.example", [("mcp.example", 8931)]),
        ("postgresql://ops:p@ss/w0rd@db1.example/shop", []),
        ("postgresql://ops:123/w0rd@db1.example/shop", []),
        ("https://shop.example/a@b", [("shop.example", 443)]),
        ("postgresql://ops:p@ss@db1.example/shop", [("db1.example", 5432)]),
        ("postgresql://ops:pw@db1.example:6432,db2.example/shop", [("db1.example", 6432), ("db2.example", 5432)]),
        ("mongodb+srv://ops:pw@cluster.example/x", [("cluster.example", 27017)]),
        ("jdbc:mysql://db1.example/shop", [("db1.example", 3306)]),
        ("tcp://docker.example:2376", [("docker.example", 2376)]),
        ("ssh://ops@docker.example", [("docker.example", 22)]),
        ("unix:///run/docker.sock", []),
        ("file:///etc/hosts", []),
        ("nats://a.example:4222,nats://b.example:4223", [("a.example", 4222), ("b.example", 4223)]),
        (
            "http://a.example,http://b.example;https://c.example",
            [("a.example", 80), ("b.example", 80), ("c.example", 443)],
        ),
        (
            "k1.example:9092, k2.example:9093 [fd00::1]:9094",
            [("k1.example", 9092), ("k2.example", 9093), ("fd00::1", 9094)],
        ),
        ("https://[fd00::7]/", [("fd00::7", 443)]),
        ("redis:6379/0", [("redis", 6379)]),
        ("ops@mail.example:25", [("mail.example", 25)]),
        ("03:00", []),
        ("1000:1000", []),
        ("host.example", []),
        ("host.example:0 host.example:70000 http://host.example:70000", []),
        ("${HOST}:80", []),
        ("/usr/bin:/bin", []),
        ("", []),
    ],
)
def test_a_text_names_endpoints(text: str, expected: list[Endpoint]) -> None:
    assert list(endpoints_in(text)) == expected


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"PGHOST": "db1.example"}, [("db1.example", 5432)]),
        ({"PGHOST": "db1.example", "PGPORT": "6432"}, [("db1.example", 6432)]),
        ({"PGHOST": "a.example,b.example", "PGPORT": "1,2"}, [("a.example", 1), ("b.example", 2)]),
        ({"PGHOST": "a.example,b.example", "PGPORT": "1"}, [("a.example", 1), ("b.example", 1)]),
        ({"PGHOSTADDR": "10.0.0.5"}, [("10.0.0.5", 5432)]),
        ({"PGHOST": "/run/postgresql"}, []),
        ({"MYSQL_HOST": "db1.example", "MYSQL_TCP_PORT": "3307"}, [("db1.example", 3307)]),
        ({"REDIS_HOST": "fd00::5"}, [("fd00::5", 6379)]),
        ({"SHOP_HOST": "shop.example"}, []),
        ({"SHOP_HOST": "shop.example", "SHOP_PORT": "8080"}, [("shop.example", 8080)]),
        ({"SHOP_HOST": "shop.example", "SHOP_PORT": "tcp://10.0.0.1:8080"}, [("10.0.0.1", 8080)]),
        ({"DOCKER_HOST": "tcp://docker.example:2376"}, [("docker.example", 2376)]),
        ({"http_proxy": "http://proxy.example:3128"}, [("proxy.example", 3128)]),
        ({"HTTPS_PROXY": "proxy.example:3128"}, [("proxy.example", 3128)]),
        ({"no_proxy": "shop.example:443", "NO_PROXY": "shop.example:443"}, []),
        ({"ANTHROPIC_BASE_URL": "https://gateway.example/anthropic"}, [("gateway.example", 443)]),
        ({"API_TOKEN": "user:12345", "DB_PASSWORD": "word:80"}, []),  # no part of a secret is looked up
    ],
)
def test_variables_name_endpoints(environment: dict[str, str], expected: list[Endpoint]) -> None:
    assert list(endpoints_of_environment(environment)) == expected


def test_no_password_gets_out_of_a_url() -> None:
    found = endpoints_of_environment({"DATABASE_URL": "postgres://ops:hunter2@db1.example:5433/shop?password=hunter2"})
    assert found == (("db1.example", 5433),)


KUBECONFIG = """
apiVersion: v1
clusters:
- name: prod
  cluster:
    certificate-authority-data: AAAA
    server: https://10.0.0.1:6443
- name: stage
  cluster: {server: "https://kube.example", proxy-url: "http://proxy.example:3128"}
- name: odd
- odd
users: [{name: a, user: {token: "https://evil.example"}}]
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (KUBECONFIG, ("https://10.0.0.1:6443", "https://kube.example", "http://proxy.example:3128")),
        ('{"clusters": [{"cluster": {"server": "https://kube.example"}}]}', ("https://kube.example",)),
        ("clusters: text", ()),
        ("a: &x [*x]", ()),
        ("{", ()),
        ("x" * 300_000, ()),
        ("", ()),
    ],
)
def test_a_kubeconfig_names_its_servers(text: str, expected: tuple[str, ...]) -> None:
    assert servers_in(text) == expected


def test_an_endpoint_is_written_so_that_it_is_read_again() -> None:
    for endpoint in (("db1.example", 5432), ("fd00::1", 80), ("10.0.0.5", 22)):
        assert endpoints_in(joined(endpoint)) == (endpoint,)


@given(st.text(max_size=300), st.text(max_size=20))
def test_whatever_a_value_is_its_endpoints_have_a_host_and_a_port(value: str, port: str) -> None:
    for host, number in endpoints_of_environment({"X_HOST": value, "X_PORT": port, "Y": f"http://{value}"}):
        assert host
        assert 1 <= number <= 65535
