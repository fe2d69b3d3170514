"""What the audit says about small stories of its own: requests, sessions and runs written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from capstate.audit import audit_paths
from capstate.errors import InvalidInputError
from capstate.policy import Policy, parse
from tests.agents.files import HEADER, POLICY, Story

GIT = ["git_log", "git_blame"]


class Recording:
    """A folder with a session and the requests that it answered."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.story = folder, Story()
        self.rows: list[dict[str, Any]] = []
        self.runs: list[dict[str, Any]] = []
        self.process = 1
        self.spies = True

    def ask(self, *tools: str, leaf: str | None = "", described: str = "", **runtime: Any) -> int:
        turn = len(self.rows) + 1
        listed = [{"name": n, "description": described, "input_schema": {"type": "object"}} for n in tools]
        body = {"model": "m", "system": "s", "messages": [{"role": "user", "content": "x"}], "tools": listed}
        where = {"sessionId": "s", "leafId": self.story.leaf if leaf == "" else leaf, **runtime}
        self.rows.append(
            {"turn": turn, "process": self.process, "kind": "turn", "api": "anthropic-messages", "model": "m",
             "runtime": where, "body": body}
        )  # fmt: skip
        return turn

    def defers(self) -> None:
        """A request elsewhere that shows that the model's API defers."""
        reference = [{"type": "tool_reference", "tool_name": "z"}]
        content = [{"type": "tool_result", "tool_use_id": "q", "content": reference}]
        body = {"messages": [{"role": "user", "content": content}], "tools": [{"name": "z", "defer_loading": True}]}
        self.rows.append({"turn": 0, "process": 99, "api": "anthropic-messages", "model": "m", "body": body})

    def ran(self, name: str, **more: Any) -> None:
        self.runs.append({"at": f"executed:{name}", "sessionId": "s", "leafId": self.story.leaf, **more})

    def judge(self, policy: Policy = POLICY) -> tuple[dict[int, dict[str, Any]], list[dict[str, Any]], dict[str, Any]]:
        self.story.write(self.folder, "session.jsonl")
        write(self.folder / "requests.jsonl", self.rows)
        if self.spies:
            write(self.folder / "observations.jsonl", self.runs)
        lines = list(audit_paths([self.folder], policy))
        rows = {line["turn"]: line for line in lines if "callable" in line}
        return rows, [line for line in lines if "finding" in line], lines[-1]["summary"]


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return Recording(tmp_path)


BASE = ("read", "load")


class TestGone:
    def loaded(self, r: Recording) -> None:
        r.story.user()
        r.ask(*BASE)
        r.story.run("load", group="git", added=GIT)
        r.ask(*BASE, *GIT)

    def only(self, r: Recording) -> dict[str, Any]:
        _, findings, summary = r.judge()
        (found,) = [f for f in findings if f["finding"].startswith("CS10")]
        assert found["names"] == sorted(GIT)
        assert summary["lost_turns"] == 1
        return found

    def test_after_compaction(self, recording: Recording) -> None:
        """A loss across a compaction is CS101."""
        self.loaded(recording)
        recording.story.add("compaction", firstKeptEntryId=recording.story.leaf)
        recording.story.user()
        recording.ask(*BASE)
        assert self.only(recording)["finding"] == "CS101"

    def test_after_reopen(self, recording: Recording) -> None:
        """A loss in another process is CS102, also if a compaction lies between."""
        self.loaded(recording)
        recording.story.add("compaction", firstKeptEntryId=recording.story.leaf)
        recording.story.user()
        recording.process = 2
        recording.ask(*BASE)
        assert self.only(recording)["finding"] == "CS102"

    def test_after_a_branch_move(self, recording: Recording) -> None:
        """A loss on another branch, on which the tool is loaded too, is CS103."""
        self.loaded(recording)
        at = recording.story.leaf
        recording.story.user()
        recording.ask(*BASE, *GIT)
        recording.story.user("again", parent=at)
        recording.ask(*BASE)
        assert self.only(recording)["finding"] == "CS103"

    def test_in_a_copy(self, recording: Recording) -> None:
        """A loss in the first request of a session with a parent is CS103."""
        self.loaded(recording)
        recording.story.lines[0] = {**HEADER, "parentSession": "x_other.jsonl"}
        del recording.rows[:]
        recording.ask(*BASE)
        assert self.only(recording)["finding"] == "CS103"

    def test_without_a_boundary(self, recording: Recording) -> None:
        """A loss between two requests with nothing between is CS104, and the change is unexplained."""
        self.loaded(recording)
        recording.story.user()
        turn = recording.ask(*BASE)
        rows, _, _ = recording.judge()
        assert rows[turn]["unexplained"] == sorted(GIT)
        assert self.only(recording)["finding"] == "CS104"

    def test_only_the_first_turn_of_a_loss_is_a_finding(self, recording: Recording) -> None:
        """A loss that lasts is counted each turn and told once."""
        self.loaded(recording)
        for _ in range(3):
            recording.story.user()
            recording.ask(*BASE)
        _, findings, summary = recording.judge()
        assert (summary["lost_turns"], len(findings)) == (3, 1)


