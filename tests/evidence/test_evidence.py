"""Evidence: what is put is what is got, or the answer says why not; nothing of other tenants; no secrets."""

from __future__ import annotations

import importlib.util
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from capstate.errors import (
    EvidenceAbsentError,
    EvidenceError,
    EvidenceExpiredError,
    EvidenceKeyError,
    EvidenceTamperedError,
    EvidenceUnavailableError,
    InvalidInputError,
)
from capstate.evidence import (
    AesGcm,
    Answer,
    DirectoryStore,
    Keeper,
    MemoryStore,
    Store,
    redact_fields,
    redact_matches,
)

KEY = bytes(range(32))
CANARY = b"canary-4d1f"
LATER = 9_000


INSTALLED = importlib.util.find_spec("cryptography") is not None
encrypts = pytest.mark.skipif(not INSTALLED, reason="the extra sign is not installed")


def no_cipher() -> None:
    return None


ENCRYPTED = pytest.param(lambda: AesGcm(KEY), marks=encrypts)


@pytest.fixture(params=["memory", "directory", pytest.param("encrypted", marks=encrypts)])
def keeper(request: pytest.FixtureRequest, tmp_path: Path) -> Keeper:
    if request.param == "memory":
        return Keeper(MemoryStore(), tenant="acme")
    cipher = AesGcm(KEY) if request.param == "encrypted" else None
    return Keeper(DirectoryStore(tmp_path / "kept"), tenant="acme", cipher=cipher)


def records(store: Store, shelf: str) -> Iterator[tuple[str, bytes]]:
    for name in store.names(shelf):
        found = store.read(shelf, name)
        assert found is not None
        yield name, found


# -- put and get


def test_what_was_put_is_got(keeper: Keeper) -> None:
    """Byte for byte, by id; again the same is the same artefact, in one record."""
    first = keeper.put(b"raw \x00 result", now=1, media="text/plain")

    assert keeper.get(first.id, now=2) == b"raw \x00 result"
    assert (first.size, first.media, first.until) == (12, "text/plain", None)
    assert keeper.put(b"raw \x00 result", now=7, media="text/plain") == first
    assert keeper._store.names(keeper._shelf) == [first.id[3:]]
    assert keeper.resolves(first.id, now=LATER)


def test_the_id_covers_everything() -> None:
    """Bytes, media type, time and tenant: another of one is another artefact."""
    store = MemoryStore()
    made = [
        Keeper(store, tenant="acme").put(b"a", now=1),
        Keeper(store, tenant="acme").put(b"b", now=1),
        Keeper(store, tenant="acme").put(b"a", now=1, media="text/plain"),
        Keeper(store, tenant="acme").put(b"a", now=1, until=2),
        Keeper(store, tenant="other").put(b"a", now=1),
    ]

    assert len({one.id for one in made}) == len(made)


@given(st.binary(max_size=200), st.binary(max_size=200), st.booleans())
def test_any_bytes_come_back(one: bytes, other: bytes, encrypted: bool) -> None:
    """Also those that look like a head."""
    keeper = Keeper(MemoryStore(), tenant="acme", cipher=AesGcm(KEY) if encrypted and INSTALLED else None)
    first, second = keeper.put(one, now=1), keeper.put(other + b"\n{}", now=1)

    assert (keeper.get(first.id, now=1), keeper.get(second.id, now=1)) == (one, other + b"\n{}")


def test_a_value_that_the_summary_lacks_is_looked_up(keeper: Keeper) -> None:
    """The summary is navigation; what was asked for exactly stands in the raw output, under its id (EV-03)."""
    raw = json.dumps({"p99_ms": 1841, "rows": [{"id": n} for n in range(50)]}).encode()
    kept = keeper.put(raw, now=1, media="application/json")
    summary = f"Latency is high [{kept.id}]."

    assert "1841" not in summary
    assert json.loads(keeper.get(summary.partition("[")[2].partition("]")[0], now=2))["p99_ms"] == 1841


class Lossy(MemoryStore):
    """A store that keeps something else."""

    def write(self, shelf: str, name: str, value: bytes) -> None:
        super().write(shelf, name, value[:-1] + b"?")


class Forgetful(MemoryStore):
    def write(self, shelf: str, _: str, value: bytes) -> None:
        super().write(shelf, "00", value)


