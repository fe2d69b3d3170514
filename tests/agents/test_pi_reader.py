from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from capstate.agents.pi import EventKind, boundary, broken_trace, events, read_session, recorded
from capstate.audit import project_session
from capstate.errors import InvalidInputError
from capstate.policy import parse
from tests.agents.files import POLICY, Story

GIT = ["git_log", "git_blame"]


def projected(path: Path, leaf: str | None = None, provider: str = "anthropic") -> tuple[set[str], dict[str, str]]:
    found = project_session(path, POLICY, leaf=leaf, provider=provider)
    return set(found["immediate"]), found["deferred"]


def test_names_on_a_result_are_a_mark(tmp_path: Path) -> None:
    """A result with addedToolNames loads the names, at its own entry."""
    story = Story()
    story.user()
    at = story.run("load", group="git", added=GIT)
    assert projected(story.write(tmp_path)) == ({"read", "load"}, {"git_blame": at, "git_log": at})


def test_any_tool_may_carry_names(tmp_path: Path) -> None:
    """Names on the result of an undeclared tool are a load as well."""
    story = Story()
    at = story.run("other", added=["web_fetch"])
    assert projected(story.write(tmp_path))[1] == {"web_fetch": at}


def test_a_loader_without_names_loads_without_a_mark(tmp_path: Path) -> None:
    """An old file names nothing: the loader's argument does, and the tools stand at the top."""
    story = Story()
    story.run("load", group="git")
    assert projected(story.write(tmp_path)) == ({"read", "load", *GIT}, {})


@pytest.mark.parametrize("group", ["git", ["web", "git"], "web, git", '["git"]', "git/*"])
def test_a_loader_names_groups_in_many_ways(tmp_path: Path, group: object) -> None:
    """One group, a list, a text list: each group that is named is loaded."""
    story = Story()
    story.run("load", groups=group)
    assert projected(story.write(tmp_path))[0] >= set(GIT)


def test_an_error_of_a_loader_loads_nothing(tmp_path: Path) -> None:
    """A failed load is none, and prose that names a group is no argument."""
    story = Story()
    story.run("load", group="git", error=True)
    story.run("load", reason="I need git for this")
    story.run("read", group="git")
    assert projected(story.write(tmp_path)) == ({"read", "load"}, {})


def test_an_unloader_unloads_and_a_later_load_marks_anew(tmp_path: Path) -> None:
    """After an unload the tool is not loaded; loaded again it stands at the new entry."""
    story = Story()
    first = story.run("load", group="git", added=GIT)
    dropped = story.run("drop", names="git_log, nothing")
    again = story.run("load", group="git", added=["git_log"])
    path = story.write(tmp_path)
    assert projected(path, dropped)[1] == {"git_blame": first}
    assert project_session(path, POLICY, leaf=dropped)["withheld"]["git_log"] == "not_loaded"
    assert projected(path, again)[1] == {"git_blame": first, "git_log": again}


def test_a_failed_unload_unloads_nothing(tmp_path: Path) -> None:
    """An error of the unloader changes nothing."""
    story = Story()
    at = story.run("load", group="git", added=GIT)
    story.run("drop", names="git_log", error=True)
    assert projected(story.write(tmp_path))[1] == {"git_blame": at, "git_log": at}


def test_loading_what_is_loaded_makes_no_new_mark(tmp_path: Path) -> None:
    """A repeated load, with names or without, leaves the first mark."""
    story = Story()
    at = story.run("load", group="git", added=GIT)
    story.run("load", group="git")
    story.run("load", group="git", added=GIT)
    assert projected(story.write(tmp_path))[1] == {"git_blame": at, "git_log": at}


def test_a_resident_tool_has_no_mark(tmp_path: Path) -> None:
    """What configuration loads stays at the top, also if a result carries its name."""
    story = Story()
    story.run("load", added=["read"])
    assert projected(story.write(tmp_path)) == ({"read", "load"}, {})


def test_a_resident_tool_can_be_unloaded(tmp_path: Path) -> None:
    """The last load or unload on the path counts, also against configuration."""
    story = Story()
    story.run("drop", names=["read"])
    assert projected(story.write(tmp_path)) == ({"load"}, {})