class TestUnexplained:
    def judged(self, r: Recording) -> list[str]:
        rows, _, _ = r.judge()
        return list(rows[max(rows)]["unexplained"])

    def test_nothing_is_unexplained_at_first(self, recording: Recording) -> None:
        """The first request of a session changes nothing."""
        recording.story.user()
        recording.ask(*BASE, "x")
        assert self.judged(recording) == []

    def test_a_load_accounts_for_one_coming(self, recording: Recording) -> None:
        """What a load brought and something took away does not come back by the same load."""
        recording.story.run("load", group="git", added=GIT)
        recording.ask(*BASE)
        recording.story.user()
        recording.ask(*BASE, *GIT)
        assert self.judged(recording) == []
        recording.story.user()
        recording.ask(*BASE)
        recording.story.user()
        recording.ask(*BASE, *GIT)
        assert self.judged(recording) == sorted(GIT)

    def test_an_unload_accounts_for_a_going(self, recording: Recording) -> None:
        """An unload names what it takes, and nothing else."""
        recording.story.run("load", groups="git,web", added=[*GIT, "web_fetch"])
        recording.ask(*BASE, *GIT, "web_fetch")
        recording.story.run("drop", names="git_log")
        recording.ask(*BASE, "git_blame")
        assert self.judged(recording) == ["web_fetch"]

    def test_a_changed_list_accounts_for_the_names_that_it_changed(self, recording: Recording) -> None:
        """Authority that gained one name accounts for that name, not for another."""
        recording.story.user()
        recording.ask(*BASE, authorised=[*BASE])
        recording.story.user()
        recording.ask(*BASE, "x", "y", authorised=[*BASE, "x"])
        assert self.judged(recording) == ["y"]

    @pytest.mark.parametrize("field", ["model", "process"])
    def test_another_model_or_process_accounts_for_everything(self, recording: Recording, field: str) -> None:
        """A change of model and a reopen are where sets change."""
        recording.story.user()
        recording.ask(*BASE)
        recording.story.user()
        recording.ask(*BASE, "x")
        recording.rows[-1][field] = 7
        if field == "model":
            recording.rows[-1]["body"]["model"] = recording.rows[-1]["model"] = "other"
        assert self.judged(recording) == []


def test_came_back_after_removal(recording: Recording) -> None:
    """A tool that was dropped and is visible again without a load is CS110 and not loaded."""
    recording.story.run("load", group="git", added=GIT)
    recording.ask(*BASE, *GIT)
    recording.story.run("drop", names="git_log")
    recording.ask(*BASE, "git_blame")
    recording.story.user()
    turn = recording.ask(*BASE, *GIT)
    rows, findings, _ = recording.judge()
    assert {f["finding"]: (f["turn"], f["names"]) for f in findings} == {
        "CS110": (turn, ["git_log"]),
        "CS121": (turn, ["git_log"]),
    }
    assert rows[turn]["never_loaded"] == ["git_log"]
    assert rows[turn]["should"]["withheld"]["git_log"] == "not_loaded"


