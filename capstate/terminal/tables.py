"""Tables and lists of the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from capstate.terminal.page import clean, counted, say

if TYPE_CHECKING:
    from rich.console import Console

    from capstate.conformance.matrix import Cell, Result
    from capstate.conformance.recorded import Recorded
    from capstate.findings import Rule


def show_matrix(
    out: Console, result: Result, recorded: Mapping[str, Recorded], designs: Sequence[str], *, places: bool = False
) -> None:
    """Print one row a scenario, one column a design, the recording first, and a turn of each count.

    ``places``: every turn of each count.
    """
    table = Table(box=None, padding=(0, 1), show_edge=False, header_style="bold", pad_edge=False)
    table.add_column("scenario", overflow="fold")
    for column in ("recorded Pi", *designs):
        table.add_column(column, justify="center", overflow="fold")
    for row in result.rows:
        seen = recorded[row.scenario.id]
        told = _counts(("lost", seen.lost), ("widened", seen.widened), ("ran", seen.ran))
        cells = [_cell(row.worst(design)) for design in designs]
        table.add_row(Text(f"{row.scenario.id:<3}{row.scenario.title}"), told, *cells)
    out.print(table)
    out.print()
    profiles = sorted({cell.profile for row in result.rows for cells in row.cells.values() for cell in cells})
    say(
        out,
        "Turns: L lost, W widened, U unexplained; R tools that ran without permission. Each cell is the provider "
        f"profile with the most faults of {len(profiles)}. Recorded: one real agent; its permission lists and "
        "replies are ours, and it was never told of the lists.",
        "dim",
    )
    which = "every turn" if places else "the first turn of each count (--places: every one)"
    say(
        out,
        f"Below: {which}, with its profile; recorded: the first of each. --provider NAME: another profile; --record "
        "FILE: all turns.",
        "dim",
    )
    out.print()
    _places(out, result, recorded, designs, every=places)
    if "B+C" in designs:
        what = "0 in every cell, in every profile" if result.holds else "NOT 0"
        say(out, f"B+C: {what}", "bold green" if result.holds else "bold red")


def _cell(cell: Cell | None) -> Text:
    if cell is None:
        return Text("n/a", style="dim")
    return _counts(("lost", cell.lost), ("widened", cell.widened), ("unexplained", cell.unexplained))


_STYLES = {"lost": "yellow", "widened": "red", "ran": "bold red", "unexplained": "cyan"}
_LETTERS = {"lost": "L", "widened": "W", "ran": "R", "unexplained": "U"}


def _counts(*counts: tuple[str, int]) -> Text:
    found = [(what, n) for what, n in counts if n]
    if not found:
        return Text("0", style="green")
    text = Text()
    for n, (what, count) in enumerate(found):
        text.append(" " if n else "").append(f"{_LETTERS[what]}{count}", style=_STYLES[what])
    return text


def _places(
    out: Console, result: Result, recorded: Mapping[str, Recorded], designs: Sequence[str], *, every: bool
) -> None:
    for row in result.rows:
        lines = [f"recorded: {shown}" for shown in recorded[row.scenario.id].shown]
        for design in designs:
            cell = row.worst(design)
            if cell is not None:
                counted = result.places(row, design) if every else cell.shown
                lines += [f"{design}: {shown} [{cell.profile}]" for shown in counted]
        if lines:
            out.print(Text(f"{row.scenario.id} {row.scenario.title}", style="bold"))
            for line in lines:
                say(out, line, indent=3)


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 1), show_edge=False, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


# ---- recordings


def show_audit(out: Console, lines: Sequence[Mapping[str, Any]]) -> None:
    """Print the findings and the summary of an audit."""
    findings = [clean(line) for line in lines if "finding" in line]
    summary: Mapping[str, Any] = clean(next((line["summary"] for line in lines if "summary" in line), {}))
    if findings:
        table = _table("rule", "turn", "what", "tools", "grade", "place")
        for one in findings:
            place = f"{one['file']}:{one['line']}" if one["line"] else one["file"]
            turn = "" if one["turn"] is None else str(one["turn"])
            what = one["title"] + (f" ({one['detail']})" if one["detail"] else "")
            table.add_row(one["finding"], turn, Text(what), Text(", ".join(one["names"])), one["grade"], Text(place))
        out.print(table)
        out.print()
    say(out, "; ".join(_told_counts(summary)) + ". Loads are read from the transcript.")
    for line in _told_unknown(summary, lines):
        say(out, line, "yellow")
    if summary.get("unknown"):
        unknown = ", ".join(f"{name} ({count})" for name, count in summary["unknown"].items())
        say(out, f"Unknown kinds of record: {unknown}", "yellow")
    if findings:
        say(out, f"What a rule means: capstate rule {findings[0]['finding']}", "dim")


def _told_counts(summary: Mapping[str, Any]) -> list[str]:
    """Return the counts; where nothing is known of one there is no number."""
    turns, unknown, runs, unsure = (summary[k] for k in ("requests", "unknown_turns", "runs", "unknown_runs"))
    counts = [counted(turns, "request")]
    for text, key in (
        ("with a lost tool", "lost"),
        ("beyond authority", "not_authorised"),
        ("with a tool never loaded", "never_loaded"),
    ):
        counts.append(_count(summary[f"{key}_turns"], text, unknown[key], turns) if turns else f"{text}: unknown")
    if runs is None:
        counts.append("what ran: unknown")
    else:
        counts.append(_count(summary["ran_unauthorised"], "ran without authority", unsure["unauthorised"], runs))
        counts.append(_count(summary["ran_never_loaded"], "ran never loaded", unsure["never_loaded"], runs))
    return [*counts, counted(len(summary["damage"]), "damaged place")]


def _count(count: int, text: str, unknown: int, of: int) -> str:
    if unknown and unknown == of:
        return f"{text}: unknown"
    return f"{count} {text}" + (f" ({unknown} unknown)" if unknown else "")


def _told_unknown(summary: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what could not be told, and why."""
    turns, unknown = summary["requests"], summary["unknown_turns"]
    found = []
    if not turns:
        found.append("No request in which the model could act: what it could call is unknown.")
    if unknown["kind"]:
        found.append(
            f"Not counted: {unknown['kind']} without any tool; each may be a turn that lost all its tools, or no turn."
        )
    for key, why in (
        ("callable", "what the model could call; nothing recorded it"),
        ("not_authorised", "who may; no policy has allow, ask or deny, and no list was recorded"),
        ("never_loaded", "what nobody loaded; no session, no residents in a policy, or hidden history"),
        ("lost", "what was lost; no session, and no load in the body's own history"),
    ):
        if unknown[key] and (key in ("callable", "not_authorised") or unknown[key] > unknown["callable"]):
            found.append(f"Unknown in {unknown[key]} of {counted(turns, 'request')}: {why}.")
    missing = sorted({n for line in lines for n, why in _withheld(line) if why == "unknown_tool"})
    if missing:
        found.append(f"Resident, and nothing shows that they exist, so not counted as lost: {', '.join(missing)}.")
    return [clean(line) for line in found]


