"""Compose files as people write them: what is taken over counts, what cannot be read is named."""

from __future__ import annotations

import pytest

from claudeops.formats.estate.compose import Compose, parse_compose

ANCHORS = """
x-task: &task
  deploy:
    restart_policy: {condition: on-failure}
x-labels: &labels
  labels:
    - "traefik.http.routers.api.rule=Host(`api.example.org`)"
x-svc: &svc
  container_name: prod-api
  hostname: api.internal.example
services:
  api: &api
    <<: [*task, *labels]
    <<: *svc
    ports: [ "10.9.8.7:8443:8443" ]
    environment:
      NORWAY: no
      PORTS: 22:22
  worker:
    <<: *api
    container_name: ${PREFIX:-prod}-worker
    ports: !reset []
  legacy:
    *api
"""


def compose(text: str) -> Compose:
    return parse_compose(text, path="media/compose.yml")


def containers(text: str) -> dict[str, str]:
    return {service.name: service.container for service in compose(text).services}


def test_what_a_service_takes_over_by_merges_is_its_own() -> None:
    found = compose(ANCHORS)
    assert found.faults == ()
    assert containers(ANCHORS) == {"api": "prod-api", "worker": "", "legacy": "prod-api"}
    assert {"api.example.org", "api.internal.example", "prod-api", "10.9.8.7"} <= set(found.hosts)
    assert "22" not in " ".join(found.hosts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x: &x {container_name: a}\nservices:\n  s:\n    <<: *x\n", "a"),
        ("x: &x {container_name: a}\nservices:\n  s:\n    <<: *x\n    container_name: b\n", "b"),
        ("x: &x {container_name: a}\ny: &y {container_name: b}\nservices:\n  s:\n    <<: [*x, *y]\n", "a"),
        ("x: &x {container_name: a}\ny: &y\n  <<: *x\nservices:\n  s:\n    <<: *y\n", "a"),
        ("x: &x prod-a\nservices:\n  s:\n    container_name: *x\n", "prod-a"),
        ("services:\n  base: {container_name: a}\n  s:\n    extends: base\n", "a"),
        ("services:\n  base: {container_name: a}\n  s:\n    extends: {service: base}\n", "a"),
        ("services:\n  s:\n    extends: s\n", ""),
        ("services:\n  s:\n    extends: t\n  t:\n    extends: s\n    container_name: a\n", "a"),
        ("services:\n  s: &s\n    <<: {container_name: a}\n", "a"),
        ("services:\n  s:\n    <<: scalar\n", ""),
        ("x: &x\n  s: {container_name: a}\nservices:\n  <<: *x\n  web: {}\n", "a"),
        ("x: &x\n  s: {container_name: a}\nservices:\n  <<: *x\n  s: {container_name: b}\n", "b"),
        ("x: &x {s: {container_name: a}}\ny: &y {s: {container_name: b}}\nservices: {<<: [*x, *y]}\n", "a"),
        ("x: &x {s: {container_name: a}}\ny: &y {<<: *x, t: {}}\nservices: {<<: *y}\n", "a"),
        ("x: &x {s: {container_name: a}}\nservices: {<<: *x, t: {extends: s}}\n", "a"),
        ("x: &x\n  services: {s: {container_name: a}}\n<<: *x\n", "a"),
    ],
)
def test_each_kind_of_taking_over_counts(text: str, expected: str) -> None:
    assert containers(text)["s"] == expected


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("services:\n  {{ service.name }}:\n    image: x\n", 2, "template"),
        ("services:\n{% for s in all %}\n  a:\n    image: x\n{% endfor %}\n", 2, "template"),
        ("services:\n  api:\n\timage: x\n", 3, "knows no tabs"),
        ("services:\n  api:\n    image: x\n    logging: *json-logging\n", 4, "*json-logging has no anchor"),
        ("services:\n  api:\n    environment:\n      SECRET: !ChangeMe!\n", 4, "in quotes"),
        ("services:\n  a: [\n", 3, "correct it"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line_and_a_remedy(text: str, line: int, words: str) -> None:
    (fault,) = compose(text).faults
    assert fault.source.line == line
    assert words in fault.sentence


def test_a_lost_alias_takes_nothing_else_with_it() -> None:
    text = "services:\n  api:\n    container_name: a\n    logging: *lost\n  web: {container_name: w}\n"
    assert containers(text) == {"api": "a", "web": "w"}


def test_a_secret_of_an_environment_is_in_no_fault() -> None:
    text = "services:\n  api:\n    environment:\n      SECRET: !hunter2!\n"
    assert "hunter2" not in " ".join(map(str, compose(text).faults))


def laughing(levels: int) -> str:
    lines = ["a0: &a0 {labels: [x, y]}"]
    lines += [f"a{level}: &a{level}\n  <<: [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, levels)]
    return "\n".join([*lines, "services:", *(f"  s{number}: *a{levels - 1}" for number in range(50))])


@pytest.mark.parametrize("levels", [3, 7, 40])
def test_merges_within_merges_are_bounded(levels: int) -> None:
    found = compose(laughing(levels))
    assert len(found.services) == 50
    assert len(found.faults) <= 1


def test_services_that_are_merged_again_and_again_are_there_once() -> None:
    tables = [f"a{number}: &a{number}\n  <<: *a{number - 1}\n  s{number}: {{}}" for number in range(1, 1500)]
    text = "\n".join(["a0: &a0 {s: {container_name: a}}", *tables, "services:", "  <<: [*a1499, *a1499, *a3]"])
    found = compose(text)
    assert len(found.services) == 300
    assert len(found.faults) == 1