def test_a_changed_definition_is_found_and_leaves_its_mark(recording: Recording) -> None:
    """Another description under a marked name is CS401; the tool then belongs to the top."""
    recording.defers()
    at = recording.story.run("load", group="git", added=GIT)
    recording.ask(*BASE, *GIT)
    recording.story.user()
    turn = recording.ask(*BASE, *GIT, described="other")
    rows, findings, _ = recording.judge()
    assert rows[2]["should"]["deferred"] == {"git_blame": at, "git_log": at}
    assert rows[turn]["should"]["deferred"] == {}
    assert [(f["finding"], f["turn"]) for f in findings if f["finding"] == "CS401"] == [("CS401", turn)]


class TestRuns:
    def test_a_run_outside_the_request(self, recording: Recording) -> None:
        """A tool that ran and was not in the request is CS120, and CS121 if nothing loaded it."""
        recording.story.user()
        recording.ask(*BASE)
        recording.story.call("x", "c")
        recording.ran("x")
        _, findings, summary = recording.judge()
        assert [(f["finding"], f["turn"], f["grade"]) for f in findings] == [
            ("CS120", 1, "observed"), ("CS121", 1, "observed"),
        ]  # fmt: skip
        assert (summary["ran_never_loaded"], summary["ran_unauthorised"]) == (1, 0)

    def test_the_list_of_the_moment_of_the_run_counts(self, recording: Recording) -> None:
        """A tool that was revoked between request and run is CS202 though the request was right."""
        recording.story.user()
        recording.ask(*BASE, authorised=[*BASE])
        recording.story.call("read", "c")
        recording.ran("read", authorised=["load"])
        _, findings, summary = recording.judge()
        assert [f["finding"] for f in findings] == ["CS202"]
        assert summary["ran_unauthorised"] == 1

    def test_a_policy_with_authority_wins_over_recorded_lists(self, recording: Recording) -> None:
        """allow, ask and deny of the policy decide; ask is authorised, and a run under it has skipped the question."""
        recording.story.user()
        recording.ask(*BASE, "x", authorised=["x"])
        recording.story.call("load", "c")
        recording.ran("load", authorised=[])
        policy = parse('resident = ["read", "load", "x"]\nallow = ["read"]\nask = ["load"]\ndeny = ["x"]')
        rows, findings, _ = recording.judge(policy)
        assert (rows[1]["authorised"], rows[1]["not_authorised"]) == (["load", "read"], ["x"])
        assert [(f["finding"], f["grade"]) for f in findings] == [("CS201", "observed"), ("CS203", "inferred")]

    def test_without_observations_results_are_runs(self, recording: Recording) -> None:
        """A result without error says that the tool ran; one with an error does not."""
        recording.spies = False
        recording.story.user()
        recording.ask(*BASE)
        recording.story.run("x")
        recording.story.run("y", error=True)
        _, findings, summary = recording.judge()
        assert [(f["finding"], f["names"], f["grade"]) for f in findings] == [
            ("CS120", ["x"], "recorded"), ("CS121", ["x"], "recorded"),
        ]  # fmt: skip
        assert summary["ran_never_loaded"] == 1

    def test_an_observation_without_a_place_is_found_by_its_result(self, recording: Recording) -> None:
        """A spy that knows no session is put where the session has the result."""
        recording.story.user()
        recording.ask(*BASE)
        recording.story.run("x")
        recording.runs.append({"at": "executed:x"})
        _, findings, _ = recording.judge()
        assert [(f["finding"], f["turn"]) for f in findings] == [("CS120", 1), ("CS121", 1)]


