"""Receipts and rows as stored bytes: read strictly, compared by value; and the words for a difference."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from capstate.authority import Authority, Ceiling, Effect, Pool, Source, allow
from capstate.capabilities import Catalog, Group, Tool
from capstate.digest import Domain, canonical, fingerprint
from capstate.epochs import Boundary, Cause, Epoch, Facts, reproject
from capstate.errors import MalformedError
from capstate.projection import Issuer, Profile
from capstate.receipts import ABSENT, HELD, IMMEDIATE, Action, Change, Kind, Receipt, Rows, RowState, diff, kinds
from capstate.surface import Load, LoadKind
from tests.core.strategies import OPEN

ANY: Any = None
ROW = ("log", "b3:1", "allow", "config#a", IMMEDIATE)


def epoch(**more: Any) -> Epoch:
    """One group of two tools, loaded at an entry, allowed by one rule."""
    groups = [Group("git", [Tool("log"), Tool("push")])]
    loads = (Load(0, LoadKind.LOAD, ("git/*",), at="e1"),)
    facts: dict[str, Any] = {"catalog": Catalog.of(groups), "authority": OPEN, "loads": loads, "session": "s"}
    return reproject(Facts(**{**facts, **more}), None)


def rows(*listed: tuple[str, ...], group: str = "git") -> dict[str, Rows]:
    return {group: Rows.from_bytes(group, orjson.dumps(listed))}


# -- stored bytes


def test_a_receipt_is_its_bytes() -> None:
    """The digest covers all of them; the copy for a transcript holds digest and body."""
    receipt = epoch(boundary=Boundary("e0", 2, "e3")).receipt

    assert receipt.encoded == canonical(dict(receipt.body))
    assert receipt.digest == fingerprint(Domain.RECEIPT, receipt.encoded)
    assert receipt.to_json() == {"digest": receipt.digest, "receipt": orjson.loads(receipt.encoded)}
    assert (receipt.cause, receipt.epoch, receipt.kinds) == ("open", 0, ("rederived", "widened"))
    assert receipt.reasons == ("load", "open")
    assert receipt.body["boundary"] == {"first_kept": "e0", "kept": 2, "leaf": "e3"}
    assert receipt.body["format"] == 1


def test_tools_of_an_action() -> None:
    """The tools to which it happened, in order."""
    receipt = epoch().receipt

    assert receipt.tools("added") == receipt.tools(Action.ADDED) == ["git/log", "git/push"]
    assert receipt.tools("removed") == []


def test_receipts_and_epochs_are_compared_by_their_bytes() -> None:
    """Read back it is the same value; another one is not, and neither is anything else."""
    one, other = epoch(), epoch(session="t")
    read = Receipt.from_bytes(one.receipt.encoded, one.blobs.get)

    assert read == one.receipt
    assert read.rows == one.receipt.rows
    assert (read.body, read.changes) == (one.receipt.body, ())
    assert len({one.receipt, read, other.receipt}) == 2
    assert len({one, epoch(), other}) == 2
    assert one.receipt != other.receipt
    assert one.receipt != one.receipt.encoded
    assert one != one.receipt
    assert one.surface != one.receipt
    assert len({one.surface, other.surface}) == 1
    assert len({rows(ROW)["git"], rows(ROW)["git"], rows(ROW, group="a")["a"]}) == 2
    assert rows(ROW)["git"] != rows(ROW, group="a")["a"]
    assert rows(ROW)["git"] != ROW


WORDS = {
    "cause": "text",
    "dropped": "a list of text",
    "epoch": "a whole number from 0",
    "groups": "[group, digest] pairs, each group once",
    "issuer": "provider, API, model, account",
    "kinds": "a list of text",
    "reasons": "a list of text",
    "session": "text",
    "state": "[component, digest] pairs, each component once",
}


@pytest.mark.parametrize(
    ("field", "value", "place"),
    [
        ("format", 2, "receipt"),
        ("format", None, "receipt"),
        ("cause", 1, "receipt.cause"),
        ("dropped", "m1", "receipt.dropped"),
        ("dropped", [1], "receipt.dropped"),
        ("epoch", -1, "receipt.epoch"),
        ("epoch", True, "receipt.epoch"),
        ("epoch", "0", "receipt.epoch"),
        ("groups", None, "receipt.groups"),
        ("groups", [["git"]], "receipt.groups"),
        ("groups", [["git", 1]], "receipt.groups"),
        ("groups", [["git", "b3:0"], ["git", "b3:0"]], "receipt.groups"),
        ("groups", [["git", "b3:0"]], "rows of group 'git'"),
        ("issuer", ["a", "b", "c"], "receipt.issuer"),
        ("issuer", ["a", "b", "c", "d", "e"], "receipt.issuer"),
        ("issuer", "abcd", "receipt.issuer"),
        ("kinds", [None], "receipt.kinds"),
        ("reasons", {}, "receipt.reasons"),
        ("session", None, "receipt.session"),
        ("state", [["a", "b", "c"]], "receipt.state"),
        ("state", {"a": "b"}, "receipt.state"),
    ],
)
def test_a_receipt_of_another_shape_is_refused(field: str, value: Any, place: str) -> None:
    """With the place of the first field that is wrong."""
    one = epoch()
    body = {**one.receipt.body, field: value}

    with pytest.raises(MalformedError) as raised:
        Receipt.from_bytes(canonical(body), one.blobs.get)
    assert raised.value.place == place
    if place.startswith("receipt."):
        assert raised.value.expected == WORDS[field]
        del body[field]
        with pytest.raises(MalformedError) as raised:
            Receipt.from_bytes(canonical(body), one.blobs.get)
        assert (raised.value.place, raised.value.got) == (place, None)


@pytest.mark.parametrize("encoded", [b"", b"null", b"[]", b"{}", b"\xff", b'{"format":1'])
def test_bytes_that_are_no_receipt_are_refused(encoded: bytes) -> None:
    """Whatever they are."""
    with pytest.raises(MalformedError, match=r"^receipt: |^receipt\."):
        Receipt.from_bytes(encoded, {"": b""}.get)


def test_a_receipt_in_another_encoding_is_refused() -> None:
    """Space, another order, a field twice, a number that JSON readers disagree on."""
    one = epoch()
    encoded = one.receipt.encoded
    big = canonical({**one.receipt.body, "used": {}}).replace(b'"used":{}', b'"used":{"calls":9007199254740993}')

    for wrong in (
        encoded + b" ",
        b'{"cause":"open",' + encoded[1:],
        orjson.dumps(dict(sorted(one.receipt.body.items(), reverse=True))),
        big,
    ):
        with pytest.raises(MalformedError) as raised:
            Receipt.from_bytes(wrong, one.blobs.get)
        assert raised.value.place == "receipt"
        assert "canonical" in raised.value.expected or "JSON" in raised.value.expected


def test_altered_rows_are_found() -> None:
    """Missing, other bytes under the digest, or bytes that are no rows."""
    one = epoch()
    digest = one.receipt.rows["git"].digest

    for blob, got in (({}, "nothing"), ({digest: b"[]"}, "other bytes")):
        with pytest.raises(MalformedError) as raised:
            Receipt.from_bytes(one.receipt.encoded, blob.get)
        assert (raised.value.place, raised.value.expected, raised.value.got) == ("rows of group 'git'", digest, got)


@pytest.mark.parametrize(
    "encoded",
    [
        b"",
        b"{}",
        b"null",
        b"[1]",
        b"[[]]",
        b'[["a","b","c","d"]]',
        b'[["a","b","c","d",1]]',
        b'[ ["a","b","c","d","e"]]',
        orjson.dumps([ROW, ROW]),
        orjson.dumps([("z", *ROW[1:]), ROW]),
    ],
    ids=ascii,
)
def test_bytes_that_are_no_rows_are_refused(encoded: bytes) -> None:
    """Also rows in another encoding or order, or a name twice."""
    with pytest.raises(MalformedError, match=r"^rows of group 'git': "):
        Rows.from_bytes("git", encoded)


def test_rows_say_what_each_tool_is() -> None:
    """Name, definition, status, what decided, place; in order of name."""
    authority = Authority(Pool((Source("config", (allow("*", id="a"),)),)), (Ceiling("trust", (), Effect.ASK),))
    down = Group("web", [Tool("get")], up=False)
    catalog = Catalog.of([Group("git", [Tool("push"), Tool("log"), Tool("x y", wire_name="x y")]), down])
    profile = Profile(Issuer("p", "a", "m"), ANY, "some")
    found = {d.qualified: d.fingerprint for g in catalog.groups.values() for d in g.definitions.values()}
    loads = (
        Load(0, LoadKind.LOAD, ("git/log",), "e1", None, found),
        Load(1, LoadKind.LOAD, ("git/push", "git/x y"), None, "c2", found),
    )
    one = epoch(catalog=catalog, authority=authority, loads=loads, retained=(0, 1), profile=profile)

    assert list(one.receipt.rows["git"].by_name().values()) == [
        RowState("log", found["git/log"], "ask", "ceiling trust", "at e1"),
        RowState("push", found["git/push"], "ask", "ceiling trust", "call c2"),
        RowState("x y", found["git/x y"], "name_unrepresentable", "", HELD),
    ]
    assert [row.callable for row in one.receipt.rows["git"].by_name().values()] == [True, True, False]
    (get,) = one.receipt.rows["web"].by_name().values()
    assert get == RowState("get", found["web/get"], "resource_unavailable", "group web", ABSENT)
    assert not get.callable
    assert one.receipt.body["withheld"] == [["git/x y", "name_unrepresentable", ""]]


# -- differences


ABLE = ("allow", "c#a", IMMEDIATE)
HELD_BACK = ("not_authorised", "pool", HELD)
DOWN = ("resource_unavailable", "group g", HELD)


@pytest.mark.parametrize(
    ("was", "now", "change"),
    [
        (None, ABLE, ("added", "new", "c#a")),
        (("not_loaded", "", ABSENT), ABLE, ("added", "load", "c#a")),
        (DOWN, ("ask", "c#a", "at e1"), ("added", "resource_back", "c#a")),
        (("not_authorised", "pool", ABSENT), ABLE, ("added", "authority", "c#a")),
        (("policy_missing", "launch!missing", HELD), ABLE, ("added", "authority", "c#a")),
        (("schema_changed", "c#a", HELD), ABLE, ("added", "authority", "c#a")),
        (("name_conflict", "", HELD), ABLE, ("added", "name_conflict", "c#a")),
        (ABLE, None, ("removed", "list_changed", "")),
        (ABLE, ("not_loaded", "", ABSENT), ("removed", "unload", "")),
        (ABLE, ("not_authorised", "c#d", HELD), ("removed", "authority", "c#d")),
        (ABLE, ("not_authorised", "parent: pool", HELD), ("removed", "parent_ceiling", "parent: pool")),
        (ABLE, ("not_authorised", "parent!ended", HELD), ("removed", "parent_ceiling", "parent!ended")),
        (ABLE, ("schema_changed", "c#a", HELD), ("removed", "schema_changed", "c#a")),
        (("ask", "c#a", "at e1"), DOWN, ("removed", *DOWN[:2])),
        (ABLE, ("allow", "c#a", "at e1"), ("moved", "why", "c#a")),
        (ABLE, ("ask", "c#b", "call c1"), ("moved", "why", "c#b")),
        (ABLE, ("ask", "c#b", IMMEDIATE), ("effect", "authority", "c#b")),
        (ABLE, ("allow", "c#b", IMMEDIATE), None),
        (None, HELD_BACK, ("withheld", "authority", "pool")),
        (None, ("not_authorised", "pool", ABSENT), None),
        (("not_authorised", "pool", ABSENT), HELD_BACK, ("withheld", "authority", "pool")),
        (HELD_BACK, ("not_authorised", "c#d", HELD), None),
        (HELD_BACK, DOWN, ("withheld", *DOWN[:2])),
        (HELD_BACK, ("not_authorised", "pool", ABSENT), None),
        (HELD_BACK, None, None),
        (("not_loaded", "", ABSENT), None, None),
    ],
    ids=str,
)  # fmt: skip
def test_each_difference_has_its_words(was: Any, now: Any, change: Any) -> None:
    """Action, reason, and what decided."""
    before, after = ({} if side is None else rows(("log", "b3:1", *side)) for side in (was, now))
    found = diff(before, after, moved="why", new="new")

    assert found == (() if change is None else (Change(Action(change[0]), "git/log", change[1], change[2]),))


def test_another_definition_is_told_before_another_place() -> None:
    """One change a tool, and this one weighs most."""
    other = ("log", "b3:2", "ask", "c#b", "at e1")

    assert diff(rows(ROW), rows(other)) == (Change(Action.REDEFINED, "git/log", "list_changed", "c#b"),)


def test_differences_stand_in_order() -> None:
    """By group, then name; equal groups say nothing; the defaults are those of a later epoch."""
    one = {**rows(("b", *ROW[1:]), ("z", *ROW[1:])), **rows(ROW, group="web")}
    other = {**rows(("a", *ROW[1:]), ("b", *ROW[1:4], "at e1")), **rows(ROW, group="web")}

    assert [c[:3] for c in diff(one, other)] == [
        ("added", "git/a", "list_changed"),
        ("moved", "git/b", "load"),
        ("removed", "git/z", "list_changed"),
    ]
    assert diff(one, one) == diff(other, other) == ()


ADDED, REMOVED, REDEFINED = (Change(action, "g/t", "x") for action in (Action.ADDED, Action.REMOVED, Action.REDEFINED))


@pytest.mark.parametrize(
    ("changes", "more", "expected"),
    [
        ([], {}, {"rederived"}),
        ([], {"boundary": True}, {"rederived"}),
        ([ADDED], {}, {"widened"}),
        ([REMOVED], {}, {"narrowed"}),
        ([REDEFINED], {}, {"changed"}),
        ([ADDED, REMOVED], {"boundary": True}, {"changed", "narrowed", "rederived", "widened"}),
        ([Change(Action.MOVED, "g/t", "x")], {}, {"rederived"}),
        ([Change(Action.REMOVED, "g/t", "schema_changed")], {}, {"narrowed", "schema_changed"}),
        ([Change(Action.WITHHELD, "g/t", "schema_changed")], {}, {"schema_changed"}),
        ([Change(Action.ADDED, "g/t", "schema_changed")], {}, {"widened"}),
        ([], {"degraded": True}, {"degraded"}),
        ([], {"damage": ("tail",)}, {"recovered_tail"}),
        ([], {"damage": ("hole", "tail")}, {"recovered_hole", "recovered_tail"}),
    ],
    # Numbered: a set has no order to name a test by.
    ids=[f"case {n}" for n in range(1, 14)],
)
def test_kinds_of_a_receipt(changes: list[Change], more: dict[str, Any], expected: set[str]) -> None:
    """Sorted, each once."""
    given: dict[str, Any] = {"boundary": False, "degraded": False, "damage": (), **more}

    assert kinds(changes, **given) == sorted(expected)
    assert expected <= set(Kind)


# -- degraded


def switched(defers: str, **issuer: str) -> Profile:
    return Profile(Issuer(**{"provider": "p", "api": "a", "model": "m", **issuer}), ANY, defers)


def test_a_provider_that_cannot_defer_degrades() -> None:
    """What was deferred becomes immediate because of the provider; back again it is no degradation."""
    catalog = Catalog.of([Group("git", [Tool("log")])])
    found = {"git/log": catalog.groups["git"].definitions["log"].fingerprint}
    loads = (Load(0, LoadKind.LOAD, ("git/*",), "e1", None, found),)
    first = epoch(catalog=catalog, loads=loads, retained=(0,), profile=switched("some"))
    plain = Facts(catalog, OPEN, loads, None, (0,), switched("", api="b"), session="s")
    second = reproject(plain, first)
    back = reproject(first.facts, second)

    assert second.receipt.cause == Cause.PROVIDER_SWITCH
    assert second.receipt.kinds == ("degraded", "rederived")
    assert second.receipt.reasons == ("provider_incompatible", "provider_switch")
    assert [c[:3] for c in second.receipt.changes] == [("moved", "git/log", "provider_incompatible")]
    assert back.receipt.kinds == ("rederived",)
    assert [c[:3] for c in back.receipt.changes] == [("moved", "git/log", "provider_switch")]
    assert second.projection.deferred == ()
    assert [p.wire for p in first.projection.deferred] == ["git__log"]


@pytest.mark.parametrize(
    ("issuer", "cause"),
    [
        ({"provider": "q"}, "provider_switch"),
        ({"api": "b"}, "provider_switch"),
        ({"model": "n"}, "model_switch"),
        ({"account": "x"}, "model_switch"),
    ],
    ids=["provider", "api", "model", "account"],
)
def test_switches_are_told_apart(issuer: dict[str, str], cause: str) -> None:
    """Another provider or API is a switch of the provider, another model or account one of the model."""
    first = epoch(profile=switched(""))
    second = reproject(
        Facts(first.facts.catalog, OPEN, first.facts.loads, profile=switched("", **issuer), session="s"), first
    )

    assert second.receipt.cause == cause
    assert second.receipt.body["issuer"] == list(
        {"provider": "p", "api": "a", "model": "m", "account": "", **issuer}.values()
    )


def test_dropped_items_degrade_once() -> None:
    """The items of another issuer are named in each receipt, and degrade the one in which they are first or others."""
    opaque = (("m1", "p/a/m/"), ("m2", "q/a/m/"))
    first = epoch(profile=switched(""), opaque=opaque)
    again = reproject(Facts(**{**_fields(first.facts), "cause": Cause.COMPACTION}), first)
    more = reproject(Facts(**{**_fields(first.facts), "opaque": (*opaque, ("m3", "q/a/m/"))}), again)

    assert first.receipt.body["dropped"] == again.receipt.body["dropped"] == ["m2"]
    assert "degraded" in first.receipt.kinds
    assert again.receipt.kinds == ("rederived",)
    assert more.receipt.kinds == ("degraded", "rederived")
    assert more.projection.dropped == ("m2", "m3")


def _fields(facts: Facts) -> dict[str, Any]:
    return {name: getattr(facts, name) for name in ("catalog", "authority", "loads", "profile", "opaque", "session")}


# -- first receipts


def test_a_childs_first_receipt_compares_with_its_want() -> None:
    """What it asked for and did not get is removed by its parent; what it got as asked is no change."""
    parent = Authority(Pool((Source("config", (allow("git/log", id="a"),)),)))
    child = Authority(Pool(want=("git/*",)), (), parent)
    one = epoch(
        authority=child,
        cause=Cause.CHILD,
        catalog=Catalog.of([Group("git", [Tool("log"), Tool("push")]), Group("web", [Tool("get")])]),
    )

    assert one.receipt.body["changes"] == [["removed", "git/push", "parent_ceiling", "parent: pool"]]
    assert one.receipt.kinds == ("narrowed", "rederived")


def test_a_forks_first_receipt_compares_with_its_origin() -> None:
    """It starts a chain of its own, at epoch 0, and names the fork."""
    origin = epoch()
    fork = reproject(
        Facts(
            **{**_fields(origin.facts), "authority": Authority(Pool()), "session": "f"},
            cause=Cause.FORK,
            fork={"session": "s"},
        ),
        origin.receipt,
    )

    assert (fork.receipt.epoch, fork.receipt.body["previous"], fork.receipt.body["fork"]) == (0, None, {"session": "s"})
    assert fork.receipt.body["changes"] == [["removed", "git/*", "authority", "pool"]]
    assert reproject(Facts(**{**_fields(origin.facts), "session": "f"}), origin).receipt.cause == Cause.OPEN
