"""A monitoring system for rehearsals: asks every service how it is, and posts alerts to the daemon's listener.

It writes bodies as Alertmanager does, one for each service, and sends each again until the daemon has stored it. What
it says follows from what the services answer, not from the scenario's faults.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from claudeops.rehearsal.environment import Environment, Running, get_status
from claudeops.rehearsal.scenario import ScenarioAlerts

SOURCE: Final = "prometheus"

_LOOK_SECONDS: Final = 0.5
_POST_SECONDS: Final = 30.0
_NEVER: Final = "0001-01-01T00:00:00Z"  # as Go writes no time


@dataclass(kw_only=True)
class Monitoring:
    """What looks at the services of a rehearsal from outside."""

    environment: Environment
    alerts: ScenarioAlerts
    url: str  # of the daemon's listener
    token: str = field(repr=False)
    _unwell: dict[str, datetime] = field(default_factory=dict)  # services, and since when

    async def run(self) -> None:
        """Look at every service again and again, until cancelled."""
        while True:
            async with anyio.create_task_group() as looks:
                for running in self.environment.services.values():
                    looks.start_soon(self._look, running)
            await anyio.sleep(_LOOK_SECONDS)

    async def _look(self, running: Running) -> None:
        status = await get_status(running.url)
        is_well = status is not None and status < HTTPStatus.BAD_REQUEST
        if is_well is (running.name not in self._unwell):
            return
        now = datetime.now(UTC)
        since = self._unwell.get(running.name, now)
        if await self._is_stored(bodies(running.name, self.alerts, since=since, ended=now if is_well else None)):
            if is_well:
                del self._unwell[running.name]
            else:
                self._unwell[running.name] = since

    async def _is_stored(self, content: bytes) -> bool:
        url = f"{self.url}/api/v1/alerts/{SOURCE}"
        return await anyio.to_thread.run_sync(_post, url, self.token, content) == HTTPStatus.ACCEPTED


def bodies(service: str, alerts: ScenarioAlerts, *, since: datetime, ended: datetime | None) -> bytes:
    """Return what Alertmanager would post about a service; ``ended``: when it was well again."""
    told = [
        {
            "status": "firing" if ended is None else "resolved",
            "labels": {
                "alertname": f"RequestsFail{number}" if number else "ServiceDown",
                "service": service,
                "severity": alerts.severity,
                "instance": f"{service}-{number}",
            },
            "annotations": {"summary": f"requests to {service} fail"},
            "startsAt": since.isoformat(),
            "endsAt": _NEVER if ended is None else ended.isoformat(),
        }
        for number in range(alerts.each_service)
    ]
    return msgspec.json.encode({"version": "4", "groupKey": f"{{service={service}}}", "alerts": told})


def _post(url: str, token: str, content: bytes) -> int | None:
    """Return the status of a POST, or ``None`` when nothing answers."""
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    request = urllib.request.Request(url, data=content, headers=headers, method="POST")  # noqa: S310 - loopback
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_POST_SECONDS) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None
