"""Archived facts read back: the same receipt follows from them, and nothing else than the stored bytes is taken."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from capstate.archive import PARTS, encode_group
from capstate.authority import FIRST_SIGHT, Authority, Ceiling, Grant, Lifetime, Pool, Source, allow
from capstate.capabilities import Catalog, Group, Tool
from capstate.codec import decode_group, decode_part, facts_from_archive, recompute, structure
from capstate.digest import Domain, canonical, fingerprint
from capstate.epochs import Boundary, Cause, Epoch, Facts, reproject
from capstate.errors import MalformedError
from capstate.receipts import Receipt
from capstate.surface import Load, LoadKind
from tests.core.strategies import OPEN, SEEDS, story
from tests.core.test_laws_epochs import rows_of

COPIED = {"audit", "boundary", "cause", "damage", "fork", "ledger", "session", "used"}
"""Fields of a receipt that are facts themselves, so that they follow from nothing else."""


def nothing(_: str) -> bytes | None:
    """A ledger without blobs."""
    return None


def body_of(epoch: Epoch) -> dict[str, Any]:
    """The body as a reader has it."""
    body: dict[str, Any] = orjson.loads(epoch.receipt.encoded)
    return body


def archived(seed: int, length: int = 4) -> tuple[list[Epoch], dict[str, bytes]]:
    """Epochs of one chain that have a receipt of their own, and everything stored with them."""
    epochs: list[Epoch] = []
    stored: dict[str, bytes] = {}
    for facts in story(seed, length):
        epoch = reproject(facts, epochs[-1] if epochs else None)
        stored.update(epoch.blobs)
        if not epochs or epoch.receipt is not epochs[-1].receipt:
            epochs.append(epoch)
    return epochs, stored


@given(SEEDS)
def test_a_stored_epoch_is_computed_again(seed: int) -> None:
    """Facts read back are the facts, and the receipt that follows has the stored bytes."""
    epochs, stored = archived(seed)
    for before, epoch in zip([None, *epochs], epochs, strict=False):
        facts = facts_from_archive(body_of(epoch), stored.get)
        again = recompute(body_of(epoch), stored.get, before.receipt if before is not None else None)

        assert (facts.catalog, facts.authority, facts.loads) == (
            epoch.facts.catalog,
            epoch.facts.authority,
            epoch.facts.loads,
        )
        assert rows_of(reproject(facts, None)) == rows_of(epoch)
        assert again.encoded == epoch.receipt.encoded


def rich() -> Facts:
    """Facts that use every field of every value."""
    tools = [
        Tool("log", effect="read", idempotent=True, annotations={"title": "x"}, schema={"minimum": 0.5}, needs=["web"]),
        Tool("run", reaches="tool", loads=True, wire_name="Run", description="\u00e9\U0001f600"),
    ]
    rival = Group("git", [Tool("log", description="another")], server="s2")
    grants = (
        allow("git/*", pin=[("git/log", "b3:1"), ("git/run", "b3:2")], id="a"),
        Grant("*", "ask", lifetime="until", until="job", token=3, giver="ann", expires=12),  # type: ignore[arg-type]
        Grant("git/run", "allow", FIRST_SIGHT, lifetime=Lifetime.SESSION),  # type: ignore[arg-type]
    )
    sources = (Source("config", grants, revision=4), Source("lost", (), "stale"))
    grandparent = Authority(Pool(sources, grants), (Ceiling("trust", (), "ask"),))
    parent = Authority(Pool((), (), ("*",)), (Ceiling("org", grants, revision=1),), grandparent)
    return Facts(
        Catalog.of([Group("git", tools, server="s1"), rival, Group("web", up=False), Group("empty", server="s3")]),
        Authority(Pool((), (), ("git/*",)), (), parent),
        (Load(0, LoadKind.LOAD, ("git/*",), "e1", "c1", {"git/log": "b3:1"}), Load(1, LoadKind.REMOVAL, ("*",))),
        ("e1",),
        (0,),
        opaque=(("m1", "other/a/m/"),),
        cause=Cause.CHILD,
        session="child",
        ledger="l",
        boundary=Boundary("e1", 2, "e9"),
        used={"calls": 1, "cost": 2},
        audit="intact-unanchored",
        damage=("tail", "hole"),
        fork={"session": "s", "at": None, "sequence": 3, "digest": "b3:0"},
    )


def test_every_field_is_read_back() -> None:
    """Servers, rivals, pins, lifetimes, revisions, ancestors, boundary and fork included."""
    epoch = reproject(rich(), None)
    facts = facts_from_archive(body_of(epoch), epoch.blobs.get)

    assert facts == evolve(epoch.facts, profile=facts.profile)
    assert facts.profile == epoch.facts.profile
    assert [getattr(facts, name) for name in sorted(COPIED)] == [getattr(epoch.facts, name) for name in sorted(COPIED)]
    assert facts.catalog.groups["git"].rivals == epoch.facts.catalog.groups["git"].rivals
    assert [g.up for g in facts.catalog.groups.values()] == [True, True, False]
    assert recompute(body_of(epoch), epoch.blobs.get, None) == epoch.receipt


@given(SEEDS, st.randoms(use_true_random=False))
def test_every_changed_blob_is_found(seed: int, rng: random.Random) -> None:
    """A byte changed in, or cut from, any blob that a receipt names, or the blob missing: an error that names it."""
    epochs, stored = archived(seed, 2)
    body = body_of(epochs[-1])
    listed = orjson.loads(stored[dict(body["state"])["catalog"]])
    digest = rng.choice([*dict(body["state"]).values(), *dict(listed).values()])
    value = stored[digest]
    place = rng.randrange(len(value))
    other = bytes([value[place] ^ 1 << rng.randrange(8)])
    changes: list[bytes | None] = [None, value[:place], value[:place] + other + value[place + 1 :], value + b" "]
    for changed in changes:
        blobs = {**stored, digest: changed}
        with pytest.raises(MalformedError) as raised:
            recompute(body, blobs.get, None)
        assert raised.value.expected == digest
        assert raised.value.got == ("nothing" if changed is None else "other bytes")


@pytest.mark.parametrize("field", sorted(reproject(rich(), None).receipt.body))
def test_every_changed_field_of_a_receipt_is_found(field: str) -> None:
    """What follows from the facts is contradicted by them; any change at all has another digest."""
    epoch = reproject(rich(), None)
    body = {**body_of(epoch), field: {"epoch": 7, "format": 2}.get(field, "changed")}
    forged = Receipt.of(body, {}, ())

    assert forged.digest != epoch.receipt.digest
    if field in COPIED - {"audit", "ledger", "session"} | {"state"}:
        with pytest.raises(MalformedError, match=r"^receipt"):
            recompute(body, epoch.blobs.get, None)
    else:
        again = recompute(body, epoch.blobs.get, None)
        assert (again.encoded == forged.encoded) is (field in COPIED)


@pytest.mark.parametrize("field", sorted(COPIED | {"state"}))
def test_a_receipt_without_a_field_is_none(field: str) -> None:
    """Nothing has a default."""
    epoch = reproject(rich(), None)
    body = body_of(epoch)
    del body[field]

    with pytest.raises(MalformedError, match=r"^receipt: "):
        facts_from_archive(body, epoch.blobs.get)


def repack(body: dict[str, Any], blobs: dict[str, bytes], part: str, value: Any) -> dict[str, Any]:
    """A body whose ``part`` is ``value``, put under its right digest."""
    encoded = value if isinstance(value, bytes) else canonical(value)
    digest = fingerprint(Domain.BLOB, encoded)
    blobs[digest] = encoded
    return {**body, "state": sorted([*([n, d] for n, d in body["state"] if n != part), [part, digest]])}


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("authority", {}),
        ("authority", []),
        ("authority", b"null"),
        ("loads", [{"sequence": 0}]),
        ("loads", {"0": 1}),
        ("loads", b"[ ]"),
        ("loads", b"not json"),
        ("opaque", [["a", "b", "c"]]),
        ("opaque", ["ab"]),
        ("path", "abc"),
        ("path", [1]),
        ("path", b'["a", "b"]'),
        ("retained", [True]),
        ("retained", ["1"]),
        ("retained", [1.5]),
        ("retained", b"[18446744073709551616]"),
        ("profile", {"limit": 3}),
        ("catalog", [["git", "b3:0"]]),
        ("catalog", "git"),
        ("catalog", b"["),
        ("resources", ["nowhere"]),
        ("resources", ["web", "web"]),
        ("resources", [1]),
    ],
)
def test_a_component_of_another_form_is_refused(part: str, value: Any) -> None:
    """Also under its right digest: never coerced, never skipped."""
    epoch = reproject(rich(), None)
    blobs = dict(epoch.blobs)

    with pytest.raises(MalformedError):
        recompute(repack(body_of(epoch), blobs, part, value), blobs.get, None)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("granted", 0, "effect"), "maybe"),
        (("granted", 0, "on"), "git"),
        (("granted", 0, "pin"), [["git/log"]]),
        (("granted", 0, "pin"), "second-sight"),
        (("granted", 0, "more"), 1),
        (("granted", 1, "expires"), "12"),
        (("granted", 1, "token"), True),
        (("sources", 0, "state"), "fine"),
        (("sources", 0, "revision"), "4"),
        (("sources", 0, "rules"), {}),
        (("sources", 1, "name"), "config"),
        (("ceilings", 0, "effect"), "none"),
        (("launch",), "false"),
        (("want",), "*"),
        (("want",), ["b", "a"]),
        (("parent",), "dead"),
        (("parent",), 1),
    ],
)
def test_authority_of_another_form_is_refused(where: tuple[Any, ...], value: Any) -> None:
    """Anywhere in it."""
    epoch = reproject(rich(), None)
    parent = epoch.facts.authority.parent
    assert isinstance(parent, Authority)
    assert isinstance(parent.parent, Authority)
    stated = parent.parent.to_json()
    assert decode_part("authority", canonical(stated)) == parent.parent
    *way, last = where
    inner = stated
    for step in way:
        inner = inner[step]
    inner[last] = value

    with pytest.raises(MalformedError, match=r"^archived authority: "):
        decode_part("authority", canonical(stated))


@pytest.mark.parametrize("parent", [None, "missing", "ended"])
def test_words_for_a_parent(parent: Any) -> None:
    """None, missing and ended are read back as they are."""
    authority = Authority(Pool(want=("*",)), (), parent)

    assert decode_part("authority", canonical(authority.to_json())) == authority


def test_groups_are_read_strictly() -> None:
    """Another order, a server twice, a field too many or of another type: refused, though it would read."""
    group = reproject(rich(), None).facts.catalog.groups["git"]
    encoded = encode_group(group)
    assert decode_group(encoded) == group
    id_, servers = orjson.loads(encoded)
    tool = servers[0][1][0]
    wrong: list[Any] = [
        [id_, servers[::-1]],
        [id_, [*servers, servers[0]]],
        [id_, [["s1", [*servers[0][1]][::-1]]]],
        [id_, [["s1", [{**tool, "more": 1}]]]],
        [id_, [["s1", [{**tool, "effect": "none"}]]]],
        [id_, [["s1", [{**tool, "idempotent": 1}]]]],
        [id_, [["s1", [{**tool, "needs": "web"}]]]],
        [id_, [["s1", []]]],
        [id_],
        ["a/b", []],
        {},
    ]
    for value in wrong:
        with pytest.raises(MalformedError, match=r"^archived group"):
            decode_group(canonical(value))
    with pytest.raises(MalformedError, match=r"^archived group"):
        decode_group(encoded + b" ")


def test_a_group_under_another_name_is_refused() -> None:
    """The catalog's list and the group's own id must agree, and the list is in order."""
    epoch = reproject(rich(), None)
    blobs = dict(epoch.blobs)
    pairs = orjson.loads(blobs[epoch.state["catalog"]])

    digests = [digest for _, digest in pairs]
    moved = [[id_, digest] for (id_, _), digest in zip(pairs, digests[1:] + digests[:1], strict=True)]
    for wrong in (moved, pairs[::-1], [pairs[0], *pairs]):
        with pytest.raises(MalformedError, match=r"^archived catalog: "):
            facts_from_archive(repack(body_of(epoch), blobs, "catalog", wrong), blobs.get)


@pytest.mark.parametrize("state", [[], [["catalog", "b3:0"]], "state", [["more", "b3:0"]]])
def test_a_state_without_its_components_is_refused(state: Any) -> None:
    """Each must be there, and no other."""
    epoch = reproject(rich(), None)

    with pytest.raises(MalformedError):
        facts_from_archive({**body_of(epoch), "state": state}, epoch.blobs.get)
    with pytest.raises(MalformedError):
        facts_from_archive({**body_of(epoch), "state": [*body_of(epoch)["state"], ["more", "b3:0"]]}, epoch.blobs.get)


@pytest.mark.parametrize("chars", ["x](a+)+[y", "^a", "", "a--b", "\\", "z-a"])
def test_a_profile_cannot_smuggle_a_pattern(chars: str) -> None:
    """Characters that would end their set, and then match without end, are no characters."""
    epoch = reproject(rich(), None)
    profile = orjson.loads(epoch.blobs[epoch.state["profile"]])

    with pytest.raises(MalformedError, match=r"^archived profile: "):
        decode_part("profile", canonical({**profile, "chars": chars}))


def test_endless_families_are_refused() -> None:
    """Ancestors nested beyond what Python can follow end in our error."""
    leaf = canonical(OPEN.to_json())
    deep = leaf
    head, tail = leaf.split(b'"parent":null')
    for _ in range(3000):
        deep = head + b'"parent":' + deep + tail

    with pytest.raises(MalformedError):
        decode_part("authority", deep)


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def dumped(value: Any) -> bytes:
    """JSON where there is one."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return b"{}"


