"""Kubeconfigs: what a filter can serve, why not, and a session's own that holds no credential of the cluster."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from claudeops.formats.estate.trees import UnreadableError
from claudeops.formats.kubeconfig import FilteredContext, KubeconfigText, filtered, read_kubeconfig

PEM: Final = "-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n"


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def config(user: str, cluster: str = "server: https://k8s.example:6443", context: str = "") -> str:
    return (
        f"clusters:\n- {{name: c, cluster: {{{cluster}}}}}\n"
        f"users:\n- {{name: u, user: {{{user}}}}}\n"
        f"contexts:\n- {{name: prod, context: {{cluster: c, user: u{context}}}}}\ncurrent-context: prod\n"
    )


def test_a_token_a_file_and_a_certificate_are_served() -> None:
    [token] = read_kubeconfig(("", config("token: t-hunter2", context=", namespace: shop"))).served
    assert (token.context, token.namespace, token.server) == ("prod", "shop", "https://k8s.example:6443")
    assert token.token == KubeconfigText(text="t-hunter2")
    assert "hunter2" not in repr(token)

    [file] = read_kubeconfig(("", config("tokenFile: token", cluster="server: 'http://[::1]:8001/k8s/c-1'"))).served
    assert (file.token, file.server) == (KubeconfigText(file="token"), "http://[::1]:8001/k8s/c-1")

    inline = f"client-certificate-data: {in_base64(PEM)}, client-key-data: {in_base64(PEM)}, client-key: other"
    [certificate] = read_kubeconfig(("", config(inline))).served
    assert (certificate.certificate, certificate.key) == (KubeconfigText(text=PEM), KubeconfigText(text=PEM))
    assert not certificate.token

    tls = "certificate-authority: ca.pem, tls-server-name: k8s, insecure-skip-tls-verify: true"
    files = f"server: https://k8s.example, {tls}"
    [named] = read_kubeconfig(("", config("client-certificate: a.pem, client-key: a.key", cluster=files))).served
    assert (named.authority, named.tls_name, named.verifies) == (KubeconfigText(file="ca.pem"), "k8s", False)
    assert (named.certificate, named.key) == (KubeconfigText(file="a.pem"), KubeconfigText(file="a.key"))


@pytest.mark.parametrize(
    ("user", "cluster", "reason"),
    [
        ("exec: {command: aws}", "server: https://k8s.example", "(exec)"),
        ("token: t, exec: {command: aws}", "server: https://k8s.example", "(exec)"),
        ("auth-provider: {name: gcp}", "server: https://k8s.example", "(auth-provider)"),
        ("token: t, as: admin", "server: https://k8s.example", "acts for another"),
        ("username: a, password: b", "server: https://k8s.example", "password"),
        ("token: t, token: s", "server: https://k8s.example", "twice"),
        ("client-key-data: '***'", "server: https://k8s.example", "base64"),
        ("token: t", "server: https://k8s.example, proxy-url: http://p:1", "proxy"),
        ("token: t", "server: ''", "server"),
        ("token: t", "server: unix:///run/k8s.sock", "http or https"),
        ("token: t", "server: https://u:p@k8s.example", "http or https"),
        ("token: t", "server: 'https://[k8s'", "http or https"),
        ("token: t", "server: https://k8s.example:99999", "http or https"),
    ],
)
def test_what_cannot_be_served_says_why(user: str, cluster: str, reason: str) -> None:
    read = read_kubeconfig(("", config(user, cluster)))
    assert not read.served
    [unserved] = read.unserved
    assert unserved.context == "prod"
    assert reason in unserved.reason


def test_a_context_of_a_cluster_that_is_not_there_is_unserved() -> None:
    read = read_kubeconfig(("", "contexts: [{name: a, context: {cluster: none, user: none}}, {name: b}, 7]\n"))
    assert ([one.context for one in read.unserved], read.served, read.current) == (["a"], (), "")


@pytest.mark.parametrize("text", ["[]", "a: &b c\nd: *b", "{", "x", "a: " + "[" * 50, "x" * 300_000])
def test_what_is_no_kubeconfig_is_unreadable(text: str) -> None:
    with pytest.raises(UnreadableError):
        read_kubeconfig(("", text))


def test_the_kubeconfig_of_a_session_leads_to_the_filter_alone() -> None:
    contexts = [
        FilteredContext(context="prod", namespace="shop", token="own"),
        FilteredContext(context="x: y", namespace="", token="other"),
    ]
    text = filtered(contexts, current="prod", port=4001, authority=PEM)

    document = yaml.safe_load(text)
    assert document["current-context"] == "prod"
    read = read_kubeconfig(("", text))
    assert [(one.context, one.namespace, one.server) for one in read.served] == [
        ("prod", "shop", "https://127.0.0.1:4001"),
        ("x: y", "", "https://127.0.0.1:4001"),
    ]
    assert [one.token.text for one in read.served] == ["own", "other"]
    assert all(one.authority == KubeconfigText(text=PEM) for one in read.served)
    assert yaml.safe_load(filtered(contexts, current="gone", port=4001, authority=PEM))["current-context"] == ""


def test_kubectl_reads_the_kubeconfig_of_a_session(tmp_path: Path) -> None:
    file = tmp_path / "config"
    contexts = [FilteredContext(context="prod", namespace="shop", token="own")]
    file.write_text(filtered(contexts, current="prod", port=4001, authority=PEM), encoding="utf-8")
    shown = subprocess.run(
        [
            *(str(Path(sys.executable).parent / "kubectl"), f"--kubeconfig={file}", "config", "view", "--minify"),
            *("-o", "jsonpath={.current-context} {.contexts[0].context.namespace} {.clusters[0].cluster.server}"),
        ],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert shown.stdout == "prod shop https://127.0.0.1:4001", shown.stderr


def test_several_kubeconfigs_are_one_and_each_names_files_beside_itself() -> None:
    contexts = "contexts: [{name: prod, context: {cluster: c, user: u}}]\ncurrent-context: prod\n"
    clusters = "clusters: [{name: c, cluster: {server: 'https://10.0.0.1:6443', certificate-authority: ca.pem}}]\n"
    users = (
        "users: [{name: u, user: {tokenFile: /run/token}}]\nclusters: [{name: c, cluster: {server: 'https://no'}}]\n"
    )
    read = read_kubeconfig(("/a", contexts), ("/b", clusters), ("/c", users))
    [served] = read.served
    assert (read.current, served.server) == ("prod", "https://10.0.0.1:6443")
    assert (served.authority.file, served.token.file) == ("/b/ca.pem", "/run/token")


@given(st.text() | st.text(st.sampled_from("{}[]:, \n-abc&*!|\"'")))
def test_no_text_breaks_the_reader(text: str) -> None:
    try:
        read_kubeconfig(("", text))
    except UnreadableError:
        return
