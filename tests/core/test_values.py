"""Values as Python programs treat them: shown, changed, copied, sent to another process."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any

import attrs
import pytest

from capstate import errors
from capstate.capabilities import Group, Tool
from capstate.children import ChildRecord, Claim, RecordStatus, Result, Stage, Task, record
from capstate.errors import CapstateError, InvalidInputError, Reason, Refused, SessionLockedError
from capstate.grants import Limits, allow
from capstate.ledger import Head
from capstate.trace import Call, Message

FULL = Tool(
    "log",
    description="Say what changed.",
    schema={"type": "object", "properties": {"since": {"type": "number", "minimum": 0.5}}},
    annotations={"title": "Log"},
    effect="read",
    idempotent=True,
    needs=("net", "disk"),
    reaches="since",
    loads=True,
    wire_name="history",
)


def by_pickle(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - our own bytes


COPIES: dict[str, Callable[[Any], Any]] = {"pickle": by_pickle, "copy": copy.copy, "deepcopy": copy.deepcopy}


# ---- changing


ARGUMENTS = list(inspect.signature(Tool).parameters)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("name", "blame"),
        ("description", ""),
        ("schema", {"type": "object"}),
        ("annotations", {}),
        ("effect", "external"),
        ("idempotent", False),
        ("needs", ()),
        ("reaches", None),
        ("loads", False),
        ("wire_name", None),
    ],
)
def test_a_tool_is_changed_in_one_thing_and_keeps_the_rest(name: str, value: object) -> None:
    """Also what is no attribute of its class, as description and schema: nothing is lost without a word."""
    changed = FULL.evolve(**{name: value})
    given = {one: getattr(FULL, one) for one in ARGUMENTS}

    assert getattr(changed, name) == value
    assert changed == Tool(**{**given, name: value})
    assert changed != FULL
    assert FULL.evolve() == FULL


def test_a_group_is_changed_and_keeps_its_tools() -> None:
    """Down and up again, under another id, with other tools; tools of one name stay in conflict."""
    tools = [Tool("log"), Tool("push"), Tool("push", description="another")]
    git = Group("git", tools, server="here")

    assert git.evolve(up=False).evolve(up=True) == git
    assert git.evolve(up=False) == Group("git", tools, server="here", up=False)
    assert git.evolve(id="hg").definitions["log"].qualified == "hg/log"
    assert git.evolve(server=None).fingerprint != git.fingerprint
    assert list(git.evolve(tools=[Tool("x")]).definitions) == ["x"]


def test_a_change_is_checked_as_the_constructor_does() -> None:
    """What is wrong is one error; ``attrs.evolve`` refuses rather than lose the schema."""
    with pytest.raises(InvalidInputError, match=r"tool 'log'\.effect"):
        FULL.evolve(effect="write")
    with pytest.raises(InvalidInputError, match=r"group 'git'\.up"):
        Group("git").evolve(up="no")
    for value in (FULL, Group("git")):
        with pytest.raises(TypeError):
            attrs.evolve(value)
    assert (Tool.__replace__, Group.__replace__) == (Tool.evolve, Group.evolve)  # what copy.replace calls


# ---- showing


def test_a_definition_is_shown_by_what_it_is() -> None:
    """Qualified name, effect, and enough of the fingerprint to see that two differ; the server where there is one."""
    plain = Group("git", [Tool("push")]).definitions["push"]
    served = Group("git", [Tool("push")], server="s").definitions["push"]

    assert repr(plain) == f"<Definition git/push external {plain.fingerprint[:11]}>"
    assert repr(served) == f"<Definition git/push external server='s' {served.fingerprint[:11]}>"


# ---- copying


CLAIM = Claim("q1", "it is there", ["E1"], MappingProxyType({"E1": "line 3"}))
RESULT = Result("t", "completed", claims=[CLAIM], stages=[Stage("look", 0, 4)])
VALUES = {
    "claim": CLAIM,
    "result": RESULT,
    "record": record(RESULT, {"E1"}.__contains__),
    "record of another mapping": ChildRecord(RESULT, RecordStatus.COMPLETED, MappingProxyType({"q1": True})),
    "task": Task(facts=["a"], excluded=[], tools=["git/log"], constraints=[], output="a list"),
    "tool": FULL,
    "group": Group("git", [FULL]),
    "definition": Group("git", [FULL]).definitions["log"],
    "grant": allow("git/log", pin=[("git/log", "b3:x")]),
    "limits": Limits(calls=3),
    "call": Call("c1", "git/log", {"since": 1}),
    "message": Message("e1", "user", "x", native={"role": "user"}),
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("name", VALUES)
def test_values_are_copied_and_sent_as_they_are(name: str, how: str) -> None:
    """Equal, and of the same kind, whatever mapping the caller had given."""
    found = COPIES[how](VALUES[name])

    assert found == VALUES[name]
    assert type(found) is type(VALUES[name])


def test_a_record_does_not_change_with_the_callers_mapping() -> None:
    """What was given is copied: who keeps the mapping cannot turn a claim into a supported one."""
    places, supported = {"E1": "line 3"}, {"q1": False}
    claim = Claim("q1", "it is there", ["E1"], places)
    kept = ChildRecord(RESULT, RecordStatus.COMPLETED_UNVERIFIED, supported)
    places["E1"], supported["q1"] = "elsewhere", True

    assert claim.places == {"E1": "line 3"}
    assert kept.unsupported == ("q1",)


@pytest.mark.parametrize("wrong", [None, 3, ["E1"]], ids=repr)
def test_what_is_no_mapping_is_still_refused(wrong: Any) -> None:
    """Copying does not make a mapping of anything else."""
    with pytest.raises(InvalidInputError, match="places"):
        Claim("q1", "it is there", ["E1"], wrong)


def made() -> Iterator[CapstateError]:
    """One error of each class."""
    call, result = Call("c1", "git__push"), Message("r1", "tool", "no", result_for="c1")
    given: dict[type[CapstateError], tuple[Any, ...]] = {
        errors.SurfaceExceededError: (("a",), ("b",), ("c",), {"a": (Reason.NOT_LOADED, "")}),
        errors.CallNotStartedError: (call, Reason.NOT_LOADED, "config#r1", "refused"),
        Refused: (call, Reason.NOT_LOADED, "", "not_run", result),
        errors.NeedsApproval: (call, "config#r1"),
        errors.InvalidInputError: ("place", "this", {"that": 1}),
        errors.MalformedError: ("place", "this", "that"),
        errors.PoolConflictError: ("root", 1, 2),
        errors.EvidenceError: ("ev:1", "gone"),
        errors.EvidenceTamperedError: ("ev:1", "other bytes"),
    }
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, CapstateError):
            if kind is errors.StaleWriterError:
                yield errors.StaleWriterError("s", None, Head(3, "b3:x"), owner=True)
            else:
                yield kind(*given.get(kind, ("what happened",)))


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("error", list(made()), ids=lambda error: type(error).__name__)
def test_an_error_is_sent_with_its_message_and_its_facts(error: CapstateError, how: str) -> None:
    """From a worker to its parent, as process pools do: same class, same words, same facts."""
    found = COPIES[how](error)

    assert type(found) is type(error)
    assert str(found) == str(error)
    assert vars(found) == vars(error)


def test_a_note_on_an_error_is_sent_as_well() -> None:
    """What a caller added stays with it."""
    error = InvalidInputError("place", "this", "that")
    error.add_note("while reading the configuration")

    assert by_pickle(error).__notes__ == ["while reading the configuration"]


# ---- saying


@pytest.mark.parametrize("got", ["git ", " git", "\n", " "], ids=ascii)
def test_an_error_shows_blanks_at_an_end(got: str) -> None:
    """It quotes what begins or ends with one: else nobody sees why it is not the name that it looks like."""
    assert str(InvalidInputError("name", "a name", got)) == f"name: expected a name, got {got!r}"
    assert str(InvalidInputError("name", "a name", "a b")) == "name: expected a name, got a b"


def test_a_locked_session_hints_at_this_process() -> None:
    """The other writer is often a session of the same program that nobody closed."""
    assert str(SessionLockedError("chain 's' has another live writer")) == (
        "chain 's' has another live writer: another process, or a session of this process that was not closed"
    )
