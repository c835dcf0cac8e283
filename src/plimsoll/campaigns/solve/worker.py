"""A process that searches or proves for another one: `python -m plimsoll.campaigns.solve.worker`.

It reads its task from its standard input and tells what it finds on its standard output. When its input ends, whoever
started it is gone, and so is it, in the middle of whatever it does.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import IO

from plimsoll.campaigns.solve.mail import Task, Told, receive, send
from plimsoll.campaigns.solve.problem import Ints


class _Mail:
    """What comes in while the work goes on: the best plan of the other worker."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.plan: Ints | None = None
        self.has_plan = threading.Event()
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream: IO[bytes]) -> None:
        try:
            while True:
                self.plan = receive(stream)
                self.has_plan.set()
        except (EOFError, OSError):
            os._exit(0)  # the parent is gone: nobody waits for an answer, and a solver can't be asked to stop


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer
    task: Task = receive(incoming)
    mail = _Mail(incoming)
    try:
        if task.is_proof:
            _prove(task, mail, outgoing)
        else:
            _improve(task, outgoing)
        send(outgoing, Told(has_ended=True))
    except BrokenPipeError:
        os._exit(0)
    os._exit(0)  # not by way of an interpreter's end, for which the reading thread would be waited


def _improve(task: Task, outgoing: IO[bytes]) -> None:
    from plimsoll.campaigns.solve.improve import improve

    improve(
        task.problem,
        task.start,
        seed=task.seed,
        work=task.work,
        is_near=task.is_near,
        on_plan=lambda columns: send(outgoing, Told(plan=columns)),
        should_stop=lambda: False,
    )


def _prove(task: Task, mail: _Mail, outgoing: IO[bytes]) -> None:
    from plimsoll.campaigns.solve.bound import prove

    def known() -> Ints | None:
        return mail.plan if mail.plan is not None else task.start

    proof = prove(
        task.problem,
        on_bound=lambda bound: send(outgoing, Told(bound=bound)),
        known=known,
        should_stop=lambda: False,
        seed=task.seed,
    )
    send(outgoing, Told(plan=proof.best, is_impossible=proof.is_impossible))


if __name__ == "__main__":
    main()
