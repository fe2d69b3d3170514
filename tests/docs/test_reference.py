"""The reference pages are compared with the code, so that none of them can go stale."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import attrs
import click
import pytest

import capstate
from capstate import errors
from capstate.agents.lines import DamageKind
from capstate.audit import audit_paths
from capstate.chains import Outcome as ChainOutcome
from capstate.cli import capstate as command
from capstate.conformance.designs import DESIGNS
from capstate.conformance.scenarios import SCENARIOS
from capstate.conformance.world import PROFILES
from capstate.epochs import Cause
from capstate.errors import CapstateError, Reason
from capstate.evidence import Keeper
from capstate.findings import RULES, Grade
from capstate.grants import Limits
from capstate.policy import Provider, parse
from capstate.receipts import Action, Kind
from capstate.runtime import Permit, Runtime, Session
from capstate.runtime.verdict import Verdict, refusal
from capstate.trace import Call, Outcome
from tests.docs.pages import PAGES, REFERENCE, ROOT, anchors, links, table, tables

CONTRIBUTING = ROOT / "CONTRIBUTING.md"
AUDIT, POLICY, REASONS, API = (REFERENCE / f"{name}.md" for name in ("audit", "policy", "reasons", "api"))


# -- reasons.md


@pytest.mark.parametrize(
    ("first", "words"), [("reason", Reason), ("outcome", Outcome), ("kind", Kind), ("action", Action), ("cause", Cause)]
)
def test_each_word_of_an_enumeration_has_a_row(first: str, words: type[StrEnum]) -> None:
    """The table has exactly the values of the enumeration, in its order."""
    assert list(table(REASONS, first)) == [word.value for word in words]


def test_the_outcome_of_each_refusal_is_the_guards() -> None:
    """The column says what the guard puts into the result of a call that it refuses for that reason."""
    rows = table(REASONS, "reason")
    for reason in Reason:
        answer = refusal(Call("c1", "x"), Verdict(reason, ""))
        told = rows[reason.value][1].strip("`")
        assert told == (answer.outcome if isinstance(answer, errors.Refused) else "none yet")


def test_boundaries_are_the_causes_that_force_a_receipt() -> None:
    """A cause is called a boundary where a receipt is written also if nothing changed."""
    told = {Cause(cause) for cause, cells in table(REASONS, "cause").items() if cells[0] == "yes"}
    runtime = Runtime(_memory(), catalog=list)
    found = set()
    with runtime.session("s") as session:
        session.reproject("open")
        for cause in Cause:
            before = session.receipt
            session.reproject(cause)
            if session.receipt is not before:
                found.add(cause)
    # A host that names one of the others has seen a change, and gets a receipt for it.
    assert told == found - {Cause.AUTHORITY, Cause.RESOURCE, Cause.LIST_CHANGED, Cause.LOAD}


def test_each_error_has_a_row_with_its_facts() -> None:
    """Every class of the tree stands in the table, with the attributes that its constructor sets."""
    (listed,) = [one for one in tables(REASONS) if one[0][:2] == ["who must act", "error"]]
    rows = {row[1]: row[3] for row in listed[1:]}
    classes = {name: c for name, c in vars(errors).items() if inspect.isclass(c) and issubclass(c, CapstateError)}
    del classes["CapstateError"]

    assert rows.keys() == classes.keys()
    for name, kind in classes.items():
        told = set(re.findall(r"`(\w+)`", rows[name]) or filter(None, [rows[name]]))
        facts = {"reason"} if kind is errors.NeedsApproval else set()  # the one class whose reason is always the same
        if kind.__init__ is not Exception.__init__:
            facts |= set(inspect.signature(kind).parameters) - {"message"}
        assert told == facts, name


def test_the_table_in_the_module_of_errors_is_complete() -> None:
    """Its docstring names every class that the module has."""
    named = set(re.findall(r":class:`(\w+)`", errors.__doc__ or ""))

    assert named == {name for name, c in vars(errors).items() if inspect.isclass(c) and issubclass(c, CapstateError)}


def test_errors_of_other_modules_are_named() -> None:
    """A class below CapstateError that stands elsewhere is on the page as well."""
    text = REASONS.read_text(encoding="utf-8")
    package = Path(capstate.__file__).parent
    found = {
        name
        for path in package.rglob("*.py")
        for name in re.findall(
            r"^class (\w+)\((?:CapstateError|\w+Error)\)", path.read_text(encoding="utf-8"), re.MULTILINE
        )
    }

    assert {name for name in found if f"`{name}`" not in text} == set()


# -- audit.md


def test_the_findings_are_those_of_the_code() -> None:
    """Ids, titles, what needs a list of who may, and the text of each, word for word."""
    told = table(AUDIT, "id")

    assert told == {r.id: [r.title, "yes" if r.needs_policy else "no", r.text] for r in RULES.values()}


def test_grades_and_chain_outcomes_are_those_of_the_code() -> None:
    """Each has a row, grades best first."""
    assert list(table(AUDIT, "grade")) == [grade.value for grade in Grade]
    assert set(table(AUDIT, "outcome")) == {outcome.value for outcome in ChainOutcome}


def test_every_kind_of_damage_is_described() -> None:
    """In the order of the code."""
    assert list(table(AUDIT, "damage")) == [kind.value for kind in DamageKind]


def test_every_command_and_option_is_described() -> None:
    """Each command has a section or stands in a heading with others, and each of its options is named."""
    text = AUDIT.read_text(encoding="utf-8")
    heads = " ".join(re.findall(r"^## (.*)$", text, re.MULTILINE))
    for name, verb in command.commands.items():
        assert re.search(rf"\b{name}\b", heads), name
        assert f"capstate {name}" in text
        for option in verb.params:
            if isinstance(option, click.Option):
                assert [o for o in option.opts if f"`{o}" in text or f"{o} " in text], f"{name} {option.opts}"


def test_profiles_and_designs_are_listed() -> None:
    """What ``--provider`` and ``--design`` of the matrix take, in their order, and no more."""
    cells = {row[0]: row[1] for one in tables(AUDIT) if "--design NAME" in str(one) for row in one[1:]}

    assert re.findall(r"`([^`]*)`", cells["--provider NAME"]) == list(PROFILES)
    assert re.findall(r"`([^`]*)`", cells["--design NAME"]) == list(DESIGNS)


def test_every_field_of_an_audit_line_is_described() -> None:
    """The three tables of fields name what the lines of a real recording have, and nothing else."""
    lines = list(audit_paths([ROOT / "experiments" / "recorded" / "pi" / "s08b-revoke-then-reopen"]))
    fields = [{name for row in one[1:] for name in _names(row[0])} for one in tables(AUDIT) if one[0][0] == "field"]

    for key in ("callable", "finding"):
        line = next(line for line in lines if key in line)
        assert set(line) in fields, key
    assert set(lines[-1]["summary"]) in fields


# -- policy.md


def test_every_key_of_a_policy_is_described() -> None:
    """The table has the keys that the reader knows, and no other."""
    known = re.findall(r"\w+", _refusal_of("unknown_key = 1").partition("one of the keys ")[2].partition(", got")[0])
    tops = {key.partition(".")[0] for key in table(POLICY, "key")}

    assert tops == set(known)
    for name, kind in (("limits", Limits), ("provider", Provider)):
        told = {key.partition(".")[2] for key in table(POLICY, "key") if key.startswith(f"{name}.")}
        assert told == {field.name for field in attrs.fields(kind)}


def _refusal_of(text: str) -> str:
    with pytest.raises(errors.InvalidInputError) as raised:
        parse(text)
    return str(raised.value)


# -- api.md


def test_every_public_name_is_described() -> None:
    """Each name of ``capstate`` stands in the table of names, and no other."""
    told = {name for row in table(API, "name") for name in _names(row)}

    assert told == set(capstate.__all__)


@pytest.mark.parametrize("kind", [Runtime, Session, Permit, Keeper], ids=lambda kind: kind.__name__)
def test_every_public_method_is_described_with_its_arguments(kind: type[Any]) -> None:
    """Methods stand with the arguments and defaults that they have; properties by their name; none is made up."""
    text = API.read_text(encoding="utf-8")
    for name, member in _members(kind):
        if inspect.isfunction(member):
            assert f"`{name}{_arguments(member)}`" in text, f"{kind.__name__}.{name}{_arguments(member)}"
        else:
            assert re.search(rf"`\.?(?:\w+\.)?{name}`", text), f"{kind.__name__}.{name}"


def test_no_method_is_described_that_is_not_there() -> None:
    """Each name in a table of methods is one of the runtime or of a session."""
    known = {name for kind in (Runtime, Session, Keeper) for name, _ in _members(kind)}
    told = {row[0].partition("(")[0] for one in tables(API) if one[0][0] == "method" for row in one[1:]}

    assert told <= known


def test_functions_of_a_trace_are_described_with_their_arguments() -> None:
    """Each that the page names is there, with the arguments that it takes, in their order."""
    (rows,) = [one[1:] for one in tables(API, raw=True) if one[0][0] == "function"]
    told = [re.match(r"(\w+)\((.*)\)$", text) for row in rows for text in re.findall(r"`([^`]*)`", row[0])]

    assert len(told) == 11
    for one in told:
        assert one is not None
        written = [part.partition("=")[0].strip() for part in one[2].split(",") if part.strip() != "*"]
        taken = list(inspect.signature(getattr(capstate.trace, one[1])).parameters)
        assert written == taken[: len(written)], one[1]
        assert set(taken[len(written) :]) <= {"place"}, one[1]


def test_every_public_name_is_used_in_an_example() -> None:
    """The page shows each method of a session and a runtime at work at least once."""
    code = " ".join(re.findall(r"^```python\n(.*?)^```", API.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))
    left = {"append_to", "state", "Grant", "CapstateError", "Session"}  # not for hosts, or met as what others return
    names = {name for kind in (Runtime, Session, Permit) for name, m in _members(kind) if inspect.isfunction(m)}

    assert {name for name in names - left if f".{name}(" not in code} - {"not_sent"} == set()
    assert {name for name in set(capstate.__all__) - left if not re.search(rf"\b{name}\b", code)} == set()


# -- requirements.md

REQUIREMENTS = REFERENCE / "requirements.md"
ASKED = {
    "EP": range(1, 13), "AU": range(1, 16), "RC": range(1, 7), "CA": range(1, 10), "ST": range(1, 9),
    "PA": range(8, 12), "TT": range(1, 12), "CP": range(1, 20), "EV": range(1, 10), "FX": range(1, 12),
    "DG": range(1, 7), "CH": range(1, 8), "LP": range(1, 7), "XP": [*range(1, 7), *range(9, 19)],
    "MS": range(7, 15), "FM": range(1, 16),
    "NG": range(1, 12),
}  # fmt: skip


def requirements() -> list[list[str]]:
    """The rows of all areas."""
    return [row for one in tables(REQUIREMENTS, raw=True) for row in one[1:]]


def test_every_requirement_has_a_row_and_a_state() -> None:
    """Each id of the areas stands once, in order; what is shown names where, what is not says what is missing."""
    rows = requirements()

    assert [row[0] for row in rows] == [f"{area}-{n:02}" for area, numbers in ASKED.items() for n in numbers]
    assert {row[2] for row in rows} == {"shown", "in part", "not done"}
    assert [row[0] for row in rows if not row[3]] == []


def test_what_is_named_for_a_requirement_exists() -> None:
    """Each test, case and row of the matrix; and every state but "not done" names one, or what else shows it."""
    cases = {path.name[:3] for path in (ROOT / "tests/scenarios/cases").glob("H*.json")}
    for id_, _, state, where in requirements():
        named = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", where)
        for file, function in named:
            path = ROOT / "tests" / file
            assert path.is_file(), f"{id_}: {file}"
            assert not function or re.search(rf"def {function}\(", path.read_text(encoding="utf-8")), (
                f"{id_}: {function}"
            )
        for case in re.findall(r"`(H\d\d)`", where):
            assert case in cases, f"{id_}: {case} is no case"
        rows = re.findall(r"\brow (\w+)", where)
        assert set(rows) <= SCENARIOS.keys(), id_
        if state == "shown":
            assert named or rows or "`H" in where or "](" in where or re.search(r"as [A-Z]{2}-\d\d", where), id_


# -- CONTRIBUTING.md


def test_every_room_is_listed() -> None:
    """Each top-level module and package has one line in a table of rooms, and each room that is listed exists."""
    package = Path(capstate.__file__).parent
    rooms = [p.name for p in package.iterdir() if p.suffix == ".py" or (p.is_dir() and (p / "__init__.py").exists())]
    told = [row[0] for one in tables(CONTRIBUTING) if one[0][0] == "module" for row in one[1:]]
    folders = {row[0]: row for one in tables(CONTRIBUTING, raw=True) if one[0][0] == "folder" for row in one[1:]}

    assert sorted(told) == sorted({*rooms} - {"__init__.py"})
    for cell in folders:
        for name in re.findall(r"`([^`]+)`", cell):
            assert (ROOT / name).exists(), name


def test_every_module_of_the_runtime_has_a_line() -> None:
    """Each stands once in its table, before every module that imports it."""
    folder = Path(capstate.__file__).parent / "runtime"
    told = list(table(CONTRIBUTING, "runtime module"))
    late = {
        f"{name} before {other}"
        for n, name in enumerate(told)
        for other in re.findall(
            r"^from capstate\.runtime\.(\w+) import", (folder / name).read_text("utf-8"), re.MULTILINE
        )
        if f"{other}.py" in told[n:]
    }

    assert sorted(told) == sorted(path.name for path in folder.glob("*.py") if path.stem != "__init__")
    assert late == set()


def test_reasons_stand_in_the_order_of_the_specification() -> None:
    """The table of the guard names every reason, each first at the place that it has in the code."""
    rows = table(ROOT / "docs" / "spec" / "guard.md", "")
    told = [name for cells in rows.values() for name in re.findall(r"\w+", cells[0])]
    known = [reason.value for reason in Reason]

    assert list(dict.fromkeys(told)) == known


# -- all pages


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    """A relative link names a file of the project, and a part of it that exists."""
    for link in links(page):
        if "://" in link:
            continue
        name, _, part = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{page.name}: {link}"
        assert not part or part in anchors(target), f"{page.name}: {link}"


def test_every_page_can_be_reached() -> None:
    """From the README, by links."""
    seen: set[Path] = set()
    todo = [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        names = (link.partition("#")[0] for link in links(page) if "://" not in link)
        todo += [target for name in names if name and (target := (page.parent / name).resolve()).is_file()]

    assert {str(p.relative_to(ROOT)) for p in PAGES if p not in seen} == set()


def _names(cell: str) -> list[str]:
    return re.findall(r"\w+", cell)


def _memory() -> Any:
    from capstate.ledgers.memory import MemoryLedger

    return MemoryLedger()


def _members(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    for name in sorted({name for base in kind.__mro__[:-1] for name in vars(base)}):
        member = inspect.getattr_static(kind, name)
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
            yield name, member


def _arguments(function: Any) -> str:
    """The arguments as a page writes them: no types, no self."""
    parameters = [
        p.replace(annotation=inspect.Parameter.empty) for p in inspect.signature(function).parameters.values()
    ]
    return str(inspect.Signature(parameters[1:])).replace("'", '"')
