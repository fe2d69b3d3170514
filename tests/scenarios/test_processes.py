from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios import forms, stories
from tests.scenarios.hosts import HostError, ProcessHost

WORLD = {"groups": [stories.MAIL, stories.NOTES], "resources": {"srv": "up"}}
CONFIG = [stories.grant("mail/*"), stories.grant("notes/*")]


class Scene:
    """Three processes that share a ledger file and the files of their sources, and nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        forms.write(folder / "world.json", WORLD)
        forms.write(folder / "config.json", CONFIG)
        self.parent, self.child, self.revoker = (ProcessHost(folder / "ledger.db", folder) for _ in range(3))
        self.calls = 0

    def family(self, want: list[str]) -> None:
        """A parent in one process, its child in another; each has been shown what it may call."""
        self.parent.call("open", session="main")
        self.parent.call("load", session="main", on=["mail", "notes"], by="configuration")
        self.parent.call("spawn", parent="main", session="kid", want=want, call=None, keep=False)
        self.child.call("open", session="kid")
        self.look(self.parent, "main")
        assert sorted(self.look(self.child, "kid")["wires"]) == sorted(want)

    def look(self, host: ProcessHost, session: str) -> Any:
        return host.call("look", session=session, cause="turn", provider=stories.BETA, history=[], path=[])

    def start(self, host: ProcessHost, session: str, tool: str) -> Any:
        """Put a fresh call through the guard, with no request built before it."""
        self.calls += 1
        call = {"id": f"c{self.calls}", "tool": tool, "args": {"n": self.calls}}
        return host.call("start", session=session, calls=[call], event=0, together=False)[0]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    try:
        yield made
    finally:
        for host in (made.parent, made.child, made.revoker):
            host.kill()


def test_a_revocation_by_a_third_process_counts_at_the_next_call_of_the_child(scene: Scene) -> None:
    """The running call ends in order; the next one is refused, although the child built no request in between."""
    forms.write(scene.folder / "config.json", [stories.grant("notes/*")])
    scene.parent.call("open", session="main")
    scene.parent.call("grant", session="main", on="mail/send", effect="allow", lifetime="persistent", pin=False, id="g")
    scene.parent.call("close", session="main")
    scene.family(["mail/send"])
    running = scene.start(scene.child, "kid", "mail/send")

    scene.revoker.call("post_revoke", chain="main", id="g")
    after = scene.start(scene.child, "kid", "mail/send")
    ended = scene.child.call("settle", session="kid", call="c1", occurrence=0, outcome="ok", evidence="E1")

    assert running["tool"] == "mail/send"
    assert after["refused"] == "not_authorised"
    assert ended == {"outcome": "ok"}
    assert scene.start(scene.parent, "main", "mail/send")["refused"] == "not_authorised"


def test_a_changed_configuration_counts_at_the_next_call_of_both(scene: Scene) -> None:
    """Parent and child read the file again when a call starts."""
    scene.family(["mail/send", "notes/save"])
    assert scene.start(scene.child, "kid", "mail/send")["tool"] == "mail/send"

    forms.write(scene.folder / "config.json", [stories.grant("notes/*"), stories.grant("notes/save", "deny")])

    for host, session in ((scene.child, "kid"), (scene.parent, "main")):
        assert scene.start(host, session, "mail/send")["refused"] == "not_authorised"
        assert scene.start(host, session, "notes/save")["refused"] == "not_authorised"


def test_a_lost_resource_and_another_definition_count_at_the_next_call(scene: Scene) -> None:
    """What exists is read when a call starts as well."""
    scene.family(["mail/send", "notes/save"])

    forms.write(scene.folder / "world.json", {**WORLD, "resources": {"srv": "down"}})
    down = scene.start(scene.child, "kid", "mail/send")
    forms.write(scene.folder / "world.json", {**WORLD, "groups": [stories.NOTES]})
    gone = scene.start(scene.child, "kid", "mail/send")

    assert (down["refused"], gone["refused"]) == ("resource_unavailable", "unknown_tool")


def test_an_ended_parent_gives_nothing_and_a_dead_one_what_it_has(scene: Scene) -> None:
    """A killed process has not ended its session; ending it takes everything from the child at its next call."""
    scene.family(["mail/send"])

    scene.parent.kill()
    orphaned = scene.start(scene.child, "kid", "mail/send")
    scene.revoker.call("open", session="main")
    scene.revoker.call("end", session="main")
    ended = scene.start(scene.child, "kid", "mail/send")

    assert orphaned["tool"] == "mail/send"
    assert ended["refused"] == "not_authorised"


def test_a_limit_of_the_tree_holds_across_processes(scene: Scene) -> None:
    """Parent and child draw on one pool; a killed process gives nothing back."""
    scene.parent.call("open", session="main", limits={"calls": 3})
    scene.parent.call("load", session="main", on=["mail"], by="configuration")
    scene.parent.call("spawn", parent="main", session="kid", want=["mail/send"], call=None, keep=False)
    scene.child.call("open", session="kid")
    told = [scene.start(host, name, "mail/send") for host, name in ((scene.parent, "main"), (scene.child, "kid")) * 2]

    assert [answer.get("refused") for answer in told] == [None, None, None, "limit_exceeded"]
    scene.parent.kill()
    assert scene.start(scene.child, "kid", "mail/send")["refused"] == "limit_exceeded"


def test_a_session_has_one_process_that_writes_it(scene: Scene) -> None:
    """Another process is refused while the owner lives, also while it is stopped."""
    scene.family(["mail/send"])
    scene.child.freeze()

    with pytest.raises(HostError, match="SessionLockedError"):
        scene.revoker.call("open", session="kid")
    scene.child.kill()
    scene.revoker.call("open", session="kid")
