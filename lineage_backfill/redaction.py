"""Hides secrets in whatever is shown: one rule for terminals, documents, logs, pages and errors."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, quote_plus, unquote

MASK = "***"
#: The prefix of a parameter that is a secret whatever its name.
DECLARED = "secret:"
_SHORTEST = 4  # a shorter secret stands in too many words that are none
_SHORTEST_NUMBER, _SHORTEST_UNDECLARED = 6, 8
_LONG = 8  # a shorter one counts only where it is not part of a word
_LONGEST_WORD = 15  # a longer part of a path may be a secret, even if it has letters only
_PLAIN = frozenset({"true", "false", "null", "none"})
_WORDS = (
    *("passw", "passphrase", "_pwd", "secret", "token", "credential", "authorization"),
    *("api_key", "api-key", "apikey", "access_key", "access-key", "access.key", "accesskey"),
    *("private_key", "private-key", "account_key", "account-key", "account.key"),
)
_NAMES = re.compile("|".join(map(re.escape, _WORDS)), re.IGNORECASE)
#: Names that tell where a secret is, and not what it is.
_PLACES = re.compile(r"[._-](file|path|dir|url|uri|name|id|location|provider)$", re.IGNORECASE)
_END = r"\s\"'<>`\\"  # what ends an address in a text
#: Paths have one of the two slashes of an address.
_USER = re.compile(rf"(:/+[^{_END}/?#@:]*):([^{_END}/?#]*)@")
_TOKEN = re.compile(rf"(https?:/+)[^{_END}/?#@:]+@")
_QUERY = re.compile(rf"([?&;])([\w.-]+)=([^&;#{_END}]+)")
#: How an address begins, also one with a slash too few, and how the path of a file ends.
_SCHEME = re.compile(r"[A-Za-z][\w+.-]*:/+|//")
_FILE = re.compile(r"\.(json|ndjson|jsonl|log|gz)$", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"\{\w+\}")
_QUERIES = re.compile(r"[?&;]([\w.-]+)=([^&;#]+)")
#: `password=…` in what a program has printed. Not `token=`: attempts have tokens, which are none.
_NAMED = (
    r"(?:passw(?:or)?d|passphrase|secret|credentials?|(?<=_)pwd|(?-i:\b[Pp]wd)"
    r"|(?<=[a-z0-9][-_.])token(?!s)|(?:api|access|account|private)[-_.]?key)[\w.-]{0,60}+"
)
_QUOTE = r"\\*[\"']"
_DRAWN = r"(?!env:|file:)(?=\S*\d)"  # no word of a sentence: it has a digit
_ASSIGNED = re.compile(
    rf"({_NAMED}(?:{_QUOTE})?\s*(?:=\s*|:\s*(?={_QUOTE})|:\s+{_DRAWN}(?=\S+\s*$))"
    rf"|--{_NAMED}\s+{_DRAWN})"
    rf"(?:(\\*)([\"'])(?:(?!\2\3)(?:\\.|[^\n]))*|[^{_END},;&]+)",
    re.IGNORECASE | re.MULTILINE,
)
_HINTS = (  # without one of them there is nothing to find
    *("passw", "passphrase", "secret", "credential", "pwd", "-token", "_token", ".token"),
    *("authorization", "bearer"),
    *(
        f"{one}{sign}key"
        for one in ("api", "access", "account", "private")
        for sign in ("", *"_-.")
    ),
)
_BEARER = re.compile(
    rf"(authorization(?:{_QUOTE})?\s*[:=]\s*(?:{_QUOTE})?(?:bearer|basic|digest|token)\s+"
    rf"|\bbearer\s+(?=\S*\d))[^{_END},]+",
    re.IGNORECASE,
)
#: The signature of an address, by which alone it opens what it names.
_SIGNATURE = re.compile(r"(^|-)sig(nature)?$", re.IGNORECASE)
#: Members of documents whose members' names tell which of them are secret.
_TABLES = frozenset({"parameters", "headers", "conf", "env", "arguments"})


class _Known:
    """The secrets that are hidden wherever they stand, the longest first."""

    texts: tuple[str, ...] = ()


def remember(secrets: Iterable[str]) -> None:
    """Hide these texts from now on, as they are and as addresses, JSON and HTML write them."""
    found = dict.fromkeys(_Known.texts)
    for secret in secrets:
        if _is_telling(secret):
            whole = (secret, quote(secret, safe=""), quote_plus(secret), unquote(secret))
            page = html.escape(secret)
            written = (json.dumps(secret)[1:-1], repr(secret)[1:-1], page)
            jinja = page.replace("&quot;", "&#34;").replace("&#x27;", "&#39;")
            lines = [one for one in secret.splitlines() if len(one) >= 2 * _SHORTEST]
            found |= dict.fromkeys((*whole, *written, jinja, *lines))
    if len(found) > len(_Known.texts):
        _Known.texts = tuple(sorted(found, key=len, reverse=True))  # one may hold a shorter one


def _is_telling(secret: str) -> bool:
    """Whether a text stands for this secret wherever it is."""
    least = _SHORTEST_NUMBER if secret.isdecimal() else _SHORTEST
    return len(secret) >= least and secret.lower() not in _PLAIN and secret != MASK


def forget() -> None:
    """Hide only what its own form tells, as in a new process."""
    _Known.texts = ()


def redacted(text: str) -> str:
    """Return the text without the secrets in it.

    >>> redacted("no answer from http://me:pa55@host:5000/api?api_key=abc&page=2")
    'no answer from http://me:***@host:5000/api?api_key=***&page=2'
    """
    for secret in _Known.texts:
        if secret in text:
            is_long = len(secret) >= _LONG
            text = text.replace(secret, MASK) if is_long else _word(secret).sub(MASK, text)
    if ":/" in text:
        text = _TOKEN.sub(rf"\1{MASK}@", _USER.sub(rf"\1:{MASK}@", text))
    if "=" in text:
        text = _QUERY.sub(_masked_query, text)
    lowered = text.lower()
    if any(hint in lowered for hint in _HINTS):
        text = _BEARER.sub(rf"\1{MASK}", _ASSIGNED.sub(rf"\1\2\3{MASK}", text))
    return text


def _masked_query(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}={MASK}" if _is_secret_in_address(found[2]) else found[0]


def _is_secret_in_address(name: str) -> bool:
    return is_secret(name) or bool(_SIGNATURE.search(name))


def document(value: Any, *, inside: bool = False) -> Any:
    """Return a JSON value without the secrets in it; `inside` a table of parameters or headers.

    >>> document({"parameters": {"password": "x", "region": "eu"}})
    {'parameters': {'password': '***', 'region': 'eu'}}
    """
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, list | tuple):
        return [
            MASK if inside and is_secret("", one) else document(one, inside=inside) for one in value
        ]
    if isinstance(value, Mapping):
        return {
            name: MASK
            if inside and is_secret(name, one)
            else document(one, inside=inside or (name in _TABLES and isinstance(one, Mapping)))
            for name, one in value.items()
        }
    return value


def is_secret(name: str, value: Any = None) -> bool:
    """Whether a named value is a secret: its name says so, or it is declared as one.

    >>> is_secret("db.password"), is_secret("token_file"), is_secret("x", "secret:abc")
    (True, False, True)
    """
    declared = isinstance(value, str) and value.startswith(DECLARED)
    return declared or bool(_NAMES.search(name) and not _PLACES.search(name))


def secrets_of(values: Mapping[str, Any]) -> list[str]:
    """Return the secrets among named values: parameters, headers, variables or properties.

    All that stands below the name of a secret is one.

    >>> secrets_of({"token": ["abc", {"x": 5}], "dbs": [{"password": "pw"}], "region": ["eu"]})
    ['abc', '5', 'pw']
    """
    addresses = [value for name, value in values.items() if name == "url" and type(value) is str]
    found = [one for address in addresses for one in secrets_in_address(address)]
    return [
        *found,
        *(one for name, value in values.items() for one in _secrets(value, is_secret(name))),
    ]


def _secrets(value: Any, is_below: bool) -> list[str]:
    """Return the secrets in a value, `is_below` the name of one."""
    if isinstance(value, Mapping):
        named = ((one, is_below or is_secret(name)) for name, one in value.items())
        return [found for one, below in named for found in _secrets(one, below)]
    if isinstance(value, list | tuple):
        below = [found for one in value for found in _secrets(one, is_below)]
        return [*_secrets_of_options(value), *below]
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return []
    text = str(value).removeprefix(DECLARED)
    if is_below or text != str(value):
        return [text]
    return secrets_in_address(text) if "://" in text else []


def _secrets_of_options(words: Sequence[Any]) -> list[str]:
    """Return the values of a command's options whose names are those of secrets.

    >>> _secrets_of_options(["login", "--password", "x y", "--api-key=z", "--token={token}"])
    ['x y', 'z']
    """
    found = []
    for one, after in zip(words, [*words[1:], ""], strict=False):
        name, equals, value = str(one).partition("=")
        if name.startswith("-") and is_secret(name):
            found.append(value if equals else str(after))
    return [one for one in found if not _PLACEHOLDER.search(one)]


def secrets_of_environment(environ: Mapping[str, str]) -> list[str]:
    """Return the values of variables whose names say that they are secrets.

    They are declared nowhere: short ones, numbers and paths are none.
    """
    found = [environ[name] for name in environ if is_secret(name)]
    return [
        one
        for one in found
        if len(one) >= _SHORTEST_UNDECLARED and not one.isdecimal() and not one.startswith("/")
    ]


def secrets_in_path(path: str) -> list[str]:
    """Return the path of an address if it may hold a secret, as that of a webhook does.

    A path of plain words holds none: many addresses share it.

    >>> secrets_in_path("/services/T00/B00/x9"), secrets_in_path("/backfills")
    (['/services/T00/B00/x9'], [])
    """
    parts = [one for one in path.split("/") if one]
    is_drawn = any(len(one) > _LONGEST_WORD or not re.fullmatch("[a-z_-]+", one) for one in parts)
    return [path] if is_drawn else []


def secrets_in_address(text: str) -> list[str]:
    """Return the passwords that an address holds, also one that is not written as it should be.

    One that is also its user, host, database or scheme is hidden in the address alone: elsewhere
    that word is not a secret.

    >>> secrets_in_address("postgresql://postgres:postgres@db/runs")
    []
    >>> secrets_in_address("me:pa ss@host"), secrets_in_address("by/team:me@2024.ndjson")
    (['pa ss', 'pa', 'ss'], [])
    """
    user, at, _ = _SCHEME.sub("", text, count=1).rpartition("@")
    is_path = not _SCHEME.match(text) and _FILE.search(text)
    password = user.partition(":")[2] if at and not is_path else ""
    queries = (found[2] for found in _QUERIES.finditer(text) if _is_secret_in_address(found[1]))
    whole = (password, *queries)
    # A variable of several addresses is cut at its spaces and colons.
    parts = (part for one in whole for part in re.split(r"[\s:]+", one))
    found = [one for one in dict.fromkeys((*whole, *parts)) if one]
    return [one for one in found if len(_word(one).findall(text)) < 2]


def _word(text: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(text)}(?!\w)")
