"""What an audit cannot know it says, and never counts as zero."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from capstate.audit import audit_paths, gather, require
from capstate.errors import InvalidInputError
from capstate.findings import Grade
from capstate.policy import Policy, parse
from tests.agents.files import POLICY, Story
from tests.audit.recordings import FOLDERS

Lines = list[dict[str, Any]]
VERDICTS = ("callable", "not_authorised", "never_loaded", "lost")


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "input_schema": {"type": "object"}}


def body(*tools: str, said: tuple[dict[str, Any], ...] = (), **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "x"}, *said]
    return {"model": "claude-x", "system": "s", "messages": messages, "tools": [tool(n) for n in tools], **more}


def called(call: str, name: str, **arguments: str) -> tuple[dict[str, Any], ...]:
    use = {"type": "tool_use", "id": call, "name": name, "input": arguments}
    result = {"type": "tool_result", "tool_use_id": call, "content": "ok"}
    return {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}


def judged(folder: Path, *rows: Any, policy: Policy = POLICY) -> tuple[Lines, Lines, dict[str, Any]]:
    path = folder / "bodies.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = list(audit_paths([f"requests:{path}"], policy))
    return (
        [line for line in lines if "callable" in line],
        [line for line in lines if "finding" in line],
        lines[-1]["summary"],
    )


# ---- nothing there


NOTHING = {
    "an empty folder": {},
    "an object": {"one.json": '{"a":1}'},
    "a line": {"one.jsonl": '{"a":1}\n'},
    "no JSON": {"bad.jsonl": "\xff\xfe\n"},
    "a header alone": {"session.jsonl": '{"type":"session","version":3,"id":"s"}\n'},
    "other files": {"readme.txt": "hello"},
}


@pytest.mark.parametrize("files", NOTHING.values(), ids=list(NOTHING))
def test_a_path_that_holds_nothing_is_named(tmp_path: Path, files: dict[str, str]) -> None:
    """What was read of it is no audit: the argument and what was expected are in the error."""
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="latin-1")
    good = Story()
    good.user()
    here = good.write(tmp_path.parent, f"{tmp_path.name}.jsonl")

    with pytest.raises(InvalidInputError, match="expected a Pi session") as raised:
        require(gather([here, tmp_path]))
    assert raised.value.place == str(tmp_path)


def test_a_path_that_repeats_another_holds_something(tmp_path: Path) -> None:
    """A file named beside its folder is read once and is no mistake."""
    story = Story()
    story.user()
    path = story.write(tmp_path)

    assert len(require(gather([tmp_path, path])).sessions) == 1


@pytest.mark.parametrize("empty", ["", "requests:"])
def test_an_empty_path_is_not_the_current_folder(empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty text names nothing, also where the current folder has files to read."""
    (tmp_path / "bodies.json").write_text(json.dumps(body("a")))
    monkeypatch.chdir(tmp_path)

    with pytest.raises(InvalidInputError, match="empty path"):
        gather([empty])
    with pytest.raises(InvalidInputError, match="empty path"):
        gather([], requests="")
    with pytest.raises(InvalidInputError, match="empty path"):
        gather(["."], executed="")


def test_material_without_anything_has_the_grade_unknown(tmp_path: Path) -> None:
    """The summary itself says that nothing could be judged."""
    (tmp_path / "one.jsonl").write_text('{"a":1}\n')
    summary = list(audit_paths([tmp_path / "one.jsonl"]))[-1]["summary"]

    assert (summary["requests"], summary["grade"], summary["runs"]) == (0, "unknown", None)
    assert summary["unknown"] == {"row without a request body": 1}


# ---- a part unknown


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_what_is_null_is_counted_as_unknown(folder: Path) -> None:
    """In every recording ``unknown_turns`` counts the nulls of its turns; the grade is no worse than any line's."""
    lines = list(audit_paths([folder]))
    turns = [line for line in lines if line.get("kind") == "turn"]
    summary = lines[-1]["summary"]

    assert summary["unknown_turns"] == {"kind": 0, **{v: sum(t[v] is None for t in turns) for v in VERDICTS}}
    grades = [grade.value for grade in Grade]
    assert grades.index(summary["grade"]) <= min(grades.index(line["grade"]) for line in lines if "callable" in line)


