"""The command line: each verb calls one public function and says what it returned.

Exit status: 0 good, 1 a finding, 2 usage (the caller's input cannot be used), 3 the ledger cannot be read, 70 a fault
of capstate itself, 74 the output cannot be written, 130 interrupted; 70 and 74 are those of BSD's sysexits.h. An error
is one line on stderr. Names only: no prompt text and no argument is ever printed.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from capstate.errors import CapstateError, InvalidInputError, LedgerError
from capstate.options import (
    NUMBER,
    PATH,
    STATUSES,
    Verbs,
    escaped,
    example,
    json_option,
    key_option,
    meant,
    print_version,
    progress,
)
from capstate.output import Noted, complain, print_json, standard_output, write_lines
from capstate.trace_commands import trace

GOOD, FINDING, USAGE, UNAVAILABLE = range(4)
FAULT, OUTPUT, INTERRUPTED = 70, 74, 130


@click.group(
    cls=Verbs,
    epilog=f"{example('capstate demo', 'Start with')}\n\n{STATUSES}",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version", is_flag=True, callback=print_version, expose_value=False, is_eager=True, help="Print the version."
)
def capstate() -> None:
    """Which tools a model can call: what it could call, what it should have been able to, and why.

    Nothing leaves this machine. Only files that you name are read.
    """


# ---- recordings


@capstate.command(epilog=example("capstate demo"))
@json_option
def demo(*, as_json: bool) -> int:
    """Show two recorded sessions of a real agent, and the same events under capstate."""
    from capstate.demo.story import stories

    told = list(stories())
    bad = any(line.get("lost") or line.get("not_authorised") for story in told for line in story.under)
    if as_json:
        rows = [{"title": s.title, "recorded": s.recorded, "under": s.under, "receipts": s.receipts} for s in told]
        print_json({"stories": rows})
    else:
        from capstate.terminal import console, show_demo

        show_demo(console(), told)
    return FINDING if bad else GOOD


@capstate.command(epilog=example("capstate audit ~/.pi/agent/sessions/project --policy policy.toml"))
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--policy", type=PATH, help="TOML file: resident tools, loaders, groups, who may.")
@click.option("--requests", type=PATH, help="A further file or folder of request bodies.")
@click.option("--executed", type=PATH, help="A further file of observations of what ran.")
@json_option
def audit(
    paths: tuple[str, ...], policy: Path | None, requests: Path | None, executed: Path | None, *, as_json: bool
) -> int:
    """Judge recorded sessions and request bodies, turn by turn.

    PATH is a Pi session file, a folder of a recording, or requests:PATH for request bodies. Without any, the places
    where Pi keeps its sessions are listed, and nothing is read.
    """
    if not paths and requests is None:
        for option, value in (("--policy", policy), ("--executed", executed)):
            if value is not None:
                raise InvalidInputError(option, "a PATH or --requests to judge with it", "neither")
        return _offer(as_json=as_json)
    from capstate.audit import audit as judged
    from capstate.audit import gather, require
    from capstate.policy import Policy, read_policy

    rules = read_policy(policy) if policy is not None else Policy()
    with progress("read") as step:
        material = require(gather(paths, requests=requests, executed=executed, progress=step))
    found, grade = False, ""
    listed: list[Mapping[str, Any]] = []
    with progress("judged") as step:
        for line in judged(material, rules):
            found = found or "finding" in line
            grade = line["summary"]["grade"] if "summary" in line else grade
            if as_json:
                print_json(line)
            else:
                listed.append(line)
            step(None)
    if not as_json:
        from capstate.terminal import console, show_audit

        show_audit(console(), listed)
    if not found and grade == "unknown":
        raise InvalidInputError(
            ", ".join(paths) or str(requests),
            "request bodies, or an agent's record of its active set or of what ran, and a list of who may or of loads",
            "nothing that a verdict could rest on",
        )
    return FINDING if found else GOOD


def _offer(*, as_json: bool) -> int:
    from capstate.agents.pi import find_sessions

    found = find_sessions()
    if as_json:
        print_json({"found": [str(path) for path in found]})
        return GOOD
    folders: dict[Path, int] = {}
    for path in found:
        folders[path.parent] = folders.get(path.parent, 0) + 1
    if not found:
        click.echo("No Pi sessions where Pi keeps them. Name what to read: capstate audit PATH")
        return GOOD
    click.echo(f"{len(found)} Pi session file{'s' if len(found) > 1 else ''}, none of them read:")
    for folder, count in folders.items():
        click.echo(f"  {count:>4}  {escaped(str(folder))}")
    click.echo("To read some, name them: capstate audit PATH")
    return GOOD


@capstate.command(epilog=example("capstate project session.jsonl --policy policy.toml --provider anthropic"))
@click.argument("session", type=PATH)
@click.option("--leaf", help="An entry of the session; by default where the agent would go on.")
@click.option("--policy", type=PATH, required=True, help="TOML file, as for audit.")
@click.option("--provider", help="An API or a provider, e.g. anthropic, responses, chat, kimi.")
@json_option
def project(session: Path, leaf: str | None, policy: Path, provider: str | None, *, as_json: bool) -> int:
    """Say which tools belong on the wire at one leaf of a session, and where."""
    from capstate.audit import project_session
    from capstate.policy import read_policy

    found = project_session(session, read_policy(policy), leaf=leaf, provider=provider)
    if as_json:
        print_json(found)
    else:
        from capstate.terminal import console, show_projection

        show_projection(console(), found)
    return FINDING if found["damage"] else GOOD


@capstate.command(epilog=example("capstate matrix --scenario 8 --provider anthropic --places"))
@click.option("--scenario", "scenarios", multiple=True, help="A row, e.g. 5 or 8a; 8 means all that begin with 8.")
@click.option("--provider", "providers", multiple=True, help="A provider profile; by default all.")
@click.option("--design", "designs", multiple=True, help="A, B-blind, B, C or B+C; by default all.")
@click.option("--record", type=PATH, help="Write one line a turn to this file.")
@click.option("--places", is_flag=True, help="Print every turn of each count, not only the first.")
@json_option
def matrix(
    scenarios: tuple[str, ...],
    providers: tuple[str, ...],
    designs: tuple[str, ...],
    record: Path | None,
    *,
    places: bool,
    as_json: bool,
) -> int:
    """Run the nine lifecycle scenarios against five designs, beside what a real agent did.

    A cell counts turns: L lost, W widened, U unexplained; R counts tools that ran. It is read from request bodies and
    from tools that ran or did not. Exit status 0 means that the library, B+C, has none in any cell.
    """
    from capstate.conformance import matrix as nine
    from capstate.conformance.designs import DESIGNS
    from capstate.conformance.recorded import bundled
    from capstate.conformance.scenarios import SCENARIOS
    from capstate.conformance.world import PROFILES

    if record is not None:
        write_lines(record, ())  # a file that cannot be written is said before a long run, not behind it
    if places and as_json:
        raise InvalidInputError("--places", "the table; --record FILE writes every turn", "--json")
    chosen = [meant(one, SCENARIOS) for one in scenarios]
    rows = [id_ for one in chosen for id_ in ([i for i in SCENARIOS if i == one or i[:1] == one] or [one])]
    providers = tuple(meant(one, PROFILES) for one in providers)
    designs = tuple(meant(one, DESIGNS) for one in designs)
    with progress("played") as step:
        result = nine.run(rows, providers, designs, progress=lambda done, total: step(f"{done} of {total}"))
    if not any(cells for row in result.rows for cells in row.cells.values()):
        raise InvalidInputError("--scenario and --provider", "a row that applies to one of the profiles", "none")
    if record is not None:
        from capstate.conformance.journal import text

        write_lines(record, (f"{line}\n" for line in text(result)))
    recorded = bundled()
    if as_json:
        print_json({"rows": [nine.row_json(row, recorded[row.scenario.id]) for row in result.rows]})
    else:
        from capstate.terminal import console, show_matrix

        show_matrix(console(), result, recorded, [d for d in DESIGNS if not designs or d in designs], places=places)
    return GOOD if result.holds else FINDING


@capstate.command(epilog=example("capstate rule CS102"))
@click.argument("id_", metavar="[ID]", required=False)
@json_option
def rule(id_: str | None, *, as_json: bool) -> int:
    """Explain one kind of finding; without an id, list them."""
    from capstate.findings import RULES
    from capstate.findings import rule as named

    rules = [named(meant(id_, RULES))] if id_ is not None else list(RULES.values())
    if as_json:
        made = [{"id": r.id, "title": r.title, "text": r.text, "needs_policy": r.needs_policy} for r in rules]
        print_json(made[0] if id_ is not None else {"rules": made})
    elif id_ is None:
        for one in rules:
            click.echo(f"{one.id}  {one.title}")
    else:
        from capstate.terminal import console, show_rule

        show_rule(console(), rules[0])
    return GOOD


# ---- ledgers


@capstate.command(epilog=example("capstate explain agent.db s-42 git/push --epoch 3"))
@click.argument("ledger", type=PATH)
@click.argument("session")
@click.argument("tool", metavar="TOOL")
@click.option("--epoch", type=NUMBER, help="By default the last.")
@key_option
@json_option
def explain(ledger: Path, session: str, tool: str, epoch: int | None, key_file: Path | None, *, as_json: bool) -> int:
    """Say why a tool was callable or not at an epoch, and what happened to it before.

    TOOL is group/name, the name that the model sees (git__push), or a name that only one group has.
    """
    from capstate.examine import explain as explained
    from capstate.examine import opened, read_key

    with opened(ledger) as read:
        found = explained(read, session, tool, epoch=epoch, key=read_key(key_file))
    if as_json:
        print_json(found)
    else:
        from capstate.terminal import console, show_explained

        show_explained(console(), found)
    return GOOD


@capstate.command(epilog=example("capstate diff agent.db s-42 0 3"))
@click.argument("ledger", type=PATH)
@click.argument("session")
@click.argument("a", type=NUMBER)
@click.argument("b", type=NUMBER)
@key_option
@json_option
def diff(ledger: Path, session: str, a: int, b: int, key_file: Path | None, *, as_json: bool) -> int:
    """Say how epoch B of a session differs from epoch A."""
    from capstate.examine import difference, opened, read_key

    with opened(ledger) as read:
        found = difference(read, session, a, b, key=read_key(key_file))
    if as_json:
        print_json(found)
    else:
        from capstate.terminal import console, show_difference

        show_difference(console(), found)
    return GOOD


@capstate.command(epilog=example("capstate verify agent.db s-42 --head 17:b3:0c1d..."))
@click.argument("ledger", type=PATH)
@click.argument("session", required=False)
@click.option("--head", help="SEQUENCE:DIGEST, an earlier head that was kept elsewhere.")
@key_option
@json_option
def verify(ledger: Path, session: str | None, head: str | None, key_file: Path | None, *, as_json: bool) -> int:
    """Audit the chains of a ledger, and recompute every epoch from its archived facts.

    Without an earlier head, kept where the ledger's writer cannot reach it, a cut tail or a chain rewritten from its
    start is not visible. Without a key, whoever can write the file can grant.
    """
    from capstate.examine import opened, parse_head, read_key
    from capstate.examine import verify as verified

    with opened(ledger) as read, progress("verifying") as step:
        found = verified(read, session, head=parse_head(head), key=read_key(key_file), progress=step)
    if not found:
        raise InvalidInputError(str(ledger), "a ledger with a session to verify", "an empty one")
    if as_json:
        print_json({"chains": found})
    else:
        from capstate.terminal import console, show_verified

        show_verified(console(), found)
    return GOOD if all(row["good"] for row in found) else FINDING


@capstate.command(epilog=example("capstate effects agent.db s-42"))
@click.argument("ledger", type=PATH)
@click.argument("session", required=False)
@key_option
@json_option
def effects(ledger: Path, session: str | None, key_file: Path | None, *, as_json: bool) -> int:
    """List the operations that are not over, and what recovery would do about each.

    The tool's side is not asked. `wait` means: nobody can tell whether it happened, and a repeat could do harm.
    """
    from capstate.examine import opened, read_key
    from capstate.unsettled import unsettled

    with opened(ledger) as read:
        rows = unsettled(read, session, read_key(key_file))
    if as_json:
        print_json({"operations": rows})
    else:
        from capstate.terminal import console, show_unsettled

        show_unsettled(console(), rows)
    return FINDING if rows else GOOD


capstate.add_command(trace)


# ---- running one


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; an error is one line on the standard error stream."""
    with standard_output() as out:
        try:
            return _run(arguments, out)
        except (BrokenPipeError, SystemExit):  # click ends the process when the reader of a pipe has gone
            return GOOD
        except (KeyboardInterrupt, click.Abort):
            complain("interrupted")
            return INTERRUPTED
        except Exception as error:  # noqa: BLE001 - a fault of capstate itself is one line as well
            if out.failed is not None:
                complain(f"standard output: expected a place that takes what is printed, got {out.failed}")
                return OUTPUT
            at = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__} at {Path(at.filename).name}:{at.lineno}"
            complain(f"this is a fault of capstate itself, please report it: {what}")
            return FAULT


def _run(arguments: Sequence[str] | None, out: Noted) -> int:
    try:
        status = int(capstate.main(arguments, prog_name="capstate", standalone_mode=False) or 0)
        out.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return USAGE
    except click.ClickException as error:
        complain(error.format_message())
        return USAGE
    except CapstateError as error:
        complain(str(error))
        return UNAVAILABLE if isinstance(error, LedgerError) else USAGE
    return status


def main() -> None:
    """Be the command."""
    sys.exit(run())


if __name__ == "__main__":
    main()
