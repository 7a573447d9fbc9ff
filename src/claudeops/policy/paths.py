"""Judges paths: whether one may be read, listed or written, by its text and by where its symlinks lead.

A path is judged as it is written: absolute and normal. On another host or in a container, where it cannot be looked up,
it must be given so. Globs come only from what ``find`` finds and from searches: a pattern counts as secret when it
could match a secret name.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from claudeops.domain.estate.service_names import ServiceNames
from claudeops.policy.places import (
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
    refuse_search,
)
from claudeops.policy.reach import JudgeScope, TierReach
from claudeops.text import regex

COMPOSE_FILE: Final = regex.Pattern(r"(?:docker-)?compose[\w.-]*\.ya?ml")

_MOST_NAMES: Final = 64  # in one path
_LONGEST_NAME: Final = 255  # characters of a name or a pattern for one; Linux has no longer names
_PLAIN_KIND: Final = regex.Pattern(
    rf"[{regex.WORD}*?-][{regex.WORD}*?.-]*\.(?:ya?ml|conf|cfg|ini|toml|json|md|txt|log|sh|service|timer|socket|tf|j2|py|xml|rules|csv)"
)  # of files that may be searched without being named; a wildcard before it may still find a secrets.yml
_NO_WILDCARDS: Final = str.maketrans("*?[", "xxx")  # in a name that is one
_PLAIN_SETS: Final = regex.Pattern(r"(?:[^\[\\]|\[(?:[*?]|[\w.-]+)\])*")  # none negated, named or unclosed


class Searched(msgspec.Struct, frozen=True, kw_only=True):
    """Which names a search reads, as the globs of its options."""

    only: tuple[str, ...] = ()  # of files; none: all of them
    left_out: tuple[str, ...] = ()  # of files
    left_out_below: tuple[str, ...] = ()  # of directories
    by: tuple[str, ...] = ()  # the options that leave out more of them: ``--exclude='{}'``


class PathContext(msgspec.Struct, frozen=True, kw_only=True):
    """The surroundings in which a command's paths are judged."""

    scope: JudgeScope
    reach: TierReach = msgspec.field(default_factory=TierReach)
    never: tuple[str, ...] = ()  # places that the policy file forbids, in addition to those that always are
    cwd: str | None = None  # absolute; None: not known, on another host or in a container
    where: tuple[str, ...] = ()  # what lies between the session and the commands; it distinguishes services
    user: str = ""  # that the commands run as; "" = the usual one
    call: str = ""  # the id of the tool call
    local: bool = True  # False: on another host or in a container, where nothing can be looked up
    services: ServiceNames = msgspec.field(default_factory=ServiceNames)  # that the policy and the manifests name
    unsure: str = ""  # why nothing is changed here, although it may be looked at: it could be another service's place

    @property
    def variables(self) -> Mapping[str, str]:
        """The variables whose values are known here."""
        if not self.local:
            return {}
        scope = self.scope
        state = {"CLAUDEOPS_STATE_DIR": posixpath.dirname(scope.handoff)} if self.reach.files else {}
        return {"HOME": scope.home, "TMPDIR": scope.tmpdir, "PWD": self.cwd or scope.workdir} | state


def absolute(text: str, place: PathContext) -> str | None:
    """Return a path absolute and normal, with a slash at its end if it has one; None where its directory is unknown."""
    whole = text if text.startswith("/") else f"{place.cwd}/{text}" if place.cwd is not None else None
    if whole is None or not text:
        return None
    end = "/" if text.endswith(("/", "/.")) else ""
    return ("/" + posixpath.normpath(whole).lstrip("/") + end).replace("//", "/")


def readable(text: str, place: PathContext) -> str | None:
    """Return why the content of a path may not be read, or None."""
    return _refused(text, place, secrets=True)


def readable_all(pattern: str, place: PathContext) -> str | None:
    """Return why the content of some file that a pattern could find may not be read, or None."""
    odd = None if _PLAIN_SETS.fullmatch(pattern) else f"{pattern}: write the pattern without brackets and backslashes"
    if odd or _odd(pattern):
        return odd or _odd(pattern)
    fixed = posixpath.dirname(before_glob(pattern))
    judged = {pattern, _resolved(fixed, place) + pattern[len(fixed) :]}
    reasons = (_secret(path, pattern, place, secrets=True, constant=False) for path in sorted(judged))
    return next((reason for reason in reasons if reason), None) or _refuse_outside(judged, pattern, place)


def listable(text: str, place: PathContext) -> str | None:
    """Return why a path's name and metadata may not be read, or None; refused are other processes and our own files."""
    return _refused(text, place, secrets=False)


def refuse_other_than_file(text: str, place: PathContext) -> str | None:
    """Return why a path is no regular file, or None where it is one, is not there, or cannot be looked up."""
    path = absolute(text, place)
    if not place.local or path is None or _is_exception(path) or place.scope.is_file(path):
        return None
    return f"{text} is a directory or a device: name the files in it"


