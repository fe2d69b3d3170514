from __future__ import annotations

import json
import math
from typing import Any

import pytest
import rfc8785
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from capstate.digest import Domain, _plain, canonical, fingerprint, seal
from capstate.errors import InvalidInputError

SAFE = 2**53 - 1
SCALARS: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-SAFE, SAFE) | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12)


def framed(*parts: bytes) -> bytes:
    """What a stranger feeds to b3sum."""
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


@given(JSON)
def test_canonical_bytes_are_those_of_rfc_8785(value: Any) -> None:
    """The fast way and the careful way write the same bytes as the reference implementation."""
    assert canonical(value) == rfc8785.dumps(value)


@given(st.dictionaries(st.text(), SCALARS))
def test_canonical_bytes_do_not_depend_on_order(value: dict[str, Any]) -> None:
    """A dictionary filled the other way round has the same bytes."""
    assert canonical(value) == canonical(dict(reversed(value.items())))


@pytest.mark.parametrize(
    ("value", "fast"),
    [
        ("x", True),
        (None, True),
        (True, True),
        (SAFE, True),
        (-SAFE, True),
        (1.5, False),
        ([1, ("a", None)], True),
        ((1, [1.5]), False),
        ({"a": {"b": [1]}}, True),
        ({"a": {"b": [1.5]}}, False),
        ({1: 1}, False),
        ({"\ud7ff": 1}, True),
        ({"\ud800": 1}, False),
        ({"\ue000": 1}, False),
    ],
    ids=ascii,
)
def test_the_fast_way_is_taken_where_it_is_safe(value: object, fast: bool) -> None:
    """It is for values of which both writers make the same bytes; orjson itself refuses what is no I-JSON number."""
    assert bool(_plain(value)) is fast


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ({"b": 1, "a": [True, None, "x"]}, b'{"a":[true,null,"x"],"b":1}'),
        ((1, 2), b"[1,2]"),
        (1.0, b"1"),
        (1e21, b"1e+21"),
        (1e16, b"10000000000000000"),
        ([2e20], b"[200000000000000000000]"),
        (-0.0, b"0"),
        (SAFE, b"9007199254740991"),
        (-SAFE, b"-9007199254740991"),
        ({"\ufb33": 1, "\U0001f600": 2}, '{"\U0001f600":2,"\ufb33":1}'.encode()),  # UTF-16 order, not code points
        ("\u20ac\n\x0f", '"€\\n\\u000f"'.encode()),
    ],
)
def test_canonical_vectors(value: object, written: bytes) -> None:
    """Numbers, order of keys and escapes as RFC 8785 sections 3.2.2 and 3.2.3 have them."""
    assert canonical(value) == written
    assert json.loads(written) == json.loads(json.dumps(value))


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, -math.inf, SAFE + 1, -SAFE - 1, 2**200, "\ud800", {"\udfff": 1}, {1: 2}, b"x", {1}, ...],
    ids=ascii,
)
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: {"k": [v]}], ids=["bare", "list", "dict"])
def test_what_is_not_i_json_is_refused_with_its_place(value: object, wrap: Any) -> None:
    """At any depth, with our error, never written in some form."""
    with pytest.raises(InvalidInputError, match=r"^tool 'x'\.schema: expected JSON without") as raised:
        canonical(wrap(value), place="tool 'x'.schema")
    assert raised.value.expected == "JSON without NaN, huge integers or lone surrogates"
    assert raised.value.__cause__ is not None


def test_the_place_is_value_unless_said() -> None:
    """A bare call names something too."""
    with pytest.raises(InvalidInputError) as raised:
        canonical(math.nan)
    assert raised.value.place == "value"


def test_endless_nesting_is_refused() -> None:
    """A list in itself ends in our error, not in a crash."""
    loop: list[object] = []
    loop.append(loop)

    with pytest.raises(InvalidInputError):
        canonical(loop)


def test_a_stranger_computes_the_same_fingerprint() -> None:
    """BLAKE3 ``derive_key`` over length-prefixed parts, in hexadecimal after its name."""
    expected = blake3(framed(b"ab", b"", b"c"), derive_key_context="capstate 2026-11-30 tool definition v1").hexdigest()

    assert fingerprint(Domain.TOOL, b"ab", b"", b"c") == f"b3:{expected}"
    assert len(expected) == 64


def test_borders_of_parts_are_part_of_a_fingerprint() -> None:
    """No two different lists of parts share one, and neither do two domains."""
    lists = [(), (b"",), (b"abc",), (b"ab", b"c"), (b"a", b"bc"), (b"abc", b""), (b"", b"abc")]
    made = {fingerprint(domain, *parts) for domain in Domain for parts in lists}

    assert len(made) == len(Domain) * len(lists)


def test_domains_are_constants() -> None:
    """Each has its own text, and a change of one would orphan every stored fingerprint."""
    assert {domain.name: domain.value for domain in Domain} == {
        name: f"capstate 2026-11-30 {words} v1"
        for name, words in {
            "TOOL": "tool definition",
            "GROUP": "capability group",
            "RULES": "rules",
            "RULE": "rule",
            "ROWS": "group rows",
            "SURFACE": "surface",
            "WIRE": "wire",
            "FACTS": "facts",
            "RECEIPT": "receipt",
            "ENTRY": "ledger entry",
            "SEAL": "ledger seal",
            "BLOB": "blob",
            "ARGUMENTS": "call arguments",
            "NAME": "wire name",
            "CURSOR": "chain cursor",
            "EVIDENCE": "evidence",
        }.items()
    }


def test_a_seal_is_a_keyed_digest_under_a_derived_key() -> None:
    """Same framing as a fingerprint, and another key gives another seal."""
    key = bytes(range(32))
    derived = blake3(key, derive_key_context=Domain.SEAL.value).digest()

    assert seal(key, b"a", b"bc") == "b3k:" + blake3(framed(b"a", b"bc"), key=derived).hexdigest()
    assert seal(key, b"a") != seal(bytes(32), b"a")
    assert seal(key, b"ab", b"c") != seal(key, b"a", b"bc")
