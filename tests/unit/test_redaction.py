"""What is hidden wherever text leaves the program, and what is not."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lineage_backfill import redaction
from lineage_backfill.cli.main import main
from lineage_backfill.errors import ConfigError
from lineage_backfill.workspace.configuration import load_project


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    redaction.forget()
    yield
    redaction.forget()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at http://me:pa55@h:5000/x", "at http://me:***@h:5000/x"),
        ("https://ghp_abc@h/x", "https://***@h/x"),
        ("/p/https:/ghp_abc@h/x: no such file", "/p/https:/***@h/x: no such file"),
        ("https:/me:pa55@h/x", "https:/me:***@h/x"),
        ("postgresql+psycopg://u:p%40w:rd@h/db!", "postgresql+psycopg://u:***@h/db!"),
        ("http://h/?a=b&api_key=abc&page=2", "http://h/?a=b&api_key=***&page=2"),
        ("jdbc:postgresql://h/db;user=a;password=zz", "jdbc:postgresql://h/db;user=a;password=***"),
        ("FATAL: password=hunter2, again", "FATAL: password=***, again"),
        ('{"password": "hunter2"}', '{"password": "***"}'),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("spark.hadoop.fs.s3a.secret.key=abc", "spark.hadoop.fs.s3a.secret.key=***"),
        (
            "got access_token=abc, AWS_SESSION_TOKEN=d",
            "got access_token=***, AWS_SESSION_TOKEN=***",
        ),
        ("authorization: token abc", "authorization: token ***"),
        ("sent Bearer abc.d3f", "sent Bearer ***"),
        ("private_key=abc credentials='a b'", "private_key=*** credentials='***'"),
        ("Server=h;Uid=me;Pwd=abc;", "Server=h;Uid=me;Pwd=***;"),
        ("login --password hunter2 failed", "login --password *** failed"),
        ("password: hunter2", "password: ***"),
        (r'{"password": "a\"b c"}', '{"password": "***"}'),
        (r'{"error": "{\"password\": \"abc\"}"}', r'{"error": "{\"password\": \"***\"}"}'),
        ("https://h/c?sv=1&sig=abc&se=2", "https://h/c?sv=1&sig=***&se=2"),
        ("https://h/k?X-Amz-Signature=abc", "https://h/k?X-Amz-Signature=***"),
    ],
)
def test_what_its_own_form_tells_is_hidden(text: str, shown: str) -> None:
    assert redaction.redacted(text) == shown
    assert redaction.redacted(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "http://h:80/path?x=a@b",
        "postgres://me@h/db",
        "the password: it is wrong",
        "token=b-20240101-1 run=3",
        "max_tokens=100 in /srv, PWD=/srv",
        "the bearer of bad news: --password is missing",
        "secret: env:S3_KEY",
        "Set LINEAGE_BACKFILL_LINEAGE_API_KEY, or `headers`.",
        "key_column = region, api keys: 3",
        "s3://bucket/day=2024-01-01",
        "abfss://lake@account.dfs.core.windows.net/orders",
        "file:/lake/day=2024-01-01/by:me@2024.json",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redaction.redacted(text) == text


def test_a_long_line_of_names_is_read_once() -> None:
    began = time.process_time()
    redaction.redacted("password." * 20_000)
    assert time.process_time() - began < 5


def test_a_short_secret_is_no_part_of_a_word() -> None:
    redaction.remember(["data", "ab cd/é"])
    assert redaction.redacted("raw_data of data/x, database") == "raw_data of ***/x, database"


def test_a_password_that_is_also_a_name_hides_no_name() -> None:
    address = "postgresql://postgres:postgres@127.0.0.1:5432/runs"
    redaction.remember(redaction.secrets_in_address(address))
    assert redaction.redacted("reads postgres://h:5432 public") == "reads postgres://h:5432 public"
    assert redaction.redacted(address) == "postgresql://postgres:***@127.0.0.1:5432/runs"


@pytest.mark.parametrize("secret", ['p"w<&>d', "ab cd/é", "line one of it\nline two of it", "x'yz"])
def test_a_known_secret_is_hidden_however_it_is_written(secret: str) -> None:
    redaction.remember([secret])
    for written in (secret, json.dumps({"a": secret}), repr(secret), f"<p>{secret}</p>"):
        assert secret not in redaction.redacted(written)
        assert redaction.MASK in redaction.redacted(written)


def test_a_password_of_an_address_is_hidden_also_where_it_is_written_out() -> None:
    redaction.remember(redaction.secrets_in_address("http://me:a%20bc%2f@h"))
    assert redaction.redacted("a%20bc%2f, a bc/") == "***, ***"


def test_the_longer_of_two_secrets_is_hidden_whole_and_short_ones_are_not_known() -> None:
    redaction.remember(["abcd", "abcdefgh", "in"])
    assert redaction.redacted("abcdefgh is in abcd") == "*** is in ***"


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("db_password", "x", True),
        ("AWS_SECRET_ACCESS_KEY", "x", True),
        ("github.token", "x", True),
        ("token_file", "/run/x", False),
        ("region", "eu", False),
        ("region", "secret:eu", True),
        ("retries", 3, False),
        ("PWD", "/srv", False),
        ("OLDPWD", "/srv", False),
        ("DB_PWD", "x", True),
    ],
)
def test_which_named_values_are_secrets(name: str, value: object, secret: bool) -> None:
    assert redaction.is_secret(name, value) is secret


def test_a_variable_that_only_sounds_like_a_secret_is_none() -> None:
    given = {
        "DB_PASSWORD": "abcdefgh",
        "PWD": "/srv/project",
        "TOKENIZERS_PARALLELISM": "false",
        "MAX_TOKENS": "100000000",
        "SECRET_STORE": "/run/secrets/it",
    }
    assert redaction.secrets_of_environment(given) == ["abcdefgh"]


def test_words_and_numbers_that_stand_everywhere_are_not_hidden() -> None:
    redaction.remember(["true", "False", "null", "2024", "20240101"])
    assert redaction.redacted("true false null 2024-01 20240101") == "true false null 2024-01 ***"


def test_a_document_hides_its_secret_parameters_at_any_depth_and_keeps_attempt_tokens() -> None:
    given = {
        "token": "st-1",
        "parameters": {"db": {"password": 5}, "x": "secret:abc", "n": 1},
        "urls": ["http://me:pw@h"],
    }
    assert redaction.document(given) == {
        "token": "st-1",
        "parameters": {"db": {"password": "***"}, "x": "***", "n": 1},
        "urls": ["http://me:***@h"],
    }


def test_all_that_stands_below_the_name_of_a_secret_is_one() -> None:
    given = {
        "token": ["first-one", {"x": "second-one"}],
        "api_key": {"a": {"b": "third-one"}},
        "dbs": [{"password": "fourth-one"}, "secret:fifth-one"],
        "regions": ["eu-west"],
    }
    secrets = ["first-one", "second-one", "third-one", "fourth-one", "fifth-one"]
    assert redaction.secrets_of(given) == secrets
    shown = str(redaction.document({"parameters": given}))
    assert not any(one in shown for one in secrets)
    assert "eu-west" in shown
    redaction.remember(redaction.secrets_of(given))
    assert redaction.redacted(" ".join(secrets)) == " ".join(["***"] * 5)


def test_a_command_is_given_secrets_by_options_or_in_an_address(tmp_path: Path) -> None:
    (tmp_path / "lineage-backfill.toml").write_text(
        """