class TestSystemMessages:
    def start(self) -> Story:
        story = Story()
        story.system("read", "load", "extra")
        story.user()
        return story

    def test_the_start_set_is_no_load(self, tmp_path: Path) -> None:
        """The first system message says what the agent started with."""
        assert projected(self.start().write(tmp_path)) == ({"read", "load"}, {})

    def test_after_a_loader_the_system_message_is_the_mark(self, tmp_path: Path) -> None:
        """The entry that carries the names is the mark, not the loader's result; other entries may lie between."""
        story = self.start()
        story.run("load", group="git")
        story.add("custom", customType="x", data={})
        at = story.system(*GIT, "web_fetch")
        assert projected(story.write(tmp_path))[1] == {"git_blame": at, "git_log": at}

    def test_unmentioned_tools_at_reopen_are_no_load(self, tmp_path: Path) -> None:
        """Names that come between two runs are the agent's own doing."""
        story = self.start()
        story.run("load", group="git")
        story.answer()
        story.system(*GIT, "web_fetch")
        assert projected(story.write(tmp_path)) == ({"read", "load", *GIT}, {})

    def test_without_declared_loaders_a_change_inside_a_run_is_a_load(self, tmp_path: Path) -> None:
        """A policy that names no loader takes what came right after a result as loaded."""
        story = self.start()
        story.run("anything")
        at = story.system("web_fetch")
        found = project_session(story.write(tmp_path), parse('resident = ["read"]'), provider="anthropic")
        assert found["deferred"] == {"web_fetch": at}

    def test_a_removal_ends_the_mark_and_not_the_wish(self, tmp_path: Path) -> None:
        """Removed by the agent, the tool stays loaded and is immediate; the agent's re-adding gives no mark back."""
        story = self.start()
        story.run("load", group="git")
        at = story.system(*GIT)
        story.answer()
        story.system(removed=("git_log",))
        story.user()
        story.system("git_log")
        assert projected(story.write(tmp_path)) == ({"read", "load", "git_log"}, {"git_blame": at})

    def test_a_load_after_a_removal_marks_anew(self, tmp_path: Path) -> None:
        """A loader's load after the agent's removal has a mark of its own."""
        story = self.start()
        story.run("load", group="git")
        story.system(*GIT)
        story.answer()
        story.system(removed=("git_log",))
        story.user()
        story.run("load", group="git")
        again = story.system("git_log")
        assert projected(story.write(tmp_path))[1]["git_log"] == again

    def test_a_checkpoint_drops_kept_system_messages(self, tmp_path: Path) -> None:
        """With a systemMessage in the compaction, a mark inside the kept range is gone from the conversation."""
        story = self.start()
        kept = story.user()
        story.run("load", group="git")
        story.system(*GIT)
        story.answer()
        story.add("compaction", summary="", firstKeptEntryId=kept, systemMessage={"role": "system", "toolsAdded": []})
        assert projected(story.write(tmp_path)) == ({"read", "load", *GIT}, {})

    def test_what_the_agent_recorded_as_active(self, tmp_path: Path) -> None:
        """The recorded set is the replay, a checkpoint replaces it."""
        story = self.start()
        story.system("web_fetch", removed=("extra",))
        path = story.write(tmp_path)
        assert set(recorded(read_session(path).walk()) or ()) == {"read", "load", "web_fetch"}
        tools = [{"name": "read"}]
        story.add(
            "compaction", summary="", firstKeptEntryId="e1", systemMessage={"role": "system", "toolsAdded": tools}
        )
        assert set(recorded(read_session(story.write(tmp_path)).walk()) or ()) == {"read"}


