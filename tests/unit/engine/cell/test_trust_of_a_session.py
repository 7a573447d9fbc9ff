"""What a session's programs trust beside its own authority is what they trusted before."""

from __future__ import annotations

from pathlib import Path

from claudeops.engine.cell.headers.trust import ALL, MORE, covered, variables, write


def test_files_that_the_operator_names_are_in_it_too_and_one_that_is_not_there_hurts_nobody(tmp_path: Path) -> None:
    for name in ("machine", "requests", "node"):
        (tmp_path / name).write_text(f"the {name}'s\n")
    given = {
        "SSL_CERT_FILE": str(tmp_path / "machine"),
        "REQUESTS_CA_BUNDLE": str(tmp_path / "requests"),
        "NODE_EXTRA_CA_CERTS": str(tmp_path / "node"),
        "CURL_CA_BUNDLE": str(tmp_path / "absent"),
    }
    write(tmp_path, "its own", given)
    everything, more = (tmp_path / place.name for place in (ALL, MORE))
    lines = [line for line in everything.read_text().splitlines() if line]
    assert lines == ["the machine's", "the requests's", "the node's", "its own"]
    assert [line for line in more.read_text().splitlines() if line] == ["the node's", "its own"]


def test_without_a_file_of_the_operators_the_machines_is_taken(tmp_path: Path) -> None:
    write(tmp_path, "its own", {})
    machine = [path.read_text() for path in covered()[:1]]
    assert (tmp_path / ALL.name).read_text() == "\n".join([*machine, "its own"])


def test_a_host_with_a_header_is_not_asked_through_a_proxy() -> None:
    given = {"HTTPS_PROXY": "http://proxy.example:3128", "NO_PROXY": "localhost"}
    found = variables(("a.example",), given)
    assert (found["NO_PROXY"], found["no_proxy"]) == ("localhost,a.example", "a.example")
    assert "NO_PROXY" not in variables(("a.example",), {})
    assert found["NODE_EXTRA_CA_CERTS"] == str(MORE)