class TestWithoutPolicy:
    def test_the_first_request_says_what_is_resident(self, recording: Recording) -> None:
        """Without residents the first set counts as configured; what joins it later was never loaded."""
        recording.story.user()
        recording.ask("a", "b")
        recording.story.run("load", added=["c"])
        recording.ask("a", "b", "c")
        recording.story.user()
        turn = recording.ask("a", "c", "d")
        rows, findings, _ = recording.judge(Policy())
        assert {t: r["never_loaded"] for t, r in rows.items() if r["never_loaded"]} == {turn: ["d"]}
        assert rows[turn]["lost"] == ["b"]
        assert {f["grade"] for f in findings} == {"inferred"}

    def test_a_fork_has_the_residents_of_its_origin(self, recording: Recording) -> None:
        """What a copy starts with is measured by the session that it goes back to."""
        recording.story.user()
        recording.ask("a")
        copy = Story({**HEADER, "id": "copy", "parentSession": "somewhere/2026_s.jsonl"})
        copy.user()
        copy.write(recording.folder, "copy.jsonl")
        recording.ask("a", "b", sessionId="copy", leaf="e1")
        rows, findings, _ = recording.judge(Policy())
        assert rows[2]["never_loaded"] == ["b"]
        assert [f["finding"] for f in findings] == ["CS121"]


class TestSessionsAlone:
    def test_the_recorded_set_stands_in_for_requests(self, tmp_path: Path) -> None:
        """One line an answer, from the agent's own record, with the grade that this has."""
        story = Story()
        story.system("read", "load")
        story.user()
        story.run("load", group="git")
        at = story.system(*GIT)
        story.answer()
        story.system("web_fetch", removed=("git_log",))
        story.user()
        story.answer()
        lines = list(audit_paths([story.write(tmp_path)], parse('resident = ["read", "load"]\nallow = ["read"]')))
        rows = [r for r in lines if "callable" in r]
        assert [r["callable"] for r in rows] == [
            ["load", "read"], ["git_blame", "git_log", "load", "read"], ["git_blame", "load", "read", "web_fetch"],
        ]  # fmt: skip
        assert {r["grade"] for r in rows} == {"recorded"}
        lines = list(audit_paths([tmp_path / "s.jsonl"], POLICY))
        last = [r for r in lines if "callable" in r][-1]
        assert (last["lost"], last["never_loaded"]) == (["git_log"], ["web_fetch"])
        assert last["should"]["deferred"] == {"git_blame": at}

    def test_without_a_record_nothing_is_claimed(self, tmp_path: Path) -> None:
        """A session that records no set gives null, and a projection all the same."""
        story = Story()
        story.user()
        at = story.run("load", group="git", added=GIT)
        story.answer()
        lines = list(audit_paths([story.write(tmp_path)], POLICY))
        last = [r for r in lines if "callable" in r][-1]
        assert [last[k] for k in ("callable", "not_authorised", "never_loaded", "lost", "unexplained")] == [None] * 5
        assert last["grade"] == "unknown"
        assert last["should"]["deferred"] == {"git_blame": at, "git_log": at}

    def test_a_broken_trace_is_a_finding(self, tmp_path: Path) -> None:
        """A call that was never answered is CS501, once for all copies of the entry."""
        story = Story()
        story.call("read", "c")
        story.user()
        story.write(tmp_path, "a.jsonl")
        story.write(tmp_path, "b.jsonl")
        found = [r for r in audit_paths([tmp_path], POLICY) if r.get("finding") == "CS501"]
        assert [(f["names"], f["entry"], f["detail"]) for f in found] == [(["read"], "e1", "no result")]


def test_a_summary_request_is_no_turn(recording: Recording) -> None:
    """It is a line of its own, is not counted, loses nothing, and does not stand between two turns."""
    recording.story.user()
    recording.ask(*BASE)
    recording.ask("x")
    recording.rows[-1] |= {"kind": "summary", "runtime": None}
    recording.story.user()
    recording.ask(*BASE)
    rows, findings, summary = recording.judge()
    assert (rows[2]["lost"], rows[2]["never_loaded"], rows[3]["unexplained"]) == ([], ["x"], [])
    assert summary["requests"] == 2
    assert [f["finding"] for f in findings] == ["CS121"]


