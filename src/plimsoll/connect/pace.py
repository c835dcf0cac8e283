"""How many requests a service may get from us in a minute, shared by everything that asks it.

Decides when the next request may go out. Must never let more than the limit go out in any 60 seconds (a bucket that
fills while it is emptied would let through twice that), never use the reserve that is left for people, and never hold
its lock while it waits. It knows only this process: what others use shows in the headers of the answers.

    RateLimit-Limit, -Remaining, -Reset               the organisation's minute; -Reset is in seconds from now
    RateLimit-User-Limit, -Remaining, -Reset          the same for the user whose token it is
    Retry-After                                       seconds, with a 429; where it is missing, the -Reset above
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping

import msgspec

WINDOW_SECONDS = 60.0
REQUESTS_A_MINUTE = 200
RESERVE = 10
CLOSED_SECONDS_DEFAULT = 30.0
"""How long nobody asks after a 429 that does not say."""
CLOSED_SECONDS_MAX = 600.0
"""A header that closes for longer is not believed."""
RESET_SLACK_SECONDS = 2.0
"""Two answers of one window say its end to within this: the seconds are whole, and answers travel."""
ROUNDS_MAX = 10_000
"""How often one caller may wake and find that others were faster."""


class _Scope:
    """One limit that the service counts: how many requests it has left for us, and until when that holds."""

    def __init__(self, prefix: str, *, reserve: int) -> None:
        self.prefix = prefix
        self.reserve = reserve
        self.limit: int | None = None
        self.left: int | None = None
        self.until = 0.0

    def learn(self, headers: Mapping[str, str], now: float) -> None:
        limit = _number(headers, f"{self.prefix}limit")
        remaining = _number(headers, f"{self.prefix}remaining")
        reset = _number(headers, f"{self.prefix}reset")
        if limit is not None and limit >= 1:
            self.limit = int(limit)
        if remaining is None or reset is None:
            return
        left, until = int(remaining) - self.reserve, now + min(reset, CLOSED_SECONDS_MAX)
        if self.left is None or until > self.until + RESET_SLACK_SECONDS:
            self.left, self.until = left, until
        elif until >= self.until - RESET_SLACK_SECONDS:
            # Answers overtake each other: in one window what is left only shrinks.
            self.left = min(self.left, left)

    def wait(self, now: float) -> float:
        if self.left is not None and now >= self.until:
            self.left = None
        return self.until - now if self.left is not None and self.left <= 0 else 0.0

    def spend(self) -> None:
        if self.left is not None:
            self.left -= 1


class PaceReport(msgspec.Struct, frozen=True):
    """Where it stands: requests of the last minute, how many are allowed, and how long one would have to wait."""

    used: int
    allowed: int
    wait_seconds: float


class Pace:
    """One for an organisation; hand the same to all its clients. Threads may share it."""

    def __init__(
        self,
        requests_a_minute: int = REQUESTS_A_MINUTE,
        *,
        reserve: int = RESERVE,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        assert 0 <= reserve < requests_a_minute, "something must be left to ask with"
        self._requests_a_minute = requests_a_minute
        self._reserve = reserve
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._taken: deque[float] = deque()
        self._closed_until = float("-inf")
        # People share the organisation's minute with us, and nobody shares our token.
        self._organisation = _Scope("ratelimit-", reserve=reserve)
        self._user = _Scope("ratelimit-user-", reserve=0)

    def take(self, seconds_max: float) -> float | None:
        """None once one request may go out. If that takes more than `seconds_max`: how long, and none is taken."""
        deadline: float | None = None
        wait = 0.0
        for _ in range(ROUNDS_MAX):
            with self._lock:
                now = self._clock()
                deadline = now + seconds_max if deadline is None else deadline
                wait = self._wait(now)
                if wait <= 0:
                    self._taken.append(now)
                    self._organisation.spend()
                    self._user.spend()
                    return None
            if now + wait > deadline:
                return wait
            self._sleep(wait)
        return wait

    def learn(self, headers: Mapping[str, str]) -> None:
        """What an answer says about the limits; names in lower case. What can't be read says nothing."""
        with self._lock:
            now = self._clock()
            self._organisation.learn(headers, now)
            self._user.learn(headers, now)

    def refused(self, headers: Mapping[str, str]) -> None:
        """A 429: nobody asks until the time that it says."""
        self.learn(headers)
        seconds = _number(headers, "retry-after")
        if seconds is None:
            scopes = (self._organisation, self._user)
            empty = [each for each in scopes if _number(headers, f"{each.prefix}remaining") == 0]
            resets = [_number(headers, f"{each.prefix}reset") for each in empty or scopes]
            seconds = max((each for each in resets if each is not None), default=CLOSED_SECONDS_DEFAULT)
        with self._lock:
            until = self._clock() + min(seconds, CLOSED_SECONDS_MAX)
            self._closed_until = max(self._closed_until, until)

    def report(self) -> PaceReport:
        with self._lock:
            wait = max(0.0, self._wait(self._clock()))
            return PaceReport(len(self._taken), self._allowed(), wait)

    def _allowed(self) -> int:
        """The setting is a ceiling: a service that allows more does not raise it."""
        allowed = self._requests_a_minute - self._reserve
        if self._organisation.limit is not None:
            allowed = min(allowed, self._organisation.limit - self._reserve)
        if self._user.limit is not None:
            allowed = min(allowed, self._user.limit)
        return max(1, allowed)

    def _wait(self, now: float) -> float:
        while self._taken and now - self._taken[0] >= WINDOW_SECONDS:
            self._taken.popleft()
        waits = [self._closed_until - now, self._organisation.wait(now), self._user.wait(now)]
        allowed = self._allowed()
        if len(self._taken) >= allowed:
            # The one that has to leave the window first, so that there is room for one more.
            waits.append(self._taken[len(self._taken) - allowed] + WINDOW_SECONDS - now)
        return max(waits)


def _number(headers: Mapping[str, str], name: str) -> float | None:
    text = headers.get(name, "").strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) <= 9 else None
