"""Elect one of several replicas of the operator as the leader, by a Lease of Kubernetes. Only the leader acts.

The leader renews the Lease every two seconds. Another replica takes the Lease after the Lease has not changed for the
duration in its `leaseDurationSeconds`. Each replica measures this duration by its own clock, so that the clocks of
replicas need not agree. A leader that has not been able to renew the Lease for RENEW_SECONDS stops before another
replica may take the Lease. The durations are those of Kubernetes' own controllers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import structlog

from memory_operator.api.spec import Manifest
from memory_operator.clients.kube import Kube, KubeError

LEASE_SECONDS = 15
RENEW_SECONDS = 10.0
RETRY_SECONDS = 2.0
RELEASE_SECONDS = 3.0

_log = structlog.get_logger(__name__)


@dataclass
class LeaderElection:
    """Takes and renews one Lease for this process. No other running process may have the same identity."""

    kube: Kube
    namespace: str
    name: str
    identity: str
    clock: Callable[[], float] = monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _holder: str | None = None
    _seen: Manifest = field(default_factory=dict)
    _seen_at: float = 0.0
    _renewed_at: float = 0.0

    async def acquire(self) -> None:
        """Wait until this process is the leader."""
        _log.info("waiting for the lease", lease=f"{self.namespace}/{self.name}", identity=self.identity)
        while not await self._renew():
            await self.sleep(RETRY_SECONDS)
        _log.info("leading", lease=f"{self.namespace}/{self.name}", identity=self.identity)

    async def hold(self) -> None:
        """Renew the Lease; return as soon as this process must no longer act as the leader."""
        while self._holder == self.identity:
            await self.sleep(RETRY_SECONDS)
            left = self._renewed_at + RENEW_SECONDS - self.clock()
            try:
                async with asyncio.timeout(left):
                    renewed = await self._renew()
            except TimeoutError:
                renewed = False
            if not renewed and self.clock() - self._renewed_at >= RENEW_SECONDS:
                break
        _log.error("leadership lost", lease=f"{self.namespace}/{self.name}", holder=self._holder)

    async def release(self) -> None:
        """Release the Lease if this process holds it, so that another replica need not wait until the Lease expires."""
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                lease = await self.kube.get("Lease", self.namespace, self.name)
                if lease and lease["spec"].get("holderIdentity") == self.identity:
                    await self.kube.replace({**lease, "spec": {**lease["spec"], "holderIdentity": ""}})
        except (KubeError, TimeoutError) as error:
            _log.warning("lease not released", lease=f"{self.namespace}/{self.name}", error=type(error).__name__)

    async def _renew(self) -> bool:
        """Take or renew the Lease; return False if another process holds it or a request fails."""
        began = self.clock()
        try:
            lease = await self.kube.get("Lease", self.namespace, self.name)
            if lease is None:
                await self.kube.create(self._new())
                lease = await self.kube.get("Lease", self.namespace, self.name)
            if lease is None or not self._may_take(lease.get("spec") or {}):
                return False
            await self.kube.replace({**lease, "spec": self._spec(lease.get("spec") or {})})
        except KubeError as error:
            _log.warning("lease not renewed", detail=str(error))
            return False
        self._holder, self._renewed_at = self.identity, began
        return True

    def _may_take(self, spec: Manifest) -> bool:
        """Return whether this process may take the Lease: it is free, already held by this process, or expired."""
        if spec != self._seen:
            self._seen, self._seen_at = spec, self.clock()
        self._holder = spec.get("holderIdentity") or None
        duration = spec.get("leaseDurationSeconds") or LEASE_SECONDS
        return self._holder in {None, self.identity} or self.clock() - self._seen_at > duration

    def _new(self) -> Manifest:
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": self._spec({}),
        }

    def _spec(self, former: Manifest) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        mine = former.get("holderIdentity") == self.identity
        return {
            **former,
            "holderIdentity": self.identity,
            "leaseDurationSeconds": LEASE_SECONDS,
            "acquireTime": former.get("acquireTime", now) if mine else now,
            "renewTime": now,
            "leaseTransitions": former.get("leaseTransitions", 0) + (0 if mine or not former else 1),
        }
