"""Judges paths: whether one may be read, listed or written, by its text and by where its symlinks lead.

A path is a tuple of names. Globs stay globs: a pattern counts as secret when it could match a secret name. Where the
working directory is not known, a relative path is judged against every directory that ``cd`` may have entered, and
``cd`` never enters a secret one.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Final

from claudeops.domain.policy.places import (
    ANY_DEPTH,
    CERTIFICATE_TREES,
    LEFT_OUT,
    LOG_TREES,
    READABLE,
    READABLE_TREES,
    SECRET_FILES,
    SECRET_TREES,
    SHARED_TEMPORARY,
    before_glob,
    is_certificate_name,
    is_glob,
    is_secret_name,
    meet,
    meet_somewhere,
    refuse_search,
)
from claudeops.domain.policy.reach import Reach, Scope
from claudeops.domain.shell.values import Word, WordKind
from claudeops.domain.text import regex

COMPOSE_FILE: Final = regex.Pattern(r"(?:docker-)?compose[\w.-]*\.ya?ml")

_MOST_NAMES: Final = 64  # in one path
_LONGEST_NAME: Final = 255  # characters of a name or a pattern for one; Linux has no longer names
_PLAIN_KIND: Final = regex.Pattern(
    rf"[{regex.WORD}*?-][{regex.WORD}*?.-]*\.(?:ya?ml|conf|cfg|ini|toml|json|md|txt|log|sh|service|timer|socket|tf|j2|py|xml|rules|csv)"
)  # of files that may be searched without being named; a wildcard before it may still find a secrets.yml
_PLAIN_SETS: Final = regex.Pattern(r"(?:[^\[]|\[(?:[*?]|[\w.-]+)\])*")  # none negated, named or unclosed


@dataclass(frozen=True, kw_only=True, slots=True)
class Searched:
    """Which names a search reads, as the globs of its options."""

    only: tuple[str, ...] = ()  # of files; none: all of them
    left_out: tuple[str, ...] = ()  # of files
    left_out_below: tuple[str, ...] = ()  # of directories
    by: tuple[str, ...] = ()  # the options that leave out more of them: ``--exclude='{}'``


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """The surroundings in which a command's paths are judged."""

    scope: Scope
    reach: Reach = field(default_factory=Reach)
    never: tuple[str, ...] = ()  # places that the policy file forbids, in addition to those that always are
    cwd: str | None = None  # None: some directory that ``cd`` could have entered
    where: tuple[str, ...] = ()  # what lies between the session and the commands; it distinguishes services
    user: str = ""  # that the commands run as; "" = the usual one
    local: bool = True  # False: on another host or in a container, where symlinks cannot be followed
    tame: bool = True  # the session's own environment applies, in which git never runs a repository's programs


def readable(word: Word, place: Place) -> str | None:
    """Return why the content of a path may not be read, or None."""
    return _refused(word, place, secrets=True)


def listable(word: Word, place: Place) -> str | None:
    """Return why a path's name and metadata may not be read, or None; refused are other processes and our own files."""
    return _refused(word, place, secrets=False)


def searchable(word: Word, place: Place, names: Searched) -> str | None:
    """Return why everything below a path may not be read, or None."""
    reason = readable(word, place)
    absolute = _absolute(word.text, place)
    if reason or absolute is None or word.kind is not WordKind.CONSTANT:
        return reason or f"{word.text}: write the absolute path of what is to be searched"
    root = _names(_resolved(absolute, place))
    forbidden = (*SECRET_TREES, *SECRET_FILES, *place.scope.forbidden_paths, *place.never)
    if any(meet((*root, ANY_DEPTH), _names(path), hidden=True) for path in forbidden):
        return f"{word.text} holds places that are never read: name the directory more closely"
    own = (place.scope.workdir, place.scope.tmpdir) if place.local else ()
    if any(_below(root, _names(tree)) for tree in (*LOG_TREES, *own)):
        return None
    if not names.only:
        return (
            f"searching all of {word.text} could read secrets: add --include='*.service' or the like, or name the files"
        )
    refused = refuse_search(names.only, names.left_out, names.left_out_below)
    return f"searching {word.text} for {refused}{_leaving_out(names)}" if refused else None


