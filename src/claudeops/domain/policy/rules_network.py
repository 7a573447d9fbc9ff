"""Rules for looking at the network: names, ports, routes, certificates, and what web servers answer."""

from __future__ import annotations

from typing import Final

from claudeops.domain.policy.rules import CommandRule

_WORD: Final = r"[A-Za-z0-9_./:@%,][A-Za-z0-9_.,:@%/=+*-]*"  # no option
_CURL = (
    "-s|--silent -S|--show-error -f|--fail --fail-with-body -k|--insecure -I|--head -i|--include|--show-headers"
    " -v|--verbose -m|--max-time=duration --connect-timeout=duration -o|--output=sink -D|--dump-header=sink"
    " -w|--write-out=writeout -H|--header=header -X|--request=one:GET,HEAD -A|--user-agent=text -e|--referer=url"
    " -4|--ipv4 -6|--ipv6 -0|--http1.0 --http1.1 --http2 --tlsv1.2 --tlsv1.3 --tls-max=word --compressed"
    " --retry=int:5 --retry-delay=int:10 --retry-connrefused --retry-all-errors --retry-max-time=int:120"
    " -r|--range=word -N|--no-buffer -G|--get --no-progress-meter -g|--globoff -# --cacert=listing --url=url"
    " --noproxy=text --max-filesize=int -q"
)
_IP = r"(?:-(?:4|6|s|d|j|p|o|c|h|br|brief|stats|statistics|details|json|pretty|color|oneline|human) )*"
_IP_OBJECT = r"(?:a|addr|address|l|link|r|route|n|neigh|neighbour|ru|rule|maddr|mroute)"

