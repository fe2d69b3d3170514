"""The world outside, as a process of its own: a place where pull requests are created, and where nothing is forgotten.

One JSON object a line and a connection; connections are served one after the other, so that a question about an act
comes after the act. It ends with its input.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def serve() -> None:
    """Serve until the input ends; the port is the first line of the output."""
    made: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        sys.stdout.write(f"{server.getsockname()[1]}\n")
        sys.stdout.flush()
        threading.Thread(target=_until_the_end, daemon=True).start()
        while True:
            connection, _ = server.accept()
            with connection, connection.makefile("rwb") as lines:
                line = lines.readline()
                if line.endswith(b"\n"):  # half a line is a client that died: nothing was asked
                    try:
                        lines.write(json.dumps(_answer(made, json.loads(line))).encode() + b"\n")
                        lines.flush()
                    except OSError:
                        continue  # whoever asked is gone; the act stays


def _until_the_end() -> None:
    sys.stdin.read()
    os._exit(0)  # the main thread waits for a connection; there is nothing to tidy up


def _answer(made: list[str], asked: dict[str, Any]) -> Any:
    if asked["do"] == "create":
        if not (asked["once"] and asked["mark"] in made):
            made.append(asked["mark"])
        return len(made)
    return made.count(asked["mark"]) if asked["do"] == "find" else len(made)


def ask(port: int, **what: Any) -> Any:
    """Put one question or one act to the world."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection, connection.makefile("rwb") as lines:
        lines.write(json.dumps(what).encode() + b"\n")
        lines.flush()
        return json.loads(lines.readline())


@contextmanager
def world() -> Iterator[int]:
    """Start one, and give its port."""
    command = [sys.executable, "-m", "tests.faults.world"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as process:
        if process.stdout is None or process.stdin is None:
            raise RuntimeError("no pipes")
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()
            process.wait(timeout=30)


if __name__ == "__main__":
    serve()