def _withheld(line: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    withheld: Mapping[str, str] = line["should"]["withheld"] if "should" in line else {}
    return withheld.items()


def show_projection(out: Console, found: Mapping[str, Any]) -> None:
    """Print what belongs on the wire."""
    found = clean(found)
    table = _table("tool", "place")
    for name in found["immediate"]:
        table.add_row(Text(name), "immediate")
    for name, entry in found["deferred"].items():
        table.add_row(Text(name), Text(f"deferred at {entry}"))
    for name, reason in found["withheld"].items():
        table.add_row(Text(name, style="dim"), Text(f"withheld: {reason.replace('_', ' ')}", style="yellow"))
    out.print(table)
    say(out, f"Loads are read from the {found['loads_from']}; nothing here is a grant.", "dim")
    for row in found["damage"]:
        say(out, f"damage: {row['kind']}, line {row['line']}", "yellow")


def show_rule(out: Console, rule: Rule) -> None:
    """Print one rule."""
    out.print(Text(f"{rule.id}  {rule.title}", style="bold"))
    say(out, rule.text, indent=3)
    if rule.needs_policy:
        say(out, "Needs a list of who may: a policy with allow, ask or deny, or one in the recording.", "dim", 3)


# ---- ledgers


def show_explained(out: Console, found: Mapping[str, Any]) -> None:
    """Print why a tool was callable or not."""
    found = clean(found)
    out.print(Text(f"{found['tool']} in epoch {found['epoch']} ({found['cause']}): ").append_text(_told(found)))
    say(out, f"receipt {found['receipt']}", "dim", 3)
    for line in found["history"]:
        out.print(Text(f"   epoch {line['epoch']:>3}  {line['cause']:<18}").append_text(_told(line)))


def _told(state: Mapping[str, Any]) -> Text:
    by = f", by {_rule(state)}" if state["decided_by"] else ""
    if state["callable"]:
        return Text(f"callable ({state['effect']}{by}), {state['place']}", style="green")
    return Text(f"not callable: {str(state['reason']).replace('_', ' ')}{by}", style="yellow")


def _rule(state: Mapping[str, Any]) -> str:
    """Return what decided: the rule, readable, where one did and the ledger still has it."""
    rule, decided_by = state["rule"], state["decided_by"]
    if rule is None:
        return "pool: no rule speaks of it" if decided_by == "pool" else str(decided_by)
    above = "".join(decided_by.rpartition(_PARENT)[:2])
    giver = f", given by {rule['giver']}" if rule["giver"] else ""
    return f"{above}{rule['source']}: {rule['effect']} {rule['on']}{giver}"


_PARENT = "parent: "


def show_difference(out: Console, found: Mapping[str, Any]) -> None:
    """Print how two epochs differ."""
    found = clean(found)
    facts = ", ".join(found["facts"]) or "nothing"
    out.print(Text(f"epoch {found['from']} to {found['to']}: differing facts: {facts}"))
    if not found["changes"]:
        say(out, "no tool fares differently")
        return
    table = _table("change", "tool", "reason", "decided by")
    for change in found["changes"]:
        table.add_row(change["action"], Text(change["tool"]), change["reason"].replace("_", " "), Text(_rule(change)))
    out.print(table)


def show_verified(out: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the outcome for each chain."""
    rows = clean(rows)
    for row in rows:
        style = "green" if row["good"] else "bold red"
        out.print(Text(row["session"]).append(": ").append(row["outcome"], style=style).append(f", {row['why']}"))
        wrong = len(row["epochs_wrong"])
        same = "the same" if row["epochs"] == 1 else "all the same"
        told = (
            f"{counted(row['epochs'], 'epoch')} recomputed from archived facts, {f'{wrong} wrong' if wrong else same}"
        )
        told = told if row["epochs"] else "no epoch to recompute"
        say(out, told, "bold red" if wrong else "", 3)
        for one in row["epochs_wrong"]:
            say(out, f"entry {one['sequence']}: {one['why']}", "red", 6)
        if row["missing"]:
            said = "a start that a crash cut off, or a chain that somebody deleted"
            say(out, f"started and not in this ledger: {', '.join(row['missing'])} ({said})", "yellow", 3)
        if row["head"] is not None:
            say(out, f"head {row['head']}", "dim", 3)
    if not rows[0]["sealed"]:
        say(out, "Without a key, whoever can write this file can grant, and this audit cannot tell.", "dim")


def show_unsettled(out: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print each operation that is not over, and what recovery would do about it."""
    if not rows:
        out.print("Every operation is over.")
    for row in clean(rows):
        known = f"{row['state']}, {row['outcome'].replace('_', ' ')}" if row["outcome"] else row["state"]
        style = "bold red" if row["step"] == "wait" else "yellow"
        out.print(Text(f"{row['session']}: {row['tool']} ").append(row["operation"], style="dim").append(f" {known}"))
        out.print(Text("   ").append(row["step"], style=style).append(f": {row['why']}"))
