"""Fixtures of all tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import alertmanager, prometheus, slurm
from tests.support.postgres import PrivatePostgres, private_postgres

# In CI the same examples every time: a change is judged by what it does and not by luck. `make soak` searches on.
settings.register_profile(
    "test",
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    derandomize=os.environ.get("CI") == "true",
)
settings.register_profile(
    "soak", deadline=None, max_examples=5_000, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("soak" if os.environ.get("PLIMSOLL_SOAK") else "test")


def pytest_configure() -> None:
    """What a test starts can be interrupted, also where a shell has begun the run in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Soaks run only when asked for: `make soak`."""
    if not os.environ.get("PLIMSOLL_SOAK"):
        for item in items:
            if item.get_closest_marker("soak"):
                item.add_marker(pytest.mark.skip(reason="a soak: make soak"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[PrivatePostgres]:
    """A private PostgreSQL for the whole run of a worker."""
    with private_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def private_slurm() -> Iterator[slurm.PrivateSlurm]:
    """A private Slurm for the whole run of a worker: `@pytest.mark.xdist_group("slurm")` keeps it to one."""
    with slurm.private_slurm() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def private_prometheus() -> Iterator[prometheus.PrivatePrometheus]:
    """A private Prometheus for the whole run of a worker: `@pytest.mark.xdist_group("prometheus")` keeps it to one."""
    with prometheus.private_prometheus() as server:
        yield server


@pytest.fixture(scope="session")
def private_alertmanager() -> Iterator[alertmanager.PrivateAlertmanager]:
    """A private Alertmanager for the run of a worker: `@pytest.mark.xdist_group("alertmanager")` keeps it to one."""
    with alertmanager.private_alertmanager() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def new_dsn(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Makes URLs of empty databases; every test that takes it runs on both."""
    if request.param == "postgresql":
        server: PrivatePostgres = request.getfixturevalue("postgres")
        return server.new_database
    numbers = iter(range(1, 1_000))
    return lambda: f"sqlite:///{tmp_path}/ledger-{next(numbers)}.db"


@pytest.fixture
def dsn(new_dsn: Callable[[], str]) -> str:
    """The URL of an empty database, on each kind."""
    return new_dsn()


@pytest.fixture
def sqlite_dsn(tmp_path: Path) -> str:
    """The URL of a new SQLite file."""
    return f"sqlite:///{tmp_path}/plimsoll.db"
