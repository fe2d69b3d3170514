"""One entry: built, sealed, read back; and what is refused."""

from __future__ import annotations

import sys
from subprocess import run
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from capstate.digest import Domain, canonical, fingerprint
from capstate.errors import InvalidInputError, LedgerFormatError, MalformedError
from capstate.ledger import Head, Record, Stored, chain_entries, decode, torn
from tests.ledger.rows import KEY, honest

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(-9e15, 9e15) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


def row(content: object, sequence: int = 0) -> Stored:
    """Any JSON as a row with the right digest: what somebody without a key can always make."""
    return raw(canonical(content), sequence)


def raw(stored: bytes, sequence: int = 0) -> Stored:
    """Any bytes as a row with the right digest."""
    return Stored(sequence, stored, fingerprint(Domain.ENTRY, stored))


@given(st.dictionaries(TEXT, JSON, max_size=5), st.booleans())
def test_an_entry_is_read_back_as_it_was_built(body: dict[str, Any], posted: bool) -> None:
    """Decoding the stored row gives the entry that was built, with its seal valid under its key only."""
    (entry,) = chain_entries(
        "s", Head(4, "b3:x"), [Record("k", body)], at=3, token=0 if posted else 9, key=KEY, posted=posted
    )

    again = decode(Stored(entry.sequence, entry.stored, entry.digest, entry.seal), "s")

    assert entry == again
    assert (5, "b3:x", 3, "k", posted) == (again.sequence, again.previous, again.at, again.kind, again.posted)
    assert canonical(body) == canonical(again.body)
    assert again.sealed(KEY)
    assert not again.sealed(bytes(32))


def test_records_are_linked_and_numbered() -> None:
    """Each entry names the digest of the one before, the first of all names none."""
    entries = honest(count=5)

    assert [0, 1, 2, 3, 4] == [entry.sequence for entry in entries]
    assert [None, *(entry.digest for entry in entries[:-1])] == [entry.previous for entry in entries]


def test_an_entry_does_not_share_its_body_with_the_caller() -> None:
    """Changing the record's body afterwards changes no entry."""
    body = {"a": [1]}
    (entry,) = chain_entries("s", None, [Record("k", body)], at=1, token=1)

    body["a"].append(2)

    assert {"a": [1]} == entry.body


@pytest.mark.parametrize("where", ["chain", "sequence", "previous", "stored", "seal"])
def test_a_seal_binds_chain_place_link_and_bytes(where: str) -> None:
    """A seal is worth nothing for the same bytes elsewhere, nor after one of its parts changed."""
    entry = honest(key=KEY, count=3)[2]
    other: Any = {"chain": "t", "sequence": 3, "previous": "b3:0", "stored": entry.stored + b" ", "seal": "\ud800é"}

    assert entry.sealed(KEY)
    assert not evolve(entry, **{where: other[where]}).sealed(KEY)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"at": -1}, "at"), ({"at": True}, "at"), ({"at": 1.0}, "at"),
        ({"token": -1}, "token"), ({"token": 0}, "token"),
        ({"posted": True}, "token"), ({"key": b"short"}, "key"), ({"key": "x" * 32}, "key"),
        ({"records": [Record("", {})]}, "kind"), ({"records": [Record("k", [])]}, "body"),  # type: ignore[arg-type]
        ({"records": [Record("k", {"x": float("nan")})]}, "record 0"),
        ({"records": [Record("k", {"x": 2**53})]}, "record 0"),
        ({"records": [Record("k", {"x": 2.0**53})]}, "record 0"),
        ({"records": [Record("k", {"x": "\ud800"})]}, "record 0"),
        ({"records": [Record("k", {"x": object()})]}, "record 0"),
        ({"chain": ""}, "chain"), ({"chain": "\ud800"}, "chain"),
    ],
)  # fmt: skip
def test_what_is_no_entry_is_not_built(change: dict[str, Any], place: str) -> None:
    """Wrong kinds of values, bodies beyond I-JSON, posts with a token, appends without: the caller's error."""
    chain = change.pop("chain", "s")
    records = change.pop("records", [Record("k", {})])

    with pytest.raises(InvalidInputError) as caught:
        chain_entries(chain, None, records, **{"at": 1, "token": 1, **change})

    assert place in caught.value.place