@pytest.mark.parametrize("kind", [Lossy, Forgetful])
@pytest.mark.parametrize("cipher", [no_cipher, ENCRYPTED], ids=["plain", "encrypted"])
def test_what_cannot_be_read_back_was_not_put(kind: type[MemoryStore], cipher: Callable[[], AesGcm | None]) -> None:
    """No id is given out, and nothing is left under it: what would cite it is never committed (EV-01)."""
    store = kind()
    keeper = Keeper(store, tenant="acme", cipher=cipher())
    with pytest.raises(EvidenceTamperedError, match="nothing is kept"):
        keeper.put(b"raw", now=1)

    assert [name for name in store.names(keeper._shelf) if name != "00"] == []


# -- look-ups that fail


def test_each_answer_has_its_error(keeper: Keeper) -> None:
    """Present, expired, absent, tampered; and each by its own kind."""
    kept, short = keeper.put(b"a", now=1), keeper.put(b"b", now=1, until=5)
    absent = kept.id[:-1] + ("0" if kept.id[-1] != "0" else "1")
    assert [keeper.answer(id_, now=5) for id_ in (kept.id, short.id, absent)] == ["present", "expired", "absent"]
    keeper._store.write(keeper._shelf, kept.id[3:], b"{}\nx")
    assert keeper.answer(kept.id, now=5) is Answer.TAMPERED
    for id_, kind in (
        (short.id, EvidenceExpiredError),
        (absent, EvidenceAbsentError),
        (kept.id, EvidenceTamperedError),
    ):
        with pytest.raises(kind) as error:
            keeper.get(id_, now=5)
        assert error.value.id == id_
        assert not keeper.resolves(id_, now=5)


@pytest.mark.parametrize(
    "id_", ["", "ev:", "ev:../../../etc/passwd", "b3:" + "0" * 64, "ev:" + "Z" * 64, "\ud800", "a" * 9999]
)
def test_an_id_that_is_none_is_absent(keeper: Keeper, id_: str) -> None:
    """Whoever asks learns nothing from its form; and no file is asked for by it."""
    assert keeper.answer(id_, now=1) is Answer.ABSENT
    str(EvidenceAbsentError(id_)).encode()


@pytest.mark.parametrize("cipher", [no_cipher, ENCRYPTED], ids=["plain", "encrypted"])
def test_every_changed_byte_is_found(cipher: Callable[[], AesGcm | None]) -> None:
    """Each bit of a record, a byte less, a byte more: tampered, or at most a key that nobody has; never other bytes."""
    store = MemoryStore()
    keeper = Keeper(store, tenant="acme", cipher=cipher())
    kept = keeper.put(b"raw result", now=1, until=LATER)
    [(name, good)] = records(store, keeper._shelf)
    changed = [good[:-1], good + b"x", b"", good[1:], good.partition(b"\n")[0] + b"\nx", good.replace(b"\n", b"", 1)]
    changed += [good[:n] + bytes([byte ^ 1 << bit]) + good[n + 1 :] for n, byte in enumerate(good) for bit in range(8)]
    for wrong in changed:
        store.write(keeper._shelf, name, wrong)
        assert keeper.answer(kept.id, now=2) in (Answer.TAMPERED, Answer.WRONG_KEY), wrong


def test_a_record_of_another_id_is_found(keeper: Keeper) -> None:
    """A whole, honest record in another's place, and the longer life of another."""
    one, two = keeper.put(b"a", now=1, until=5), keeper.put(b"a", now=1, until=LATER)
    longer = keeper._store.read(keeper._shelf, two.id[3:])
    assert longer is not None
    keeper._store.write(keeper._shelf, one.id[3:], longer)

    assert keeper.answer(one.id, now=2) is Answer.TAMPERED


@given(st.binary(max_size=80))
def test_any_record_is_an_answer(record: bytes) -> None:
    """Whatever is stored, nothing but ours is raised."""
    store = MemoryStore()
    keeper = Keeper(store, tenant="acme")
    kept = keeper.put(b"a", now=1)
    store.write(keeper._shelf, kept.id[3:], record)

    assert keeper.answer(kept.id, now=1) is Answer.TAMPERED
    assert keeper.sweep(now=LATER) == ()


HEADS: list[dict[str, Any]] = [
    {"format": 2}, {"format": True}, {"removed": 1}, {"media": 5}, {"until": 1.5}, {"until": True}, {"digest": None},
    {"id": "ev:" + "0" * 64}, {"more": 1}, {"removed": True}, {"until": 99_999},
]  # fmt: skip


