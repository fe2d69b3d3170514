"""Design B's record: what it holds, and that a tampered or stale one widens nothing once it is cut (AU-09)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from capstate.conformance.designs import BlindRecord, CutRecord
from capstate.conformance.hosts import Place
from capstate.conformance.world import PROFILES, TOOLS, Line, Mark, Settings, groups


@pytest.fixture
def place(tmp_path: Path) -> Place:
    settings = Settings(tmp_path / "settings.json")
    settings.write(allow=[f"{group}/*" for group in list(TOOLS)[:2]])
    return Place(tmp_path, settings)


def shown(host: Any) -> frozenset[str]:
    """Names on the wire of the next request, as the provider reads it."""
    profile = PROFILES["anthropic-plain"]
    effective: frozenset[str] = profile.adapter.on_wire(host.request(Line(), profile)).effective
    return effective


def test_the_record_holds_names_and_prints_and_no_schema_and_no_right(place: Place) -> None:
    """Capability names, a fingerprint of each, and where it came from."""
    first, second = list(TOOLS)[:2]
    host = CutRecord(place, "s")
    host.load(f"{second}/*", Mark("e1", "c1"))
    records = json.loads(place.file("s", "record").read_text(encoding="utf-8"))

    assert {frozenset(record) for record in records} == {frozenset({"cause", "source", "fingerprints", "tools"})}
    assert set(records[-1]["tools"]) == set(TOOLS[first]) | set(TOOLS[second])
    assert all(print_.startswith("b3:") for print_ in records[-1]["fingerprints"].values())
    text = json.dumps(records)
    assert not any(word in text for word in ("properties", "description", "allow", "grant"))
    assert all(d.tool.encoded.decode() not in text for g in groups() for d in g.definitions.values())


def tampered(records: list[Any]) -> None:
    for group in TOOLS:
        records[-1]["tools"].update({name: ["e1", "c1"] for name in TOOLS[group]})


def stale(records: list[Any]) -> None:
    records[-1] = {**records[-1], "tools": records[0]["tools"] | records[-1]["tools"]}


@pytest.mark.parametrize("change", [tampered, stale])
def test_a_record_that_says_more_widens_nothing_when_it_is_cut(place: Place, change: Any) -> None:
    """Replayed blindly it does: that is the difference between the two designs."""
    found = {}
    for kind in (BlindRecord, CutRecord):
        host = kind(place, kind.name)
        host.load(f"{list(TOOLS)[1]}/*", Mark("e1", "c1"))
        file = place.file(kind.name, "record")
        records = json.loads(file.read_text(encoding="utf-8"))
        change(records)
        file.write_text(json.dumps(records), encoding="utf-8")
        place.settings.write(allow=[f"{next(iter(TOOLS))}/*"])  # and the second group is no longer allowed
        host.boundary("compaction")
        found[kind.name] = shown(host)
        place.settings.write(allow=[f"{group}/*" for group in list(TOOLS)[:2]])
    allowed = frozenset(TOOLS[next(iter(TOOLS))])

    assert found["B"] == allowed
    assert found["B-blind"] > allowed