def test_bodies_without_a_policy_allow_no_verdict(tmp_path: Path) -> None:
    """Only what could be called is known: three verdicts are null, the grade is unknown, what ran is null."""
    rows, findings, summary = judged(tmp_path, body("a"), policy=Policy())

    assert [rows[0][v] for v in VERDICTS] == [["a"], None, None, None]
    assert (rows[0]["grade"], findings, summary["grade"], summary["runs"]) == ("unknown", [], "unknown", None)
    assert summary["unknown_turns"] == {"kind": 0, "callable": 0, "not_authorised": 1, "never_loaded": 1, "lost": 1}


def test_runs_of_which_nothing_is_known_are_counted(tmp_path: Path) -> None:
    """A session alone, without a record of its set and of who may: its results ran, and that is all."""
    story = Story()
    story.user()
    story.run("read")
    story.answer()
    summary = list(audit_paths([story.write(tmp_path)]))[-1]["summary"]

    assert (summary["runs"], summary["unknown_runs"]) == (1, {"unauthorised": 1, "never_loaded": 1})
    assert (summary["grade"], summary["unknown_turns"]["callable"]) == ("unknown", summary["requests"])


# ---- a body without tools


class TestWithoutTools:
    git = called("c1", "load", group="git")

    def test_it_is_no_turn_and_no_loss(self, tmp_path: Path) -> None:
        """Between two turns it is of unknown kind: nothing is lost in it, and nothing comes back behind it."""
        summary_of = body()
        del summary_of["tools"]
        before, after = body("read", "load"), body("read", "load", said=self.git)
        rows, findings, summary = judged(tmp_path, before, summary_of, after)

        assert [row["kind"] for row in rows] == ["turn", "unknown", "turn"]
        assert (rows[1]["callable"], rows[1]["lost"], rows[1]["grade"]) == ([], None, "unknown")
        assert (summary["requests"], summary["unknown_turns"]["kind"]) == (2, 1)
        assert [f["finding"] for f in findings] == ["CS104"], "the load in the last body itself"

    @pytest.mark.parametrize("kind", ["turn", "summary"])
    def test_a_record_that_says_the_kind_is_believed(self, tmp_path: Path, kind: str) -> None:
        """A turn without tools that is called one has lost what its own history loads."""
        rows, findings, _ = judged(tmp_path, {"kind": kind, "body": body(said=self.git)})

        assert rows[0]["kind"] == kind
        assert ([f["finding"] for f in findings] == ["CS104"]) is (kind == "turn")

    def test_a_session_that_holds_it_makes_it_a_turn(self, tmp_path: Path) -> None:
        """Where the session shows that the model answered here, a request without its tools has lost them."""
        story = Story()
        story.user("x")
        story.answer()
        (tmp_path / "bodies").mkdir()
        rows = [body("read", "load"), body()]
        for n, row in enumerate(rows):
            (tmp_path / "bodies" / f"{n}.json").write_text(json.dumps(row))
        lines = list(audit_paths([story.write(tmp_path)], POLICY, requests=tmp_path / "bodies"))

        assert [(r["kind"], r["lost"]) for r in lines if "callable" in r] == [("turn", []), ("turn", ["load", "read"])]

    def test_tools_that_are_only_hosted_are_tools(self, tmp_path: Path) -> None:
        """A body that offers only what the provider runs is a turn."""
        hosted = {"model": "g", "input": "x", "tools": [{"type": "web_search"}]}
        rows, _, summary = judged(tmp_path, hosted)

        assert (rows[0]["kind"], summary["requests"]) == ("turn", 1)

    def test_behind_it_a_conversation_may_go_on_from_a_summary(self, tmp_path: Path) -> None:
        """What was loaded before may be in the summary: never loaded is unknown, as long as that conversation lasts."""
        first = body("read", "load", "git_log", "git_blame", said=self.git)
        behind = body("read", "load", "git_log", "git_blame")
        later = body("read", "load", "git_log", "git_blame", said=called("c2", "read"))
        rows, findings, _ = judged(tmp_path, first, body(), behind, later)

        assert [row["never_loaded"] for row in rows] == [[], [], None, None]
        assert findings == []

    def test_a_known_conversation_is_not_interrupted(self, tmp_path: Path) -> None:
        """A title request changes nothing for a conversation that goes on with its calls."""
        first = body("read", "load", "git_log", "git_blame", said=self.git)
        rows, findings, _ = judged(tmp_path, first, body(), {**first, "tools": [*first["tools"], tool("x")]})

        assert rows[-1]["never_loaded"] == ["x"]
        assert [f["finding"] for f in findings] == ["CS121"]


