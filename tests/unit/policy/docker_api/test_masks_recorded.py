"""Complete answers of a real engine, with a secret planted in every place that takes one.

They are dockerd 20.10's; each planted secret begins with ``hunter2``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.policy.docker_api import masks
from claudeops.policy.docker_api.requests import DockerAnswerKind, DockerRead, ReadExec, read_request
from claudeops.text.redact import MASK, Redactor
from support.checkout import ROOT

Path = tuple[str | int, ...]

RECORDED: Final = [
    json.loads(line)
    for line in (ROOT / "tests/data/recordings/docker-engine-answers.jsonl").read_text(encoding="utf-8").splitlines()
]
DOCUMENTS: Final = [
    pytest.param(DockerAnswerKind(call["kind"]), json.loads(line), id=f"{call['kind']}-{number}-{index}")
    for number, call in enumerate(RECORDED)
    for index, line in enumerate(call["answer"].splitlines())
]
NOTHING: Final = Redactor([])

SECRET_FIELDS: Final = frozenset(
    {
        *("Env", "Cmd", "Args", "Entrypoint", "Command", "Labels", "Test", "Output", "CreatedBy", "Comment", "Options"),
        *("arguments", "entrypoint", "Attributes"),
    }
)
"""By this test's own list: whatever stands below one of them may be a secret."""

PUBLIC: Final = frozenset(
    {
        *(
            "name",
            "image",
            "exitCode",
            "execID",
            "execDuration",
            "signal",
            "type",
            "container",
            "driver",
            "destination",
        ),
        *("propagation", "read/write", "max-size", "oldName"),
    }
)
"""Names below these fields that say nothing secret: attributes of events, and how large a log may be."""


