"""Whatever a caller can cause. Our own mistakes are `assert`s, not errors.

    PlimsollError
    ├── UsageError              the words are wrong (exit 2, HTTP 400)
    ├── NotFound                a named thing does not exist (404)
    ├── Refused                 understood, and not done (422)
    ├── Stale                   the state moved since it was read (409)
    │   └── Fenced              another process leads now
    ├── Tampered                the ledger is not what was written (409)
    └── Unavailable             the database can't serve now (503)

Each error has a stable `code` (add, never rename), says what happened and the number in its message, and the next
thing to type in `next_step`. `fields` carries the same for machines.
"""

from __future__ import annotations

from typing import ClassVar


class PlimsollError(Exception):
    """The root: catch this to catch everything that is not a bug."""

    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

    def __init__(self, code: str, message: str, *, next_step: str = "", **fields: object) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.next_step = next_step
        self.fields = fields


class UsageError(PlimsollError):
    """The words are wrong; nothing was tried."""

    status = 400
    exit_code = 2


class NotFound(PlimsollError):
    """A named thing does not exist."""

    status = 404


class Refused(PlimsollError):
    """Understood, and not done: the message says why."""

    status = 422


class Stale(PlimsollError):
    """The state moved between reading and writing; reading again and retrying is the normal path."""

    status = 409


class Fenced(Stale):
    """The writer believed that it leads, and another process does."""


class Tampered(PlimsollError):
    """The ledger holds something that this program did not write there."""

    status = 409


class Unavailable(PlimsollError):
    """The database can't serve: missing rights, full disk, lost connection, another version."""

    status = 503
