"""Many globs as one automaton say what each of them says alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from claudeops.policy.places import SECRET_NAMES, is_secret_name, may_match
from claudeops.text.glob import Overlaps, overlap

GLOBS = st.text(alphabet="ab.*?", max_size=8)
FRONTS = (".", "#", ".#", "._")


def _is_glob(name: str) -> bool:
    return bool({"*", "?", "["} & {*name}) and name != "**"  # which stands for directories


PIECES = st.sampled_from(
    ["*", "?", "[ab]", "[.]", ".", "#", "_", "id_", "rsa", ".ssh", ".env", "key", "secret", "log", ".md", "a", "shadow"]
)


@given(st.lists(GLOBS, max_size=6), GLOBS)
def test_one_of_many_overlaps_exactly_where_it_overlaps_alone(globs: list[str], given_glob: str) -> None:
    assert Overlaps(globs).any_with(given_glob) == any(overlap(given_glob, glob) for glob in globs)


@given(st.lists(GLOBS, max_size=6), GLOBS)
def test_globs_that_do_not_count_are_left_out(globs: list[str], given_glob: str) -> None:
    both = Overlaps(globs)
    counted = both.starting(lambda glob: glob.startswith("a"))
    expected = any(overlap(given_glob, glob) for glob in globs if glob.startswith("a"))
    assert both.any_with(given_glob, counted) == expected


@given(st.lists(PIECES, min_size=1, max_size=7).map("".join).filter(_is_glob), st.booleans())
def test_a_glob_is_secret_where_some_secret_name_fits_it(name: str, hidden: bool) -> None:
    secrets = {f"{secret.rstrip('*')}*" for secret in SECRET_NAMES}
    if not name.startswith(("*", "?")):
        secrets |= {f"{front}{secret}" for front in FRONTS for secret in secrets}
    assert is_secret_name(name, hidden=hidden) == any(may_match(name, secret, hidden=hidden) for secret in secrets)


def test_nothing_overlaps_no_glob_at_all() -> None:
    assert not Overlaps(()).any_with("*")
    assert not Overlaps(("a*",)).any_with("")
    assert Overlaps(("*",)).any_with("")