class TestActiveSets:
    def test_a_name_that_is_gone_from_the_set_lost_its_mark(self, tmp_path: Path) -> None:
        """active_tools_change holds the whole set: what is missing was removed by the agent."""
        story = Story()
        story.add("active_tools_change", activeToolNames=["read", "load"])
        at = story.run("load", group="git", added=GIT)
        story.add("active_tools_change", activeToolNames=["read", "load", *GIT])
        story.answer()
        story.add("active_tools_change", activeToolNames=["read", "load", "git_log", "web_fetch"])
        assert projected(story.write(tmp_path)) == ({"read", "load", "git_blame"}, {"git_log": at})

    def test_a_leaf_entry_says_the_leaf(self, tmp_path: Path) -> None:
        """In a harness file the leaf is what the last leaf entry names, until an entry follows."""
        story = Story()
        first = story.user()
        story.run("load", group="git", added=GIT)
        story.add("leaf", targetId=first)
        assert read_session(story.write(tmp_path)).leaf == first
        story.user("other", parent=first)
        assert [e.id for e in read_session(story.write(tmp_path)).walk()] == [first, story.leaf]

    def test_a_leaf_at_the_root_is_an_empty_path(self, tmp_path: Path) -> None:
        """A leaf entry without a target moves before the first entry."""
        story = Story()
        story.user()
        story.add("leaf", targetId=None)
        assert read_session(story.write(tmp_path)).walk() == ()


class TestBoundaries:
    def kept(self, story: Story, first: str | None, **more: Any) -> str:
        pointer: dict[str, Any] = {} if first is None else {"firstKeptEntryId": first}
        return story.add("compaction", summary="s", tokensBefore=1, **pointer, **more)

    def test_only_a_retained_mark_is_honoured(self, tmp_path: Path) -> None:
        """A mark before the first kept entry leaves the tool immediate; one behind it is kept."""
        story = Story()
        story.run("load", group="git", added=GIT)
        kept = story.user()
        web = story.run("load", group="web", added=["web_fetch"])
        self.kept(story, kept)
        story.user()
        assert projected(story.write(tmp_path)) == ({"read", "load", *GIT}, {"web_fetch": web})

    def test_the_last_compaction_decides(self, tmp_path: Path) -> None:
        """An older compaction inside the kept range changes nothing about what is kept."""
        story = Story()
        kept = story.user()
        at = story.run("load", group="git", added=GIT)
        self.kept(story, story.user())
        self.kept(story, kept)
        assert projected(story.write(tmp_path))[1] == {"git_blame": at, "git_log": at}

    def test_the_first_kept_entry_may_be_no_message(self, tmp_path: Path) -> None:
        """A label or a model change can be the first kept entry."""
        story = Story()
        story.user()
        label = story.add("label", targetId="e1", label="x")
        at = story.run("load", group="git", added=GIT)
        self.kept(story, label)
        assert set(projected(story.write(tmp_path))[1].values()) == {at}

    def test_a_compaction_that_keeps_nothing_names_itself(self, tmp_path: Path) -> None:
        """Its own id as the first kept entry is no damage and keeps nothing."""
        story = Story()
        story.run("load", group="git", added=GIT)
        self.kept(story, "own", id="own")
        path = story.write(tmp_path)
        assert read_session(path).damage == ()
        assert projected(path)[1] == {}

    @pytest.mark.parametrize("first", ["gone", None, "e9"])
    def test_a_pointer_off_the_path_is_damage(self, tmp_path: Path, first: str | None) -> None:
        """A first kept entry that is not above the compaction is reported; its tools stand at the top."""
        story = Story()
        story.run("load", group="git", added=GIT)
        at = self.kept(story, first)
        story.user("other branch", parent="e1")
        story.add("custom", id="e9", customType="x")
        session = read_session(story.write(tmp_path))
        assert [(d.kind.value, d.entry) for d in session.damage] == [("broken_boundary", at)]
        assert boundary(session.walk(at)).broken
        assert projected(session.path, at) == ({"read", "load", *GIT}, {})

    def test_a_retained_tail_is_found_in_the_entries(self, tmp_path: Path) -> None:
        """Copies in retainedTail are the entries they copy: one mark, at the entry, counted once."""
        story = Story()
        story.user()
        at = story.run("load", group="git", added=GIT)
        story.answer()
        tail = [line["message"] for line in story.lines[-3:]]
        self.kept(story, None, retainedTail=tail)
        session = read_session(story.write(tmp_path))
        assert projected(session.path)[1] == {"git_blame": at, "git_log": at}
        assert boundary(session.walk()).strays == ()
        marks = [e for e in events(session.walk(), POLICY) if e.marks]
        assert [e.entry for e in marks] == [at]

    def test_a_tail_and_a_pointer_are_not_both_counted(self, tmp_path: Path) -> None:
        """With both, the tail says what is kept."""
        story = Story()
        story.user()
        story.run("load", group="git", added=GIT)
        last = story.answer()
        compaction = self.kept(story, "e1", retainedTail=[story.lines[-1]["message"]])
        session = read_session(story.write(tmp_path))
        assert boundary(session.walk()).retained == {last, compaction}
        assert projected(session.path)[1] == {}

    def test_a_tail_without_its_entries_still_loads(self, tmp_path: Path) -> None:
        """Messages whose entries are lost are read from the tail, at the compaction that holds them."""
        story = Story()
        story.call("load", "c1", group="git")
        story.result("load", "c1", added=GIT)
        tail = [line["message"] for line in story.lines[-2:]]
        story.lines[1:] = []
        story.leaf = "lost"
        at = self.kept(story, None, retainedTail=tail)
        session = read_session(story.write(tmp_path))
        assert [d.kind.value for d in session.damage] == ["broken_chain"]
        assert projected(session.path)[1] == {"git_blame": at, "git_log": at}

    def test_an_edited_away_entry_is_not_retained(self, tmp_path: Path) -> None:
        """A context_edit without a replacement takes its target out of what the model sees; the last one wins."""
        story = Story()
        at = story.run("load", group="git", added=GIT)
        story.add("context_edit", targetId=at, replacement=None)
        gone = story.leaf
        story.add("context_edit", targetId=at, replacement={"content": []})
        path = story.write(tmp_path)
        assert projected(path, gone)[1] == {}
        assert projected(path)[1] == {"git_blame": at, "git_log": at}


