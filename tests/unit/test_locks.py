"""The locks name exact versions and hashes, no address, and all that pyproject.toml asks for."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
RUNTIME, DEV = "requirements.lock", "requirements-dev.lock"
GROUPS = {
    "requirements-airflow.lock": "airflow",
    "requirements-newest-spark.lock": "newest-spark",
    "requirements-docs.lock": "docs",
    "requirements-release.lock": "release",
}
PLATFORMS = {"linux": ("Linux", "posix"), "darwin": ("Darwin", "posix"), "win32": ("Windows", "nt")}


@dataclass(frozen=True)
class Pin:
    requirement: Requirement
    hashes: tuple[str, ...]

    @property
    def name(self) -> str:
        return canonicalize_name(self.requirement.name)

    @property
    def version(self) -> Version:
        (specifier,) = self.requirement.specifier
        assert specifier.operator == "=="
        return Version(specifier.version)

    def holds_in(self, environment: dict[str, str | AbstractSet[str]]) -> bool:
        marker = self.requirement.marker
        return marker is None or marker.evaluate(environment)


def read_lock(name: str) -> list[Pin]:
    pins = []
    for entry in (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        requirement, *hashes = re.split(r"\s+--hash=", entry.strip())
        pins.append(Pin(Requirement(requirement), tuple(hashes)))
    return pins


def declared(*extras: str, group: str = "") -> Iterator[Requirement]:
    if group:
        yield from map(Requirement, PYPROJECT["dependency-groups"][group])
        if not extras:
            return
    project = PYPROJECT["project"]
    for text in project["dependencies"]:
        yield Requirement(text)
    for extra in extras:
        for text in project["optional-dependencies"][extra]:
            requirement = Requirement(text)
            if requirement.name == project["name"]:
                yield from declared(*requirement.extras)
            else:
                yield requirement


def environments() -> Iterator[dict[str, str | AbstractSet[str]]]:
    for python in ("3.11", "3.12", "3.13"):
        for platform, (system, os_name) in PLATFORMS.items():
            yield {
                "implementation_name": "cpython",
                "os_name": os_name,
                "platform_python_implementation": "CPython",
                "platform_system": system,
                "python_full_version": f"{python}.0",
                "python_version": python,
                "sys_platform": platform,
            }


@pytest.mark.parametrize("name", [RUNTIME, DEV, *GROUPS])
def test_a_lock_holds_no_address(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "://" not in text
    assert " @ " not in text
    assert not re.search(r"^\s*(#|-i|-f|--(?!hash=))", text, re.MULTILINE)


@pytest.mark.parametrize("name", [RUNTIME, DEV, *GROUPS])
def test_every_requirement_is_one_version_with_hashes(name: str) -> None:
    pins = read_lock(name)
    assert pins
    for pin in pins:
        assert not pin.version.is_devrelease
        assert pin.hashes, f"{pin.name} has no hash"
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in pin.hashes)


@pytest.mark.parametrize(
    ("name", "extras", "group"),
    [
        (RUNTIME, ("spark", "serve"), "demo"),
        (DEV, ("spark", "dev"), "demo"),
        *((name, (), group) for name, group in GROUPS.items()),
    ],
)
def test_a_lock_gives_what_pyproject_asks_for_on_every_python_and_platform(
    name: str, extras: tuple[str, ...], group: str
) -> None:
    pins = read_lock(name)
    for environment in environments():
        for wanted in declared(*extras, group=group):
            found = [
                pin
                for pin in pins
                if pin.name == canonicalize_name(wanted.name) and pin.holds_in(environment)
            ]
            assert len(found) == 1, f"{wanted.name} on {environment}: {found}"
            assert wanted.specifier.contains(found[0].version), (
                f"{wanted} is not {found[0].version}"
            )


def test_the_lock_for_development_holds_all_of_the_other_one() -> None:
    runtime, dev = read_lock(RUNTIME), read_lock(DEV)
    for environment in environments():
        few, all_of_it = (
            {(pin.name, pin.version, pin.hashes) for pin in pins if pin.holds_in(environment)}
            for pins in (runtime, dev)
        )
        assert few <= all_of_it


def test_both_spellings_of_the_supported_pythons_agree() -> None:
    supported = SpecifierSet(PYPROJECT["project"]["requires-python"])
    assert [minor for minor in range(30) if supported.contains(f"3.{minor}.0")] == [11, 12, 13]
    assert "(3, 11) <= sys.version_info[:2] <= (3, 13)" in (ROOT / "scripts/lib.sh").read_text()


#: The releases of Spark that the extra `spark` takes.
SPARKS = ("4.0", "4.1", "4.2")


def test_the_extra_takes_each_spark_that_delta_has_a_jar_for() -> None:
    (wanted,) = (
        Requirement(one)
        for one in PYPROJECT["project"]["optional-dependencies"]["spark"]
        if one.startswith("pyspark")
    )
    found = [f"4.{n}" for n in range(10) if wanted.specifier.contains(f"4.{n}.1")]
    assert tuple(found) == SPARKS


def read_jars(lock: str) -> Iterator[str]:
    for line in (ROOT / "scripts" / lock).read_text().splitlines():
        checksum, coordinate = line.split()
        assert re.fullmatch(r"[0-9a-f]{64}", checksum)
        yield coordinate


def test_the_jars_are_those_of_the_delta_and_spark_in_the_lock() -> None:
    version = {pin.name: pin.version for pin in read_lock(RUNTIME)}
    spark = f"{version['pyspark'].major}.{version['pyspark'].minor}"
    delta = version["delta-spark"]
    assert spark in SPARKS
    assert list(read_jars("jars.lock")) == [
        *(f"io.delta:delta-spark_{one}_2.13:{delta}" for one in SPARKS),
        f"io.delta:delta-storage:{delta}",
    ]


def test_the_listener_is_the_one_that_users_are_told_of() -> None:
    (listener,) = read_jars("listener.lock")
    for file in ("docs/spark.md", "spark_runtime/session.py"):
        assert listener in (ROOT / file).read_text()