[engines.here]
kind = "command"
argv = ["run", "--password", "first-one", "--token={token}", "--api-key=second-one"]
env = { SECRET = "third-one" }
[[notify]]
on = ["failed"]
command = ["page", "--auth-token", "fourth-one"]
[[notify]]
on = ["failed"]
webhook = "https://me:fifth-one@h/x?token=sixth-one"
[run]
notify_hosts = ["h"]
"""
    )
    load_project(tmp_path, environ={}, user_file=tmp_path / "none")
    for one in ("first", "second", "third", "fourth", "fifth", "sixth"):
        assert redaction.redacted(f"has {one}-one") == "has ***"
    assert redaction.redacted("write {token}") == "write {token}"


def test_passwords_are_found_in_addresses_that_are_not_written_as_they_should_be() -> None:
    assert redaction.secrets_in_address("postgresql://me:p/w?d@h/db") == ["p/w?d"]
    assert redaction.secrets_in_address("http://h/?api_key=a%20b") == ["a%20b"]
    assert redaction.secrets_in_address("sqlite:///a:b@c.db") == ["b"]


@pytest.mark.parametrize(
    ("path", "is_secret"),
    [
        ("/backfills", False),
        ("/hooks/data-team", False),
        ("", False),
        ("/services/T024/B024/XyZ", True),
        ("/hook/7a6b", True),
        ("/in/abcdefghijklmnopqrst", True),
    ],
)
def test_the_path_of_a_webhook_is_hidden_unless_it_is_plain_words(
    path: str, is_secret: bool
) -> None:
    assert redaction.secrets_in_path(path) == ([path] if is_secret else [])


#: Addresses as people type them; the secret is SECRET.
ADDRESSES = [
    "me:SECRET@host",
    "//me:SECRET@host:5000",
    "http:/me:SECRET@host",
    "http:me:SECRET@host",
    "me:SECRET@127.0.0.1/x",
    "http://me:a SECRET@127.0.0.1:9",
    "http://me:a/SECRET@127.0.0.1:9",
    "http://me:a?SECRET@127.0.0.1:9",
    "http://me:a#SECRET@127.0.0.1:9",
    "http://me:a@SECRET@127.0.0.1:9",
    "http://me:'SECRET'@127.0.0.1:9",
    "http://me:SECRET @127.0.0.1:9",
    "http://me:SECRET@[::1",
    "s3://me:SECRET b@bucket/x",
    "postgresql+psycopg:/me:SECRET@h/x",
    "http://127.0.0.1:9/?token=a SECRET",
]
_WORD = "Sup3rS3cr3t"


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize(
    "setting",
    ["LINEAGE_MARQUEZ", "LINEAGE_EVENTS", "LINEAGE_SNAPSHOT", "STORE_URL"],
)
def test_a_password_in_an_address_of_any_form_is_in_no_error(
    address: str,
    setting: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LINEAGE_BACKFILL_LINEAGE_TIMEOUT", "1")
    monkeypatch.setenv(f"LINEAGE_BACKFILL_{setting}", address.replace("SECRET", _WORD))
    for command in (["config", "show", "--json"], ["history"], ["lineage", "show"]):
        main(command)
        said = capsys.readouterr()
        assert _WORD not in said.out + said.err
        assert "LB-001" not in said.err


@pytest.mark.parametrize("name", ["by/team:me@2024.ndjson", "a@b/*.json", "team:daily@x.log.gz"])
def test_a_path_with_such_signs_is_no_address(name: str) -> None:
    assert redaction.secrets_in_address(name) == []


def test_an_address_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    hook = '[[notify]]\non = ["failed"]\nwebhook = "https://[::1/x"\n'
    (tmp_path / "lineage-backfill.toml").write_text(hook)
    with pytest.raises(ConfigError, match="is not an https address"):
        load_project(tmp_path, environ={}, user_file=tmp_path / "none")
