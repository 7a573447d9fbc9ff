"""Which names mean one service: what the policy says of it, and what the manifests add.

Settled here:

- The operator's policy comes first: where both name a service, it is counted by the policy's name for it, and what the
  policy tells apart stays apart, whatever a manifest says.
- A service whose host a manifest names is meant by its names behind that host too: ``web1/web`` is ``web``, unless
  manifests name services of that name on several hosts.
- Names are equal whatever their case.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from claudeops.domain.estate.model import Estate
from claudeops.domain.text import casefold_key


def counted_names(estate: Estate, own: Mapping[str, str]) -> dict[str, str]:
    """Return every other name of a service with the name that it is counted by; ``own`` are those of the policy."""
    policys = {casefold_key(name): name for name in own.values()}
    policys |= {casefold_key(other): name for other, name in own.items()}
    counted = dict(own)
    for name, others in _services(estate).items():
        members = {casefold_key(member): member for member in (name, *others)}
        known = [policys[member] for member in members if member in policys]
        chosen = known[0] if known else name
        for key, member in members.items():
            if key not in policys and key != casefold_key(chosen):
                counted.setdefault(member, chosen)
    return counted


def one_case(counted: Mapping[str, str]) -> dict[str, str]:
    """Return the same names, and those that services are counted by, for a look-up without regard to case."""
    main = {casefold_key(name): name for name in counted.values()}
    return main | {casefold_key(other): name for other, name in reversed([*counted.items()])}


def counted_by(counted: Mapping[str, str]) -> Callable[[str], str]:
    """Return what tells the name that a service is counted by; one without another name is counted by its own."""
    folded = one_case(counted)
    return lambda name: folded.get(casefold_key(name), name)


def other_names_of(service: str, counted: Mapping[str, str]) -> tuple[str, ...]:
    """Return every other name of a service, given by the name that it is counted by."""
    key = casefold_key(service)
    return tuple(other for other, name in counted.items() if casefold_key(name) == key)


def _services(estate: Estate) -> dict[str, list[str]]:
    """Return the other names of each service in the manifests, by the name that manifests count it by."""
    others: defaultdict[str, list[str]] = defaultdict(list)
    for other, name in estate.other_names.items():
        others[name].append(other)
    names = {casefold_key(other): name for other, name in reversed([*estate.other_names.items()])}
    for (host, plain), name in _behind_hosts(estate, names).items():
        others[name].append(f"{host}/{plain}")
    return others


def _behind_hosts(estate: Estate, names: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """Return services by host and name, those without a host or with a name that several hosts share left out."""
    hosts: defaultdict[str, set[str]] = defaultdict(set)
    found: dict[tuple[str, str], str] = {}
    for service in estate.services:
        host = service.host.strip().rstrip(".").lower()
        for plain in _each_once((service.name, *service.aliases)):
            hosts[casefold_key(plain)].add(host)
            if host and not plain.startswith(f"{host}/"):
                found.setdefault((host, plain), names.get(casefold_key(plain), service.name))
    return {key: name for key, name in found.items() if len(hosts[casefold_key(key[1])]) == 1}


def _each_once(names: Iterable[str]) -> dict[str, None]:
    return dict.fromkeys(name for name in names if name.strip())
