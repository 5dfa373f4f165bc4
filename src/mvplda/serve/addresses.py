"""Limits per client address, in the memory of one process: calls per minute, and unfinished request bodies."""

from __future__ import annotations

import ipaddress
import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .access import Exchange
    from .settings import Settings

# Largest number of addresses whose calls are counted; beyond it, the count of the oldest address is dropped.
LARGEST_COUNT = 10_000
# Shortest time between two log lines about refused calls of one address, in seconds.
LOG_S = 1.0
MINUTE = 60.0


def client_address(scope: Mapping[str, Any]) -> str:
    """Return the address of the client of an ASGI scope.

    For IPv6 the /64 network is returned, because one client may use all of its addresses.
    """
    host = str((scope.get("client") or ("unknown",))[0])
    if ":" not in host:
        return host
    try:
        return str(ipaddress.ip_network((host.partition("%")[0], 64), strict=False))
    except ValueError:
        return host


class AddressRate:
    """Limits the calls per minute from each client address.

    Parameters
    ----------
    per_minute : largest number of calls per minute from one address; 0: no limit
    """

    def __init__(self, per_minute: float) -> None:
        self._cost = MINUTE / per_minute if per_minute else 0.0
        # each call moves this time of its address forward by `_cost` seconds; more than a minute ahead is refused
        self._until: dict[str, float] = {}

    def wait(self, address: str) -> float:
        """Return the seconds until the next call from an address is allowed; 0 if it is allowed now."""
        excess = self._until.get(address, 0.0) + self._cost - time.monotonic() - MINUTE
        return max(0.0, excess)

    def spend(self, address: str) -> float:
        """Count a call from an address and return 0; if it exceeds the limit, return the seconds to wait instead."""
        wait = self.wait(address)
        if wait == 0 and self._cost:
            # at the end of the dictionary, where the latest addresses are
            until = self._until.pop(address, 0.0)
            self._until[address] = max(until, time.monotonic()) + self._cost
            if len(self._until) > LARGEST_COUNT:
                self._until.pop(next(iter(self._until)))
        return wait


class RefusedCalls:
    """Counter of refused calls per address, so that a flood of them writes only one log line per second."""

    def __init__(self) -> None:
        self._next: dict[str, float] = {}
        self._counts: Counter[str] = Counter()

    def count(self, address: str) -> int:
        """Count a refused call from an address.

        Returns
        -------
        number of refused calls since the last log line about this address; 0 if the next log line is not due yet
        """
        now = time.monotonic()
        self._counts[address] += 1
        if now < self._next.get(address, 0.0):
            return 0
        if len(self._next) >= LARGEST_COUNT:
            self._next.clear()
            self._counts = Counter({address: self._counts[address]})
        self._next[address] = now + LOG_S
        return self._counts.pop(address)


class UnfinishedBodies:
    """Requests whose body has not arrived completely, oldest first.

    Two limits hold: the number of such requests per address, and the memory of all their bodies. Beyond a limit, the
    oldest requests are refused. A slow client therefore does not block other clients with the same address, such as
    those behind one proxy.

    Parameters
    ----------
    settings : limits ``address_bodies`` (number) and ``body_memory`` (bytes)
    """

    def __init__(self, settings: Settings) -> None:
        self._largest_number = settings.address_bodies
        self._largest_size = settings.body_memory
        self._requests: dict[Exchange, int] = {}
        self._by_address: dict[str, dict[Exchange, None]] = {}
        self.size = 0

    def add(self, request: Exchange) -> None:
        """Add a request before its body is read; refuse the oldest request of its address if there are too many."""
        if request in self._requests:
            return
        same_address = self._by_address.setdefault(request.address, {})
        if len(same_address) >= self._largest_number:
            self._refuse(next(iter(same_address)))
        self._requests[request] = 0
        self._by_address.setdefault(request.address, {})[request] = None

    def count(self, request: Exchange, size: int) -> None:
        """Count `size` more bytes of a request; refuse the oldest requests while all bodies together are too large."""
        self._requests[request] += size
        self.size += size
        while self.size > self._largest_size and self._requests:
            self.refuse_oldest()

    def remove(self, request: Exchange) -> None:
        """Remove a request whose body is complete or was refused."""
        size = self._requests.pop(request, None)
        if size is None:
            return
        self.size -= size
        same_address = self._by_address[request.address]
        del same_address[request]
        if not same_address:
            del self._by_address[request.address]

    def refuse_oldest(self) -> bool:
        """Refuse the request with the oldest unfinished body; return whether there was such a request."""
        oldest = next(iter(self._requests), None)
        if oldest is None:
            return False
        self._refuse(oldest)
        return True

    def _refuse(self, request: Exchange) -> None:
        """Remove `request` from the unfinished ones, and make it answer with a refusal."""
        self.remove(request)
        request.stop_reading()
