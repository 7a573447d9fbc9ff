"""Rules for reading files and for cutting, sorting and comparing text."""

from __future__ import annotations

from typing import Final

from claudeops.domain.policy.rules import CommandRule

_GREP = (
    "-i|--ignore-case -v|--invert-match -c|--count -l|--files-with-matches -L|--files-without-match -n|--line-number"
    " -o|--only-matching -q|--quiet|--silent -s|--no-messages -w|--word-regexp -x|--line-regexp -h|--no-filename"
    " -H|--with-filename -E|--extended-regexp -F|--fixed-strings -P|--perl-regexp -G|--basic-regexp -a|--text"
    " -I -z -U -y"
    " -A|--after-context=int -B|--before-context=int -C|--context=int -m|--max-count=int -NUM --color=?word"
    " --colour=?word"
    " --line-buffered -b|--byte-offset -r|--recursive -R|--dereference-recursive --include=glob --exclude=glob"
    " --exclude-dir=glob --binary-files=word -T|--initial-tab"
)
_NO_ENDLESS = "-f and -F are not allowed: the command would never end"

TEXT_RULES: Final = (
    # --- files ------------------------------------------------------------------------------------------
    CommandRule(name="cat|tac|nl", options="-n|--number -A|--show-all -b -s -v -e -t -E -T -w=int", arguments="path*"),
    CommandRule(
        name="head",
        options="-n|--lines=size -c|--bytes=size -q|--quiet|--silent -v|--verbose -z -NUM",
        arguments="path*",
    ),
    CommandRule(
        name="tail",
        options="-n|--lines=size -c|--bytes=size -q|--quiet|--silent -v|--verbose -z -NUM",
        arguments="path*",
        hint=_NO_ENDLESS,
    ),
    CommandRule(
        name="wc", options="-l|--lines -w|--words -c|--bytes -m|--chars -L|--max-line-length", arguments="path*"
    ),
    CommandRule(name="file", options="-b|--brief -i|--mime -L -k -s --mime-type --mime-encoding", arguments="path+"),
    CommandRule(name="md5sum|sha1sum|sha256sum|sha512sum|cksum|b2sum", options="-b -t --tag -z", arguments="path*"),
    CommandRule(name="base64|base32", options="-d|--decode -D -w|--wrap=int -i|--ignore-garbage", arguments="path?"),
    CommandRule(name="xxd", options="-c=int -g=int -l=int -s=int -p -u -b", arguments="path?"),
    CommandRule(
        name="hexdump|od",
        options="-C -c -x -A=word -t=word -l=int -n|-N=int -s|-j=int -v -p -u -b -g=int",
        arguments="path*",
    ),
    CommandRule(name="strings", options="-n|--bytes=int -a -NUM", arguments="path+"),
    CommandRule(name="zcat|gzcat|bzcat|xzcat|zstdcat", arguments="path+"),
    CommandRule(name="gzip|xz|bzip2", options="-c|--stdout -d|--decompress -k -v -q", required="-c", arguments="path+"),
    CommandRule(name="gzip|xz|bzip2", options="-l|--list -t|--test -v -q", required="-l|-t", arguments="path+"),
    CommandRule(name="gunzip", options="-l -t -c -v", required="-l|-t|-c", arguments="path+"),
    CommandRule(
        name="tar",
        options="-t|--list -f|--file=archive -z|--gzip -j|--bzip2 -J|--xz -v|--verbose",
        required="-t",
        arguments="text*",
    ),
    CommandRule(name="tar", line=r"t[zjJv]*f [A-Za-z0-9_./][\w./+-]*", hint="archives are only listed"),
    CommandRule(name="unzip", options="-l -t -v -q", required="-l|-t|-v", arguments="path text*", ordered=True),
    CommandRule(
        name="diff|cmp|comm",
        options="-u|--unified=?int -U=int -q|--brief -r|--recursive -i -w -b -B -y|--side-by-side -W=int -s -l -c -N"
        " -a -t -1 -2 -3 -12 -13 -23 --color=?word --strip-trailing-cr --suppress-common-lines --ignore-all-space",
        arguments="path path",
        deep="-r",
    ),
    # --- searching --------------------------------------------------------------------------------------
    CommandRule(
        name="grep|egrep|fgrep|zgrep",
        options=f"{_GREP} -e|--regexp=text",
        required="-e",
        arguments="path*",
        deep="-r -R",
    ),
    CommandRule(name="grep|egrep|fgrep|zgrep", options=_GREP, arguments="text path*", deep="-r -R"),
    CommandRule(
        name="rg",
        options="-i -v -c -l -n -o -q -w -F -S -N -I -H -U -s -A|--after-context=int -B|--before-context=int"
        " -C|--context=int -m|--max-count=int -g|--glob=glob -t|--type=word --no-heading --color=word --line-number"
        " --count",
        arguments="text path+",
        deep="*",
        hint="name the files, or use grep",
    ),
    # --- text from a pipe or a file ---------------------------------------------------------------------
    CommandRule(
        name="sort",
        options="-n|--numeric-sort -r|--reverse -u|--unique -k|--key=word -t|--field-separator=text"
        " -h|--human-numeric-sort -f|--ignore-case -b -g -V|--version-sort -R -s|--stable -M -c -C -d -i -z -m",
        arguments="path*",
        hint="-o is not allowed",
    ),
    CommandRule(
        name="uniq",
        options="-c|--count -d|--repeated -u|--unique -i|--ignore-case -D -z -f=int -s=int -w=int",
        arguments="path?",
    ),
    CommandRule(
        name="cut",
        options="-d|--delimiter=text -f|--fields=text -c|--characters=text -b|--bytes=text -s|--only-delimited"
        " --complement --output-delimiter=text -z",
        arguments="path*",
    ),
    CommandRule(name="tr", options="-d|--delete -s|--squeeze-repeats -c|-C|--complement -t", arguments="text text?"),
    CommandRule(
        name="awk|gawk|mawk|nawk",
        options="-F=text -v=text",
        arguments="awk path*",
        hint="-f is not allowed: write the program out",
    ),
    CommandRule(
        name="sed",
        options="-n|--quiet|--silent -E|-r|--regexp-extended -s -u -z -e|--expression=sed",
        required="-e",
        arguments="path*",
        hint="-i and -f are not allowed",
    ),
    CommandRule(
        name="sed",
        options="-n|--quiet|--silent -E|-r|--regexp-extended -s -u -z",
        arguments="sed path*",
        hint="-i and -f are not allowed",
    ),
    CommandRule(
        name="jq",
        options="-r|--raw-output -c|--compact-output -e|--exit-status -s|--slurp -R|--raw-input -n|--null-input"
        " -S|--sort-keys -j|--join-output -M|--monochrome-output -C|--color-output --tab --indent=int -a",
        arguments="jq path*",
    ),
    CommandRule(name="jq", options="-r -c -e -s -S -M -C", hint="name the filter"),
    CommandRule(
        name="yq",
        options="-r|--raw-output|--unwrapScalar -o|--output-format=word -p|--input-format=word -P|--prettyPrint"
        " -N|--no-doc -e|--exit-status -j -y -c -M|--no-colors -C",
        arguments="yq path*",
        hint="-i is not allowed",
    ),
    CommandRule(
        name="column",
        options="-t|--table -s|--separator=text -n -x -o|--output-separator=text -N=text -J",
        arguments="path*",
    ),
    CommandRule(
        name="paste|join", options="-s -d|--delimiters=text -t=text -1=int -2=int -a=int -o=word", arguments="path*"
    ),
    CommandRule(name="rev|fold|expand|unexpand|fmt|tsort|colrm", options="-w=int -s -t=int -NUM", arguments="path*"),
    CommandRule(name="iconv", options="-f|--from-code=word -t|--to-code=word -c", arguments="path*"),
    CommandRule(
        name="numfmt",
        options="--to=word --from=word --suffix=word --field=word --format=text --padding=int --header -d=text",
        arguments="any*",
    ),
    CommandRule(name="bc", options="-l|--mathlib -q"),
    CommandRule(name="expr", options="", arguments="any*", inert=True),
    CommandRule(name="seq", line=r"(?:-w )?-?\d{1,6}(?: -?\d{1,6}){0,2}"),
    # --- the shell's own --------------------------------------------------------------------------------
    CommandRule(name="echo", arguments="any*", inert=True),
    CommandRule(name="printf", arguments="leading any*", inert=True),
    CommandRule(name="test|[", arguments="any*", inert=True, check="test"),
    CommandRule(name="true|false|:", arguments="any*", inert=True),
    CommandRule(name="exit|return", arguments="any?", inert=True),
    CommandRule(name="break|continue", tokens=r"\d"),
    CommandRule(name="sleep", arguments="sleep"),
    CommandRule(name="read", options="-r", arguments="variable+"),
    CommandRule(name="set", line=r"(?:(?:[+-][eux]+|[+-][eux]*o (?:pipefail|errexit|nounset))(?: |$))+"),
    CommandRule(name="type|which|whereis", options="-a -p -t -P -b", arguments="word+"),
    CommandRule(name="command", line=r"-[vV](?: \w[\w.+-]*)+"),
    CommandRule(name="wait|jobs|times|umask", line=""),
    # --- the session's own files ------------------------------------------------------------------------
    CommandRule(name="tee", tier=2, options="-a|--append", arguments="own+", writes=True),
    CommandRule(name="mkdir", tier=2, options="-p|--parents -v", arguments="own+", writes=True),
    CommandRule(name="touch", tier=2, arguments="own+", writes=True),
    CommandRule(name="rm", tier=2, options="-r|-R|--recursive -f|--force -v", arguments="own+", writes=True),
    CommandRule(name="rmdir", tier=2, arguments="own+", writes=True),
    CommandRule(name="cp", tier=2, options="-v -f -p", arguments="path own", writes=True),
    CommandRule(name="mv", tier=2, options="-v -f", arguments="own own", writes=True),
    CommandRule(name="tee", arguments="re:/dev/(null|stderr|stdout)"),
)
