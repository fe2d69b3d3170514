from __future__ import annotations

from typing import Any

from capstate.capabilities import NameRule
from capstate.projection import Issuer, Mark, OnWire, Placed, Profile, Projection
from capstate.trace import Call, Message, Role


def test_an_issuer_is_its_four_parts() -> None:
    """The id names provider, API, model and account; without an account the last part is empty."""
    assert Issuer("p", "a", "m", "acc").id == "p/a/m/acc"
    assert Issuer("p", "a", "m").id == "p/a/m/"


def test_a_profile_promises_nothing_unless_told() -> None:
    """No deferral, no needed immediate tool, the common name rule, any call id; the adapter is no part of its value."""
    first: Any = object()
    second: Any = object()
    one, same = (Profile(Issuer("p", "a", "m"), adapter) for adapter in (first, second))

    assert one == same
    assert (one.defers, one.needs_immediate, one.names) == ("", False, NameRule(limit=64, chars="A-Za-z0-9_-"))
    assert (one.call_id_limit, one.call_id_chars) == (None, None)
    assert (one.compacts, one.reports) == (False, frozenset())


def test_all_that_a_body_could_make_callable_is_effective() -> None:
    """Immediate, deferred, and definitions that a search could still load; a mere reference is not."""
    wire = OnWire(("a",), {"b": "call 1"}, {}, referenced=("d",), unloaded=("c",), withdrawn=("a",))

    assert wire.effective == {"a", "b", "c"}
    assert OnWire((), {}, {}).effective == frozenset()
    assert OnWire((), {}, {}).unknown == {}


def test_placed_is_immediate_without_a_mark() -> None:
    """The default place is the top-level list."""
    definition: Any = None
    placed = Placed(definition, "w")

    assert placed.mark is None
    assert placed != Placed(definition, "w", Mark(1, None, None))


def test_projections_are_compared_by_fingerprint() -> None:
    """What rendering depends on is in it, and nothing else is compared."""
    one, same, other = Projection({}, (), (), "a"), Projection({}, (), ("x",), "a"), Projection({}, (), (), "b")

    assert one == same
    assert len({one, same, other}) == 2
    assert one != other
    assert one != "a"


def test_equal_arguments_have_one_digest() -> None:
    """In any order of keys; other arguments have another one."""
    one = Call("c1", "t", {"a": 1, "b": 2})

    assert one.digest == Call("c2", "t", {"b": 2, "a": 1}).digest
    assert one.digest != Call("c1", "t", {"a": 1, "b": 3}).digest
    assert Call("c1", "t").occurrence == 0


def test_a_message_is_a_value() -> None:
    """Usable in a set, also with a native form that is not."""
    native = {"role": "user"}

    assert len({Message("1", Role.USER, "x", native=native), Message("1", Role.USER, "x", native=native)}) == 1