def named_like_a_file(word: Word, place: Place) -> bool:
    """Whether a path and its target have the kind of name that files have and directories do not."""
    return all(_PLAIN_KIND.fullmatch(posixpath.basename(path)) for path in {word.text, _resolved(word.text, place)})


def has_secret_name(path: str) -> bool:
    """Whether some name in a path is one that secrets have."""
    return any(map(is_secret_name, _names(path)))


def is_plain_file(path: str) -> bool:
    """Whether a path names a single file of a kind that holds no secrets."""
    name = posixpath.basename(path)
    plain = _PLAIN_KIND.fullmatch(name) and not is_glob(path) and not path.startswith(":")
    return bool(plain) and not has_secret_name(path)


def enterable(word: Word, place: Place) -> str | None:
    """Return why ``cd`` may not go to a path, or None."""
    reason = readable(word, place)
    if reason or word.text == "-":
        return reason
    if word.kind is not WordKind.CONSTANT:
        return f"cd {word.text}: write the directory out"
    return _refuse_shared(word, place)


def writable(word: Word, place: Place) -> str | None:
    """Return why a path may not be written, or None: only plain files below the directories of the tier may."""
    roots = _write_roots(place)
    allowed = " and ".join(dict.fromkeys((*place.reach.write, *place.reach.files)))
    where = (
        f"only plain files below {allowed} may be written, by absolute path" if allowed else "no file may be written"
    )
    absolute = _absolute(word.text, place)
    if not place.local or word.kind is not WordKind.CONSTANT or absolute is None or _climbs(absolute):
        return f"{word.text}: {where}"
    if posixpath.normpath(absolute) in place.reach.files and not _is_link(posixpath.normpath(absolute), place):
        return None
    for names in {_names(absolute), _names(_resolved(absolute, place))}:
        inside = next((root for root in roots if _below(names, root)), None)
        if inside is None or inside == names or any(name.startswith(".") for name in names[len(inside) :]):
            return f"{word.text}: {where}"
        if _own_root(names, place) and (COMPOSE_FILE.fullmatch(names[-1]) or names[-1] == "ansible.cfg"):
            return f"{word.text}: other commands would follow a file of this name"
    return _refused(word, place, secrets=True)


def foreign(word: Word, place: Place) -> str | None:
    """Return why a path may not be passed as a key, or None: a session must not have written it."""
    return listable(word, place) or _refuse_shared(word, place, own_too=True)


def deployable(word: Word, place: Place) -> str | None:
    """Return why something may not be deployed from a path, or None: only from the operator's repositories."""
    absolute = _absolute(word.text, place)
    where = f"deploy only from below {place.scope.repos_dir}, by absolute path"
    if not place.local or not word.constant or absolute is None or word.text == "-" or _climbs(absolute):
        return f"{word.text}: {where}"
    if is_address(word.text):
        return f"{word.text}: {where}, and never from an address"
    roots = {_names(place.scope.repos_dir), _names(_resolved(place.scope.repos_dir, place))}
    if not any(_below(_names(_resolved(absolute, place)), root) for root in roots):
        return f"{word.text}: {where}"
    return readable(word, place)


def project(word: Word, place: Place) -> str | None:
    """Return why a compose file or project directory may not be used, or None: others must not be able to write it."""
    if word.kind is not WordKind.CONSTANT or word.text == "-" or _names(word.text)[:1] in {("dev",), ("proc",)}:
        return f"{word.text}: write the compose file's path out"
    if is_address(word.text):
        return f"{word.text} is an address, and no project: name a file of this machine, by its absolute path"
    relative = _absolute(word.text, place) is None
    if relative and place.local and not COMPOSE_FILE.fullmatch(posixpath.basename(word.text)):
        return f"{word.text}: write the absolute path of the compose file"
    return readable(word, place) or _refuse_shared(word, place, own_too=True)


def is_address(text: str) -> bool:
    """Whether compose, helm or kubectl could fetch something by a text that looks like a path.

    ``oci://…``, ``git@host:…``, ``host/owner/repository.git#branch``, ``github.com/…`` and ``repository/chart`` are
    fetched; a text that begins with a slash or a dot, or is a single file name of a plain kind, is not.
    """
    if ":" in text or "#" in text or "?" in text or text.lower().endswith(".git"):
        return True
    if text.startswith(("/", "./", "../")) or text in {".", ".."}:
        return False
    first = text.partition("/")[0]
    return "/" in text and ("." in first or not _PLAIN_KIND.fullmatch(posixpath.basename(text)))


