"""Where pages are served, and what is said where they cannot be."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from lineage_backfill.cli.main import main
from lineage_backfill.errors import AddressError, EnvironmentMissingError
from lineage_backfill.web import server
from tests.unit.web.shop import Shop


def test_a_port_that_is_taken_is_told_with_what_to_do() -> None:
    with server.listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        assert server.address_of(first) == f"http://127.0.0.1:{port}/"
        with pytest.raises(AddressError, match=f"127.0.0.1 port {port}: Address already") as raised:
            server.listen("127.0.0.1", port, hint="Try --port 0.")
    assert raised.value.hint == "Try --port 0."
    assert (raised.value.code, raised.value.exit_code) == ("LB-130", 64)


@pytest.mark.parametrize(
    ("host", "port"), [("192.0.2.1", 0), ("no.such.host.invalid", 0), ("127.0.0.1", -1)]
)
def test_an_address_that_is_none_of_this_machine(host: str, port: int) -> None:
    with pytest.raises(AddressError):
        server.listen(host, port)


@pytest.mark.parametrize(
    ("host", "private"), [("127.0.0.1", True), ("localhost", True), ("0.0.0.0", False)]
)
def test_who_can_reach_it(host: str, private: bool) -> None:
    with server.listen(host, 0) as listening:
        assert server.is_private(listening) is private
        socket.create_connection(listening.getsockname()[:2]).close()
        assert "0.0.0.0" not in server.address_of(listening)


def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "waitress.server", None)
    monkeypatch.chdir(tmp_path)
    project = Shop.of(tmp_path).project
    with (
        server.listen("127.0.0.1", 0) as listening,
        pytest.raises(EnvironmentMissingError, match="waitress") as raised,
    ):
        server.serve(project, listening, ready=lambda: None)
    assert "pip install 'lineage-backfill[serve]'" in raised.value.hint


def test_a_frame_is_allowed_by_its_origin_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--allow-frame", "https://airflow.example/home"]) == 64
    assert "is not an origin" in capsys.readouterr().err
