"""Which directories a manifest names."""

from __future__ import annotations

import pytest

from claudeops.domain.estate.hosts import directories_in
from claudeops.formats.estate.combine import combine
from claudeops.formats.estate.manifest import parse_manifest


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("`cd /srv/media && docker compose up -d`", ("/srv/media",)),
        ("docker compose -f /srv/media/compose.yml restart", ("/srv/media",)),
        ("docker compose --file=/srv/media/prod.yaml restart", ("/srv/media",)),
        ("docker compose --project-directory=/opt/stacks/a+b restart", ("/opt/stacks/a+b",)),
        ("The stacks are in /opt/stacks/, and in /srv.", ("/opt/stacks", "/srv")),
        ("| web | nas:/srv/web |", ("/srv/web",)),
        ("(/srv/a) [b](/srv/b) '/srv/c' \"/srv/d\"", ("/srv/a", "/srv/b", "/srv/c", "/srv/d")),
        ("/srv/a\n/srv/a/\n/srv/./a/compose.yml", ("/srv/a",)),
        # what names none
        ("https://shop.example/health answers", ()),
        ("~/stacks/media and stacks/media and ../media", ()),
        ("/srv/media/../../etc", ()),
        ("/compose.yml, and / alone, and //shop.example", ()),
        ("/" + "a" * 600, ()),
    ],
)
def test_directories_are_the_absolute_paths_of_a_text(text: str, named: tuple[str, ...]) -> None:
    assert directories_in(text) == named


def test_a_manifest_names_them_wherever_they_stand() -> None:
    text = """\
---
stack: /srv/front
---
# media

Everything is deployed to /srv/prose.

| service | restart | check |
| --- | --- | --- |
| web | `cd /srv/cell && docker compose restart web` | `docker compose -f /srv/check/compose.yml ps` |

## Rules
- Never touch /srv/rule.
"""
    manifest = parse_manifest(text, repository="media")
    named = ("/srv/front", "/srv/prose", "/srv/cell", "/srv/check", "/srv/rule")
    assert manifest.directories == named
    assert combine([manifest, parse_manifest("/srv/more", repository="shop")]).directories == (*named, "/srv/more")


def test_a_manifest_names_no_more_of_them_than_anybody_has() -> None:
    assert len(directories_in("\n".join(f"/srv/{number}" for number in range(2000)))) == 500