def searchable(text: str, place: PathContext, names: Searched) -> str | None:
    """Return why everything below a path may not be read, or None."""
    path = absolute(text, place)
    if (reason := readable(text, place)) or path is None:
        return reason or f"{text}: write the absolute path of what is to be searched"
    root = _names(_resolved(path, place))
    forbidden = (*SECRET_TREES, *SECRET_FILES, *place.scope.forbidden_paths, *place.never)
    if any(meet((*root, ANY_DEPTH), _names(path), hidden=True) for path in forbidden):
        return f"{text} holds places that are never read: name the directory more closely"
    own = (place.scope.workdir, place.scope.tmpdir) if place.local else ()
    if any(_below(root, _names(tree)) for tree in (*LOG_TREES, *own)):
        return None
    if not names.only:
        return f"searching all of {text} could read secrets: add --include='*.service' or the like, or name the files"
    refused = refuse_search(names.only, names.left_out, names.left_out_below)
    return f"searching {text} for {refused}{_leaving_out(names)}" if refused else None


def named_like_a_file(text: str, place: PathContext) -> bool:
    """Whether a path and its target have the kind of name that files have and directories do not."""
    return all(_PLAIN_KIND.fullmatch(posixpath.basename(path)) for path in {text, _resolved(text, place)})


def has_secret_name(path: str) -> bool:
    """Whether some name in a path is one that secrets have."""
    return any(map(is_secret_name, _names(path)))


def looks_secret(path: str) -> bool:
    """Whether an absolute path has a name that secrets have, or is below a place where they are."""
    trees = (*SECRET_TREES, *SECRET_FILES)
    return has_secret_name(path) or any(meet((*_names(tree), ANY_DEPTH), _names(path)) for tree in trees)


def is_plain_file(path: str) -> bool:
    """Whether a path names a single file of a kind that holds no secrets."""
    name = posixpath.basename(path)
    plain = _PLAIN_KIND.fullmatch(name) and not is_glob(path) and not path.startswith(":")
    return bool(plain) and not has_secret_name(path)


def enterable(text: str, place: PathContext) -> str | None:
    """Return why ``cd`` may not go to a path, or None."""
    return readable(text, place) or _refuse_shared(text, place)


def writable(text: str, place: PathContext) -> str | None:
    """Return why a path may not be written, or None: only plain files below the directories of the tier may."""
    allowed = " and ".join(dict.fromkeys((*place.reach.write, *place.reach.files)))
    where = (
        f"only plain files below {allowed} may be written, by absolute path" if allowed else "no file may be written"
    )
    path = absolute(text, place)
    if not place.local or path is None:
        return f"{text}: {where}"
    if path in place.reach.files and not _is_link(path, place):
        return None
    for names in {_names(path), _names(_resolved(path, place))}:
        inside = next((root for root in _write_roots(place) if _below(names, root)), None)
        if inside is None or inside == names or any(name.startswith(".") for name in names[len(inside) :]):
            return f"{text}: {where}"
        if _own_root(names, place) and (COMPOSE_FILE.fullmatch(names[-1]) or names[-1] == "ansible.cfg"):
            return f"{text}: other commands would follow a file of this name"
    return _refused(text, place, secrets=True)


def foreign(text: str, place: PathContext) -> str | None:
    """Return why a path may not be passed as a key, or None: a session must not have written it."""
    return listable(text, place) or _refuse_shared(text, place, own_too=True)


def deployable(text: str, place: PathContext) -> str | None:
    """Return why something may not be deployed from a path, or None: only from the operator's repositories."""
    path = absolute(text, place)
    where = f"deploy only from below {place.scope.repos_dir}, by absolute path"
    if not place.local or path is None or text == "-":
        return f"{text}: {where}"
    if regex.search(r"[,*?\[\]{}\\]", text):  # kubectl, helm, docker and ansible take several names in one word
        return f"{text}: name one file for each option"
    if is_address(text):
        return f"{text}: {where}, and never from an address"
    if not in_repositories(path, place):
        return f"{text}: {where}"
    return readable(text, place)


def in_repositories(path: str, place: PathContext) -> bool:
    """Whether an absolute path, with its links followed, is below the repositories' directory."""
    return is_within(path, (place.scope.repos_dir,), place)


def is_within(path: str, directories: Iterable[str], place: PathContext) -> bool:
    """Whether an absolute path, with its links followed, is one of these directories or below one."""
    names = _names(_resolved(path, place))
    return any(_below(names, _names(root)) for each in directories for root in {each, _resolved(each, place)})


def project(text: str, place: PathContext) -> str | None:
    """Return why a compose file or project directory may not be used, or None: others must not be able to write it."""
    if text == "-" or _names(text)[:1] in {("dev",), ("proc",)}:
        return f"{text}: write the compose file's path out"
    if is_address(text):
        return f"{text} is an address, and no project: name a file of this machine, by its absolute path"
    return readable(text, place) or _refuse_shared(text, place, own_too=True)


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


def deployed_name(path: str, place: PathContext) -> str:
    """Return the name under which a deployment from a path is counted: the path within the repositories."""
    inside = posixpath.relpath(absolute(path, place) or path, posixpath.normpath(place.scope.repos_dir))
    return regex.sub(r"\.(?:ya?ml|json)$", "", inside)


