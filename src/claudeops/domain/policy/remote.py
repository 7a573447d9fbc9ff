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
from claudeops.domain.policy.programs.find import TESTS
from claudeops.domain.policy.programs.scripts import TEMPLATE_FIELDS, TEMPLATE_GUARDED, TEMPLATE_INNER
from claudeops.domain.policy.rules import CommandRule, Option, option_table
from claudeops.domain.shell.render import BUILTINS
from claudeops.domain.text import regex

_T: Final = "\t"
_ANY: Final = "[^\t]*"
_PATH: Final = "/[^\t]*"
_PLAIN: Final = "[A-Za-z0-9_.,:@%/=+*-]*"
_PATHS: Final = frozenset({"file", "listing", "archive", "directory", "own", "key", "repo", "project", "manifest"})
_FREE: Final = frozenset({"any", "text", "format", "glob", "sed", "jq"})
_LEFT_OUT: Final = frozenset({"awk", "yq", "sql", "role", "page", "connection"})
"""Kinds that no expression can hold to what only looks; rules with one are left out."""

_HERE: Final = r"([a-z0-9-]+|(127|10)(\.[0-9]+){3}|192\.168(\.[0-9]+){2}|172\.(1[6-9]|2[0-9]|3[01])(\.[0-9]+){2})"
_FORMED: Final = {
    "sink": "(-|/dev/null|/dev/stdout|/dev/stderr)",
    "writeout": "([^@%\t][^%\t]*)?(%[{][a-z_]+[}][^%\t]*)*",
    "header": "(Accept|Content-Type|User-Agent|Cache-Control|X-[A-Za-z-]+):[^\t]*",
    "url": f"(https?://)?{_HERE}(:[0-9]+)?(/[^\t]*)?",
    "host": _HERE,
    "hostport": f"{_HERE}:[0-9]+",
    "target": f"([a-z_][a-z0-9_-]*@)?{_HERE}",
    "dig": f"(@?{_HERE}|[+][a-z]+(=[0-9]+)?|[A-Za-z]+)",
    "int": "[+-]?[0-9]+",
    "sleep": "[0-9]+",
}
"""Values by their kind; hosts are plain names and private addresses, so that nothing that is read is sent away."""

_TOLD: Final = (
    *(
        "@(sh|bash|eval|exec|command)@",
        "(^|@|/)ps@.*environ",
        r"(kubectl|oc)@describe@",
        "(kubectl|oc)@.*[@,/=][^@]*secret",
    ),
    *(r"(kubectl|oc)@.*@--output=((yaml|json)|.*(env|data|[*]|\{\.\}))", "systemctl@.*(environ|credential)"),
    *(
        "(grep|zgrep|egrep|fgrep)@(.*@)?(-r|--recursive)",
        "(^|@|/)rg@",
        r"(^|@|/)jq@.*(ENV|env|import|include|input_filename|__prog)",
    ),
    *(r"/\.\.?(/|@|$)", "[@=]/[^@]*//", "[@=]//"),
)
"""What the forms would let through and only the gate can judge; ``@`` stands for a tab."""

