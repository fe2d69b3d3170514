"""Makes the bundled recordings: all that an audit reads, and no text that a person or a model wrote.

From a clone::

    python -m capstate.demo.bundle experiments/recorded/pi capstate/demo/recordings

Texts are kept only under the keys listed here; every other text becomes the empty text. The audit of a stripped
recording equals that of the whole one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from capstate.errors import InvalidInputError

FOLDERS = ("s05a-reopen-start-policy-narrow", "s08b-revoke-then-reopen")
"""The reopen that loses, and the revocation that comes back."""

KEPT = frozenset(  # words, not a wall of quotes
    """type id parentId parentSession sessionId leafId firstKeptEntryId targetId compactionId timestamp role api
    provider model modelId kind name toolName tool_name toolCallId tool_use_id call_id at tool group active registered
    authorised addedToolNames now loaded customType why stopReason""".split()  # noqa: SIM905
)
"""Keys whose texts are names, ids and kinds."""

DROPPED = frozenset(
    """wire check simulated_cache reply usage cwd description input_schema parameters system summary metadata label path
    thinking signature thinkingSignature responseId rawStopReason details cache_control""".split()  # noqa: SIM905
)
"""Keys that no audit needs, or that hold nothing but text."""


def stripped(value: Any, key: str = "") -> Any:  # noqa: ANN401 - any JSON
    """Return ``value`` without texts that somebody wrote."""
    if isinstance(value, dict):
        return {name: stripped(inner, name) for name, inner in value.items() if name not in DROPPED}
    if isinstance(value, list):
        return [stripped(inner, key) for inner in value]
    if isinstance(value, str):
        return value if key in KEPT else ""
    return value


def make(source: Path, target: Path) -> None:
    """Write the stripped recordings below ``target``.

    Raises:
        InvalidInputError: a recording is not there.
    """
    for folder in FOLDERS:
        if not (source / folder).is_dir():
            raise InvalidInputError(str(source / folder), "a recording", "nothing")
        place = target / folder
        place.mkdir(parents=True, exist_ok=True)
        (place / "policy.toml").write_bytes((source / folder / "policy.toml").read_bytes())
        for name in ("session.jsonl", "requests.jsonl", "observations.jsonl"):
            lines = (source / folder / name).read_text(encoding="utf-8").splitlines()
            kept = (json.dumps(stripped(json.loads(line)), separators=(",", ":")) for line in lines)
            (place / name).write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:  # noqa: PLR2004 - two folders
        sys.exit("usage: python -m capstate.demo.bundle RECORDINGS TARGET")
    make(Path(sys.argv[1]), Path(sys.argv[2]))