@given(st.binary(max_size=200) | JSON.map(dumped), st.sampled_from(sorted(PARTS)))
def test_hostile_bytes_give_our_error_or_a_value_with_these_bytes(encoded: bytes, part: str) -> None:
    """For each component, a group and a receipt."""
    readers: list[tuple[Callable[[], Any], Callable[[Any], bytes]]] = [
        (lambda: decode_part(part, encoded), lambda value: canonical(PARTS[part](value))),
        (lambda: decode_group(encoded), encode_group),
        (lambda: Receipt.from_bytes(encoded, nothing), lambda receipt: receipt.encoded),
    ]
    for decode, again in readers:
        try:
            value = decode()
        except MalformedError:
            continue
        assert again(value) == encoded


def test_numbers_that_no_receipt_can_hold_are_refused() -> None:
    """A body that was never stored, since it has no canonical form."""
    epoch = reproject(rich(), None)

    with pytest.raises(MalformedError, match=r"^receipt: expected JSON without"):
        recompute({**body_of(epoch), "used": {"calls": 2**60}}, epoch.blobs.get, None)


@given(JSON)
def test_hostile_bodies_give_our_error(body: Any) -> None:
    """A body of anything, with no blob behind it."""
    with pytest.raises(MalformedError):
        recompute(body if isinstance(body, dict) else {"state": body}, nothing, None)


def test_structure_names_the_place() -> None:
    """The error says where, what was expected and what was wrong."""
    with pytest.raises(MalformedError) as raised:
        structure({"on": "*"}, Grant, "entry 3")

    assert (raised.value.place, raised.value.expected) == ("entry 3", "Grant")
    assert "effect" in str(raised.value.got)
    assert structure({"on": "*", "effect": "allow", "id": "x"}, Grant, "entry 3") == allow("*", id="x")


def test_a_group_of_one_server_is_its_tools() -> None:
    """Archived as id, server and the canonical definitions, in order of name; without tools there is no server."""
    group = Group("git", [Tool("push"), Tool("log")], server="s")
    log, push = (d.tool.encoded.decode() for d in group.definitions.values())

    assert encode_group(group).decode() == f'["git",[["s",[{log},{push}]]]]'
    assert encode_group(Group("git", server="s")) == b'["git",[]]'
