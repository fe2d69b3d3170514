"""What must hold after an event: each check of ``then.checks`` is one function over what was seen.

A function gives (what, expected, got) for each thing that does not hold. Nothing rests on the product's word
alone: sets and places are read from the request's bytes, runs from the spies, states from the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.scenarios.reading import (
    Fault,
    changes_of,
    child_record,
    look_of,
    outcome_of,
    product_operation,
    same,
    spies_of,
    state_of,
)
from tests.scenarios.requests import WIRE, trace, wire
from tests.scenarios.stage import Stage, UnsupportedError
from tests.scenarios.states import State

_ASIDE = {"after", "check", "session", "note", "soft", "event", "text", "call", "calls", "operation", "child", "about"}


def evaluate(story: Stage, check: Mapping[str, Any]) -> list[Fault]:
    """Return what does not hold of one check.

    Raises:
        UnsupportedError: the check, or a word in it, is unknown.
    """
    name = check["check"]
    function = _CHECKS.get(name)
    if function is None:
        raise UnsupportedError(f"check {name}")
    known, tell = function
    unknown = set(check) - _ASIDE - known
    if unknown:
        raise UnsupportedError(f"check {name}: {', '.join(sorted(unknown))}")
    return list(tell(story, check, state_of(story, check["after"])))


def _callable(_: Stage, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    look = look_of(state, check["session"])
    got = look.callable
    if look.exceeded is not None:
        yield "request exceeds the surface", None, look.exceeded
    if not look.agreed:
        yield "bytes, surface and explain agree", got, [sorted(look.wires), look.explained]
    withheld = [q for q, reason in look.withheld.items() if reason == check.get("unless")]
    if "exactly" in check and sorted(check["exactly"]) != sorted({*got, *(set(withheld) & set(check["exactly"]))}):
        yield "exactly", sorted(check["exactly"]), got
    if "subset_of" in check and not set(got) <= set(check["subset_of"]):
        yield "subset_of", sorted(check["subset_of"]), got
    if set(check.get("excludes", ())) & set(got):
        yield "excludes", check["excludes"], got


_RECEIPT: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "added": lambda r: changes_of(r, "added"),
    "removed": lambda r: changes_of(r, "removed"),
    "placement_changed": lambda r: changes_of(r, "moved"),
    "redefined": lambda r: changes_of(r, "redefined"),
    "withheld": lambda r: changes_of(r, "withheld"),
    "items": lambda r: sorted(r["dropped"]),
    "cause": lambda r: r["cause"],
}


def _receipt_fits(receipt: Mapping[str, Any], check: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields in which a receipt is not the one of the check."""
    wrong: dict[str, Any] = {}
    if check.get("kind") is not None and check["kind"] not in receipt["kinds"]:
        wrong["kind"] = receipt["kinds"]
    if "reason" in check and not _among(check["reason"], receipt["reasons"]):
        wrong["reason"] = receipt["reasons"]
    if "tools" in check:
        tools = changes_of(receipt, "added", "removed", "redefined", "moved", "withheld")
        if not set(check["tools"]) <= set(tools):
            wrong["tools"] = tools
    for word, read in _RECEIPT.items():
        if word not in check:
            continue
        got, expected = read(receipt), check[word]
        if not same(sorted(expected) if isinstance(expected, list) else expected, got):
            wrong[word] = got
    return wrong


def _among(expected: Any, reasons: list[str]) -> bool:
    wanted = (
        expected["any_of"] if isinstance(expected, dict) else expected if isinstance(expected, list) else [expected]
    )
    return bool(set(wanted) & set(reasons))


