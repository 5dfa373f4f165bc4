"""Callers of the service: finds them by their API key, and limits their calls per minute."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .addresses import AddressRate, RefusedCalls
from .deadlines import database_wait
from .keys import Caller, key_hash
from .schemas import Problem

if TYPE_CHECKING:
    from .access import Exchange
    from .app import Runtime

log = logging.getLogger("mvplda.serve")
# Seconds for which valid API keys are cached: a revoked key still works for so long.
KEYS_S = 5.0
# Seconds for which the hashes of all keys are cached while an address sends too many invalid keys.
HASHES_S = 1.0


class Callers:
    """Finds the caller of each request by its API key, and refuses calls beyond a rate limit.

    Parameters
    ----------
    runtime : state of the service
    is_open : whether calls without a key are allowed until the first key is made
    """

    def __init__(self, runtime: Runtime, is_open: bool) -> None:
        self._runtime = runtime
        self._keys = runtime.service.store.api_keys
        self._failures = AddressRate(runtime.settings.address_failures)
        self._keyless = AddressRate(runtime.settings.address_rate)
        self._refused_calls = RefusedCalls()
        self.is_open = is_open
        self._is_open_until = 0.0
        self._cache: dict[str, tuple[Caller, float]] = {}
        self._hashes: Mapping[str, Caller] = {}
        self._hashes_until = 0.0
        self._calls: dict[str, int] = {}
        self._refused: dict[str, float] = {}
        self._spending: dict[str, asyncio.Lock] = {}

    async def caller(self, exchange: Exchange, key: str | None) -> Caller:
        """Return the caller of a request, and count the call towards the rate limit of its key.

        Parameters
        ----------
        exchange : request in progress; the state of the caller's tenant is stored in it
        key : API key of the request; None: no key was sent

        Raises
        ------
        Problem : 401 for a missing or invalid key, 429 for too many calls
        """
        if not key and await self.needs_no_key():
            caller = Caller("local", "admin")
        else:
            caller = await self._find(exchange.address, key or "")
        exchange.runtime = runtime = await self._runtime.of(caller)
        if runtime.settings.key_rate:
            await self._spend(caller, runtime)
        return caller

    async def _find(self, address: str, key: str) -> Caller:
        """Return the caller that owns a key.

        Raises a `Problem` (401 or 429) for an invalid key, which is counted for the client's `address`.
        """
        caller, until = self._cache.get(key, (None, 0.0))
        if caller is not None and until >= time.monotonic():
            return caller
        self._cache.pop(key, None)
        if self._failures.wait(address):
            # a flood of invalid keys costs no query per key; valid keys from the same address still work
            caller = (await self._all_hashes()).get(key_hash(key))
        elif key:
            caller = await self._runtime.run(self._keys.find, key)
        if caller is None:
            raise self._refusal(address)
        self._cache[key] = caller, time.monotonic() + KEYS_S
        return caller

    async def _all_hashes(self) -> Mapping[str, Caller]:
        """Return {hash of the key: caller} of all keys; the result is cached for `HASHES_S` seconds."""
        if self._hashes_until < time.monotonic():
            self._hashes_until = time.monotonic() + HASHES_S
            self._hashes = await self._runtime.run(self._keys.all)
        return self._hashes

    def _refusal(self, address: str) -> Problem:
        """Count a missing or invalid key from an address, log it, and return the problem to raise (401 or 429)."""
        wait = self._failures.spend(address)
        count = self._refused_calls.count(address)
        if count:
            fields = {"address": address, "calls": count}
            log.warning("invalid key", extra={"fields": fields})
        if wait:
            detail = "too many calls with invalid keys came from this address: wait, then send a valid key"
            return Problem(429, "address", detail, wait=wait)
        detail = (
            "expected a valid API key in a header of the request, X-API-Key: KEY or Authorization: Bearer KEY; "
            "it is missing or not valid"
        )
        return Problem(401, "key", detail)

    def count_keyless(self, exchange: Exchange) -> None:
        """Count a call without a key; raise a `Problem` (429) if its address has sent too many of them."""
        wait = 0.0 if self.is_open else self._keyless.spend(exchange.address)
        if wait:
            detail = "too many calls without an API key came from this address: wait, or send a key"
            raise Problem(429, "address", detail, wait=wait)

    async def needs_no_key(self) -> bool:
        """Return whether calls need no API key because none exists.

        The database is read again every `KEYS_S` seconds, so that the first key takes effect while the service runs.
        """
        if self.is_open and self._is_open_until < time.monotonic():
            self.is_open = not await self._runtime.run(self._keys.names)
            self._is_open_until = time.monotonic() + KEYS_S
        return self.is_open

    async def _spend(self, caller: Caller, runtime: Runtime) -> None:
        """Count a call towards the rate limit of its key; raise a `Problem` (429) if the limit is reached.

        Rates are stored in the database. To save queries, the calls of one second are reserved there in one step, and
        then counted in memory.
        """
        # one call reserves for all that arrive at the same time
        rate = runtime.settings.key_rate
        lock = self._spending.setdefault(caller.name, asyncio.Lock())
        async with database_wait(self._runtime.settings.answer_s), lock:
            left = self._calls.get(caller.name, 0)
            if not left:
                wait = self._refused.get(caller.name, 0.0) - time.monotonic()
                left = max(1, int(rate / 60))
                if wait <= 0:
                    arguments = (caller.name, left, rate)
                    wait = await self._runtime.run(self._keys.spend, *arguments)
                if wait > 0:
                    await self._refuse(caller, runtime, wait)
            self._calls[caller.name] = left - 1

    async def _refuse(self, caller: Caller, runtime: Runtime, wait: float) -> None:
        """Count a call beyond the rate limit of its key for the audit, and raise its refusal (429).

        wait : seconds until the next call is allowed
        """
        detail = f"too many calls with this API key: wait {wait:.1f} s"
        problem = Problem(429, "rate", detail, wait=wait)
        if caller.name not in self._refused or self._refused[caller.name] < time.monotonic():
            # one entry for all calls during the wait: a flood of calls does not fill the audit
            self._refused[caller.name] = time.monotonic() + min(wait, 1.0)
            await runtime.run(runtime.service.refuse, caller, problem)
        raise problem
