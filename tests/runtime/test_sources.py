"""Sources of the host: read at every look, and nothing where they fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from capstate.authority import Effect, allow, ask, deny
from capstate.capabilities import Group
from capstate.errors import CatalogUnavailableError, InvalidInputError, Reason
from capstate.runtime import Rules, Runtime
from tests.runtime.stage import Stage, call, refused, run, tools


@pytest.fixture
def stage() -> Stage:
    return Stage()


def failing(_: str) -> list[str]:
    raise RuntimeError("the server of the policy is down")


async def asynchronous(_: str) -> list[str]:
    return ["git/*"]


def test_authority_is_read_at_each_call(stage: Stage) -> None:
    """A source that changes its mind is obeyed at the next call, without an epoch between."""
    session = stage.session()
    assert refused(session, "git/log") is None
    stage.default = []
    assert refused(session, "git/log") is Reason.NOT_AUTHORISED
    stage.default = ["git/log"]

    assert refused(session, "git/log") is None


def test_a_list_that_is_changed_in_place_is_seen(stage: Stage) -> None:
    """The host keeps its list and changes it; what was read before is no copy of the same object."""
    rules: list[Any] = [allow("git/*")]
    stage.sources = {"config": lambda _: rules}
    session = stage.session()
    assert refused(session, "git/log") is None
    rules.append(deny("git/log"))

    assert refused(session, "git/log") is Reason.NOT_AUTHORISED


class Sly(list):
    """A list that claims to be equal to whatever it is compared with."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # as a list has it


class SlyTuple(tuple):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


@pytest.mark.parametrize("kind", [Sly, SlyTuple])
def test_a_class_of_the_hosts_does_not_hide_a_change(stage: Stage, kind: type) -> None:
    """Rules are compared as plain lists, however the container compares itself."""
    said: list[Any] = [allow("git/*")]
    stage.sources = {"config": lambda _: kind(said)}
    session = stage.session()
    assert refused(session, "git/log") is None
    said.append(deny("git/log"))

    assert refused(session, "git/log") is Reason.NOT_AUTHORISED


def test_generators_and_sets_are_read_whole_each_time(stage: Stage) -> None:
    """A generator is used up by one look and asked anew at the next; a set has one order."""

    def generated(_: str) -> Iterator[Any]:
        yield allow("git/*")
        yield deny("git/push")

    stage.sources = {"a": generated, "b": lambda _: {"git/sync", "git/log", "git/push"}}
    session = stage.session()
    first = session.reproject()

    assert refused(session, "git/log") is None
    assert refused(session, "git/push") is Reason.NOT_AUTHORISED
    assert session.reproject().receipt == first.receipt


def test_an_iterator_that_is_used_up_is_no_empty_list(stage: Stage) -> None:
    """A deny that was read from it once would be gone at the second look; so it is an error from the start."""
    once = (rule for rule in [deny("git/log")])
    stage.sources["other"] = lambda _: once
    session = stage.session()
    for _ in range(3):
        assert refused(session, "git/push") is (None if _ == 0 else Reason.NOT_AUTHORISED)


@pytest.mark.parametrize(
    "returned",
    [None, "git/*", b"git/*", 7, {"git/*": "allow"}, [None], ["git"], [["git/*"]], ["git/*", 3], iter([object()])],
    ids=lambda value: type(value).__name__ + repr(value)[:12],
)
def test_what_is_no_list_of_rules_is_nothing(stage: Stage, returned: object) -> None:
    """Not even a part of it counts, and the pool of all sources is none while it lasts."""
    stage.sources["other"] = lambda _: returned
    session = stage.session()

    assert refused(session, "git/log") is Reason.NOT_AUTHORISED
    assert session.explain("git/log")["decided_by"] == "other!error"


def test_a_source_that_raises_takes_the_whole_pool_along(stage: Stage) -> None:
    """It may have held a deny, so what other sources allow does not count either."""
    stage.sources["other"] = failing
    session = stage.session()
    session.grant("git/log", by="ann")

    assert refused(session, "git/log") is Reason.NOT_AUTHORISED
    assert session.explain("git/log")["decided_by"] == "other!error"


def test_a_source_that_raised_for_a_moment_is_not_taken_as_before(stage: Stage) -> None:
    """While it raises, nothing; the next answer counts again."""
    down = [False]

    def config(_: str) -> list[str]:
        return failing("") if down[0] else ["git/*"]

    stage.sources = {"config": config}
    session = stage.session()
    for state in (False, True, False):
        down[0] = state
        assert (refused(session, "git/log") is None) is not state


def test_a_ceiling_that_fails_is_nothing(stage: Stage) -> None:
    """A ceiling cuts; one that raises cuts everything."""
    stage.ceilings["trust"] = failing
    session = stage.session()

    assert refused(session, "git/log") is Reason.NOT_AUTHORISED
    assert session.explain("git/log")["decided_by"] == "ceiling trust!error"


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        (Effect.ALLOW, None),
        ("allow", None),
        ("ask", Reason.NEEDS_APPROVAL),
        ("deny", Reason.NOT_AUTHORISED),
        (None, Reason.NOT_AUTHORISED),
        ("none", Reason.NOT_AUTHORISED),
        ("perhaps", Reason.NOT_AUTHORISED),
        (True, Reason.NOT_AUTHORISED),
        ([], Reason.NOT_AUTHORISED),
        (["git/log"], None),
        ([allow("*"), ask("git/log")], Reason.NEEDS_APPROVAL),
        (Rules("allow", 3), None),
    ],
    ids=repr,
)
def test_a_ceiling_is_one_effect_or_rules(stage: Stage, returned: Any, reason: Reason | None) -> None:
    """One effect for all tools, or rules; anything else is nothing."""
    stage.ceilings["trust"] = lambda _: returned

    assert refused(stage.session(), "git/log") is reason


