"""What doctor says about clusters: which contexts are filtered, which are not, and accounts that see too much."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from claudeops.cli.doctor.finding import DoctorContext, Finding, FindingStatus
from claudeops.cli.doctor.kubernetes import kubernetes
from support.cluster_engine import Cluster, kubeconfig, serving_tls
from support.levels import PATH, level_with_a_filter
from support.settings_world import make_world

pytestmark = pytest.mark.anyio

TOKEN = "the-clusters-own-token"


async def found(root: Path, text: str | None, *, level: str) -> Finding:
    given = {}
    if text is not None:
        (root / "config").write_text(text, encoding="utf-8")
        given = {"KUBECONFIG": str(root / "config"), "CLAUDEOPS_TIER2_ENV": "KUBECONFIG"}
    settings = make_world(root / "world").settings(
        ANTHROPIC_API_KEY="sk-ant-none", CLAUDEOPS_ISOLATION=level, PATH=PATH, **given
    )
    return await kubernetes(cast("DoctorContext", None), settings)


async def test_without_a_kubeconfig_nothing_is_reached(tmp_path: Path) -> None:
    finding = await found(tmp_path, None, level="none")
    assert finding.status is FindingStatus.OK
    assert "none has a kubeconfig" in finding.text


async def test_at_level_none_a_kubeconfig_is_a_warning(tmp_path: Path) -> None:
    text = kubeconfig(Cluster(objects={}, url="https://127.0.0.1:1"), "token: t")
    finding = await found(tmp_path, text, level="none")
    assert finding.status is FindingStatus.WARNING
    assert "Tier 2 may use the credentials" in finding.text
    assert "CLAUDEOPS_ISOLATION" in str(finding.remedy)


async def test_credentials_that_a_program_prints_are_said_not_to_be_filtered(tmp_path: Path) -> None:
    text = kubeconfig(Cluster(objects={}, url="https://127.0.0.1:1"), "exec: {command: aws}")
    finding = await found(tmp_path, text, level=level_with_a_filter())
    assert finding.status is FindingStatus.WARNING
    assert "without the filter" in finding.text
    assert "come from a program (exec)" in finding.text


@pytest.mark.parametrize("may", [True, False])
async def test_an_account_that_may_read_secrets_is_a_warning(tmp_path: Path, *, may: bool) -> None:
    with serving_tls(Cluster(objects={}, token=TOKEN, allowed=may), tmp_path / "server.pem") as cluster:
        finding = await found(tmp_path, kubeconfig(cluster, f"token: {TOKEN}"), level=level_with_a_filter())
    assert finding.status is (FindingStatus.WARNING if may else FindingStatus.OK), finding
    assert "Tier 2 reaches prod, other through the filter" in finding.text
    assert ("may read secrets" in finding.text) is may
    assert ("`view`" in str(finding.remedy)) is may
    assert {call[1] for call in cluster.calls} == {"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"}


async def test_a_cluster_that_does_not_answer_is_no_failure(tmp_path: Path) -> None:
    text = kubeconfig(Cluster(objects={}, url="https://127.0.0.1:1"), "token: t")
    finding = await found(tmp_path, text, level=level_with_a_filter())
    assert finding.status is FindingStatus.OK
    assert "prod could not be asked" in finding.text