@pytest.mark.parametrize("change", HEADS, ids=[f"{n} {next(iter(head))}" for n, head in enumerate(HEADS)])
def test_a_head_of_another_kind_is_found(change: dict[str, Any]) -> None:
    """Each field of it; also a stone on what is not over."""
    store = MemoryStore()
    keeper = Keeper(store, tenant="acme")
    kept = keeper.put(b"a", now=1, until=LATER)
    [(name, record)] = records(store, keeper._shelf)
    line, _, rest = record.partition(b"\n")
    head = json.dumps({**json.loads(line), **change}, sort_keys=True, separators=(",", ":")).encode()
    store.write(keeper._shelf, name, head + b"\n" + rest)

    assert keeper.answer(kept.id, now=2) is Answer.TAMPERED


# -- tenants


def test_another_tenants_id_is_absent(keeper: Keeper) -> None:
    """By the same error with the same text as what never was; also at its expiry, and when it is swept (EV-06)."""
    other = Keeper(keeper._store, tenant="other", cipher=keeper._cipher)
    theirs = other.put(b"their secret", now=1, until=5)
    never = "ev:" + "0" * 64
    for now in (2, LATER):
        with pytest.raises(EvidenceAbsentError) as real:
            keeper.get(theirs.id, now=now)
        with pytest.raises(EvidenceAbsentError) as nothing:
            keeper.get(never, now=now)
        assert type(real.value) is type(nothing.value)
        assert str(real.value).replace(theirs.id, never) == str(nothing.value)
    assert keeper.sweep(now=LATER) == ()
    assert other.get(theirs.id, now=2) == b"their secret"


@frozen
class Act:
    tenant: str
    value: bytes


@given(st.lists(st.builds(Act, st.sampled_from("abc"), st.sampled_from([b"x", b"y"])), max_size=12))
def test_no_interleaving_of_tenants_shows_one_to_another(acts: list[Act]) -> None:
    """Each sees what it put, and nothing else."""
    store = MemoryStore()
    keepers = {name: Keeper(store, tenant=name) for name in "abc"}
    made = [(act.tenant, keepers[act.tenant].put(act.value, now=1).id) for act in acts]
    for tenant, id_ in made:
        for name, keeper in keepers.items():
            assert keeper.resolves(id_, now=1) is (name == tenant)


def test_a_record_moved_to_another_tenant_is_tampered(keeper: Keeper) -> None:
    """Whoever can write the store gains nothing by it."""
    other = Keeper(keeper._store, tenant="other", cipher=keeper._cipher)
    theirs = other.put(b"their secret", now=1)
    record = keeper._store.read(other._shelf, theirs.id[3:])
    assert record is not None
    keeper._store.write(keeper._shelf, theirs.id[3:], record)

    assert keeper.answer(theirs.id, now=1) is Answer.TAMPERED


# -- time


def test_what_is_over_is_expired_before_and_after_it_is_swept(keeper: Keeper) -> None:
    """To the millisecond; the bytes are gone, a stone is left, and nothing is ever made up (EV-08)."""
    short, long = keeper.put(CANARY, now=1, until=5), keeper.put(b"long", now=1, until=6)
    assert keeper.get(short.id, now=4) == CANARY
    assert keeper.answer(short.id, now=5) is Answer.EXPIRED
    assert keeper.sweep(now=4) == ()
    assert keeper.sweep(now=5) == (short.id,)
    assert keeper.sweep(now=5) == (short.id,)

    assert keeper.answer(short.id, now=5) is Answer.EXPIRED
    assert keeper.get(long.id, now=5) == b"long"
    assert not any(CANARY in record for _, record in records(keeper._store, keeper._shelf))


def test_a_clock_that_is_set_back_brings_nothing_back(keeper: Keeper) -> None:
    """What was removed is gone: it is not reconstructed, and not absent either."""
    short = keeper.put(b"a", now=1, until=5)
    keeper.sweep(now=5)

    assert keeper.answer(short.id, now=2) is Answer.TAMPERED


def test_who_puts_it_again_has_it_again(keeper: Keeper) -> None:
    """With a new time."""
    keeper.put(b"a", now=1, until=5)
    keeper.sweep(now=5)
    again = keeper.put(b"a", now=5, until=9)

    assert keeper.get(again.id, now=6) == b"a"


# -- what must not be kept


