"""The secrets of headers come from variables and files, are known to the redactor, and are shown by no sentence."""

from __future__ import annotations

import base64

import pytest

from claudeops.errors import ConfigurationError
from support.settings_world import World

PLAIN = '[[headers]]\nhost = "grafana.example"\nname = "Authorization"\nvalue = "Bearer {}"\n'
GIVEN = {"CLAUDEOPS_HEADERS_PATH": "headers.toml"}


def test_values_are_filled_in_and_their_secrets_and_files_are_kept_from_everybody(world: World) -> None:
    both = base64.b64encode(b"reader:opensesame").decode()
    path = world.file("headers.toml", PLAIN.format("${TOKEN}") + PLAIN.format("${file:key}").replace("graf", "tick"))
    key = world.file("key", "of-the-file\n")
    with path.open("a") as file:
        file.write(PLAIN.replace("Bearer {}", "Basic ${BASIC}").replace("graf", "basic"))
    settings = world.settings(GIVEN, TOKEN="of-the-variable", BASIC=both)
    values = [header.value for header in settings.headers]
    assert values == ["Bearer of-the-variable", "Bearer of-the-file", f"Basic {both}"]
    assert {"of-the-variable", "of-the-file", both, "opensesame"} <= {*settings.secrets}
    assert {path, key} <= {*settings.private_files}
    assert "of-the" not in repr(settings)
    assert world.settings().headers == ()


REFUSED = {
    "a variable that is not set": ("${NOT_SET}", "NOT_SET, which is not set: set it"),
    "a secret of the daemon": ("${ANTHROPIC_API_KEY}", "the daemon's alone"),
    "one with a line end": ("${LINES}", "no printable ASCII"),
    "one that is too short": ("${SHORT}", "fewer than 6"),
    "a file that is not there": ("${file:absent}", "does not exist"),
    "a file that is blank": ("${file:blank}", "is empty"),
    "a mistake in the file": ("literally", "line 4: value: the secret itself does not belong"),
    "a value that is too long": ("${LONG}", "longer than 8192"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_secret_that_cannot_be_used_stops_the_start_with_one_sentence_that_does_not_show_it(
    what: str, world: World
) -> None:
    value, said = REFUSED[what]
    world.file("headers.toml", PLAIN.format(value))
    world.file("blank", "\n")
    with pytest.raises(ConfigurationError, match="CLAUDEOPS_HEADERS_PATH") as caught:
        world.settings(GIVEN, LINES="planted-a\nplanted-b", SHORT="plant", LONG="planted" * 2000)
    assert said in str(caught.value)
    assert "plant" not in str(caught.value)


def test_an_authority_that_is_no_certificate_stops_the_start(world: World) -> None:
    world.file("headers.toml", PLAIN.format("${TOKEN}") + 'ca_file = "key"\n')
    world.file("key", "no certificate\n")
    with pytest.raises(ConfigurationError, match="holds no certificate: write"):
        world.settings(GIVEN, TOKEN="of-the-variable")
