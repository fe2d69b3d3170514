"""``capstate trace``: whether the history in a file is legal, and a shorter one.

Names only: of a conversation's text nothing is printed, but what ``compact --json`` makes for its owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from capstate.options import NUMBER, PATH, Verbs, escaped, example, json_option
from capstate.output import print_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from capstate.histories import History
    from capstate.trace import Fault

GOOD, FINDING = range(2)
_FORMS = ("auto", "neutral", "anthropic", "openai-responses", "openai-chat", "pi")


def _format_option(function: Any) -> Any:  # noqa: ANN401 - any function, as click has it
    told = "What the file is; by default that is recognised."
    return click.option("--format", "form", type=click.Choice(_FORMS), default="auto", help=told)(function)


@click.group(cls=Verbs, epilog=example("capstate trace check request.json"))
def trace() -> None:
    """Look at the history in a file: calls and their results.

    FILE is neutral JSON, a request body or list of messages of Anthropic, OpenAI Responses or OpenAI Chat, or a
    session of Pi.
    """


@trace.command(epilog=example("capstate trace check request.json"))
@click.argument("file", type=PATH)
@_format_option
@json_option
def check(file: Path, form: str, *, as_json: bool) -> int:
    """Say whether every call has exactly one result, each in its place.

    All faults are listed, with place and call. Exit status 1 means that there is one, or that part of the file could
    not be read.
    """
    from capstate.trace import check as checked

    found = _read(file, form)
    faults = checked(found.messages)
    if as_json:
        print_json({**_about(found), "faults": _rows(found, faults)})
    else:
        _show(found, faults)
    return FINDING if faults or found.damage else GOOD


@trace.command(epilog=example("capstate trace compact session.jsonl --budget 20000 --json"))
@click.argument("file", type=PATH)
@click.option("--budget", type=NUMBER, required=True, help="How long it may be, in characters.")
@_format_option
@json_option
def compact(file: Path, budget: int, form: str, *, as_json: bool) -> int:
    """Put one summary in place of what is old, so that the history fits a budget.

    The summary is cut from the history, without a model, and since nobody here knows what a tool does, of every call
    only a line is kept: its name, how it ended, and no word of its result. --json prints the history that remains, in
    neutral JSON. Exit status 1 means that it has a fault, is over the budget, or that part of the file could not be
    read.
    """
    from capstate.trace import Facts, FaultKind, characters, extract, to_json
    from capstate.trace import check as checked
    from capstate.trace import compact as compacted

    found = _read(file, form)
    broken = [
        fault for fault in checked(found.messages) if fault.kind not in (FaultKind.MISSING_RESULT, FaultKind.ORDER)
    ]
    if broken:
        if as_json:
            print_json({**_about(found), "faults": _rows(found, broken)})
        else:
            _show(found, broken)
        return FINDING
    made = compacted(found.messages, facts=Facts(stored=None), summarise=extract, budget=budget)
    faults = checked(made.messages)
    sizes = [sum(map(characters, messages)) for messages in (found.messages, made.messages)]
    if as_json:
        told = {
            "strategy": made.strategy.value,
            "removed": made.removed,
            "sources": made.sources,
            "kept": [{"message": k.message, "call": k.call[0], "why": k.why.value} for k in made.kept],
            "before": sizes[0],
            "after": sizes[1],
            "over": made.over,
        }
        print_json({**to_json(made.messages), "compaction": told})
    else:
        click.echo(f"{made.strategy.value}: {sizes[0]} characters, now {sizes[1]}")
        click.echo(f"messages {len(found.messages)}, now {len(made.messages)}; calls in the summary {len(made.rows)}")
        for kept in made.kept:
            click.echo(f"  stays: {escaped(kept.message)}, call {escaped(kept.call[0])}: {kept.why.value}")
        if made.over:
            click.echo(f"over the budget by {made.over}: no shorter history was found")
        for fault in faults:
            click.echo(f"  {fault.kind.value}: call {escaped(fault.call)}")
        _damaged(found)
    return FINDING if faults or made.over or found.damage else GOOD


def _read(file: Path, form: str) -> History:
    from capstate.histories import read_history

    return read_history(file, None if form == "auto" else form)


def _about(found: History) -> dict[str, Any]:
    calls = sum(len(message.calls) for message in found.messages)
    return {"format": found.form, "messages": len(found.messages), "calls": calls, "damage": found.damage}


def _rows(found: History, faults: Sequence[Fault]) -> list[dict[str, Any]]:
    return [
        {
            "kind": fault.kind.value,
            "place": found.place(fault),
            "message": found.messages[fault.index].id,
            "call": fault.call,
        }
        for fault in faults
    ]


def _show(found: History, faults: Sequence[Fault]) -> None:
    for row in _rows(found, faults):
        click.echo(f"{row['kind']:<17} {row['place']:<14} call {escaped(row['call'])}")
    about = _about(found)
    click.echo(f"{found.form}: messages {about['messages']}, calls {about['calls']}, faults {len(faults)}")
    _damaged(found)


def _damaged(found: History) -> None:
    if found.damage:
        click.echo(f"places of the file that could not be read: {found.damage}")
