"""Tokens by which programs and browsers log in: shown once, kept as a hash."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import replace
from datetime import datetime, timedelta
from hmac import compare_digest
from typing import Final

from lineage_backfill.errors import ConflictError, UnknownNameError, UsageError
from lineage_backfill.model import did_you_mean
from lineage_backfill.ports import RunStore, Token
from lineage_backfill.runs.drive.clock import StoreClock

_FORM: Final = re.compile(r"lbt_([0-9a-f]{8})_([\w-]{43})", re.ASCII)
_NAME: Final = re.compile(r"\w[\w.@-]{0,99}", re.ASCII)
_USED: Final = timedelta(minutes=1)  # between two times that the use of a token is noted


def make_token(
    store: RunStore, name: str, *, by: str, lasts: timedelta | None
) -> tuple[str, Token]:
    """Return a new token and its record; raises ConflictError while one has this name."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot name a token", hint="Use letters, digits, and any of . _ - @ within."
        )
    now = StoreClock(store).now()
    if any(one.name == name and one.holds(now) for one in store.tokens()):
        raise ConflictError(f"there is a token {name}", hint="Revoke it first.")
    prefix, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
    token = Token(
        prefix=prefix,
        name=name,
        hash=_hash(secret),
        created_by=by,
        created_at=now,
        expires_at=now + lasts if lasts else None,
    )
    store.put_token(token)
    return f"lbt_{prefix}_{secret}", token


def revoke_token(store: RunStore, name: str) -> Token:
    """End a token; raises UnknownNameError."""
    now = StoreClock(store).now()
    names = {one.name: one for one in store.tokens() if one.holds(now)}
    if name not in names:
        raise UnknownNameError(f"no token {name} logs in", hint=did_you_mean(name, names))
    revoked = replace(names[name], revoked_at=now)
    store.put_token(revoked)
    return revoked


def token_of(store: RunStore, text: str) -> Token | None:
    """Return the token that is given, None for one that does not log in; notes its use."""
    found = _FORM.fullmatch(text)
    token = standing_token(store, found[1]) if found else None
    if found is None or token is None or not compare_digest(token.hash, _hash(found[2])):
        return None
    now: datetime = StoreClock(store).now()
    if token.used_at is None or now - token.used_at > _USED:
        token = replace(token, used_at=now)
        store.put_token(token)
    return token


def standing_token(store: RunStore, prefix: str) -> Token | None:
    """Return the token with a prefix, None if it was revoked or has expired."""
    now = StoreClock(store).now()
    return next((one for one in store.tokens() if one.prefix == prefix and one.holds(now)), None)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()  # 32 random bytes need no slow one
