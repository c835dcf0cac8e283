"""Child processes that can be killed. They are forked from one that has the imports loaded, so they cost little."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.support.writers import run_job

FINISH_SECONDS_MAX = 60.0

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "__main__",
        "plimsoll.rooms",
        "plimsoll.ledger.postgres",
        "plimsoll.ledger.sqlite",
        "plimsoll.cli.main",
        "plimsoll.commands.campaign",
        "tests.support.writers",
    ]
)


class Child:
    """A process that runs `job(tell, *arguments)`. Leaving the `with` kills it if it still lives."""

    def __init__(self, job: Callable[..., None], *arguments: Any) -> None:
        self._heard, said = _CONTEXT.Pipe(duplex=False)
        self._process = _CONTEXT.Process(target=run_job, args=(said, job, arguments), daemon=True)
        self._process.start()
        said.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def hear(self, seconds_max: float = FINISH_SECONDS_MAX) -> Any:
        """The next thing that the child says; its own failure fails the test."""
        if not self._heard.poll(seconds_max):
            pytest.fail(f"the child said nothing for {seconds_max} s")
        is_failure, said = self._heard.recv()
        if is_failure:
            pytest.fail(f"the child failed:\n{said}", pytrace=False)
        return said

    def says_more(self, seconds_max: float) -> bool:
        """Whether the child says something more within this time."""
        return self._heard.poll(seconds_max)

    def kill(self) -> None:
        """SIGKILL, and wait until the system has cleaned up after it."""
        self._process.kill()
        self._process.join()

    def finish(self) -> None:
        """Wait for its end, which must be a good one; what it still says is not wanted any more."""
        code = self.end()
        assert code == 0, f"the child ended with {code}"

    def end(self) -> int:
        """Wait for its end, which may be a kill; its exit code. A failure of its own fails the test."""
        with suppress(EOFError):
            while True:
                self.hear()
        self._process.join(FINISH_SECONDS_MAX)
        assert self._process.exitcode is not None, "the child lives on"
        return self._process.exitcode

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.kill()
        self._process.close()
        self._heard.close()
