r"""The forms of a tier as a POSIX script, for ``command=`` in another host's ``authorized_keys``.

On another host no cell holds a session, so what the gate misjudges runs there with all rights of the user. The script
is a wall of that host's own: it takes ``SSH_ORIGINAL_COMMAND`` apart into simple commands, whose words the gate always
writes in single quotes, and runs the text only if each of them is one of the tier's forms. Limits, services and the
secrets behind a path are not known there: the user should be one that may only read.

awk turns each simple command into a line of words between tabs; a form is an expression for such a line (POSIX ERE).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from claudeops.domain.policy.places import SECRET_NAMES, SECRET_TREES
from claudeops.domain.policy.policy import TierPolicy
from claudeops.domain.policy.ps import FORMS_OF_PS
from claudeops.domain.policy.rule_book import RuleBook
from claudeops.domain.policy.rules import CommandRule, Option, option_table
from claudeops.domain.shell.render import BUILTINS
from claudeops.domain.text import regex

_ANY: Final = "[^\t]*"
_PATH: Final = "/[^\t]*"
_PLAIN: Final = "[A-Za-z0-9_.,:@%/=+-]*"
_PATHS: Final = frozenset({"file", "listing", "archive", "directory", "own", "key", "repo", "project", "manifest"})
_FREE: Final = frozenset(
    {"any", "text", "leading", "format", "glob", "template", "awk", "sed", "jq", "yq", "sql", "header", "writeout"}
    | {"url", "page", "gitformat"}
)
_SPECIAL: Final = regex.Pattern(r"([\\.\[\](){}*+?^$|])")
_SCRIPT: Final = r"""#!/bin/sh
# The commands of tier @TIER@, as `claudeops remote-commands` wrote them. In authorized_keys, in front of the key:
#   restrict,command="/usr/local/bin/claudeops-commands" ssh-ed25519 AAAA…
# Whatever is none of these forms is refused. Give the key to a user that may only read.
refuse() { echo "claudeops-commands: refused: $1" >&2; exit 126; }
text=${SSH_ORIGINAL_COMMAND-}
[ -n "$text" ] || refuse 'there is no command, and no shell'
parts=$(printf '%s\n' "$text" | awk '
function fail() { bad = 1; exit 1 }
function word() { if (has) { line = line sep w; sep = "\t"; has = 0; w = "" } }
function end() { word(); if (line != "") print line; line = ""; sep = "" }
{ all = all (NR > 1 ? "\n" : "") $0 }
END {
  if (bad) exit 1
  n = length(all); i = 1
  while (i <= n) {
    c = substr(all, i, 1); rest = substr(all, i)
    if (c == "\047") {
      j = index(substr(all, i + 1), "\047"); if (!j) fail()
      q = substr(all, i + 1, j - 1); if (q ~ /[\t\n]/) fail()
      w = w q; has = 1; i += j + 1
    } else if (substr(rest, 1, 2) == "\\\047") { w = w "\047"; has = 1; i += 2 }
    else if (match(rest, /^[0-9]?>&[0-9]/) && !has) { i += RLENGTH }
    else if (match(rest, /^[0-9]?[<>] ?\047\/dev\/null\047/) && !has) { i += RLENGTH }
    else if (c == " ") { word(); i++ }
    else if (c == ";" || c == "\n") { end(); i++ }
    else if (substr(rest, 1, 2) == "&&" || substr(rest, 1, 2) == "||") { end(); i += 2 }
    else if (c == "|") { end(); i++ }
    else if ((c == "(" || c == ")") && !has) { end(); i++ }
    else if (match(rest, /^(\{|\}|!|if|then|else|fi)( |;|\n|$)/) && !has && line == "") { i += RLENGTH - (rest ~ /^(\}|fi);/ ? 1 : 0) }
    else if (c ~ /[A-Za-z0-9_\/.-]/) { w = w c; has = 1; i++ }
    else fail()
  }
  end()
}') || refuse 'it is not written as claudeops writes it'
forms=$(cat <<'FORMS'
@FORMS@
FORMS
)
secrets=$(cat <<'SECRETS'
@SECRETS@
SECRETS
)
unknown=$(printf '%s\n' "$parts" | grep -Evx -e "$forms" | head -n 1)
[ -z "$unknown" ] || refuse "$unknown"
if printf '%s\n' "$parts" | grep -Eiq -e "$secrets"; then refuse 'a place for secrets, or a path with ..'; fi
exec /bin/sh -c "$text"
"""


def script(tier: TierPolicy) -> str:
    """Return the script for a tier: what it may run on other hosts, in the form in which the gate writes it."""
    forms = sorted({form for form in _forms(tier.policy.book, tier.level, frozenset(tier.action_kinds))})
    secrets = [f"/\\.\\.(/|\t|$)", *(_secret(name) for name in SECRET_NAMES), *map(_tree, SECRET_TREES)]
    written = _SCRIPT.replace("@TIER@", str(tier.number))
    return written.replace("@FORMS@", "\n".join(forms)).replace("@SECRETS@", "\n".join(secrets))
