"""Cases of our own, one for each word that the twenty do not use. Python, because they share their beginnings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

BETA = {
    "id": "beta", "model": "b1", "issuer": "beta/b1/acct1", "deferred_loading": False, "name_limit": 64,
    "name_chars": "A-Za-z0-9_", "call_id_limit": 40, "call_id_chars": "A-Za-z0-9_-", "tool_limit": 128,
}  # fmt: skip
ALPHA = {**BETA, "id": "alpha", "issuer": "alpha/m1/acct1", "deferred_loading": True, "name_limit": 128,
         "name_chars": "A-Za-z0-9_-", "call_id_limit": None, "call_id_chars": None, "tool_limit": None}  # fmt: skip


def tool(name: str, effect: str = "read", **more: Any) -> dict[str, Any]:
    return {"name": name, "effect": effect, "schema": {"type": "object", "properties": {}}, **more}


def group(id_: str, *tools: dict[str, Any], resource: str | None = None) -> dict[str, Any]:
    return {"id": id_, "resource": resource, "tools": list(tools)}


def grant(on: str, effect: str = "allow", **more: Any) -> dict[str, Any]:
    return {"holder": "main", "scope": "config", "effect": effect, "on": on, "lifetime": "persistent", **more}


def event(op: str, session: str = "main", **more: Any) -> dict[str, Any]:
    return {"op": op, "session": session, **more}


def propose(*calls: Any, session: str = "main", run: str = "all", **more: Any) -> dict[str, Any]:
    """Calls as (id, tool) or (id, tool, args)."""
    made = [{"id": c[0], "tool": c[1], "args": c[2] if len(c) > 2 else {}} for c in calls]
    return event("model_calls", session, calls=made, run=run, **more)


def check(after: Any, name: str, session: str | None = "main", **more: Any) -> dict[str, Any]:
    return {"after": after, "check": name, **({"session": session} if session else {}), **more}


def case(
    id_: str,
    when: Sequence[dict[str, Any]],
    checks: Sequence[dict[str, Any]],
    never: Sequence[dict[str, Any]] = (),
    *,
    provider: dict[str, Any] = BETA,
    groups: Sequence[dict[str, Any]] = (),
    grants: Sequence[dict[str, Any]] = (),
    loaded: Sequence[str] | None = None,
    **given: Any,
) -> dict[str, Any]:
    world = {"provider": provider, "groups": list(groups), "grants": list(grants), **given}
    if "journal" not in given:
        world |= {"loaded": {"main": list(loaded if loaded is not None else [g["id"] for g in groups])}}
        world.setdefault("transcript", {"main": [{"id": "u1", "role": "user", "text": "hello there"}]})
    return {
        "id": id_, "kind": "words", "given": world,
        "when": [{"n": n, **e} for n, e in enumerate(when, 1)],
        "then": {"checks": list(checks), "never": [{"text": n["predicate"], **n} for n in never]},
    }  # fmt: skip


MAIL = group("mail", tool("send", "external"), tool("put", "external", idempotent=True), resource="srv")
NOTES = group("notes", tool("read"), tool("save", "external"))
DOCS = group("docs", tool("find"))
SRV = [{"id": "srv", "kind": "server", "state": "up"}]
MESSAGE = {"id": "u2", "role": "user", "text": "and now this"}


def forked() -> dict[str, Any]:
    return case(
        "fork",
        [
            event("load", groups=["notes"], load_point="t1"),
            event("load", groups=["docs"], load_point="t2"),
            propose(("k1", "mail/send", {"to": "x"}), run="none"),
            event("begin", calls=["k1"], operation="op-1"),
            {"op": "fork", "from": "main", "at": "a3-main", "to": "copy"},
            {"op": "fork", "from": "main", "at": "t1", "to": "early"},
            propose(("f1", "mail/send", {"to": "x"}), session="copy"),
            propose(("f2", "mail/send", {"to": "y"}), session="copy"),
            event("late_result", call="k1", outcome="ok", evidence="E1"),
            event("end_session"),
            propose(("f3", "mail/send", {"to": "x"}), session="copy"),
        ],
        [
            check(5, "callable", "copy", exactly=["docs/find", "mail/put", "mail/send", "notes/read", "notes/save"]),
            check(5, "trace", "copy", valid=True, results_for={"k1": 1}),
            check(5, "outcome", "copy", call="k1", **{"is": "outcome_unknown"}),
            check(5, "receipt", "copy", kind="rederived", reason="fork", removed=[]),
            check(6, "callable", "early", exactly=["mail/put", "mail/send", "notes/read"], excludes=["docs/find"]),
            check("end", "refused", None, call="f1", error="outcome_unknown"),
            check("end", "executed", None, call="f2", times=1),
            check(9, "ledger", None, operation="op-1", settled=True, owner="main", evidence=["E1"]),
            check("end", "executed", None, call="f3", times=1),
        ],
        [
            {"predicate": "fork_bound_to_origin"},
            {"predicate": "late_result_in_fork"},
            {"predicate": "authority_from_text"},
            {"predicate": "stored_id_changed"},
        ],
        groups=[MAIL, NOTES, DOCS],
        loaded=["mail"],
        resources=SRV,
        grants=[
            grant("mail/*"),
            grant("docs/*"),
            grant("notes/read", scope="user"),
            grant("notes/save", scope="user", lifetime="session"),
            grant("notes/save", scope="user", holder="copy"),
        ],
    )


def unloaded() -> dict[str, Any]:
    return case(
        "unload",
        [
            event("load", groups=["docs"], load_point="t1"),
            event("unload", groups=["docs"]),
            propose(("c1", "docs/find")),
            event("restart"),
            event("load", groups=["docs"], load_point="t5"),
        ],
        [
            check(1, "wire", placement={"docs/find": "deferred"}),
            check(2, "callable", exactly=["notes/read"]),
            check(2, "receipt", kind="narrowed", removed=["docs/find"], reason="unload"),
            check(3, "refused", None, call="c1", error="not_loaded"),
            check(4, "callable", exactly=["notes/read"]),
            check(5, "wire", placement={"docs/find": "deferred", "notes/read": "immediate"}, legal=True),
            check(5, "receipt", kind="widened", reason="load", added=["docs/find"]),
        ],
        [{"predicate": "silent_change"}, {"predicate": "reference_to_uncallable"}, {"predicate": "illegal_name"}],
        provider=ALPHA,
        groups=[DOCS, group("notes", tool("read"))],
        loaded=["notes"],
        grants=[grant("docs/*"), grant("notes/*")],
    )


def temporary() -> dict[str, Any]:
    job = {"holder": "main", "effect": "allow", "scope": "temporary"}
    return case(
        "temporary",
        [
            event("begin_temporary", id="j1", grants=[{**job, "on": "notes/save", "lifetime": "until:j1"}]),
            event("begin_temporary", id="j2", grants=[{**job, "on": "docs/find", "lifetime": "until:j2"}]),
            event("end_temporary", id="j1"),
            propose(("c1", "notes/save"), ("c2", "docs/find")),
            event("crash"),
            event("resume"),
            propose(("c3", "docs/find")),
        ],
        [
            check(1, "callable", exactly=["notes/read", "notes/save"]),
            check(2, "callable", exactly=["docs/find", "notes/read", "notes/save"]),
            check(3, "callable", exactly=["docs/find", "notes/read"]),
            check(3, "receipt", kind="narrowed", reason="authority", removed=["notes/save"]),
            check("end", "refused", None, call="c1", error="not_authorised"),
            check("end", "executed", None, call="c2", times=1),
            check(6, "callable", exactly=["notes/read"]),
            check("end", "refused", None, call="c3", error="not_authorised"),
        ],
        [{"predicate": "authority_from_text"}],
        groups=[NOTES, DOCS],
        grants=[grant("notes/read")],
    )


def lost() -> dict[str, Any]:
    return case(
        "transport_lost",
        [
            propose(("s1", "mail/send", {"to": "x"}), ("p1", "mail/put", {"k": 1}), run="none"),
            event("begin", calls=["s1"], operation="op-s"),
            event("begin", calls=["p1"], operation="op-p"),
            event("transport_lost", resource="srv", in_flight=["s1", "p1"]),
            propose(("s2", "mail/send", {"to": "x"})),
            event("resource", id="srv", state="up"),
            propose(("s3", "mail/send", {"to": "x"}), ("p2", "mail/put", {"k": 1}), ("s4", "mail/send", {"to": "z"})),
            event("reconcile", operation="op-s", tool_side="not_done"),
            propose(("s5", "mail/send", {"to": "x"})),
        ],
        [
            check(4, "callable", exactly=[]),
            check(4, "outcome", call="s1", **{"is": "outcome_unknown"}),
            check(4, "ledger", None, operation="op-s", settled=False),
            check(4, "trace", valid=True, results_for={"s1": 1, "p1": 1}),
            check(5, "refused", None, call="s2", error="resource_unavailable"),
            check(7, "refused", None, call="s3", error="outcome_unknown"),
            check(7, "executed_after", None, event=4, call="p2", times=1, with_operation_id="op-p"),
            check(7, "executed", None, call="s4", times=1),
            check("end", "executed", None, call="s5", times=1),
        ],
        [{"predicate": "operation_reused"}, {"predicate": "synthetic_result"}, {"predicate": "result_dropped"}],
        groups=[MAIL],
        resources=SRV,
        grants=[grant("mail/*")],
    )


def reached() -> dict[str, Any]:
    tools = group("meta", tool("call", "external", reaches="name"), tool("find", "read", reaches="name"))
    return case(
        "reaches",
        [
            propose(
                ("b1", "meta/call", {"name": "notes/read"}),
                ("b2", "meta/call", {"name": "notes/save"}),
                ("b3", "meta/call", {"name": "docs/find"}),
                ("b4", "meta/call", {"name": "ghost/none"}),
                ("l1", "meta/find", {"name": "docs/find"}),
                ("l2", "meta/find", {"name": "notes/save"}),
            )
        ],
        [
            check("end", "executed", None, call="b1", times=1),
            check("end", "body_reached", None, tool="notes/read", times=1),
            check("end", "inner_refused", None, call="b2", error="not_authorised"),
            check("end", "inner_refused", None, call="b3", error="not_loaded"),
            check("end", "inner_refused", None, call="b4", error="unknown_tool", text_excludes=["notes/save"]),
            check("end", "executed", None, call="l1", times=1),
            check("end", "refused", None, call="l2", error="not_authorised"),
            check("end", "body_reached", None, tool="notes/save", times=0),
        ],
        [{"predicate": "body_reached", "tool": "docs/find"}, {"predicate": "leaks_names"}],
        groups=[tools, NOTES, DOCS],
        loaded=["meta", "notes"],
        grants=[grant("meta/*"), grant("notes/read"), grant("docs/*")],
    )


def compacted() -> dict[str, Any]:
    return case(
        "compact",
        [
            propose(("c1", "docs/find"), ("c2", "docs/find")),
            event("say", messages=[MESSAGE]),
            event("compact", kind="semantic", keep_last=0, result="summariser_failed"),
            event("compact", kind="semantic", keep_from="u2", summary_text="found it twice"),
            propose(("c3", "docs/find")),
            event("compact", kind="semantic", keep_last=1, summary_text="found it three times"),
            event("restart"),
            event("compact", kind="native", keep_last=0),
        ],
        [
            check(3, "trace", valid=True, kept_includes=["u1", "u2"], same_as_event=2),
            check(3, "no_receipt", kind="rederived"),
            check(4, "trace", valid=True, kept_includes=["u2"], summaries_at_most=1, group_atomic=["a1-main"]),
            check(5, "trace", valid=True, occurrences=1),
            check(6, "trace", valid=True, summaries_at_most=1, kept_includes=["a5-main"]),
            check(7, "trace", same_as_event=6),
            check(8, "receipt", kind="rederived", reason="native_compaction"),
            check("end", "callable", exactly=["docs/find"]),
        ],
        [
            {"predicate": "changed_by_failed_compaction"},
            {"predicate": "summary_inside_group"},
            {"predicate": "summary_contains_schema"},
            {"predicate": "group_split"},
            {"predicate": "orphan_result"},
            {"predicate": "open_call_summarised"},
        ],
        groups=[DOCS],
        grants=[grant("docs/*")],
    )


def approved() -> dict[str, Any]:
    return case(
        "approve",
        [
            propose(("s1", "mail/send", {"to": "x"}), ("s2", "mail/send", {"to": "y"}), run="none"),
            event("begin", calls=["s2"]),
            event("approve", call="s1", decision="once"),
            event("restart"),
            event("begin", calls=["s1"], args_now={"to": "z"}),
            event("begin", calls=["s2"]),
            event("begin", calls=["s1"]),
            event("finish", call="s1", outcome="ok", evidence="E1", message="t1", detail="sent to x"),
            event("begin", calls=["s1"]),
            event("approve", call="s2", decision="reject"),
            propose(("s3", "mail/send", {"to": "x"}), run="none"),
            event("begin", calls=["s3"]),
            event("approve", call="s3", decision="once"),
            event("set_grants", add=[grant("mail/send", "deny", scope="user", id="g-no")]),
            event("begin", calls=["s3"]),
        ],
        [
            check(1, "callable", exactly=["mail/put", "mail/send"]),
            check(2, "refused", None, call="s2", error="needs_approval"),
            check(2, "trace", valid="open", open_calls=["s1", "s2"]),
            check(5, "executed", None, call="s1", times=0),
            check(5, "refused", None, call="s1", error="needs_approval"),
            check(6, "executed", None, call="s2", times=0),
            check(7, "executed", None, call="s1", times=1, with_args={"to": "x"}),
            check(8, "trace", valid="open", open_calls=["s2"]),
            check(9, "executed", None, call="s1", times=1),
            check(10, "outcome", call="s2", **{"is": "denied"}),
            check(10, "trace", valid=True),
            check("end", "refused", None, call="s3", error="not_authorised"),
            check("end", "executed", None, call="s3", times=0),
        ],
        [
            {"predicate": "approval_misrouted"},
            {"predicate": "approval_reused"},
            {"predicate": "executed_unapproved_args"},
            {"predicate": "outcome_becomes", "call": "s2", "forbidden": ["ok", "not_run"]},
        ],
        groups=[MAIL],
        resources=SRV,
        grants=[grant("mail/*", "ask")],
    )


def repeated_ids() -> dict[str, Any]:
    calls = [{"id": "x1", "tool": "docs/find", "args": {}}]
    return case(
        "repeated ids",
        [
            event("say", messages=[MESSAGE]),
            propose(("x1", "docs/find", {"again": True}), ("y.2", "docs/find"), ("y:2", "docs/find")),
            event("switch_provider", to=ALPHA),
        ],
        [
            check(2, "wire", call_ids="injective_per_occurrence", pairs_preserved=True, max_length=40, legal=True),
            check(2, "trace", valid=True, occurrences=4, adjacent=[["a1", "t1"], ["t1", "u2"]], evidence_order=["E1"]),
            check(3, "wire", call_ids="injective_per_occurrence", pairs_preserved=True, names="injective"),
            check(3, "receipt", reason="provider_switch"),
        ],
        [{"predicate": "call_id_collision"}, {"predicate": "stored_id_changed"}, {"predicate": "result_dropped"}],
        groups=[DOCS],
        grants=[grant("docs/*")],
        evidence=[{"id": "E1", "text": "a page"}],
        transcript={
            "main": [
                {"id": "u1", "role": "user", "text": "hello there"},
                {"id": "a1", "role": "assistant", "calls": calls},
                {"id": "t1", "role": "tool", "result_for": "x1", "outcome": "ok", "evidence": "E1"},
            ]
        },
    )


def narrow_names() -> dict[str, Any]:
    return case(
        "short names",
        [event("project", label="P1"), propose(("c1", "docs/find"))],
        [
            check(1, "wire", names="injective", legal=True, tools=["docs/find"], or_withheld="name_unrepresentable"),
            check("end", "refused", None, call="c1", error="name_unrepresentable"),
        ],
        [{"predicate": "silent_drop"}, {"predicate": "name_collision"}, {"predicate": "illegal_name"}],
        provider={**BETA, "name_limit": 8},
        groups=[DOCS, group("a", tool("b"))],
        grants=[grant("*")],
    )


def hole(*lines: str, **journal: Any) -> dict[str, Any]:
    return case(
        "hole",
        [
            {"op": "open_writer", "session": "main", "process": "p1"},
            propose(("c1", "notes/save")),
            {"op": "append", "process": "p1", "record": {"kind": "message", "id": "u9"}},
            {"op": "close", "process": "p1"},
            {"op": "open_reader", "session": "main", "process": "p2"},
        ],
        [
            check(1, "receipt", kind="recovered_hole"),
            check(1, "journal", None, damaged="hole", sequence="gap", **journal),
            check(1, "callable", exactly=["notes/read", "notes/save"]),
            check(2, "refused", None, call="c1", error="session_read_only"),
            check("end", "journal", None, contains=["u9"]),
        ],
        [{"predicate": "silent_recovery"}, {"predicate": "records_ignored"}],
        groups=[NOTES, DOCS],
        grants=[grant("*")],
        journal=list(lines),
    )


SESSION = '{"n":1,"kind":"session","id":"main"}\n'
LOADED = '{"n":2,"kind":"loaded","groups":["notes"]}\n'


def zeroed() -> dict[str, Any]:
    after = '{"n":4,"kind":"loaded","groups":["docs"]}\n'
    return hole(SESSION, LOADED, "\0" * 40 + "\n", after, readable_records=3, line=3)


def missing() -> dict[str, Any]:
    after = '{"n":4,"kind":"message","id":"u1"}\n'
    return hole(SESSION, LOADED, after, readable_records=3, line=3)


def revoked_meanwhile() -> dict[str, Any]:
    return case(
        "revoked while a call runs",
        [
            {"op": "spawn", "parent": "main", "child": "kid", "want": ["mail/send", "mail/put"]},
            propose(("k1", "mail/send", {"to": "x"}), ("k2", "mail/send", {"to": "y"}), ("k3", "mail/put", {"k": 1}),
                    session="kid", run="none"),
            event("begin", "kid", calls=["k1"], operation="op-1"),
            event("set_grants", remove=["g-send"]),
            event("begin", "kid", calls=["k2"]),
            event("finish", "kid", call="k1", outcome="ok", evidence="E1"),
            event("set_grants", remove=["g-put"]),
            event("begin", "kid", calls=["k3"]),
        ],
        [
            check(1, "callable", "kid", exactly=["mail/put", "mail/send"]),
            check(4, "callable", "kid", exactly=["mail/put"]),
            check(4, "receipt", "kid", kind="narrowed", reason="parent_ceiling", removed=["mail/send"]),
            check(5, "refused", None, call="k2", error="not_authorised"),
            check(6, "outcome", "kid", call="k1", **{"is": "ok"}),
            check(6, "ledger", None, operation="op-1", settled=True, owner="kid"),
            check(8, "refused", None, call="k3", error="not_authorised"),
            check("end", "trace", "kid", valid=True),
        ],
        [{"predicate": "child_exceeds_parent"}, {"predicate": "executed", "calls": ["k2", "k3"]}],
        groups=[MAIL],
        resources=SRV,
        grants=[grant("mail/send", scope="user", id="g-send"), grant("mail/put", id="g-put")],
    )  # fmt: skip


def twice_named() -> dict[str, Any]:
    other = {"type": "object", "properties": {"page": {"type": "integer"}}}
    twice = group("wiki", tool("find"), {**tool("find"), "schema": other}, tool("read"))
    return case(
        "one name, two definitions",
        [propose(("c1", "wiki/find"), ("c2", "wiki/read")), event("load", groups=["wiki"], load_point="t2")],
        [
            check("start", "callable", exactly=["wiki/read"]),
            check("end", "refused", None, call="c1", error="name_conflict"),
            check("end", "executed", None, call="c2", times=1),
            check(2, "error", None, event=2, error="name_conflict"),
            check("end", "callable", exactly=["wiki/read"], excludes=["wiki/find"]),
        ],
        [{"predicate": "name_collision"}, {"predicate": "misdispatch"}],
        groups=[twice],
        grants=[grant("wiki/*")],
    )


def misrouted() -> dict[str, Any]:
    return case(
        "an approval for another session",
        [
            {"op": "spawn", "parent": "main", "child": "kid", "want": ["mail/send"]},
            propose(("s1", "mail/send", {"to": "x"}), run="none"),
            propose(("s1", "mail/send", {"to": "x"}), session="kid", run="none"),
            event("approve", "kid", call="s1", decision="once"),
            event("begin", calls=["s1"]),
            event("begin", "kid", calls=["s1"]),
        ],
        [
            check(1, "callable", "kid", exactly=["mail/send"]),
            check("end", "executed", "main", call="s1", times=0),
            check("end", "refused", "main", call="s1", error="needs_approval"),
            check("end", "executed", "kid", call="s1", times=1),
        ],
        [{"predicate": "approval_misrouted"}, {"predicate": "approval_reused"}],
        groups=[MAIL],
        resources=SRV,
        grants=[grant("mail/*", "ask")],
    )


ALL = (
    forked, unloaded, temporary, lost, reached, compacted, approved, repeated_ids, narrow_names, zeroed, missing,
    revoked_meanwhile, twice_named, misrouted,
)  # fmt: skip