class TestVersions:
    def test_version_1_has_neither_ids_nor_parents(self, tmp_path: Path) -> None:
        """Entries of a version-1 file are a list, and a compaction keeps from an index that counts the header."""
        story = Story({"type": "session", "id": "s"})
        story.user()
        story.run("load", group="git", added=GIT)
        story.add("compaction", summary="", firstKeptEntryIndex=2)
        for line in story.lines[1:]:
            del line["id"], line["parentId"]
        session = read_session(story.write(tmp_path))
        assert (session.version, session.damage, len(session.walk())) == (1, (), 4)
        assert set(projected(session.path)[1].values()) == {"line-4"}

    def test_version_4_is_told_by_its_header(self, tmp_path: Path) -> None:
        """Records, lanes and facts of a version-4 file are no entries; a lane line says the leaf."""
        story = Story()
        first = story.user()
        story.run("load", group="git", added=GIT)
        rows = [{"kind": "header", "version": 4, "id": "v4", "createdAt": 1, "cwd": "/"}]
        rows += [{"kind": "entry", "lane": "main", "seq": i, **line} for i, line in enumerate(story.lines[1:], 1)]
        rows.append({"kind": "record", "seq": 10, "id": "r", "lane": "main", "type": "tool_started"})
        rows.append({"kind": "fact", "seq": 11, "fact": "name", "name": "n"})
        path = tmp_path / "v4.jsonl"
        path.write_text("".join(json.dumps(r) + "\n" for r in rows))
        session = read_session(path)
        assert (session.version, session.leaf, session.unknown) == (4, story.leaf, {})
        rows.append({"kind": "lane", "seq": 12, "lane": "main", "leafId": first})
        path.write_text("".join(json.dumps(r) + "\n" for r in rows))
        assert read_session(path).leaf == first

    def test_entries_of_another_lane_do_not_move_the_leaf(self, tmp_path: Path) -> None:
        """The leaf is that of the main lane."""
        story = Story()
        first = story.user()
        story.add("message", lane="side", message={"role": "user", "content": "x"})
        assert read_session(story.write(tmp_path)).leaf == first

    def test_unknown_kinds_are_counted_and_named(self, tmp_path: Path) -> None:
        """Unknown types stay in the chain; types, roles and kinds are counted under their name."""
        story = Story()
        first = story.user()
        story.add("hologram", x=1)
        story.add("hologram", x=1)
        story.say("oracle", content="")
        story.lines.append({"kind": "comet", "seq": 1})
        session = read_session(story.write(tmp_path))
        assert session.unknown == {"kind comet": 1, "role oracle": 1, "type hologram": 2}
        assert session.walk()[0].id == first

    def test_all_four_kinds_of_record_in_one_file(self, tmp_path: Path) -> None:
        """No record, names on results, whole sets and system messages can follow one another on one path."""
        story = Story()
        story.user()
        story.run("load", group="git")
        names = story.run("load", group="web", added=["web_fetch"])
        story.add("active_tools_change", activeToolNames=["read", "load", *GIT, "web_fetch"])
        story.answer()
        story.system("read", "load", *GIT, "web_fetch", "extra")
        story.user()
        story.answer()
        story.system(removed=("git_log",))
        path = story.write(tmp_path)
        kinds = [e.kind for e in events(read_session(path).walk(), POLICY)]
        assert kinds.count(EventKind.REMOVAL) == 1
        assert projected(path) == ({"read", "load", *GIT}, {"web_fetch": names})