def leaves(value: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Yield what is neither list nor object, with where it is."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from leaves(one, (*path, name))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from leaves(one, (*path, index))
    else:
        yield path, value


def is_secret(kind: DockerAnswerKind, path: Path) -> bool:
    """Tell whether a text at a place may be a secret."""
    last = str(path[-1])
    if kind is DockerAnswerKind.TOP:
        return path[0] == "Processes" and path[-1] in {2, 7, 10}  # the last columns of the three recorded forms
    if kind is DockerAnswerKind.EVENTS and path in {("Action",), ("status",)}:
        return True
    if path[-2:-1] == ("Config",) and path[-3:-2] == ("LogConfig",):
        return last not in PUBLIC
    known = last.startswith(("com.docker.compose.", "com.docker.swarm.", "com.docker.stack.", "com.docker.network."))
    return not SECRET_FIELDS.isdisjoint(path) and not known and (last not in PUBLIC or "Labels" in path)


def with_leaf(value: object, path: Path, leaf: str) -> object:
    """Return a copy with another text at a place."""
    if not path:
        return leaf
    first, rest = path[0], path[1:]
    if isinstance(value, dict):
        return {name: with_leaf(one, rest, leaf) if name == first else one for name, one in value.items()}
    assert isinstance(value, list)
    return [with_leaf(one, rest, leaf) if index == first else one for index, one in enumerate(value)]


def test_the_recordings_hold_the_secrets_that_are_looked_for() -> None:
    text = "".join(call["answer"] for call in RECORDED)

    for place in (
        "label",
        "env",
        "cmd",
        "health-output",
        "exec",
        "image-env",
        "network-option",
        "node-label",
        "comment",
    ):
        assert f"hunter2-{place}" in text
    assert {call["kind"] for call in RECORDED} == {kind.value for kind in DockerAnswerKind} - {
        "ping",
        "logs",
        "wait",
        "plugin",
    }


@pytest.mark.parametrize("call", RECORDED, ids=lambda call: f"{call['kind']} {call['path']}")
def test_the_kind_of_an_answer_is_that_of_its_request(call: dict[str, str]) -> None:
    request = read_request(call["method"], call["path"])

    if isinstance(request, ReadExec):
        assert call["kind"] == DockerAnswerKind.EXEC
    elif call["kind"] != DockerAnswerKind.REPLY:
        assert isinstance(request, DockerRead)
        assert request.kind == call["kind"]


@pytest.mark.parametrize(("kind", "document"), DOCUMENTS)
def test_no_planted_secret_is_left(kind: DockerAnswerKind, document: object) -> None:
    assert "hunter2" not in json.dumps(masks.masked(kind, document))


@pytest.mark.parametrize(("kind", "document"), DOCUMENTS)
def test_all_else_stays_as_it_was(kind: DockerAnswerKind, document: object) -> None:
    before, after = dict(leaves(document)), dict(leaves(masks.masked(kind, document)))

    assert before.keys() == after.keys()
    changed = {path for path in before if before[path] != after[path]}
    assert all(is_secret(kind, path) for path in changed), changed
    assert all(MASK in str(after[path]) for path in changed)
    assert all(after[path] == "" for path in before if before[path] == "")


@pytest.mark.parametrize(("kind", "document"), DOCUMENTS)
def test_a_secret_in_any_place_for_secrets_is_masked(kind: DockerAnswerKind, document: object) -> None:
    """Each text in turn becomes a secret that no redactor knows, with and without the form of a variable."""
    places = [path for path, leaf in leaves(document) if isinstance(leaf, str) and is_secret(kind, path)]

    for path in places:
        if path[-2:] == ("Test", 0):
            continue  # CMD or CMD-SHELL; a test below has others there
        for secret in ("NAME=pl4nted one", "pl4nted one", "x: pl4nted", "echo pl4nted", "pl4nted=x"):
            planted = with_leaf(document, path, secret)
            shown = json.dumps(masks.masked(kind, planted))
            if secret == "pl4nted=x":
                assert "=x" not in shown, (path, secret)
            else:
                assert "pl4nted" not in shown or (kind is DockerAnswerKind.TOP and secret == "pl4nted one"), (
                    path,
                    secret,
                )


@pytest.mark.parametrize(("kind", "document"), DOCUMENTS)
def test_masking_twice_is_masking_once(kind: DockerAnswerKind, document: object) -> None:
    once = masks.masked(kind, document)

    assert masks.masked(kind, once) == once


@pytest.mark.parametrize("call", RECORDED, ids=lambda call: f"{call['kind']} {call['path']}")
def test_the_body_is_the_masked_document(call: dict[str, str]) -> None:
    kind, body = DockerAnswerKind(call["kind"]), call["answer"].encode()
    if kind is DockerAnswerKind.EVENTS:
        lines = [masks.masked_line(kind, line, NOTHING) for line in body.splitlines(keepends=True)]
        assert all(line.endswith(b"}\n") for line in lines)
        assert [json.loads(line) for line in lines] == [
            masks.masked(kind, json.loads(line)) for line in body.splitlines()
        ]
        return

    shown = masks.masked_body(kind, body, NOTHING)

    assert shown is not None
    assert json.loads(shown) == json.loads(NOTHING.line(json.dumps(masks.masked(kind, json.loads(body))).encode()))
    assert shown.endswith(b"\n") == body.endswith(b"\n")


def test_the_redactor_sees_every_name_and_text() -> None:
    redactor = Redactor(["s3cret-known", "s3cret-name"])
    documents: list[object] = [
        {"Name": "s3cret-known", "Names": ["/s3cret-known"], "Labels": {"s3cret-name": ""}},
        [{"Name": "x s3cret-known"}, {"s3cret-name": 1}, "s3cret-known"],
        {"s3cret-name": [["s3cret-known"]], "A": {"B": {"C": "s3cret-known"}}},
        "s3cret-known",
        ["http://user:passw0rd@host/"],
    ]
    for document in documents:
        shown = masks.masked_body(DockerAnswerKind.CONTAINER, json.dumps(document).encode(), redactor)
        assert shown is not None
        assert b"s3cret" not in shown
        assert b"passw0rd" not in shown
        assert MASK.encode() in shown
        json.loads(shown)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *(
                        "Env",
                        "Labels",
                        "Cmd",
                        "Command",
                        "Test",
                        "Options",
                        "LogConfig",
                        "Config",
                        "Status",
                        "State",
                        "Path",
                    ),
                    *("Titles", "Processes", "Action", "Actor", "Attributes", "Type", "Secrets", "Data", "HttpProxy"),
                    *("RegistryConfig", "Description", "x", "com.docker.compose.project", "Name"),
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(kind=st.sampled_from(DockerAnswerKind), document=json_values)
def test_any_document_keeps_its_form_and_is_masked_once(kind: DockerAnswerKind, document: object) -> None:
    shown = masks.masked(kind, document)

    assert {path for path, _ in leaves(shown)} == {path for path, _ in leaves(document)}
    assert masks.masked(kind, shown) == shown
    assert masks.masked_body(kind, json.dumps(document).encode(), NOTHING) is not None


@given(kind=st.sampled_from(DockerAnswerKind), body=st.binary(max_size=30))
def test_any_body_is_shown_as_json_or_not_at_all(kind: DockerAnswerKind, body: bytes) -> None:
    shown, line = masks.masked_body(kind, body, NOTHING), masks.masked_line(kind, body, NOTHING)

    assert shown is None or json.loads(shown) is not Ellipsis
    assert line == b"" or isinstance(json.loads(line), dict)
