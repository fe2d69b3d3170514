from __future__ import annotations

import json
import os
import random
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capstate.agents.lines import Damage, decode, records
from capstate.agents.pi import boundary, broken_trace, events, read_session, recorded
from capstate.audit import audit_paths, project_session
from capstate.errors import InvalidInputError, MalformedError
from tests.agents.files import HEADER, POLICY, Story

GIT = ["git_log", "git_blame"]


def raw(folder: Path, *lines: str, end: str = "\n") -> Path:
    path = folder / "s.jsonl"
    path.write_text("\n".join([json.dumps(HEADER), *lines]) + end)
    return path


def entry(name: str, parent: str | None = None, **more: object) -> str:
    return json.dumps({"type": "custom", "id": name, "parentId": parent, **more}, separators=(",", ":"))


def kinds(path: Path) -> list[str]:
    return [d.kind.value for d in read_session(path).damage]


class TestLines:
    def test_a_torn_tail_is_reported_at_its_place(self, tmp_path: Path) -> None:
        """An incomplete last line is a row with line, offset and length; what stands before it is read."""
        whole, torn = entry("a"), entry("b", "a")[:20]
        session = read_session(raw(tmp_path, whole, torn, end=""))
        offset = len(json.dumps(HEADER)) + len(whole) + 2
        assert [d.to_json() for d in session.damage] == [
            {"kind": "torn_tail", "file": "s.jsonl", "line": 3, "offset": offset, "length": 20, "entry": None}
        ]
        assert session.leaf == "a"

    def test_a_whole_last_line_without_an_end_is_no_damage(self, tmp_path: Path) -> None:
        """A complete record needs no line break."""
        session = read_session(raw(tmp_path, entry("a"), end=""))
        assert (session.leaf, session.damage) == ("a", ())

    def test_a_glued_line_gives_what_is_whole(self, tmp_path: Path) -> None:
        """A record that was appended to a torn one is read, and the line reported."""
        session = read_session(raw(tmp_path, entry("a"), entry("b", "a")[:25] + entry("c", "a"), entry("d", "c")))
        assert [e.id for e in session.walk()] == ["a", "c", "d"]
        assert [(d.kind.value, d.line, d.entry) for d in session.damage] == [("glued", 3, "c")]

    def test_two_whole_records_on_a_line_are_both_read(self, tmp_path: Path) -> None:
        """Two complete records without a line break between them lose nothing."""
        session = read_session(raw(tmp_path, entry("a") + entry("b", "a"), entry("c", "b")))
        assert [e.id for e in session.walk()] == ["a", "b", "c"]
        assert kinds(session.path) == ["glued"]

    @pytest.mark.parametrize("cut", range(1, 70))
    def test_a_tear_at_any_place_loses_only_the_torn_record(self, tmp_path: Path, cut: int) -> None:
        """Wherever the torn record was cut, the one glued to it is read."""
        torn = entry("torn", "a", data={"n": [1, "x"], "o": {"type": "text"}})[:cut]
        session = read_session(raw(tmp_path, entry("a"), torn + entry("c", "a")))
        assert session.leaf == "c"
        assert kinds(session.path) == ["glued"]

    def test_an_entry_inside_a_text_is_no_record(self, tmp_path: Path) -> None:
        """A torn record whose text quotes a session line gives nothing."""
        torn = entry("b", "a", data=entry("fake", "a"))[:-3]
        session = read_session(raw(tmp_path, entry("a"), torn, end=""))
        assert set(session.entries) == {"a"}

    @pytest.mark.parametrize(
        ("line", "kind"),
        [
            ("nonsense", "not_json"),
            ("[1]", "not_object"),
            ('"text"', "not_object"),
            ("NaN", "not_json"),
            ("{}", "bad_entry"),
            ('{"type":"custom"}', "bad_entry"),
            ('{"type":1,"id":"b"}', "bad_entry"),
            ('{"type":"custom","id":7,"parentId":null}', "bad_entry"),
            ('{"type":"custom","id":"b","parentId":7}', "bad_entry"),
            ('{"type":"message","id":"b","parentId":null,"message":"x"}', "bad_entry"),
            ('{"type":"session","id":"again"}', "second_header"),
            (entry("a"), "duplicate_id"),
            (entry("b", "gone"), "broken_chain"),
            ("[" * 100_000, "not_json"),
            ('{"a":' * 100_000 + "1" + "}" * 100_000, "not_json"),
        ],
    )
    def test_each_kind_of_damage_has_its_name(self, tmp_path: Path, line: str, kind: str) -> None:
        """A line that is no entry is one row of its kind; the rest is read."""
        path = raw(tmp_path, entry("a"), line, entry("z", "a"))
        assert kinds(path) == [kind]
        assert read_session(path).walk()[-1].id == "z"

    def test_bytes_that_are_no_utf8(self, tmp_path: Path) -> None:
        """A line of other bytes is reported as such."""
        path = raw(tmp_path, entry("a"))
        path.write_bytes(path.read_bytes() + b'{"type":"\xff\xfe"}\n' + entry("b", "a").encode() + b"\n")
        assert kinds(path) == ["not_utf8"]

    def test_lone_surrogates_are_read(self, tmp_path: Path) -> None:
        """JavaScript cuts texts inside a character and writes half of it as an escape: that is no damage."""
        line = '{"type":"custom","id":"a","parentId":null,"data":"\\ud83d"}'
        assert kinds(raw(tmp_path, line)) == []
        assert decode(b'"\\ud83d"') == "�"

    def test_empty_lines_and_a_mark_of_byte_order_are_nothing(self, tmp_path: Path) -> None:
        """Blank lines, CRLF and a BOM do no harm."""
        path = tmp_path / "s.jsonl"
        path.write_bytes(
            b"\xef\xbb\xbf" + json.dumps(HEADER).encode() + b"\r\n\n  \r\n" + entry("a").encode() + b"\r\n"
        )
        assert (kinds(path), read_session(path).leaf) == ([], "a")

    def test_a_long_line_is_skipped_in_bounded_memory(self, tmp_path: Path) -> None:
        """A line over the limit costs no memory, is reported whole, and the next one is read."""
        path = tmp_path / "s.jsonl"
        with path.open("wb") as file:
            file.write(json.dumps(HEADER).encode() + b"\n")
            for _ in range(64):
                file.write(b"x" * (1 << 20))
            file.write(b"\n" + entry("a").encode() + b"\n")
        tracemalloc.start()
        session = read_session(path, limit=1 << 16)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert [(d.kind.value, d.line, d.length) for d in session.damage] == [("line_too_long", 2, (64 << 20) + 1)]
        assert session.leaf == "a"
        assert peak < 8 << 20