def deployed_name(path: str, place: Place) -> str:
    """Return the name under which a deployment from a path is counted: the path within the repositories."""
    absolute = posixpath.normpath(_absolute(path, place) or path)
    inside = posixpath.relpath(absolute, posixpath.normpath(place.scope.repos_dir))
    return regex.sub(r"\.(?:ya?ml|json)$", "", inside)


def _leaving_out(names: Searched) -> str:
    if not names.by:
        return ""
    return ": " + " ".join(option.format(name) for name in LEFT_OUT for option in names.by)


def _write_roots(place: Place) -> tuple[tuple[str, ...], ...]:
    return tuple(_names(path) for root in place.reach.write for path in {root, _resolved(root, place)})


def _is_link(path: str, place: Place) -> bool:
    """Whether a file is a link itself; its directories may be."""
    directory, name = posixpath.split(path)
    return _resolved(path, place) != posixpath.join(_resolved(directory, place), name)


def _own_roots(place: Place) -> tuple[str, ...]:
    roots = (place.scope.workdir, place.scope.tmpdir)
    return (*roots, *(_resolved(root, place) for root in roots))


def _own_root(names: tuple[str, ...], place: Place) -> tuple[str, ...] | None:
    """Return the one of the session's own directories that a path is in, or None."""
    roots = map(_names, _own_roots(place)) if place.local else ()
    return next((root for root in roots if _below(names, root)), None)


def _absolute(path: str, place: Place) -> str | None:
    if path.startswith("/"):
        return path
    return posixpath.join(place.cwd, path) if place.cwd is not None else None


def _resolved(path: str, place: Place) -> str:
    return place.scope.resolve(path) if place.local else path


def _names(path: str) -> tuple[str, ...]:
    return tuple(name for name in posixpath.normpath(path).split("/") if name not in {"", "."})


def _climbs(path: str) -> bool:
    """Whether ``..`` follows a name: after a symlink it leads elsewhere than it seems to."""
    return any(
        after == ".." != before for before, after in pairwise(name for name in path.split("/") if name not in {"", "."})
    )


def _below(names: tuple[str, ...], root: tuple[str, ...]) -> bool:
    return names[: len(root)] == root


def _refuse_shared(word: Word, place: Place, *, own_too: bool = False) -> str | None:
    absolute = _absolute(word.text, place)
    if absolute is None:
        return None
    mine = _own_roots(place) if place.local else ()
    names = _names(_resolved(absolute, place))
    if not own_too and any(_below(names, _names(root)) for root in mine):
        return None
    if any(_below(names, _names(root)) for root in (*SHARED_TEMPORARY, *(mine if own_too else ()))):
        return f"{word.text}: nothing is run from a directory that others can write to"
    return None


def _refused(word: Word, place: Place, *, secrets: bool) -> str | None:
    text = word.text
    if text in {"", "-"}:
        return None
    absolute = _absolute(text, place)
    odd = _odd(word, place, absolute)
    if odd:
        return odd
    if absolute is not None and word.constant and not _climbs(absolute) and _is_exception(absolute):
        return None  # the target of its links, /proc/<pid>, is not an exception
    judged = {text if absolute is None else absolute}
    if word.kind is WordKind.PATTERN and not secrets:  # the matches may be listed, so only the directory is judged
        judged = {posixpath.dirname(before_glob(absolute or text))}
    elif absolute is not None and word.kind is WordKind.CONSTANT:
        judged.add(_resolved(absolute, place))
    elif absolute is not None:
        fixed = posixpath.dirname(before_glob(absolute))
        judged.add(_resolved(fixed, place) + absolute[len(fixed) :])
    reasons = [_secret(path, word, place, secrets=secrets) for path in sorted(judged)]
    if secrets and place.local:
        reasons += [_out_of_reach(path, word, place) for path in sorted(judged)]
    return next((reason for reason in reasons if reason), None)