def _leaving_out(names: Searched) -> str:
    if not names.by:
        return ""
    return ": " + " ".join(option.format(name) for name in LEFT_OUT for option in names.by)


def _write_roots(place: PathContext) -> tuple[tuple[str, ...], ...]:
    return tuple(_names(path) for root in place.reach.write for path in {root, _resolved(root, place)})


def _is_link(path: str, place: PathContext) -> bool:
    """Whether a file is a link itself; its directories may be."""
    directory, name = posixpath.split(path)
    return _resolved(path, place) != posixpath.join(_resolved(directory, place), name)


def _own_roots(place: PathContext) -> tuple[str, ...]:
    roots = (place.scope.workdir, place.scope.tmpdir)
    return (*roots, *(_resolved(root, place) for root in roots))


def _own_root(names: tuple[str, ...], place: PathContext) -> tuple[str, ...] | None:
    """Return the one of the session's own directories that a path is in, or None."""
    roots = map(_names, _own_roots(place)) if place.local else ()
    return next((root for root in roots if _below(names, root)), None)


def _resolved(path: str, place: PathContext) -> str:
    return place.scope.resolve(path) if place.local else path


def _names(path: str) -> tuple[str, ...]:
    return tuple(name for name in posixpath.normpath(path).split("/") if name not in {"", "."})


def _below(names: tuple[str, ...], root: tuple[str, ...]) -> bool:
    return names[: len(root)] == root


def _refuse_shared(text: str, place: PathContext, *, own_too: bool = False) -> str | None:
    path = absolute(text, place)
    if path is None:
        return None
    mine = _own_roots(place) if place.local else ()
    names = _names(_resolved(path, place))
    if not own_too and any(_below(names, _names(root)) for root in mine):
        return None
    if any(_below(names, _names(root)) for root in (*SHARED_TEMPORARY, *(mine if own_too else ()))):
        return f"{text}: nothing is run from a directory that others can write to"
    return None


def _refused(text: str, place: PathContext, *, secrets: bool) -> str | None:
    if odd := _odd(text):
        return odd
    path = absolute(text, place)
    if path is None:
        return f"{text}: write the absolute path"
    if _is_exception(path):
        return None  # the target of its links, /proc/<pid>, is not an exception
    judged = {path, _resolved(path, place)}
    reasons = (_secret(each, text, place, secrets=secrets, constant=True) for each in sorted(judged))
    reason = next((reason for reason in reasons if reason), None)
    return reason or (_refuse_outside(judged, text, place) if secrets else None)


def _odd(text: str) -> str | None:
    """Return why a text is no path, or None."""
    if not text or "\0" in text or text.count("/") > _MOST_NAMES or max(map(len, text.split("/"))) > _LONGEST_NAME:
        return f"{text[:80]!r} is not a path"
    return f"{text[:80]} is an address, and no path" if "://" in text else None


def _secret(path: str, text: str, place: PathContext, *, secrets: bool, constant: bool) -> str | None:
    """Return why an absolute path is never read, or None; ``constant``: it is no pattern."""
    names = _names(path.translate(_NO_WILDCARDS) if constant else path)
    if constant and _is_exception(path):
        return None
    mine = _own_root(names, place)
    if mine is not None:
        hidden = secrets and any(map(is_secret_name, names[len(mine) :]))
        return f"{text} has a name that secrets have: it is never read" if hidden else None
    for trees, why in (
        (place.scope.forbidden_paths, "belongs to the supervisor itself: it is never read nor written"),
        (place.never, "is a place that the policy forbids at every tier"),
    ):
        if any(meet(names, (*_names(tree), ANY_DEPTH)) for tree in trees):
            return f"{text} {why}"
    places = _secret_places(place.scope.home) if secrets else (("proc", ANY_DEPTH),)
    if (secrets and _named_like_a_secret(names, constant=constant)) or any(meet(names, secret) for secret in places):
        return f"{text} is a place for secrets, which are never read"
    return None


@lru_cache(maxsize=64)
def _secret_places(home: str) -> tuple[tuple[str, ...], ...]:
    """Return the patterns of the places for secrets; ``home`` is the session's own."""
    trees = (*SECRET_TREES, f"{home}/.*")
    return (*((*_names(tree), ANY_DEPTH) for tree in trees), *map(_names, SECRET_FILES))


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


def _refuse_outside(judged: set[str], text: str, place: PathContext) -> str | None:
    """Return why some of these paths are not where the tier may read, or None."""
    trees = place.reach.read
    if "/" in trees or not place.local:
        return None
    roots = [_names(root) for tree in trees for root in (tree, _resolved(tree, place))]
    for path in sorted(judged):
        own = _is_exception(path) or _own_root(_names(path), place)
        if not own and not any(_below(_names(path), root) for root in roots):
            return f"{text} is not below {' or '.join(trees) or 'any directory'}, where this tier may read"
    return None


def _is_exception(path: str) -> bool:
    return posixpath.normpath(path) in READABLE or any(_below(_names(path), _names(tree)) for tree in READABLE_TREES)
