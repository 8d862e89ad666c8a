"""Documents declared once, as types: read, checked, written and described by these types."""

from lineage_backfill.typed.forms import (
    JSON,
    ONE_OR_MORE,
    TOML,
    Bounds,
    Fault,
    Form,
    Misfit,
    Rules,
    Star,
    Text,
    member,
    near_misses,
    text,
)
from lineage_backfill.typed.read import Member, members, read, read_value, reader, stated, tables
from lineage_backfill.typed.schema import json_schema
from lineage_backfill.typed.settings import SettingError, check_members, checked, parsed
from lineage_backfill.typed.write import instant_text, plain

__all__ = [
    "JSON",
    "ONE_OR_MORE",
    "TOML",
    "Bounds",
    "Fault",
    "Form",
    "Member",
    "Misfit",
    "Rules",
    "SettingError",
    "Star",
    "Text",
    "check_members",
    "checked",
    "instant_text",
    "json_schema",
    "member",
    "members",
    "near_misses",
    "parsed",
    "plain",
    "read",
    "read_value",
    "reader",
    "stated",
    "tables",
    "text",
]