class TestChains:
    def test_a_broken_chain_ends_the_walk(self, tmp_path: Path) -> None:
        """What stands above a missing parent is out of reach, and loads there are none on the path."""
        story = Story()
        story.run("load", group="git", added=GIT)
        at = story.user("x", parent="gone")
        session = read_session(story.write(tmp_path))
        assert [e.id for e in session.walk()] == [at]
        assert [(d.kind.value, d.entry) for d in session.damage] == [("broken_chain", at)]
        assert project_session(session.path, POLICY)["loaded"] == ["load", "read"]

    def test_a_cycle_is_reported_once_and_does_not_hang(self, tmp_path: Path) -> None:
        """Entries that are their own ancestors end the walk."""
        path = raw(tmp_path, entry("a", "c"), entry("b", "a"), entry("c", "b"), entry("d", "d"))
        assert kinds(path) == ["cycle", "cycle"]
        assert len(read_session(path).walk("b")) == 3

    def test_a_lane_that_points_nowhere_is_damage(self, tmp_path: Path) -> None:
        """A leaf that the file does not hold is a broken chain."""
        path = raw(tmp_path, entry("a"), '{"kind":"lane","seq":9,"lane":"main","leafId":"gone"}')
        assert kinds(path) == ["broken_chain"]
        assert read_session(path).walk() == ()

    def test_many_compactions_in_a_deep_file_take_linear_time(self, tmp_path: Path) -> None:
        """Twenty thousand compactions, each with a pointer to the root, are checked without walking to it each time."""
        rows = [entry("e0")]
        for i in range(1, 20_000):
            row = {"type": "compaction", "id": f"e{i}", "parentId": f"e{i - 1}", "firstKeptEntryId": "e0"}
            rows.append(json.dumps(row))
        session = read_session(raw(tmp_path, *rows))
        assert session.damage == ()
        assert len(boundary(session.walk()).retained) == 20_000


class TestFiles:
    @pytest.mark.parametrize(
        "text", ["", "\n", "nonsense\n", "{}\n", '{"type":"message","id":"a"}\n', '{"type":"session","id":7}\n', "[]\n"]
    )
    def test_a_file_without_a_header_is_refused(self, tmp_path: Path, text: str) -> None:
        """The first record must be a header with an id."""
        path = tmp_path / "s.jsonl"
        path.write_text(text)
        with pytest.raises(MalformedError, match="header of a Pi session"):
            read_session(path)

    def test_links_pipes_and_folders_are_not_opened(self, tmp_path: Path) -> None:
        """A symbolic link is not followed and a pipe does not hang the reader."""
        real = raw(tmp_path, entry("a"))
        link, pipe = tmp_path / "link.jsonl", tmp_path / "pipe.jsonl"
        link.symlink_to(real)
        os.mkfifo(pipe)
        for path, got in ((link, "symbolic link"), (pipe, "no regular file"), (tmp_path, "a folder")):
            with pytest.raises(MalformedError, match=got):
                read_session(path)

    @pytest.mark.parametrize("name", ["missing.jsonl", "nul\0.jsonl", "x" * 300])
    def test_what_is_not_there_is_the_callers_mistake(self, tmp_path: Path, name: str) -> None:
        """A path that cannot be opened is refused with its place."""
        with pytest.raises(InvalidInputError):
            read_session(tmp_path / name)

    def test_one_bad_file_does_not_stop_an_audit(self, tmp_path: Path) -> None:
        """Beside a good session a file of another kind is a row of damage."""
        raw(tmp_path, entry("a"))
        (tmp_path / "other.jsonl").write_text("nonsense\n")
        *_, last = audit_paths([tmp_path])
        assert [(d["kind"], d["file"]) for d in last["summary"]["damage"]] == [("unreadable", "other.jsonl")]