def _receipt(_: Stage, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    written = state.receipts.get(check["session"], [])
    wrong = [_receipt_fits(receipt, check) for receipt in written]
    if not any(not one for one in wrong):
        yield "receipt", {k: v for k, v in check.items() if k not in ("after", "check", "session")}, wrong or "none"


def _no_receipt(_: Stage, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    for receipt in state.receipts.get(check["session"], []):
        if not _receipt_fits(receipt, check):
            yield "no receipt", None, {"kinds": receipt["kinds"], "reasons": receipt["reasons"]}


def _refused(story: Stage, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    call = check["call"]
    refusals = [r for r in story.refusals.get(call, ()) if r["event"] <= state.n]
    if "session" in check:
        refusals = [r for r in refusals if r["session"] == check["session"]]
    if not any(same(check["error"], r["refused"]) for r in refusals):
        yield "error", check["error"], [r["refused"] for r in refusals] or "not refused"
    for name in check.get("text_excludes", ()):
        if any(name in r["text"] for r in refusals):
            yield "text_excludes", name, [r["text"] for r in refusals]


def _executed(_: Stage, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    runs = spies_of(state, check["call"], check.get("session"))
    if "times" in check and len(runs) != check["times"]:
        yield "times", check["times"], len(runs)
    if "at_most" in check and len(runs) > check["at_most"]:
        yield "at_most", check["at_most"], len(runs)
    if "with_args" in check and not any(run["args"] == check["with_args"] for run in runs):
        yield "with_args", check["with_args"], [run["args"] for run in runs]


def _executed_after(story: Stage, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    runs = [run for run in spies_of(state, check["call"]) if run["event"] > check["event"]]
    if "at_most" in check and len(runs) > check["at_most"]:
        yield "at_most", check["at_most"], len(runs)
    if "times" in check and len(runs) != check["times"]:
        yield "times", check["times"], len(runs)
    if "with_operation_id" in check:
        known = product_operation(story, check["with_operation_id"])
        for run in runs:
            if run["operation"] != known:
                yield "with_operation_id", known, run["operation"]


def _body_reached(_: Stage, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    runs = [run for run in state.spies if run["tool"] == check["tool"]]
    if not same(check["times"], len(runs)):
        yield "times", check["times"], len(runs)


def _inner_refused(story: Stage, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    yield from _refused(story, check, state)
    reached = [run["tool"] for run in state.spies if run["call"] == check["call"] and "via" in run]
    if reached:
        yield "inner tool", "not reached", reached


def _started_among(_: Stage, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    started = [call for call in check["calls"] if spies_of(state, call)]
    if len(started) != check["count"]:
        yield "count", check["count"], started


def _refused_among(story: Stage, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    refused = [
        call
        for call in check["calls"]
        if any(
            r["event"] <= state.n and same(check.get("error", r["refused"]), r["refused"])
            for r in story.refusals.get(call, ())
        )
    ]
    if len(refused) != check["count"]:
        yield "count", check["count"], refused


def _dispatched(_: Stage, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    tools = [run["tool"] for run in spies_of(state, check["call"])]
    if set(tools) != {check["tool"]}:
        yield "tool", check["tool"], tools


def _outcome(_: Stage, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    got = outcome_of(state, check["session"], check["call"])
    if not same(check["is"], got):
        yield "is", check["is"], got


def _ledger(story: Stage, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    id_ = product_operation(story, check["operation"])
    known = [chain["operations"][id_] for chain in state.chains.values() if id_ in chain["operations"]]
    if not known:
        yield "operation", check["operation"], "not in the ledger"
        return
    operation = known[0]
    for word in ("state", "settled", "owner"):
        if word in check and not same(check[word], operation[word]):
            yield word, check[word], operation[word]
    if "evidence" in check and check["evidence"] != [operation["evidence"]]:
        yield "evidence", check["evidence"], operation["evidence"]


def _error(story: Stage, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    if "about" in check:
        id_ = product_operation(story, check["about"])
        known = [chain["operations"][id_] for chain in state.chains.values() if id_ in chain["operations"]]
        got = None if known and known[0]["settled"] else "outcome_unknown"
    else:
        got = state_of(story, check.get("event", check["after"])).error
    if not same(check["error"], got):
        yield "error", check["error"], got


def _limit(story: Stage, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    root = check.get("session", story.given.get("limits", {}).get("root", "main"))
    chain = state.chains[root]
    used = (chain["pool"] or {"calls": 0})["calls"]
    runs = [run for run in state.spies if "via" not in run]
    if not same(check.get("used", used), used):
        yield "used", check["used"], used
    if used != len(runs):
        yield "used, by the runs", len(runs), used
    most = (chain["limits"] or {}).get("calls")
    if not same(check.get("max", most), most):
        yield "max", check["max"], most


def _child_record(_: Stage, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    kept = child_record(state, check["child"])
    if kept is None:
        yield "child", check["child"], "no record"
        return
    for word in ("status", "trace_ref", "claims", "waiting_on"):
        if word in check and not same(check[word], kept[word]):
            yield word, check[word], kept[word]


def _summary_outcomes(_: Stage, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    summaries = [m for m in state.views[check["session"]] if m["role"] == "summary"]
    told = {row["call"]: row["outcome"] for m in summaries for row in m.get("rows", ())}
    for call, outcome in check["outcomes"].items():
        if told.get(call) != outcome:
            yield f"outcomes of {call}", outcome, told.get(call)
    sources = {id_ for m in summaries for id_ in m.get("covers", ())}
    if not set(check.get("source_messages_include", ())) <= sources:
        yield "source_messages_include", check["source_messages_include"], sorted(sources)


def _journal(_: Stage, check: Mapping[str, Any], state: State) -> Iterator[Fault]:
    told = state.journal
    for word in ("readable_records", "damaged", "sequence", "line"):
        if word in check and not same(check[word], told[word]):
            yield word, check[word], told[word]
    if not set(check.get("contains", ())) <= set(told["ids"]):
        yield "contains", check["contains"], told["ids"]
    if set(check.get("excludes", ())) & set(told["ids"]):
        yield "excludes", check["excludes"], told["ids"]


_Tell = Callable[[Stage, Mapping[str, Any], State], Iterator[Fault]]


_CHECKS: dict[str, tuple[set[str], _Tell]] = {
    "callable": ({"exactly", "subset_of", "excludes", "unless"}, _callable),
    "refused": ({"error", "text_excludes"}, _refused),
    "executed": ({"times", "at_most", "with_args"}, _executed),
    "executed_after": ({"times", "at_most", "with_operation_id"}, _executed_after),
    "body_reached": ({"tool", "times"}, _body_reached),
    "inner_refused": ({"error", "text_excludes", "inner", "tool"}, _inner_refused),
    "started_among": ({"count"}, _started_among),
    "refused_among": ({"count", "error"}, _refused_among),
    "dispatched": ({"tool"}, _dispatched),
    "outcome": ({"is"}, _outcome),
    "ledger": ({"state", "settled", "owner", "evidence"}, _ledger),
    "error": ({"error"}, _error),
    "limit": ({"used", "max"}, _limit),
    "receipt": ({"kind", "reason", "tools", *_RECEIPT}, _receipt),
    "no_receipt": ({"kind", "reason", "tools", *_RECEIPT}, _no_receipt),
    "trace": ({"valid", "open_calls", "results_for", "kept_includes", "group_atomic", "same_as_event", "adjacent",
               "occurrences", "evidence_order", "summaries_at_most"}, trace),
    "wire": ({*WIRE, "or_withheld", "tools"}, wire),
    "child_record": ({"status", "trace_ref", "claims", "waiting_on"}, _child_record),
    "summary_outcomes": ({"outcomes", "source_messages_include"}, _summary_outcomes),
    "journal": ({"readable_records", "damaged", "sequence", "line", "contains", "excludes"}, _journal),
}  # fmt: skip
