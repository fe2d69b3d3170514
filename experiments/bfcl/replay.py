"""BFCL's multi-turn cases with a missing function, as surfaces that change: ``python experiments/bfcl/replay.py``.

The package ``bfcl-eval`` must be installed (``pip install --no-deps bfcl-eval``); its data files are read, its code is
not imported. What is counted, and how, stands in ``README.md``.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from capstate import Call, Group, Message, Refused, Runtime, Tool
from capstate.ledgers.memory import MemoryLedger
from capstate.projection import Profile
from capstate.providers import anthropic, openai_chat
from capstate.trace import Facts, Risk, check, compact, extract

if TYPE_CHECKING:
    from capstate.runtime import Session

EVENTS = ("none", "compaction", "restart", "switch", "revocation")
COUNTS = ("invalid", "lost", "widened")
DOCUMENTS = {
    "GorillaFileSystem": "gorilla_file_system", "MathAPI": "math_api", "MessageAPI": "message_api",
    "TicketAPI": "ticket_api", "TradingBot": "trading_bot", "TravelAPI": "travel_booking", "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}  # fmt: skip
"""The file that describes the functions of each class."""
TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": None}
"""Words of the data that JSON Schema has otherwise."""
LATE = "late"
PROFILES: tuple[Profile, Profile] = (anthropic.profile("claude-x"), openai_chat.profile("gpt-x"))


@frozen
class Case:
    """One case: its groups, the late tool, the turn that brings it, and the calls of each turn."""

    id: str
    groups: tuple[Group, ...]
    late: str
    arrives: int
    said: tuple[str, ...]
    calls: tuple[tuple[tuple[str, dict[str, Any]], ...], ...]


def data_folder() -> Path:
    """Return the data folder of the package, without importing it. Exits with a message if it is not installed."""
    spec = importlib.util.find_spec("bfcl_eval")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("bfcl-eval is not installed: pip install --no-deps bfcl-eval")
    return Path(spec.submodule_search_locations[0]) / "data"


def lines(file: Path) -> list[dict[str, Any]]:
    """Return the objects of a file of JSON lines."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]