def _odd(word: Word, place: Place, absolute: str | None) -> str | None:
    """Return why it is not clear which path a word names, or None."""
    text = word.text
    if word.kind is WordKind.DYNAMIC or text.startswith("~"):
        return f"the path {text} is not known before it runs: write it out"
    if "\0" in text or text.count("/") > _MOST_NAMES or max(map(len, text.split("/"))) > _LONGEST_NAME:
        return f"{text[:80]!r} is not a path"
    if "://" in text:
        return f"{text[:80]} is an address, and no path"
    if word.kind is WordKind.PATTERN and not _PLAIN_SETS.fullmatch(text):
        return f"{text}: write the pattern without brackets"
    if _climbs(text) and (absolute is None or not place.local or word.kind is WordKind.PATTERN):
        return f"{text}: write the path without '..'"
    return None


def _secret(path: str, word: Word, place: Place, *, secrets: bool) -> str | None:
    names = _names(path)
    while names[:1] == ("..",):
        names = names[1:]
    constant = word.kind is WordKind.CONSTANT
    if path.startswith("/") and constant and _is_exception(path):
        return None
    mine = _own_root(names, place) if path.startswith("/") else None
    if mine is not None:
        hidden = secrets and any(map(is_secret_name, names[len(mine) :]))
        return f"{word.text} has a name that secrets have: it is never read" if hidden else None
    absolute = path.startswith("/")
    reach = meet if absolute else meet_somewhere
    for trees, why in (
        (place.scope.forbidden_paths, "belongs to the supervisor itself: it is never read nor written"),
        (place.never, "is a place that the policy forbids at every tier"),
    ):
        if any(reach(names, (*_names(tree), ANY_DEPTH)) for tree in trees):
            return f"{word.text} {why}"
    places = _secret_places(place.scope.home, relative=not absolute) if secrets else (("proc", ANY_DEPTH),)
    if (secrets and _named_like_a_secret(names, constant=constant)) or any(reach(names, secret) for secret in places):
        hint = "" if absolute else ", or could be one: write the absolute path"
        return f"{word.text} is a place for secrets, which are never read{hint}"
    return None


@lru_cache(maxsize=64)
def _secret_places(home: str, *, relative: bool) -> tuple[tuple[str, ...], ...]:
    """Return the patterns of the places for secrets; ``home`` is the session's own."""
    trees, files = (*SECRET_TREES, f"{home}/.*"), SECRET_FILES
    if relative:
        trees, files = tuple(map(_itself, trees)), tuple(map(_itself, files))
    return (*((*_names(tree), ANY_DEPTH) for tree in trees), *map(_names, files))


def _itself(place: str) -> str:
    """Return a place without the copies of it: behind any directory, their names would be those of other files too."""
    return place if place.endswith("/.*") else place.rstrip("*")


def _named_like_a_secret(names: tuple[str, ...], *, constant: bool) -> bool:
    """Whether some name of a path looks like a secret's, or could turn out to be one that does."""
    if not names:
        return False
    last = names[-1]
    if any(_below(names[:-1], _names(tree)) for tree in CERTIFICATE_TREES) and is_certificate_name(last):
        names = names[:-1]
    if not constant and any(_below(names, _names(tree)) for tree in LOG_TREES):  # finds logs, not keys
        return any(is_secret_name(name.replace("*", "x").replace("?", "x")) for name in names)
    plain = not constant and bool(_PLAIN_KIND.fullmatch(last)) and not is_glob(last)
    found = ANY_DEPTH in names
    return any(is_secret_name(name, hidden=found) for name in names if not (plain and is_glob(name)))


def _out_of_reach(path: str, word: Word, place: Place) -> str | None:
    """Return why a path is not where the tier may read; a relative one is known only where it may read everything."""
    trees = place.reach.read
    if "/" in trees or (path.startswith("/") and (_is_exception(path) or _own_root(_names(path), place))):
        return None
    roots = [_names(root) for tree in trees for root in (tree, _resolved(tree, place))]
    if path.startswith("/") and any(_below(_names(path), root) for root in roots):
        return None
    return f"{word.text} is not below {' or '.join(trees) or 'any directory'}, where this tier may read"


def _is_exception(path: str) -> bool:
    return posixpath.normpath(path) in READABLE or any(_below(_names(path), _names(tree)) for tree in READABLE_TREES)