NETWORK_RULES: Final = (
    CommandRule(
        name="curl",
        options=_CURL,
        arguments="url*",
        hint="only GET and HEAD, shown on the screen, without redirects (-L), uploads, credentials, proxies or"
        " config files",
    ),
    CommandRule(
        name="wget",
        options="-q|--quiet --spider -S|--server-response -T|--timeout=duration -t|--tries=int:5"
        " --no-check-certificate --header=header -4 -6 --no-verbose --method=one:GET,HEAD -U|--user-agent=text",
        required="--spider",
        arguments="url+",
    ),
    CommandRule(
        name="wget",
        options="-q|--quiet -O|--output-document=sink -S|--server-response -T|--timeout=duration -t|--tries=int:5"
        " --no-check-certificate --header=header -4 -6 --max-redirect=int:0 --method=one:GET,HEAD"
        " -U|--user-agent=text",
        required="-O --max-redirect",
        arguments="url+",
        hint="write wget -qO- --max-redirect=0 URL, or use curl -s",
    ),
    CommandRule(
        name="dig",
        line=r"(?:(?:@[\w.:-]+|\+[a-z]+(?:=[\w.]+)?|-[46]|-[tcpxq] [\w.:-]+|-x[\w.:]+|[\w*][\w.*-]*)(?: |$))+",
    ),
    CommandRule(name="nslookup", tokens=r"-(?:type|query|port|timeout|debug)(?:=\w+)?|\w[\w.:-]*"),
    CommandRule(name="host", tokens=r"-[a46vTt]+|\w[\w.:-]*"),
    CommandRule(name="resolvectl", line=r"(?:status|statistics|query \w[\w.-]*|dns|domain)(?: \w[\w.-]*)?"),
    CommandRule(
        name="getent",
        line=r"(?:hosts|ahosts|ahostsv4|ahostsv6|services|passwd|group|networks|protocols)(?: \w[\w.:-]*)*",
    ),
    CommandRule(
        name="ping|ping6",
        options="-c=int:1-20 -W=int:30 -w=int:60 -i=duration -s=int:1472 -4 -6 -n -q -t=int -I=word -M=word -O -D",
        required="-c",
        arguments="host",
        hint="give a count of at most 20: ping -c 3 HOST",
    ),
    CommandRule(
        name="traceroute|tracepath|traceroute6",
        options="-n -I -T -U -4 -6 -m=int:64 -w=int:10 -q=int:5 -p=int",
        arguments="host",
    ),
    CommandRule(
        name="mtr",
        options="-r|--report -w|--report-wide -c|--report-cycles=int:1-20 -n|--no-dns -b -4 -6 -T|--tcp -u|--udp"
        " -P|--port=int -z",
        required="-c -r|-w",
        arguments="host",
        hint="write mtr -r -c 5 HOST",
    ),
    CommandRule(
        name="nc|ncat|netcat",
        options="-z -v -w=int:60 -u -4 -6 -n",
        required="-z",
        arguments="host ports+",
        hint="only nc -z: does a port answer?",
    ),
    CommandRule(
        name="ss",
        tokens="-[tulnpa46sHoemixWrOT]+|--(?:tcp|udp|listening|numeric|processes|all|summary|no-header)"
        rf"|[(){{}}!=<>]|{_WORD}|:\w+",
    ),
    CommandRule(
        name="netstat", tokens=r"-[tulnpaesrioW46]+|--(?:tcp|udp|listening|numeric|program|all|route|statistics|inet)"
    ),
    CommandRule(
        name="ip",
        line=rf"{_IP}{_IP_OBJECT}(?: (?:show|list|ls)(?: {_WORD})*)?|{_IP}(?:r|route) get {_WORD}(?: {_WORD})*",
        hint="ip may only show",
    ),
    CommandRule(name="ifconfig", line=r"(?:-a|\w[\w.:-]*)?"),
    CommandRule(name="route", line=r"-n?e{0,2}"),
    CommandRule(name="arp", line=r"-[an]+"),
    CommandRule(name="bridge", line=r"(?:-[jcsd] )*(?:link|fdb|vlan)(?: show)?"),
    CommandRule(name="ethtool", line=r"(?:-[iSka] )?[A-Za-z0-9]\w*"),
    CommandRule(name="nmcli", line=r"(?:device|dev|general|connection)(?: (?:status|show))?"),
    CommandRule(name="networkctl", line=r"(?:status|list|lldp)?(?: \w[\w.-]*)?(?: --no-pager)?"),
    CommandRule(name="wg", line="(?:show)?", hint="wg may only show"),
    CommandRule(
        name="iptables|ip6tables",
        tokens=r"-[LSnvx]+|--(?:list|list-rules|numeric|verbose|line-numbers)|-t|nat|filter|mangle|raw|[A-Z][A-Z_-]*",
        hint="rules are only listed",
    ),
    CommandRule(name="nft", line=r"(?:-[nas]+ )*list (?:ruleset|tables|chains)", hint="rules are only listed"),
    CommandRule(name="ufw", line="status(?: (?:verbose|numbered))?", hint="rules are only listed"),
    CommandRule(
        name="firewall-cmd",
        line=r"--(?:state|list-all|list-ports|list-services|get-active-zones)",
        hint="rules are only listed",
    ),
    CommandRule(
        name="openssl s_client",
        options="-connect=hostport -servername=host -host=host -port=int -showcerts -brief -quiet -starttls=word"
        " -verify=int -verify_return_error -verify_hostname=host -CAfile=listing -CApath=listing -tls1_1 -tls1_2"
        " -tls1_3 -no_tls1_3 -alpn=word -status -4 -6 -ign_eof -no_ign_eof -prexit -state -crlf -timeout"
        " -tlsextdebug -nbio",
        required="-connect",
        long_options=True,
    ),
    CommandRule(
        name="openssl x509",
        options="-in=listing -noout -dates -startdate -enddate -subject -issuer -serial -text -fingerprint -sha256"
        " -sha1 -purpose -checkend=int -checkhost=host -checkip=host -email -hash -ocsp_uri -pubkey -modulus"
        " -ext=word -nameopt=word -certopt=word -inform=word -dateopt=word",
        long_options=True,
    ),
    CommandRule(name="openssl version", tokens="-[a-z]"),
    CommandRule(
        name="openssl verify",
        options="-CAfile=listing -CApath=listing -untrusted=listing -show_chain",
        arguments="listing+",
        long_options=True,
    ),
    CommandRule(
        name="openssl crl",
        options="-in=listing -noout -text -nextupdate -lastupdate -issuer -inform=word",
        long_options=True,
    ),
)
