"""What can go wrong with a service that makes clusters, in words that do not depend on which one it is.

Clients of clouds and build services raise `ProviderTrouble`. What is to be done about it (wait, ask a person, look
first) follows from its `kind` and from whether the request may have been carried out although no answer came.
"""

from __future__ import annotations

import enum

from plimsoll.errors import Unavailable


class TroubleKind(enum.StrEnum):
    """Why a request did not give what was asked. From lasting to passing."""

    CREDENTIALS = "credentials"
    """There are none, or they are wrong, expired, or may not do this: a person's move."""
    MISSING = "missing"
    """What was asked for is not there: a pipeline, a subscription, an API. A person's move."""
    REFUSED = "refused"
    """Understood and refused; asking again would not help."""
    OUT_OF_QUOTA = "out_of_quota"
    """The provider's limit: `limit`, `used` and `required` are in the fields, where it said them."""
    NO_CAPACITY = "no_capacity"
    """Quota there is, machines there are not."""
    BUSY = "busy"
    """Too many requests: wait `retry_seconds`. It says nothing about the request."""
    UNREACHABLE = "unreachable"
    """No answer, half an answer, or an error of its own (5xx)."""


class ProviderTrouble(Unavailable):
    """A provider did not do what was asked. `may_have_happened`: it got the request, and no answer tells what of it."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        kind: TroubleKind,
        next_step: str = "",
        retry_seconds: float | None = None,
        may_have_happened: bool = False,
        **fields: object,
    ) -> None:
        super().__init__(code, message, next_step=next_step, **fields)
        self.kind = kind
        self.retry_seconds = retry_seconds
        self.may_have_happened = may_have_happened