GOOD: dict[str, Any] = {
    "at": 1, "body": {}, "chain": "s", "format": 1, "kind": "k", "posted": False, "previous": None,
    "sequence": 0, "token": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"at": "1"}, {"at": -1}, {"at": 1.5}, {"at": None}, {"body": []}, {"body": None}, {"chain": "t"}, {"chain": 1},
        {"format": "1"}, {"format": None}, {"format": True}, {"kind": ""}, {"kind": 1}, {"posted": 0}, {"posted": True},
        {"posted": None}, {"previous": ""}, {"previous": "b3:x"}, {"sequence": 1},
        {"sequence": True}, {"sequence": "0"},
        {"token": 0}, {"token": -1}, {"token": "1"}, {"token": False}, {"extra": 1},
    ],
)  # fmt: skip
def test_an_entry_with_a_wrong_field_is_malformed(change: dict[str, Any]) -> None:
    """Every field has its kind, none is coerced, none may be added; the base of these cases is a good entry."""
    decode(row(GOOD), "s")

    with pytest.raises(MalformedError):
        decode(row({**GOOD, **change}), "s")


@pytest.mark.parametrize("field", sorted(GOOD))
def test_an_entry_without_a_field_is_malformed(field: str) -> None:
    """No field is optional, the format version included."""
    with pytest.raises(MalformedError):
        decode(row({key: value for key, value in GOOD.items() if key != field}), "s")


@pytest.mark.parametrize("version", [0, 2, -1, 2**40])
def test_an_unknown_format_is_its_own_error(version: int) -> None:
    """An entry of another version is not damage: whoever wrote it knew what they did; nor is it a torn row."""
    other = row({**GOOD, "format": version, "more": 1})

    with pytest.raises(LedgerFormatError):
        decode(other, "s")
    assert not torn(other)


@pytest.mark.parametrize(
    "spelling",
    [
        lambda text: text.replace(",", ", ", 1), lambda text: text + "\n", lambda text: "\ufeff" + text,
        lambda text: text.replace('"at":1', '"at":1.0'), lambda text: text.replace('"at":1', '"at":1,"at":1'),
        lambda text: text.replace('"kind":"k"', '"kind":"\\u006b"'), lambda text: text[:-1] + ',"at":2}',
        lambda text: text.replace('{"at":1,"body":{},', '{"body":{},"at":1,'),
        lambda text: text.replace('"body":{}', '"body":{"x":-0.0}'),
        lambda text: text.replace('"body":{}', '"body":{"x":1e400}'),
        lambda text: text.replace('"body":{}', '"body":{"x":100000000000000000000000}'),
        lambda text: text.replace('"body":{}', '"body":{"x":' + "[" * 2000 + "]" * 2000 + "}"),
        lambda text: text.replace('"body":{}', '"body":{"x":"\\ud800"}'),
    ],
    ids=[
        "space", "newline", "mark", "fraction", "twice", "escape", "doubled", "order", "minus-zero", "infinite", "huge",
        "deep", "surrogate",
    ],
)  # fmt: skip
def test_another_spelling_of_the_same_entry_is_malformed(spelling: Any) -> None:
    """White space, order, duplicate keys, escapes, other numbers and deep nesting are refused although they parse."""
    text = canonical(GOOD).decode()
    assert text != spelling(text)

    with pytest.raises(MalformedError):
        decode(raw(spelling(text).encode()), "s")


def test_the_digest_is_looked_at_first() -> None:
    """Bytes under another digest are malformed, whatever they say, an unknown format included."""
    good = row({**GOOD, "format": 2})

    with pytest.raises(MalformedError):
        decode(evolve(good, digest=row(GOOD).digest), "s")


@settings(max_examples=400)
@given(
    st.binary(max_size=200)
    | JSON.map(canonical)
    | st.builds(lambda change: canonical({**GOOD, **change}), st.dictionaries(st.sampled_from(sorted(GOOD)), JSON)),
    st.integers(-1, 3),
)
def test_hostile_bytes_give_only_our_errors(stored: bytes, sequence: int) -> None:
    """Whatever the bytes, decode returns an entry with exactly these bytes or raises one of ours; torn never raises."""
    hostile = raw(stored, sequence)
    torn(hostile)
    try:
        entry = decode(hostile, "s")
    except (MalformedError, LedgerFormatError):
        pass
    else:
        assert (stored, sequence) == (entry.stored, entry.sequence)


def test_the_port_is_imported_without_sqlite() -> None:
    """``import capstate.ledger`` and the ledger in memory load no database and no file lock."""
    code = (
        "import sys; before = set(sys.modules)\n"  # what measures coverage may have loaded one already
        "import capstate.ledger, capstate.ledgers.memory\n"
        "print({'sqlite3', 'fcntl'} & (set(sys.modules) - before))"
    )

    assert "set()\n" == run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
