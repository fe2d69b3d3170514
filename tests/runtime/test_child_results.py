"""What comes back from children: kept in the parent's chain, unchanged by anything that happens to the parent."""

from __future__ import annotations

import pytest

from capstate.children import Claim, RecordStatus, Result
from capstate.errors import InvalidInputError
from capstate.trace import Message
from tests.runtime.stage import Stage, crash, kinds

RESULT = Result("t", "completed", claims=[Claim("q1", "written", ["E1"]), Claim("q2", "uploaded")], trace_ref="run-7")


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_result_is_kept_through_compaction_restart_and_crash(stage: Stage) -> None:
    """What was supported stays so and nothing else becomes so; whoever is waited for is named."""
    session = stage.session()
    kid = session.spawn("kid", want=["git/log"])
    kid.spawn("grand", want=["git/log"])
    kept = session.child_result("kid", RESULT, resolves={"E1"}.__contains__)
    assert (kept.status, kept.supported, kept.waiting_on) == (
        RecordStatus.INCOMPLETE,
        {"q1": True, "q2": False},
        ("grand",),
    )
    session.reproject("compaction", history=[Message("s", "summary", "Everything was uploaded.", covers=["a"])])
    crash(session)
    session = stage.runtime().session("s")

    assert session.child_records == {"kid": kept}
    assert kinds(stage).count("child-result") == 1


def test_nobody_is_waited_for_who_ended_or_returned(stage: Stage) -> None:
    """At every depth; a fork of a child counts as one of its own."""
    session = stage.session()
    kid = session.spawn("kid", want=["git/log"])
    one, two = kid.spawn("one", want=["git/log"]), kid.spawn("two", want=["git/log"])
    two.spawn("deep", want=[])
    kid.fork("copy").close()
    assert session.child_result("kid", RESULT, resolves=bool).waiting_on == ("one", "two", "copy", "deep")
    one.end()
    kid.child_result("two", RESULT, resolves=bool)

    assert session.child_result("kid", RESULT, resolves=bool).waiting_on == ("copy", "deep")


def test_only_a_child_of_this_session_can_return(stage: Stage) -> None:
    """Not a grandchild, not a stranger; nothing is written."""
    session = stage.session()
    session.spawn("kid", want=["git/log"]).spawn("grand", want=["git/log"])
    for id_ in ("grand", "nobody", "s"):
        with pytest.raises(InvalidInputError, match="child id"):
            session.child_result(id_, RESULT, resolves=bool)
    with pytest.raises(InvalidInputError, match="child result"):
        session.child_result("kid", "done", resolves=bool)  # type: ignore[arg-type]

    assert "child-result" not in kinds(stage)


def test_the_last_result_of_a_child_counts(stage: Stage) -> None:
    """To look again is to keep another record."""
    session = stage.session()
    session.spawn("kid", want=["git/log"])
    session.child_result("kid", RESULT, resolves={"E1"}.__contains__)
    again = session.child_result("kid", RESULT, resolves=lambda _: False)

    assert session.child_records == {"kid": again}
    assert again.unsupported == ("q1", "q2")