def schema(given: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return a parameter description as JSON Schema."""
    if isinstance(given, list):
        return [schema(one) for one in given]
    if not isinstance(given, dict):
        return given
    made = {key: schema(value) for key, value in given.items()}
    if isinstance(made.get("type"), str) and made["type"] in TYPES:
        word = TYPES[made.pop("type")]
        made |= {"type": word} if word else {}
    return made


def cases(folder: Path) -> Iterator[Case]:
    """Give every case, in the order of the file."""
    described = {kind: lines(folder / "multi_turn_func_doc" / f"{name}.json") for kind, name in DOCUMENTS.items()}
    answers = {row["id"]: row["ground_truth"] for row in lines(folder / "possible_answer" / _FILE)}
    for row in lines(folder / _FILE):
        ((turn, missed),) = row["missed_function"].items()
        tools = {kind: described[kind] for kind in row["involved_classes"]}
        owners = {one["name"]: kind for kind, listed in tools.items() for one in listed}
        late = [one for listed in tools.values() for one in listed if one["name"] in missed]
        groups = [Group(kind, [_tool(o) for o in listed if o["name"] not in missed]) for kind, listed in tools.items()]
        homes = owners | dict.fromkeys(missed, LATE)
        parameters = {o["name"]: list(o["parameters"]["properties"]) for listed in tools.values() for o in listed}
        yield Case(
            row["id"],
            (*groups, Group(LATE, [_tool(one) for one in late])),
            f"{LATE}/{missed[0]}",
            int(turn),
            tuple(" ".join(message["content"] for message in said) for said in row["question"]),
            tuple(tuple(_call(text, homes, parameters) for text in said) for said in answers[row["id"]]),
        )


_FILE = "BFCL_v4_multi_turn_miss_func.json"


def _tool(described: dict[str, Any]) -> Tool:
    return Tool(described["name"], description=described["description"], schema=schema(described["parameters"]))


def _call(text: str, homes: dict[str, str], parameters: dict[str, list[str]]) -> tuple[str, dict[str, Any]]:
    """Read ``name(a, b=c)``, whose values are literals."""
    node = ast.parse(text, mode="eval").body
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError(text)  # noqa: TRY004 - the text is wrong, not its type
    name = node.func.id
    by_place = zip(parameters[name], node.args, strict=False)
    arguments = {key: ast.literal_eval(value) for key, value in by_place}
    arguments |= {str(one.arg): ast.literal_eval(one.value) for one in node.keywords}
    return f"{homes[name]}/{name}", arguments


@define
class Play:
    """One case with one event before one turn, and the truth about it."""

    case: Case
    event: str
    before: int
    ledger: MemoryLedger = field(factory=MemoryLedger)
    found: Counter[str] = field(factory=Counter)
    history: list[Message] = field(factory=list)
    profile: Profile = PROFILES[0]
    granted: bool = True
    loaded: bool = False

    def run(self) -> Counter[str]:
        """Play it, and return what was counted."""
        session = self.opened()
        session.load([group.id for group in self.case.groups if group.id != LATE], by="configuration")
        for turn, said in enumerate(self.case.said):
            self.history.append(Message(f"u{turn}", "user", said or "Here is a further function."))
            if turn == self.case.arrives:
                session.load(LATE, at=f"u{turn}")
                self.loaded = True
            if turn == self.before:
                session = self.happen(session)
            self.ask(session)
            for number, (tool, arguments) in enumerate(self.case.calls[turn]):
                self.act(session, Call(f"c{turn}-{number}", tool, arguments))
        session.close()
        return self.found

    def opened(self) -> Session:
        """Open the session, as a process of its own would."""
        runtime = Runtime(
            MemoryLedger(self.ledger), catalog=lambda: list(self.case.groups), grants={"config": lambda _: self.rules()}
        )
        return runtime.session("s")

    def rules(self) -> list[str]:
        """Return what is granted now."""
        return [f"{group.id}/*" for group in self.case.groups if group.id != LATE or self.granted]

    def happen(self, session: Session) -> Session:
        """Let the event happen."""
        if self.event == "compaction":
            facts = Facts(stored=None, risks={c.key: Risk.READ for m in self.history for c in m.calls})
            self.history = list(compact(self.history, facts=facts, summarise=extract, keep_last=2).messages)
            session.reproject("compaction", provider=self.profile, history=self.history)
        elif self.event == "restart":
            session._runtime.ledger.close()  # noqa: SLF001 - as a killed process leaves it
            return self.opened()
        elif self.event == "switch":
            self.profile = PROFILES[1]
        elif self.event == "revocation":
            self.granted = False
        return session

    def may(self, tool: str) -> bool:
        """Whether ``tool`` is loaded and granted, by what this replay did."""
        return not tool.startswith(f"{LATE}/") or (self.loaded and self.granted)

    def ask(self, session: Session) -> None:
        """Render a request, and compare it with the truth as the provider would read it."""
        epoch = session.reproject("turn", provider=self.profile, history=self.history)
        adapter = self.profile.adapter
        if adapter is None:
            raise TypeError("a profile without an adapter")
        session.check(epoch.request)
        body = {"model": "m", "max_tokens": 1, **epoch.request}
        seen = adapter.on_wire(body).effective
        true = {f"{g.id}__{name}" for g in self.case.groups for name in g.definitions if self.may(f"{g.id}/{name}")}
        read = adapter.read(body["messages"])
        self.found["requests"] += 1
        self.found["lost"] += len(true - seen)
        self.found["widened"] += len(seen - true)
        self.found["invalid"] += len(check(self.history)) + len(check(read))

    def act(self, session: Session, call: Call) -> None:
        """Put one call of the ground truth through the guard, and write both messages."""
        self.found["calls"] += 1
        try:
            with session.guard(call) as permit:
                permit.settle()
            result = Message("", "tool", "done", result_for=call.id, outcome="ok")
            self.found["widened"] += not self.may(call.tool)
        except Refused as no:
            result = no.result
            self.found["lost"] += self.may(call.tool)
            self.found["refused"] += 1
        self.history.append(Message(f"a {call.id}", "assistant", calls=[call]))
        self.history.append(Message(f"t {call.id}", "tool", result.text, result_for=call.id, outcome=result.outcome))


def replay(found: list[Case]) -> dict[str, Any]:
    """Play ``found`` with every event before every turn, and return the table."""
    table: dict[str, Counter[str]] = {event: Counter() for event in EVENTS}
    for n, case in enumerate(found):
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{n + 1} of {len(found)}")
        for event in EVENTS:
            for before in range(len(case.said)) if event != "none" else (-1,):
                table[event].update(Play(case, event, before).run())
                table[event]["runs"] += 1
    told = ("runs", "requests", "calls", "refused", *COUNTS)
    return {
        "cases": len(found),
        "events": {event: {name: counted[name] for name in told} for event, counted in table.items()},
    }


def main() -> int:
    """Print the table as JSON; 0 only if nothing was invalid, lost or widened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, metavar="N", help="the first N (all)")
    table = replay(list(cases(data_folder()))[: parser.parse_args().cases])
    sys.stdout.write(json.dumps(table, indent=1) + "\n")
    return int(any(row[name] for row in table["events"].values() for name in COUNTS))


if __name__ == "__main__":
    sys.exit(main())
