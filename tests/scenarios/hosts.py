"""How a case reaches its sessions: a process of its own for each host, or, in memory, one object for each.

A process is known by its id, ended by it, and never left running. A host that crashes is killed, not asked.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from capstate.ledgers.memory import MemoryLedger
from tests.scenarios.worker import Worker, failure

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
"""Seconds after which a process that does not answer counts as hung."""


class HostError(Exception):
    """What went wrong on the other side: the name of the error there, and its text."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        super().__init__(f"{name}: {text}")


class Host(Protocol):
    """One process, or what stands for one."""

    alive: bool
    frozen: bool

    def call(self, command: str, **arguments: Any) -> Any:
        """Carry out a command there. Raises HostError."""

    def quit(self) -> None:
        """End in order."""

    def kill(self) -> None:
        """End without any order."""

    def freeze(self) -> None:
        """Stop without ending."""


class ProcessHost:
    """A worker in an operating-system process."""

    def __init__(self, ledger: Path, folder: Path, *, read_only: bool = False) -> None:
        command = [sys.executable, "-m", "tests.scenarios.worker", str(ledger), str(folder)]
        self._errors = (folder / "errors.txt").open("ab")
        self._process = subprocess.Popen(
            [*command, "read"] if read_only else command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._read = b""
        self.alive, self.frozen = True, False

    def call(self, command: str, **arguments: Any) -> Any:
        """See :class:`Host`."""
        if not self.alive:
            raise HostError("ProcessEnded", "the process is gone")
        if self.frozen:
            raise HostError("ProcessFrozen", "the process does not answer")
        stdin = self._process.stdin
        if stdin is None:
            raise HostError("ProcessEnded", "no way to speak to it")
        stdin.write(json.dumps({"do": command, "with": arguments}).encode() + b"\n")
        stdin.flush()
        answer = json.loads(self._line())
        if "error" in answer:
            raise HostError(answer["error"], answer["text"])
        return answer["ok"]

    def _line(self) -> bytes:
        stdout = self._process.stdout
        while b"\n" not in self._read:
            if stdout is None or not select.select([stdout], [], [], PATIENCE)[0]:
                self.kill()
                raise HostError("ProcessHung", f"no answer within {PATIENCE} seconds")
            more = os.read(stdout.fileno(), 1 << 16)
            if not more:
                self.kill()
                raise HostError("ProcessEnded", "the process ended without an answer")
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        return line

    def quit(self) -> None:
        """See :class:`Host`."""
        if self.alive and not self.frozen:
            try:
                self.call("quit")
            finally:
                self._gone()
        else:
            self.kill()

    def kill(self) -> None:
        """See :class:`Host`."""
        if self.alive:
            self._process.kill()
        self._gone()

    def _gone(self) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()
        self.alive = self.frozen = False

    def freeze(self) -> None:
        """See :class:`Host`."""
        os.kill(self._process.pid, signal.SIGSTOP)
        self.frozen = True


class LocalHost:
    """A worker in this process, on its own handle of a ledger in memory."""

    def __init__(self, shared: MemoryLedger, folder: Path) -> None:
        self._worker = Worker(MemoryLedger(shared), folder)
        self.alive, self.frozen = True, False

    def call(self, command: str, **arguments: Any) -> Any:
        """See :class:`Host`: whatever goes in or out is JSON, as it would be between processes."""
        if not self.alive or self.frozen:
            raise HostError("ProcessFrozen" if self.frozen else "ProcessEnded", "it does not answer")
        try:
            answer = self._worker.do(command, json.loads(json.dumps(arguments)))
        except Exception as error:
            told = failure(error)
            raise HostError(told["error"], told["text"]) from error
        return json.loads(json.dumps(answer))

    def quit(self) -> None:
        """See :class:`Host`."""
        if self.alive and not self.frozen:
            self._worker.do_quit()
            self.alive = False
        else:
            self.kill()

    def kill(self) -> None:
        """See :class:`Host`."""
        if self.alive:
            self._worker.drop()
        self.alive = self.frozen = False

    def freeze(self) -> None:
        """See :class:`Host`."""
        self.frozen = True


MakeHost = Callable[..., Host]