def test_if_every_tool_would_be_deferred_all_are_immediate(recording: Recording) -> None:
    """This API refuses a request without an immediate tool."""
    recording.defers()
    recording.story.run("load", group="git", added=GIT)
    recording.ask(*GIT)
    rows, _, _ = recording.judge(parse("resident = []"))
    assert (rows[2]["should"]["immediate"], rows[2]["should"]["deferred"]) == (sorted(GIT), {})


def test_what_does_not_exist_is_unknown(recording: Recording) -> None:
    """A resident that nothing ever showed is no loss; one that is registered and missing is."""
    recording.story.user()
    recording.ask("read")
    recording.story.user()
    recording.ask("read", registered=["read", "load"])
    rows, _, _ = recording.judge()
    assert (rows[1]["lost"], rows[1]["should"]["withheld"]["load"]) == ([], "unknown_tool")
    assert rows[2]["lost"] == ["load"]


def test_a_folder_of_bodies_and_a_session_are_put_together(tmp_path: Path) -> None:
    """Bodies from elsewhere are placed in the session by their texts, and judged by its loads."""
    story = Story()
    story.user("load it")
    story.run("load", group="git", added=GIT)
    story.answer()
    bodies = tmp_path / "bodies"
    bodies.mkdir()
    messages: list[dict[str, Any]] = [{"role": "user", "content": "load it"}]
    call = story.lines[2]["message"]["content"][0]["id"]
    tools = [{"name": n, "input_schema": {}} for n in BASE]
    (bodies / "1.json").write_text(json.dumps({"model": "m", "messages": messages, "tools": tools}))
    messages.append({"role": "assistant", "content": [{"type": "tool_use", "id": call, "name": "load", "input": {}}]})
    messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call}]})
    (bodies / "2.json").write_text(json.dumps({"model": "m", "messages": messages, "tools": tools}))
    lines = list(audit_paths([story.write(tmp_path)], POLICY, requests=bodies))
    rows = [r for r in lines if "callable" in r]
    assert [(r["leaf"], r["lost"]) for r in rows] == [("e1", []), ("e3", sorted(GIT))]


def test_no_path_is_a_mistake() -> None:
    """An audit of nothing is refused; so is a path that is not there."""
    with pytest.raises(InvalidInputError, match="paths"):
        list(audit_paths([]))
    with pytest.raises(InvalidInputError, match="nowhere"):
        list(audit_paths(["nowhere"]))


def test_a_file_is_read_once(recording: Recording) -> None:
    """Naming a file beside its folder changes nothing."""
    recording.story.user()
    recording.ask(*BASE)
    recording.story.call("x", "c")
    recording.ran("x")
    recording.judge()
    folder = recording.folder
    once = list(audit_paths([folder], POLICY))
    again = audit_paths(
        [folder, folder / "session.jsonl"],
        POLICY,
        requests=folder / "requests.jsonl",
        executed=folder / "observations.jsonl",
    )
    assert list(again) == once


def test_a_folder_of_folders_is_where_an_agent_keeps_sessions(tmp_path: Path) -> None:
    """Sessions one folder further down are found; links are not followed."""
    for name in ("--a--", "--b--"):
        (tmp_path / name).mkdir()
        story = Story({**HEADER, "id": name})
        story.user()
        story.answer()
        story.write(tmp_path / name)
    (tmp_path / "link").symlink_to(tmp_path / "--a--")
    lines = list(audit_paths([tmp_path], POLICY))
    assert [r["session"] for r in lines if "callable" in r] == ["--a--"], "equal entries are copies and count once"


def test_a_log_of_bodies_may_stand_beside_a_session(recording: Recording) -> None:
    """Another file of request bodies in a recorded folder is read as what it is."""
    recording.story.user("x")
    recording.ask(*BASE)
    row = recording.rows.pop()
    write(recording.folder / "proxy.jsonl", [{"request": {"body": row["body"]}}])
    rows, _, summary = recording.judge()
    assert [(r["callable"], r["leaf"]) for r in rows.values()] == [(["load", "read"], "e1")]
    assert (summary["requests"], summary["damage"]) == (1, [])