def everything(path: Path) -> None:
    """Whatever the bytes, only our two errors may come out."""
    try:
        session = read_session(path)
    except (MalformedError, InvalidInputError):
        return
    for leaf in [None, *session.entries][:5]:
        walked = session.walk(leaf)
        boundary(walked)
        events(walked, POLICY)
        recorded(walked)
        list(broken_trace(walked))
    lines = list(audit_paths([path], POLICY))
    json.dumps(lines)
    assert lines[-1]["summary"]["loads_from"] == "transcript"


def test_flipped_bytes_give_only_our_errors(tmp_path: Path) -> None:
    """A whole story with random bytes changed, dropped and doubled is read or refused, never a crash."""
    story = Story()
    story.add("active_tools_change", activeToolNames=["read", "load"])
    story.system("read", "load")
    kept = story.user()
    story.run("load", group="git", added=GIT)
    story.add("compaction", firstKeptEntryId=kept, retainedTail=[{"role": "user"}], systemMessage={"role": "system"})
    story.run("drop", names="git_log")
    story.add("leaf", targetId=kept)
    good = story.write(tmp_path).read_bytes()
    path = tmp_path / "hostile.jsonl"
    rng = random.Random(7)
    for _ in range(400):
        data = bytearray(good)
        for _ in range(rng.randint(1, 6)):
            at = rng.randrange(len(data))
            choice = rng.randrange(4)
            if choice == 0:
                data[at] = rng.randrange(256)
            elif choice == 1:
                del data[at : at + rng.randrange(40)]
            elif choice == 2:
                data[at:at] = data[at : at + rng.randrange(200)]
            else:
                data[at:at] = rng.choice([b"\n", b"null", b"[]", b"{}", b"1e999", b'"\\ud800"', b"\x00"])
        path.write_bytes(bytes(data))
        everything(path)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
fields = st.sampled_from(
    ["id", "parentId", "message", "firstKeptEntryId", "retainedTail", "systemMessage", "activeToolNames", "targetId",
     "replacement", "lane", "kind", "seq", "leafId", "provider", "modelId", "timestamp"]
)  # fmt: skip
types = st.sampled_from(["message", "compaction", "active_tools_change", "leaf", "label", "context_edit", "custom"])
said = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "toolResult", "system"]) | junk},
    optional=dict.fromkeys(
        ("content", "toolCallId", "toolName", "addedToolNames", "toolsAdded", "toolsRemoved", "timestamp"), junk
    ),
)
rows = st.builds(
    lambda kind, more, message: {"type": kind, **more, **({} if message is None else {"message": message})},
    types | junk,
    st.dictionaries(fields, junk | st.sampled_from(["a", "b"]), max_size=6),
    st.none() | said,
)


@given(st.lists(rows, max_size=8), st.sampled_from([1, 2, 3, 4, None, "x"]))
def test_wrong_types_anywhere_give_only_our_errors(
    tmp_path_factory: pytest.TempPathFactory, lines: list, version: object
) -> None:
    """Records whose fields have any type are read, counted as damage or refused."""
    path = tmp_path_factory.mktemp("junk") / "s.jsonl"
    header = {"type": "session", "id": "s", "version": version}
    path.write_text("".join(json.dumps(line) + "\n" for line in [header, *lines]))
    everything(path)


def test_records_reports_into_the_list_it_is_given(tmp_path: Path) -> None:
    """Damage of any file of JSON lines is collected beside the records."""
    path = tmp_path / "x.jsonl"
    path.write_text('{"a":1}\nno\n')
    found: list[Damage] = []
    assert [r.value for r in records(path, found)] == [{"a": 1}]
    assert [(d.kind.value, d.line) for d in found] == [("not_json", 2)]


@pytest.mark.parametrize("piece", ['{"type":', '{"type":1}', '{"type":"\\ud800"', '[{"type":', '{"kind":"a"},'])
def test_a_long_hostile_line_takes_linear_time(tmp_path: Path, piece: str) -> None:
    """Two million bytes of beginnings of records are one row of damage."""
    path = raw(tmp_path, entry("a"), piece * (2_000_000 // len(piece)), entry("z", "a"))
    session = read_session(path)
    assert session.leaf == "z"
    assert len(session.damage) == 1
