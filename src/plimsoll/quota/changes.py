"""What can happen to quota, as events. Whatever moves a promise belongs to its pool's stream."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from plimsoll.fleet.model import PoolKey
from plimsoll.ledger.model import Change
from plimsoll.quota.model import Answer, Approved, Grant, Mode, Notice, Quota, Request, RequestState


def team_stream(team: str) -> str:
    """Where it stands under which name a team goes: read by whoever decides by that name."""
    return f"team/{team}"


def request_stream(request: str) -> str:
    """Everything that is answered to a request."""
    return f"request/{request}"


class _PoolChange(Change, frozen=True):
    """Something that happens to the promises of one pool."""

    cluster: str
    sku: str

    @property
    def pool(self) -> PoolKey:
        return PoolKey(self.cluster, self.sku)

    @property
    def subject(self) -> str:
        return self.pool.stream


class QuotaAssigned(Change, frozen=True):
    """The book says that a team holds this much; 0 strikes the entry out. A guarantee never stays above it."""

    kind: ClassVar[str] = "quota.assigned"

    quota: Quota
    was: dict[str, str | None] = {}

    @property
    def subject(self) -> str:
        return PoolKey(self.quota.cluster, self.quota.sku).stream


class PoolAligned(_PoolChange, frozen=True):
    """An alignment was applied: the line in force, and what each team is guaranteed from now on."""

    kind: ClassVar[str] = "quota.aligned"

    line: int
    policy: str
    guaranteed: dict[str, int]
    was: dict[str, int] = {}
    """What differs was before: GPUs by team."""
    cause: str = ""


class QuotaTransferred(_PoolChange, frozen=True):
    """One team gave another some of its quota, assigned and guaranteed alike. Nobody can come in between."""

    kind: ClassVar[str] = "quota.transferred"

    giver: str
    taker: str
    gpus: int
    grant: str = ""
    """The temporary grant that ends with this, where it is the way back."""
    assigned: int | None = None
    """What moves of the book, where a correction has left less of it guaranteed."""


class QuotaGranted(_PoolChange, frozen=True):
    """A team holds so many GPUs more, assigned and guaranteed alike."""

    kind: ClassVar[str] = "quota.granted"

    team: str
    gpus: int
    request: str = ""


class GrantOpened(Change, frozen=True):
    """Quota that came by a grant or a transfer goes back at a moment."""

    kind: ClassVar[str] = "quota.grant_opened"

    grant: Grant

    @property
    def subject(self) -> str:
        return self.grant.key.pool.stream


class GrantEnded(_PoolChange, frozen=True):
    """A temporary grant is over: the team gives `gpus` back to flex, assigned, and guaranteed as far as they are."""

    kind: ClassVar[str] = "quota.grant_ended"

    grant: str
    team: str
    gpus: int


class QuotaRequested(Change, frozen=True):
    """A team asks for more."""

    kind: ClassVar[str] = "quota.requested"

    request: Request

    @property
    def subject(self) -> str:
        return request_stream(self.request.id)


class QuotaReserved(_PoolChange, frozen=True):
    """GPUs were approved for later: until the request begins, nobody else is promised them."""

    kind: ClassVar[str] = "quota.reserved"

    request: str
    approved: Approved


class RequestAnswered(Change, frozen=True):
    """A request was approved, denied or withdrawn, it begins now, or nobody answered in time."""

    kind: ClassVar[str] = "quota.request_answered"

    request: str
    state: RequestState
    answer: str = ""
    approved: Approved | None = None

    @property
    def subject(self) -> str:
        return request_stream(self.request)


class NoticeGiven(Change, frozen=True):
    """A team was told what a correction will take from it, and when."""

    kind: ClassVar[str] = "quota.notice_given"

    notice: Notice

    @property
    def subject(self) -> str:
        return f"notice/{self.notice.id}"


class NoticeAnswered(Change, frozen=True):
    """A team agrees to what it was told, or objects."""

    kind: ClassVar[str] = "quota.notice_answered"

    notice: str
    answer: Answer
    comment: str = ""

    @property
    def subject(self) -> str:
        return f"notice/{self.notice}"


class NoticeEnded(Change, frozen=True):
    """What a notice told has happened, or is no longer meant."""

    kind: ClassVar[str] = "quota.notice_ended"

    notice: str
    cause: str

    @property
    def subject(self) -> str:
        return f"notice/{self.notice}"


class ModeSet(Change, frozen=True):
    """What the controller may do in a cluster by itself."""

    kind: ClassVar[str] = "quota.mode_set"

    cluster: str
    mode: Mode

    @property
    def subject(self) -> str:
        return f"cluster/{self.cluster}"


class LinePolicyApplied(Change, frozen=True):
    """Another policy says from now on where the lines are."""

    kind: ClassVar[str] = "quota.policy_applied"

    name: str
    text: str

    @property
    def subject(self) -> str:
        return "policy/quota"


class FlexCalledBack(_PoolChange, frozen=True):
    """A guarantee needs GPUs that others use as flex: which work gives how many back, and until when."""

    kind: ClassVar[str] = "quota.flex_called_back"

    team: str
    gpus: int
    due: datetime
    victims: list[tuple[str, str, int]]
    """Team, work, GPUs."""


class TeamRenamed(Change, frozen=True):
    """A team has another name; everything it holds stays with it.

    The same is said once in the stream of each name and of each pool the team is in, so that whoever decided there
    meanwhile, under the old name, decides again.
    """

    kind: ClassVar[str] = "quota.team_renamed"

    team: str
    name: str
    stream: str = ""

    @property
    def subject(self) -> str:
        return self.stream or team_stream(self.team)


class LimitsPushed(Change, frozen=True):
    """A scheduler was told what is guaranteed in a cluster. `digest` is that of what it was told."""

    kind: ClassVar[str] = "quota.pushed"

    cluster: str
    outlet: str
    digest: str
    changed: list[str]

    @property
    def subject(self) -> str:
        return f"cluster/{self.cluster}"
