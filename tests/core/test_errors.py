from __future__ import annotations

import pytest

from capstate.errors import (
    CallNotStartedError,
    CapstateError,
    InvalidInputError,
    LedgerError,
    MalformedError,
    NeedsApproval,
    PoolConflictError,
    Reason,
    Refused,
    StaleWriterError,
    SurfaceExceededError,
)
from capstate.trace import Call, Message, Outcome, Role

CALL = Call("c1", "git__push")


@pytest.mark.parametrize("kind", [InvalidInputError, MalformedError])
@pytest.mark.parametrize(("got", "shown"), [("text", "text"), (3, "3"), (None, "None"), (["a"], "['a']")])
def test_bad_input_names_place_expected_and_got(
    kind: type[InvalidInputError | MalformedError], got: object, shown: str
) -> None:
    """The facts are attributes, and the message has all three; text stands there without quotes."""
    error = kind("policy.toml: limits.calls", "a whole number", got)

    assert (error.place, error.expected, error.got) == ("policy.toml: limits.calls", "a whole number", got)
    assert str(error) == f"policy.toml: limits.calls: expected a whole number, got {shown}"


def test_bad_input_is_a_value_error_and_bad_bytes_are_not() -> None:
    """A caller may catch its own mistake as Python's; what strangers sent is only ours."""
    assert issubclass(InvalidInputError, ValueError)
    assert not issubclass(MalformedError, ValueError)
    assert issubclass(InvalidInputError, CapstateError)


def test_a_refusal_carries_what_a_host_needs() -> None:
    """Call, reason, deciding rule, outcome and the one result; the message names call, tool, reason and rule."""
    result = Message("m1", Role.TOOL, "not available", result_for="c1", outcome=Outcome.DENIED)
    refused = Refused(CALL, Reason.NOT_AUTHORISED, "pool", "denied", result)

    assert isinstance(refused, CallNotStartedError)
    assert (refused.call, refused.reason, refused.decided_by) == (CALL, Reason.NOT_AUTHORISED, "pool")
    assert (refused.outcome, refused.result) == ("denied", result)
    assert str(refused) == "call 'c1' of 'git__push' refused: not_authorised, decided by pool"
    assert (
        str(Refused(CALL, Reason.NOT_LOADED, "", "not_run", result)) == "call 'c1' of 'git__push' refused: not_loaded"
    )


def test_an_ask_is_no_refusal() -> None:
    """It has its own class under the guard's base, and one reason."""
    asked = NeedsApproval(CALL, "deploy needs a person")

    assert not isinstance(asked, Refused)
    assert isinstance(asked, CallNotStartedError)
    assert (asked.call, asked.reason, asked.decided_by) == (CALL, Reason.NEEDS_APPROVAL, "deploy needs a person")
    assert str(asked) == "call 'c1' of 'git__push' waits: needs_approval, decided by deploy needs a person"


def test_reasons_stand_in_the_order_in_which_they_are_tested() -> None:
    """The words are part of receipts and of ``--json``, and the order decides which of several is named."""
    assert [reason.value for reason in Reason] == [
        "unknown_tool",
        "name_conflict",
        "name_unrepresentable",
        "policy_missing",
        "not_authorised",
        "resource_unavailable",
        "schema_changed",
        "not_loaded",
        "session_read_only",
        "outcome_unknown",
        "limit_exceeded",
        "needs_approval",
    ]


def test_an_exceeded_surface_names_what_exceeds_it() -> None:
    """Names that are not callable, then names with another definition; a kind without names is left out."""
    both = SurfaceExceededError(("a", "b"), ("c",))
    text = str(both)

    assert (both.names, both.differing) == (("a", "b"), ("c",))
    assert text == "the request body exceeds the surface: not callable 'a', 'b'; another definition of 'c'"
    assert str(SurfaceExceededError((), ("c",))) == "the request body exceeds the surface: another definition of 'c'"
    assert (
        str(SurfaceExceededError((), (), ("thread",)))
        == "the request body exceeds the surface: not known here 'thread'"
    )
    assert str(SurfaceExceededError(("a", "b"), (), why={"a": (Reason.NOT_LOADED, "")})) == (
        "the request body exceeds the surface: not callable 'a' (not_loaded), 'b'"
    )
    assert str(SurfaceExceededError(("a",), ())) == "the request body exceeds the surface: not callable 'a'"


def test_a_message_is_short_and_can_be_printed() -> None:
    """Whatever was given: cut, visible, and without lone surrogates; the attributes have all of it."""
    long = InvalidInputError("p" * 2_001, "text", "\ud800" * 2_001)

    assert long.got == "\ud800" * 2_001
    halves, cut = r"\ud800" * 2_000, "... (2001 characters)"
    assert str(long) == f"{'p' * 2_000}{cut}: expected text, got {halves}{cut}"
    assert str(InvalidInputError("p", "text", "")) == "p: expected text, got ''"
    assert str(InvalidInputError("p", "text", "x" * 2_000)) == f"p: expected text, got {'x' * 2_000}"


def test_a_stale_writer_is_told_by_what() -> None:
    """An owner met another head; somebody else lost the chain."""
    one = StaleWriterError("s", None, None, owner=True)
    other = StaleWriterError("s", None, None, owner=False)

    assert (one.chain, one.expected, one.got, one.owner, other.owner) == ("s", None, None, True, False)
    assert str(one) == "chain 's': its head is None, not None"
    assert str(other) == "chain 's': another writer owns it now, or this one was closed"
    assert isinstance(one, LedgerError)


def test_a_pool_conflict_carries_both_versions() -> None:
    """Read the pool again and retry."""
    conflict = PoolConflictError("root", 3, 4)

    assert (conflict.root, conflict.expected, conflict.got) == ("root", 3, 4)
    assert str(conflict) == "pool of 'root': its version is 4, not 3"
    assert isinstance(conflict, LedgerError)
