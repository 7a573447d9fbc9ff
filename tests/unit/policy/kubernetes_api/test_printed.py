"""What of kubectl's output and errors a session may read where the daemon has run it: names, and no values."""

from __future__ import annotations

import pytest

from claudeops.policy.kubernetes_api.printed import MASK, complaint, named_line


@pytest.mark.parametrize(
    "line",
    [
        "deployment.apps/web configured",
        "service/web unchanged",
        "configmap/cm1 created",
        "deployment.apps/web serverside-applied",
        "clusterrole.rbac.authorization.k8s.io/system:view configured",
        "deployment.apps/web rolled back",
        "deployment.apps/web skipped rollback (current template already matches revision 3)",
        "deployment.apps/web patched (no change)",
        "node/n1 already cordoned",
        "pod/web-1 not labeled",
    ],
)
def test_an_objects_name_and_what_was_done_is_read(line: str) -> None:
    assert named_line(line) == line


@pytest.mark.parametrize(
    "line",
    [
        "      DB_PASSWORD:\thunter2",
        '{"kind":"Deployment","spec":"hunter2"}',
        "+    value: hunter2",
        "deployment.apps/web hunter2",
        "deployment.apps/web configured hunter2",
        "deployment.apps/web configured\r+ hunter2",
        "hunter2",
        "",
    ],
)
def test_every_other_line_is_masked(line: str) -> None:
    assert named_line(line) == MASK


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ('deployments.apps "web" not found', 'deployments.apps "web" not found'),
        ('env[0].value: Invalid value: "a \\"hunter2\\": b": too long', "env[0].value: Invalid value: MASK: too long"),
        ('spec: Invalid value: core.PodSpec{Env: "hunter2"}: field is immutable', "spec: Invalid value: MASK"),
        ('a: Invalid value: "cut off hunter2 } x', "a: Invalid value: MASK"),
        ('a: Unsupported value: "hunter2": known: "A"', 'a: Unsupported value: MASK: known: "A"'),
        ("a: Duplicate value: hunter2", "a: Duplicate value: MASK"),
        ("cannot unmarshal !!str `hunter2` into int", "cannot unmarshal !!str MASK into int"),
        ('strconv.ParseInt: parsing "hunter2": bad', "strconv.ParseInt: parsing MASK: bad"),
        ('a regex, error found in #10 byte of ...|"hunter2"|', "a regex, MASK"),
        ('map[value:hunter2] is odd {"a": "hunter2"}', "MASK"),
    ],
)
def test_of_a_reason_everything_is_read_but_values(text: str, read: str) -> None:
    for before in ("error: ", "Error from server (Invalid): ", 'The Job "j" is invalid: ', "* "):
        assert complaint(before + text) == before + read.replace("MASK", MASK)
    assert "hunter2" not in read


def test_warnings_are_read_on_one_line() -> None:
    text = "Warning: it is missing the annotation.\nThe connection was  refused\n"
    assert complaint(text) == "Warning: it is missing the annotation. The connection was refused"


def test_a_patch_that_failed_is_left_out() -> None:
    text = (
        'Error from server: error when applying patch:\n{"spec":"hunter2"}\nto:\nResource: "apps/v1"\nName: "web"\n'
        'for: "/repos/web.yaml": admission denied it'
    )
    assert complaint(text) == (
        'Error from server: error when applying patch: for: "/repos/web.yaml": admission denied it'
    )


def test_lines_that_begin_as_no_error_does_are_left_out() -> None:
    assert complaint("DB_PASSWORD: hunter2\n  hunter2\nE1129 memcache.go:265] hunter2\n to: hunter2") == ""


def test_what_is_read_of_errors_is_short() -> None:
    assert len(complaint("error: x\n" * 1000)) == 1000
