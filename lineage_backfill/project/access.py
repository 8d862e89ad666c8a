"""The table `[access]`: who may do what on the pages and by REST."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import IntEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Annotated, Any, Final, Literal

from lineage_backfill.errors import DeclarationError
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.project.forms import TEXT, Count
from lineage_backfill.typed import ONE_OR_MORE, Form, Misfit, Text, member, text

RoleName = Literal["viewer", "operator", "approver", "admin"]
_Ref = JobRef | DatasetRef
#: The subject of a grant to all who reach the address, with or without a login.
ANYONE: Final = "anyone"


class Role(IntEnum):
    """What a user may do; each may do what the one before may."""

    PUBLIC = 0
    VIEWER = 1
    OPERATOR = 2
    APPROVER = 3
    ADMIN = 4

    def __str__(self) -> str:
        return self.name.lower()


def _subject(value: Any) -> str:
    kind, _, name = (found := text(value)).partition(":")
    if found not in ("*", ANYONE) and not (kind in ("token", "user", "group") and name):
        hint = f"Write token:NAME, user:NAME, group:NAME, * for all who log in, or {ANYONE}."
        raise Misfit("is not a subject: {value}", found, hint=hint)
    return found


def _network(value: Any) -> str:
    try:
        return str(ip_network(text(value)))
    except ValueError:
        hint = "Write the proxy's address as 10.0.0.5, or a network as 10.0.0.0/24."
        raise Misfit("is not an address: {value}", value, hint=hint) from None


_Subject = Annotated[str, Form(_subject, TEXT)]
_Network = Annotated[str, Form(_network, TEXT)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A role for some, on the jobs and datasets whose `namespace:name` matches a glob of `on`."""

    to: Annotated[tuple[_Subject, ...], ONE_OR_MORE] = ()
    role: RoleName | None = None
    on: Annotated[tuple[Text, ...], ONE_OR_MORE] = ("*",)

    def __post_init__(self) -> None:
        if not self.to or self.role is None:
            raise DeclarationError(
                "needs `to` and `role`", hint='As in { to = "token:ci", role = "operator" }.'
            )
        if ANYONE in self.to and self.role != "viewer":
            raise DeclarationError(
                f"lets {ANYONE} be {self.role}", hint="Who does not log in can only be a viewer."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySetting:
    """The headers by which a proxy with a login names the user, believed from these addresses."""

    header: Text | None = None
    groups: Text | None = None
    addresses: Annotated[tuple[_Network, ...], ONE_OR_MORE] = member((), key="from")

    def __post_init__(self) -> None:
        if self.header is None or not self.addresses:
            raise DeclarationError(
                "`proxy` needs `header` and `from`",
                hint='As in { header = "X-Forwarded-User", from = ["127.0.0.1"] }.',
            )

    def sends(self, address: str) -> bool:
        """Whether requests from this address are those of the proxy."""
        try:
            found = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        found = getattr(found, "ipv4_mapped", None) or found
        return any(found in ip_network(one) for one in self.addresses)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What a user may do: the roles on the names that match each glob."""

    grants: tuple[tuple[Role, tuple[str, ...]], ...] = ()

    def role(self, ref: _Ref) -> Role:
        """Return the role on a job or dataset; PUBLIC is none."""
        return _role(self, str(ref))

    def sees(self, ref: _Ref) -> bool:
        """Whether a job or dataset may be seen."""
        return self.role(ref) >= Role.VIEWER

    @property
    def highest(self) -> Role:
        """The highest role on anything."""
        return max((role for role, _ in self.grants), default=Role.PUBLIC)

    @property
    def sees_all(self) -> bool:
        """Whether nothing is hidden."""
        return any("*" in globs for _, globs in self.grants)

    @property
    def is_admin(self) -> bool:
        """Whether it has every role on everything."""
        return any(role is Role.ADMIN and "*" in globs for role, globs in self.grants)

    def beyond(self, role: Role, jobs: Iterable[JobRef]) -> list[JobRef]:
        """Return the jobs on which the role is missing, sorted."""
        return sorted(one for one in set(jobs) if self.role(one) < role)


@lru_cache(maxsize=100_000)
def _role(reach: Reach, name: str) -> Role:
    found = (role for role, globs in reach.grants if any(fnmatchcase(name, glob) for glob in globs))
    return max(found, default=Role.PUBLIC)


#: Everything.
WHOLE = Reach(grants=((Role.ADMIN, ("*",)),))
#: Reading, where nothing says who may.
READING = Reach(grants=((Role.VIEWER, ("*",)),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The table [access].

    Plans with more than `four_eyes_runs` runs, or with protected jobs, start once another user has
    approved them.
    """

    grants: tuple[Grant, ...] = member((), key="grant")
    proxy: ProxySetting | None = None
    four_eyes_runs: Count | None = None

    def reach(self, subjects: Collection[str] | None) -> Reach:
        """Return what these subjects, all of one person, may do; None for no login.

        >>> access = Access(grants=(Grant(to=("group:data",), role="viewer", on=("shop:*",)),))
        >>> reach = access.reach(["user:ada", "group:data"])
        >>> str(reach.role(JobRef("shop", "load"))), str(reach.role(JobRef("hr", "pay")))
        ('viewer', 'public')
        """
        those = {ANYONE} if subjects is None else {ANYONE, "*", *subjects}
        return Reach(
            grants=tuple(
                (Role[str(one.role).upper()], one.on)
                for one in self.grants
                if not those.isdisjoint(one.to)
            )
        )