def test_loads_belong_to_the_path(tmp_path: Path) -> None:
    """Each leaf has its own loads."""
    story = Story()
    first = story.user()
    left = story.run("load", group="git", added=GIT)
    story.leaf = first
    right = story.run("load", group="web", added=["web_fetch"])
    path = story.write(tmp_path)
    assert set(projected(path, left)[1]) == set(GIT)
    assert set(projected(path, right)[1]) == {"web_fetch"}
    assert projected(path, first)[1] == {}


def test_an_unknown_leaf_is_the_callers_mistake(tmp_path: Path) -> None:
    """A leaf that is not in the file is refused with its place."""
    story = Story()
    story.user()
    with pytest.raises(InvalidInputError, match="leaf"):
        project_session(story.write(tmp_path), POLICY, leaf="nowhere")


def test_call_ids_may_repeat(tmp_path: Path) -> None:
    """A result belongs to the newest call of its id."""
    story = Story()
    for group in ("web", "git"):
        story.call("load", "same", group=group)
        story.result("load", "same")
    assert projected(story.write(tmp_path))[0] == {"read", "load", "web_fetch", *GIT}


def test_broken_traces(tmp_path: Path) -> None:
    """A result without a call and a call without a result are found; failed answers and the open end are not."""
    story = Story()
    story.result("read", "nobody")
    story.call("read", "a", "b")
    story.result("read", "a")
    story.user()
    story.say(
        "assistant", content=[{"type": "toolCall", "id": "x", "name": "read", "arguments": {}}], stopReason="aborted"
    )
    story.user()
    story.call("read", "open")
    found = [(b.call, b.missing) for b in broken_trace(read_session(story.write(tmp_path)).walk())]
    assert found == [("nobody", "call"), ("b", "result")]


def test_providers_decide_about_marks(tmp_path: Path) -> None:
    """The policy's provider and the one given decide whether a mark is used; an unknown one is refused."""
    story = Story()
    at = story.run("load", group="git", added=GIT)
    path = story.write(tmp_path)
    for name in ("anthropic", "openai-responses", "openai_responses", "kimi"):
        assert set(projected(path, provider=name)[1].values()) == {at}
    for name in ("openai-completions", "chat", "openai_chat"):
        assert projected(path, provider=name)[1] == {}
    assert set(project_session(path, POLICY)["deferred"].values()) == {at}
    plain = parse('loaders = ["load"]\n[groups]\ngit = ["git_log"]\n[provider]\ndefers = ""')
    assert project_session(path, plain)["deferred"] == {}
    with pytest.raises(InvalidInputError, match="provider"):
        projected(path, provider="nobody")


def test_authority_and_resources_withhold(tmp_path: Path) -> None:
    """What is loaded and not permitted, or down, is withheld with its reason and stays loaded."""
    story = Story()
    story.run("load", groups="git,web", added=[*GIT, "web_fetch"])
    policy = parse(
        'resident = ["read", "load"]\nallow = ["git/*", "load", "web_fetch"]\nask = ["read"]\ndeny = ["git_blame"]\n'
        '[groups]\ngit = ["git_log", "git_blame"]\nweb = ["web_fetch"]\n[resources]\nweb = "down"'
    )
    found = project_session(story.write(tmp_path), policy)
    assert found["withheld"] == {"git_blame": "not_authorised", "web_fetch": "resource_unavailable"}
    assert found["loaded"] == ["git_blame", "git_log", "load", "read", "web_fetch"]
    assert found["immediate"] == ["load", "read"]
    assert found["loads_from"] == "transcript"