def test_fields_are_redacted_at_any_depth(tmp_path: Path) -> None:
    """In JSON alone; the canary never reaches the disk (EV-05)."""
    store = DirectoryStore(tmp_path / "kept")
    keeper = Keeper(store, tenant="acme", redact=redact_fields("password", "token"))
    body = {"user": "ann", "password": CANARY.decode(), "more": [{"token": {"a": CANARY.decode()}}, 1]}
    kept = keeper.put(json.dumps(body).encode(), now=1, media="application/problem+json; charset=utf-8")
    plain = keeper.put(b'{"password": 1}', now=1, media="text/plain")

    assert json.loads(keeper.get(kept.id, now=1)) == {
        "user": "ann", "password": "[redacted]", "more": [{"token": "[redacted]"}, 1],
    }  # fmt: skip
    assert keeper.get(plain.id, now=1) == b'{"password": 1}'
    assert all(CANARY not in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


def test_matches_are_redacted_in_any_bytes() -> None:
    """What a pattern matches, and nothing else; JSON without such a field stays as it was, to the byte."""
    keeper = Keeper(MemoryStore(), tenant="acme", redact=redact_matches(r"sk-[a-z0-9]+", r"\d{16}"))
    kept = keeper.put(b"key sk-abc123, card 4111111111111111.", now=1)
    same = Keeper(MemoryStore(), tenant="acme", redact=redact_fields("x")).put(
        b'{ "a":1 }', now=1, media="application/json"
    )

    assert keeper.get(kept.id, now=1) == b"key [redacted], card [redacted]."
    assert same.size == 9


@pytest.mark.parametrize(
    ("redact", "error"),
    [
        (redact_fields("a"), InvalidInputError),
        (lambda _, __: 1 / 0, ZeroDivisionError),
        (lambda _, __: "text", InvalidInputError),
        (lambda _, __: None, InvalidInputError),
    ],
    ids=["not JSON", "raises", "text", "nothing"],
)
def test_a_redaction_that_fails_leaves_nothing(redact: Any, error: type[Exception], tmp_path: Path) -> None:
    """Not even half of it."""
    keeper = Keeper(DirectoryStore(tmp_path / "kept"), tenant="acme", redact=redact)
    with pytest.raises(error):
        keeper.put(b"{" + CANARY, now=1, media="application/json")

    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


# -- encryption


@encrypts
def test_encrypted_bytes_are_not_on_the_disk(tmp_path: Path) -> None:
    """Nor the tenant's name; and never twice the same bytes (EV-07)."""
    keeper = Keeper(DirectoryStore(tmp_path / "kept"), tenant="acme-tenant", cipher=AesGcm(KEY))
    kept = keeper.put(CANARY * 3, now=1)
    [file] = [file for file in tmp_path.rglob("*") if file.is_file()]
    before = file.read_bytes()
    keeper.put(CANARY * 3, now=1)

    assert CANARY not in before
    assert before != file.read_bytes()
    assert keeper.get(kept.id, now=1) == CANARY * 3
    assert all("acme" not in str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert b"acme" not in before


@encrypts
def test_another_key_is_said() -> None:
    """A typed error for another key and for none; what is not encrypted is read with one as well."""
    store = MemoryStore()
    kept = Keeper(store, tenant="acme", cipher=AesGcm(KEY)).put(b"a", now=1)
    plain = Keeper(store, tenant="acme").put(b"b", now=1)
    for keeper in (Keeper(store, tenant="acme"), Keeper(store, tenant="acme", cipher=AesGcm(KEY[::-1]))):
        with pytest.raises(EvidenceKeyError):
            keeper.get(kept.id, now=1)
        with pytest.raises(EvidenceKeyError):
            keeper.resolves(kept.id, now=1)
        assert keeper.get(plain.id, now=1) == b"b"


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(InvalidInputError, match=r"capstate\[sign\]"):
        AesGcm(KEY)


# -- stores


@pytest.fixture(params=[MemoryStore, DirectoryStore])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    made: Store = request.param() if request.param is MemoryStore else request.param(tmp_path / "kept")
    return made


def test_a_store_keeps_the_last_and_lists_in_order(store: Store) -> None:
    """Written twice it is the second; removed twice it is gone; another shelf is another place."""
    assert (store.read("aa", "1"), store.names("aa")) == (None, [])
    for name, value in (("2", b"x"), ("1", b"y"), ("2", b"z")):
        store.write("aa", name, value)
    assert (store.read("aa", "2"), store.read("bb", "2"), store.names("aa")) == (b"z", None, ["1", "2"])
    store.remove("aa", "2")
    store.remove("aa", "2")
    store.remove("cc", "2")

    assert (store.names("aa"), store.read("aa", "2")) == (["1"], None)


@pytest.mark.parametrize("name", ["", "..", "a/b", "/etc", ".x", "A", "x", "a" * 129, None, b"a"])
def test_no_name_leads_out_of_the_store(store: Store, name: Any) -> None:
    """Hexadecimal digits or nothing, for shelves and names."""
    acts: list[Callable[[], object]] = [
        lambda: store.write("aa", name, b""), lambda: store.read("aa", name), lambda: store.remove("aa", name),
        lambda: store.write(name, "aa", b""), lambda: store.read(name, "aa"), lambda: store.remove(name, "aa"),
        lambda: store.names(name),
    ]  # fmt: skip
    for act in acts:
        with pytest.raises(InvalidInputError):
            act()


def test_a_folder_is_private_and_holds_no_half_of_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For its owner alone; a write that fails leaves the old record, and one that was killed is not listed."""
    store = DirectoryStore(tmp_path / "kept")
    store.write("aa", "1", b"old")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "kept").rglob("*")}
    assert modes <= {0o600, 0o700}

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(EvidenceUnavailableError, match="No space"):
            store.write("aa", "1", b"new")
    assert store.read("aa", "1") == b"old"
    assert [file.name for file in (tmp_path / "kept" / "aa").iterdir()] == ["1"]
    (tmp_path / "kept" / "aa" / ".tmp").write_bytes(b"half")
    assert store.names("aa") == ["1"]


def test_a_store_that_is_gone_is_unavailable(tmp_path: Path) -> None:
    """Not absent: nobody can tell. A file in its place is none; nor a folder where a record should be."""
    path = tmp_path / "kept"
    keeper = Keeper(DirectoryStore(path), tenant="acme")
    kept = keeper.put(b"a", now=1)
    path.rename(tmp_path / "away")
    assert keeper.answer(kept.id, now=1) is Answer.UNAVAILABLE
    with pytest.raises(EvidenceUnavailableError):
        keeper.resolves(kept.id, now=1)
    path.write_bytes(b"")
    for act in (lambda: DirectoryStore(path), lambda: keeper.put(b"b", now=1), lambda: keeper.sweep(now=1)):
        with pytest.raises(EvidenceUnavailableError):
            act()
    with pytest.raises(EvidenceUnavailableError):
        keeper._store.remove(keeper._shelf, "aa")
    path.unlink()
    (path / keeper._shelf / "aa").mkdir(parents=True)
    with pytest.raises(EvidenceUnavailableError):
        keeper._store.read(keeper._shelf, "aa")


# -- wrong arguments


def kept_by(**more: Any) -> Callable[[], object]:
    return lambda: Keeper(MemoryStore(), tenant="acme").put(**{"value": b"a", "now": 1, **more})


WRONG: list[tuple[Callable[[], object], str]] = [
    (kept_by(value="text"), "evidence"), (kept_by(now=-1), "now"), (kept_by(now=1.5), "now"),
    (kept_by(until=1), "until"), (kept_by(until="x"), "until"), (kept_by(media="text"), "media"),
    (kept_by(media="a/b\n"), "media"), (kept_by(media=None), "media"),
    (lambda: Keeper(MemoryStore(), tenant=""), "tenant"), (lambda: Keeper(MemoryStore(), tenant="\ud800"), "tenant"),
    (lambda: Keeper(object(), tenant="a"), "store"),  # type: ignore[arg-type]
    (lambda: Keeper(MemoryStore(), tenant="a", redact="x"), "redact"),  # type: ignore[arg-type]
    (lambda: Keeper(MemoryStore(), tenant="a").sweep(now=True), "now"),
    (lambda: AesGcm(b"short"), "evidence key"), (lambda: AesGcm("x" * 32), "evidence key"),  # type: ignore[arg-type]
    (lambda: redact_fields(""), "field to redact"), (lambda: redact_matches("("), "pattern to redact"),
    (lambda: redact_matches("a*"), "pattern to redact"), (lambda: redact_matches(5), "pattern to redact"),  # type: ignore[arg-type]
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "place"), WRONG, ids=[f"{n} {place}" for n, (_, place) in enumerate(WRONG)])
def test_what_is_wrong_is_named(wrong: Callable[[], object], place: str) -> None:
    """One error that says where."""
    with pytest.raises(InvalidInputError) as error:
        wrong()

    assert error.value.place == place


def test_a_time_that_is_none_is_an_error_of_the_caller(keeper: Keeper) -> None:
    """Whether or not the artefact expires."""
    for kept in (keeper.put(b"a", now=1), keeper.put(b"b", now=1, until=5)):
        with pytest.raises(InvalidInputError):
            keeper.get(kept.id, now=-1)


def test_every_error_is_one_of_evidence() -> None:
    """One base to catch."""
    kinds = (
        EvidenceAbsentError("i"), EvidenceExpiredError("i"), EvidenceKeyError("i"), EvidenceTamperedError("i", "w"),
        EvidenceUnavailableError("w"),
    )  # fmt: skip
    assert all(issubclass(type(error), EvidenceError) for error in kinds)
    assert all(str(error).startswith("evidence ") for error in kinds)