_SPECIAL: Final = regex.Pattern(r"([\\.\[\](){}*+?^$|])")
_CLASS: Final = regex.Pattern(r"\\([dw./])|[^\\\]]")
_OUTSIDE: Final = regex.Pattern(r"\(\?:|\\[dw.+*?(){}|^$/\\-]|\.|[^\\\[]")
_CLASSES: Final = {"d": "0-9", "w": "A-Za-z0-9_", ".": ".", "/": "/"}
_TAB: Final = regex.Pattern("@")
_PS: Final = r"(\t-[eL]|\t-[opCu]\t@|\t--(forest|no-headers)|\t--ppid\t[0-9,]+|\t--(sort|cols)=@)*".replace(
    "@", r"[A-Za-z0-9_%,:=+@.-]+"
)
_SCRIPT: Final = r"""#!/bin/sh
# The commands of tier {{TIER}}, as `claudeops remote-commands` wrote them. In authorized_keys, in front of the key:
#   restrict,command="/usr/local/bin/claudeops-commands" ssh-ed25519 AAAA…
# Whatever is none of these forms is refused. Give the key to a user that may only read.
refuse() { echo "claudeops-commands: refused: $1" >&2; exit 126; }
text=${SSH_ORIGINAL_COMMAND-}
[ -n "$text" ] || refuse 'there is no command, and no shell'
parts=$(printf '%s\n' "$text" | awk '
function fail() { bad = 1; exit 1 }
function edge() { if (substr(all, i, 1) !~ /^[ ;|)\n]?$/) fail() }
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
    else if (match(rest, /^[0-9]?>&[0-9]/) && !has) { i += RLENGTH; edge() }
    else if (match(rest, /^[0-9]?[<>] ?\047\/dev\/null\047/) && !has) { i += RLENGTH; edge() }
    else if (c == " ") { word(); i++ }
    else if (c == ";" || c == "\n") { end(); i++ }
    else if (substr(rest, 1, 2) == "&&" || substr(rest, 1, 2) == "||") { end(); i += 2 }
    else if (c == "|") { end(); i++ }
    else if ((c == "(" || c == ")") && !has) { end(); i++ }
    else if (match(rest, /^(\{|!|if|then|else) /) && !has && line == "") { i += RLENGTH }
    else if (match(rest, /^(\}|fi)/) && !has && line == "") { i += RLENGTH; edge() }
    else if (c ~ /[A-Za-z0-9_\/.-]/) { w = w c; has = 1; i++ }
    else fail()
  }
  end()
}') || refuse 'it is not written as claudeops writes it'
forms() {
  cat <<'FORMS'
{{FORMS}}
FORMS
}
secrets() {
  cat <<'SECRETS'
{{SECRETS}}
SECRETS
}
time='[0-9]+(\.[0-9]+)?[smhd]?'
env='/usr/bin/env@--@'
sudo='((/usr/bin/)?sudo(@(-n|-u@[a-z_][a-z0-9_-]*))*@--@)'
wait="((/usr/bin/)?timeout(@-k@$time)?@$time@)"
front="^($env)?($sudo|$wait)*($env|/(usr/)?(local/)?s?bin/)?"
while IFS= read -r part; do
  plain=$(printf '%s\n' "$part" | sed -E "s#$front##")
  program=${plain%%@*}
  case $program in '' | *[!A-Za-z0-9_.[-]*) refuse "$part" ;; esac
  [ "$plain" != "$part" ] || [ "$program" = cd ] || refuse "$part"  # a bare name could be the shell's own command
  form=$(forms | awk -v p="$program " 'index($0, p) == 1 { print substr($0, length(p) + 1) }')
  [ -n "$form" ] && [ "$(printf '%s\n' "$plain" | grep -Exc -e "$form")" = 1 ] || refuse "$part"
  [ "$(printf '%s\n' "$part" | grep -Eic -e "$(secrets)")" = 0 ] || refuse "a place for secrets, or a path with .."
done <<PARTS
$parts
PARTS
exec /bin/sh -c "$text"
"""


def script(tier: TierPolicy) -> str:
    """Return the script for a tier: what it may run on other hosts, in the form in which the gate writes it."""
    # ``@`` stands for a tab in the script.
    secrets = [*_TOLD, *map(_secret, SECRET_NAMES), *map(_tree, SECRET_TREES)]
    forms = "\n".join(sorted(set(_forms(tier)))).replace(r"\t", _T)
    written = _SCRIPT.replace("{{TIER}}", str(tier.number)).replace("{{SECRETS}}", "\n".join(secrets))
    return _TAB.sub(_T, written).replace("{{FORMS}}", forms)


def _forms(tier: TierPolicy) -> Iterator[str]:
    """Yield the expression of every form that a tier may run elsewhere."""
    yield f"cd cd{_T}{_PATH}"
    tests = "|".join(f"{_T}{_given(option)}" for option in option_table(TESTS).values())
    yield f"find find{_T}-P({_T}{_PATH})+({tests})*"
    for path, rules in tier.policy.book.rules.items():
        for rule in rules:
            kinds = {kind.partition(":")[0].rstrip("?*+") for kind in rule.arguments.split()}
            kinds |= {(option.kind or "").partition(":")[0] for option in option_table(rule.options).values()}
            apart = rule.look or rule.writes or path in BUILTINS or not kinds.isdisjoint(_LEFT_OUT)
            if rule.tier <= tier.level and not apart and (not rule.action or rule.action in tier.action_kinds):
                rest = _rest(rule, _shared(path, tier))
                yield from (f"{program} {start}{rest}" for program, start in _starts(path, tier))


def _starts(path: str, tier: TierPolicy) -> Iterator[tuple[str, str]]:
    """Yield each name of a command's program, with the expression of the name and the subcommands."""
    book = tier.policy.book
    words = path.split(" ")
    subcommands = ""
    for depth in range(1, len(words)):
        subcommands += _options(book.options_of(" ".join(words[:depth]))) + _T + _literal(words[depth])
    yield words[0], _literal(words[0]) + subcommands
    for other, name in book.aliases.items():
        if name == words[0]:
            yield other, _literal(other) + subcommands