def test_a_lower_revision_is_stale(stage: Stage) -> None:
    """Within a process, and after a restart against what the ledger has seen."""
    answer = Rules(["git/*"], 5)
    stage.sources = {"config": lambda _: answer}
    session = stage.session()
    session.reproject()
    for stale in (Rules(["git/*"], 4), Rules(["git/*"]), ["git/*"]):
        answer = stale  # type: ignore[assignment]
        assert refused(session, "git/log") is Reason.NOT_AUTHORISED
        assert session.explain("git/log")["decided_by"] == "config!stale"
    session.close()
    answer = Rules(["git/*"], 4)
    session = stage.session()
    assert refused(session, "git/log") is Reason.NOT_AUTHORISED
    answer = Rules(["git/*"], 6)

    assert refused(session, "git/log") is None


@pytest.mark.parametrize("revision", ["5", 1.5, -1, True])
def test_a_revision_is_a_whole_number(stage: Stage, revision: Any) -> None:
    """Another one is an error of the source, never a comparison that means something else."""
    stage.sources = {"config": lambda _: Rules(["git/*"], revision)}

    assert refused(stage.session(), "git/log") is Reason.NOT_AUTHORISED


@pytest.mark.parametrize("kind", ["sources", "ceilings"])
def test_one_that_the_ledger_names_and_this_process_lacks_is_nothing(stage: Stage, kind: str) -> None:
    """Until a person retires it by name; then it is as if it had never been."""
    getattr(stage, kind)["extra"] = lambda _: ["*"]
    session = stage.session()
    session.reproject()
    session.close()
    del getattr(stage, kind)["extra"]
    session = stage.session()
    name = "extra" if kind == "sources" else "ceiling extra"
    assert session.explain("git/log")["decided_by"] == f"{name}!missing"
    assert refused(session, "git/log") is Reason.NOT_AUTHORISED
    with pytest.raises(InvalidInputError):
        session.retire("nobody", by="ann")
    session.retire(name, by="ann")

    assert refused(session, "git/log") is None
    session.close()
    assert refused(stage.session(), "git/log") is None


def test_a_retired_source_that_comes_back_counts(stage: Stage) -> None:
    """Retiring lets a missing one go; one that is there is asked."""
    stage.sources["extra"] = lambda _: [deny("git/log")]
    session = stage.session()
    session.reproject()
    session.retire("extra", by="ann")

    assert refused(session, "git/log") is Reason.NOT_AUTHORISED


def test_the_holder_is_who_sources_are_asked_for(stage: Stage) -> None:
    """By default the session's own id; with a holder, that."""
    asked: list[str] = []

    def config(holder: str) -> list[str]:
        asked.append(holder)
        return ["git/*"]

    stage.sources = {"config": config}
    run(stage.session("one"), "git/log")
    run(stage.session("two", holder="ann"), "git/log")

    assert set(asked) == {"one", "ann"}


def test_asynchronous_functions_are_refused(stage: Stage) -> None:
    """At once where that can be told, and as a failed source where it cannot."""
    for more in ({"grants": {"a": asynchronous}}, {"ceilings": {"a": asynchronous}}):
        with pytest.raises(InvalidInputError):
            Runtime(stage.handle(), catalog=list, **more)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        Runtime(stage.handle(), catalog=asynchronous)  # type: ignore[arg-type]
    stage.sources["hidden"] = lambda holder: asynchronous(holder)  # noqa: PLW0108 - it hides that it is asynchronous

    assert refused(stage.session(), "git/log") is Reason.NOT_AUTHORISED


@pytest.mark.parametrize("name", ["granted", "want", "ended", "restrictions", "a b", "", "a#b", "ceiling x", 7])
def test_names_that_mean_something_else_are_refused(stage: Stage, name: Any) -> None:
    """A source cannot bear a name that receipts use for the runtime's own."""
    with pytest.raises(InvalidInputError):
        stage.runtime(grants={name: lambda _: []})


@pytest.mark.parametrize("returned", [None, 7, ["git"], {"git": 1}])
def test_no_catalog_is_no_call(stage: Stage, returned: Any) -> None:
    """What is no list of groups raises, at the guard and at the projection; nothing is callable."""
    session = stage.session()
    stage.groups = returned
    for act in (session.reproject, lambda: run(session, "git/log"), lambda: session.surface):
        with pytest.raises(CatalogUnavailableError):
            act()


def test_a_catalog_that_raises_is_no_call(stage: Stage) -> None:
    """Also one that raises half-way."""

    def half() -> Iterator[Group]:
        yield Group("git", tools())
        raise RuntimeError("the other server is down")

    session = stage.session()
    stage.groups = half()  # type: ignore[assignment]
    with pytest.raises(CatalogUnavailableError):
        run(session, "git/log")


def test_an_interrupt_in_a_source_goes_through(stage: Stage) -> None:
    """It is no failure of the source that could be taken for an answer, and the call does not start."""

    def interrupted(_: str) -> list[str]:
        raise KeyboardInterrupt

    stage.sources["config"] = interrupted
    session = stage.session()
    with pytest.raises(KeyboardInterrupt):
        run(session, call("git/log"))