def test_a_return_of_which_loads_are_unknown_is_inferred(tmp_path: Path) -> None:
    """Without residents nobody knows that a tool is not loaded; with a list that forbids it, it is observed."""
    rows = body("a", "b"), body("a"), body("a", "b")
    unsure = judged(tmp_path, *rows, policy=Policy())[1]
    sure = judged(tmp_path, *rows, policy=parse('allow = ["a"]'))[1]

    assert [(f["finding"], f["grade"]) for f in unsure if f["finding"] == "CS110"] in ([], [("CS110", "inferred")])
    assert [(f["finding"], f["grade"]) for f in sure if f["finding"] == "CS110"] == [("CS110", "observed")]


# ---- a resident without a registry


class TestResidents:
    def session(self, folder: Path) -> Path:
        story = Story()
        for text in ("one", "two"):
            story.user(text)
            story.answer()
        return story.write(folder)

    def judged(self, folder: Path, *rows: dict[str, Any]) -> Lines:
        self.session(folder)
        (folder / "requests.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return [line for line in audit_paths([folder], POLICY) if "callable" in line]

    def row(self, turn: int, leaf: str, *tools: str, process: int = 1, **runtime: Any) -> dict[str, Any]:
        where = {"sessionId": "s", "leafId": leaf, **runtime}
        return {"turn": turn, "kind": "turn", "process": process, "runtime": where, "body": body(*tools)}

    def test_one_that_its_process_shows_later_is_lost_by_inference(self, tmp_path: Path) -> None:
        """The next request of the process has it: it was missing, and that it existed is inferred."""
        rows = self.judged(tmp_path, self.row(1, "e1", "load"), self.row(2, "e3", "load", "read"))

        assert [(row["lost"], row["grade"]) for row in rows] == [(["read"], "inferred"), ([], "inferred")]

    def test_a_list_of_who_may_does_not_make_that_certain(self, tmp_path: Path) -> None:
        """With authority known the later line is observed, the loss is not."""
        may = ["read", "load"]
        first = self.row(1, "e1", "load", authorised=may)
        rows = self.judged(tmp_path, first, self.row(2, "e3", "load", "read", authorised=may))

        assert [row["grade"] for row in rows] == ["inferred", "observed"]

    def test_one_that_another_process_shows_is_unknown(self, tmp_path: Path) -> None:
        """Another version of the agent may have it alone."""
        first, second = self.judged(tmp_path, self.row(1, "e1", "load"), self.row(2, "e3", "load", "read", process=2))

        assert (first["lost"], first["should"]["withheld"]["read"], second["lost"]) == ([], "unknown_tool", [])

    def test_a_registry_decides_where_there_is_one(self, tmp_path: Path) -> None:
        """What was not registered is unavailable, whatever comes later."""
        first = self.row(1, "e1", "load", registered=["load"])
        rows = self.judged(tmp_path, first, self.row(2, "e3", "load", "read", registered=["load", "read"]))

        assert (rows[0]["lost"], rows[0]["should"]["withheld"]["read"]) == ([], "resource_unavailable")


# ---- places


def test_a_place_names_the_folder_below_the_argument(tmp_path: Path) -> None:
    """Sessions, requests, runs and damage of several recordings in one run are told apart."""
    for name in ("a", "b"):
        folder = tmp_path / "all" / name
        folder.mkdir(parents=True)
        story = Story({"type": "session", "version": 3, "id": name})
        story.call("read", f"call-{name}")
        story.user()
        story.answer()
        story.write(folder, "session.jsonl")
        row = {"kind": "turn", "runtime": {"sessionId": name, "leafId": "e2", "authorised": ["z"]}, "body": body("x")}
        (folder / "requests.jsonl").write_text(json.dumps(row) + "\n{\n")
        (folder / "observations.jsonl").write_text(json.dumps({"at": "executed:x", "authorised": ["z"]}) + "\n{\n")
    both = {f"{n}/{f}.jsonl" for n in ("a", "b") for f in ("session", "requests", "observations")}

    def places(*paths: Path) -> set[str]:
        return {line["file"] for line in audit_paths(paths, POLICY) if "finding" in line}

    assert places(tmp_path / "all") == both
    assert places(tmp_path / "all" / "a", tmp_path / "all" / "b") == places(tmp_path / "all")
    assert places(tmp_path / "all" / "b") == {"session.jsonl", "requests.jsonl", "observations.jsonl"}
    summary = list(audit_paths([tmp_path / "all"], POLICY))[-1]["summary"]
    assert {row["file"] for row in summary["damage"]} == both - {"a/session.jsonl", "b/session.jsonl"}