def _shared(path: str, tier: TierPolicy) -> str:
    """Return the options of the groups above a command that may also follow it."""
    words = path.split(" ")
    above = (" ".join(words[:depth]) for depth in range(1, len(words)))
    return " ".join(tier.policy.book.options_of(each, shared=True) for each in above)


def _rest(rule: CommandRule, shared: str) -> str:
    """Return the expression of what follows a command's name."""
    if rule.reading == "ps":
        return _PS
    written = "".join(_T + _literal(word) for word in rule.always.split()) + _options(f"{rule.options} {shared}")
    arguments, least = "", 0
    for kind in rule.arguments.split():
        repeat = kind[-1] if kind[-1] in "?*+" else ""
        value = f"({_T}{_value(kind.removesuffix(repeat) if repeat else kind)})"
        arguments += value + repeat
        least += repeat in {"", "+"}
    if not arguments:
        return written
    dashes = f"{_T}--" if rule.dashes and rule.reading != "words" else ""
    return f"{written}({dashes}{arguments})" + ("" if least else "?")


def _options(options: str) -> str:
    given = dict.fromkeys(_given(option) for option in option_table(options).values())
    return f"({'|'.join(_T + each for each in given)})*" if given else ""


def _given(option: Option) -> str:
    """Return the expression of one option as it is written."""
    name = _literal(option.names[0])
    if option.kind is None:
        return name
    value, long = _value(option.kind), option.names[0].startswith("--")
    if option.attached:
        return f"{name}({'=' if long else ''}{value})?"
    return f"{name}[={_T}]{value}" if long else f"{name}{_T}{value}"


def _value(kind: str) -> str:
    """Return the expression of a value of a kind."""
    name, _, parameter = kind.partition(":")
    if name in _PATHS:
        return f"({_PATH}|-)" if name == "file" else _PATH
    if name == "template":
        return _template()
    if name == "one":
        return f"({'|'.join(map(_literal, parameter.split(',')))})"
    if name == "re":
        return f"({_posix(parameter)})"
    return _FORMED.get(name) or (_ANY if name in _FREE else _PLAIN)


def _template() -> str:
    """Return the expression of docker's templates: text, and fields that hold no environment."""
    plain = "|".join(sorted(TEMPLATE_FIELDS - TEMPLATE_GUARDED))
    inner, guarded = "|".join(sorted(TEMPLATE_INNER)), "|".join(sorted(TEMPLATE_GUARDED))
    field = rf"(\.({plain})|\.({guarded})\.({inner}))(\.[A-Za-z]+)*"
    return rf"([^{{}}\tjJpPtT\{{][^{{}}\t]*)?(\{{\{{ ?{field} ?\}}\}}[^{{}}\t]*)+"


def _posix(expression: str) -> str:
    """Return an expression of google-re2 as one of POSIX that stays in a word; a plain word where that is not sure."""
    expression = expression.removeprefix("(?s)")
    written, at = "", 0
    while at < len(expression):
        if expression.startswith("(?", at) and not expression.startswith("(?:", at):
            return _PLAIN
        if expression[at] == "[":
            end = at + 1 + (expression[at + 1 : at + 2] == "^")
            inside = ""
            while (found := _CLASS.match(expression[end:])) is not None:
                inside += found[0] if found[1] is None else _CLASSES[found[1]]
                end += found.end()
            if expression[end : end + 1] != "]" or not inside:
                return _PLAIN
            written += f"[^{_T}{inside}]" if expression[at + 1] == "^" else f"[{inside}]"
            at = end + 1
            continue
        found = _OUTSIDE.match(expression[at:])
        if found is None:
            return _PLAIN
        piece = found[0]
        written += {"(?:": "(", ".": f"[^{_T}]", r"\d": "[0-9]", r"\w": "[A-Za-z0-9_]", r"\/": "/", r"\-": "-"}.get(
            piece, piece
        )
        at += found.end()
    return written


def _secret(name: str) -> str:
    """Return the expression of a path that holds a secret name, or a copy of it; ``@`` stands for a tab."""
    return f"[@=]/([^@]*/)?{_glob(name)}([~#._-][^@/]*)?(/[^@]*)?(@|$)"


def _tree(place: str) -> str:
    """Return the expression of a secret place and what is below it; of ``/proc`` and ``/dev`` some files are none."""
    if place in {"/proc", "/dev"}:
        return "[@=]/proc/(self|thread-self|[0-9]+|k[a-z]+)(/[^@]*)?(@|$)"
    return f"[@=]{_glob(place)}(/[^@]*)?(@|$)"


def _glob(pattern: str) -> str:
    return "[^@/]*".join(map(_literal, pattern.split("*")))


def _literal(text: str) -> str:
    return _SPECIAL.sub(lambda found: f"\\{found[1]}", text)
