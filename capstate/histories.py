"""A history in a file, of any form that is known here, read into neutral messages that know their place in the file.

How a form is recognised: a first line that is the header of a Pi session; an object with ``trace``, or a list of
objects that have keys of neutral messages alone; a request body, or a list of messages or items, by what only one API
has. A file in which nothing tells is not guessed.

Not here: judging the trace (:mod:`capstate.trace`), or the tools of a body (:mod:`capstate.audit`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from attrs import evolve, fields, frozen

from capstate.agents.lines import UNDECODED, decode, records, whole
from capstate.agents.pi import read_session
from capstate.agents.pi.history import history as pi_history
from capstate.agents.pi.session import is_session
from capstate.errors import InvalidInputError, MalformedError
from capstate.providers import detect, for_api
from capstate.trace import Fault, Message, from_json

if TYPE_CHECKING:
    from pathlib import Path

NEUTRAL, PI = "neutral", "pi"
APIS = {
    "anthropic": "anthropic-messages",
    "openai-responses": "openai-responses",
    "openai-chat": "openai-completions",
}
FORMS = (NEUTRAL, *APIS, PI)
LEVELS = 200
"""How deep JSON may nest: what is read here is walked through and written again."""
_NEUTRAL_KEYS = frozenset(one.name for one in fields(Message))
_ITEM_TEXTS = ("input_text", "output_text")


@frozen
class History:
    """What a file holds.

    Attributes:
        form: one of :data:`FORMS`.
        messages: neutral; each has an id, made from its place where the file has none.
        places: where in the file each stands.
        damage: how many places of the file could not be read.
    """

    form: str
    messages: tuple[Message, ...]
    places: tuple[str, ...]
    damage: int = 0

    def place(self, fault: Fault) -> str:
        """Return where in the file a fault is."""
        return self.places[fault.index]


def read_history(path: Path, form: str | None = None) -> History:
    """Return the history in the file at ``path``.

    Args:
        form: one of :data:`FORMS`; None: it is recognised.

    Raises:
        InvalidInputError: there is no such form, nothing is there, or it may not be read.
        MalformedError: it is no history of that form, or nothing in it tells the form.
    """
    if form not in (None, *FORMS):
        raise InvalidInputError("format", f"one of {', '.join(FORMS)}", form)
    try:
        made = _pi(path) if form == PI or (form is None and _is_pi(path)) else _one(path, form)
        for message, place in zip(made.messages, made.places, strict=True):
            if any(_deep(call.arguments) for call in message.calls):
                raise _too_deep(place)
    except MalformedError as error:
        place = error.place if error.place.startswith(str(path)) else f"{path}: {error.place}"
        raise MalformedError(place, error.expected, error.got) from error
    return made


def _pi(path: Path) -> History:
    session = read_session(path)
    found = pi_history(session)
    return History(PI, tuple(m for _, m in found), tuple(place for place, _ in found), len(session.damage))


def _one(path: Path, form: str | None) -> History:
    value = decode(whole(path))
    if value is UNDECODED or _deep(value):
        raise _too_deep("file")
    form = form if form is not None else _recognised(value)
    return _neutral(value) if form == NEUTRAL else _native(value, form)


def _too_deep(place: str) -> MalformedError:
    return MalformedError(place, f"JSON of at most {LEVELS} levels", "something else")


def _deep(value: object) -> bool:
    level: list[Any] = [value] if isinstance(value, dict | list) else []
    for _ in range(LEVELS):
        if not level:
            return False
        held = (inner for one in level for inner in (one.values() if isinstance(one, dict) else one))
        level = [inner for inner in held if isinstance(inner, dict | list)]
    return bool(level)


def _is_pi(path: Path) -> bool:
    first = next(records(path, []), None)
    return first is not None and first.line == 1 and is_session(first.value)


def _recognised(value: object) -> str:
    if isinstance(value, Mapping) and "trace" in value:
        return NEUTRAL
    if isinstance(value, list) and all(_is_neutral(one) for one in value):
        return NEUTRAL
    api = detect(_body(value))
    for form, known in APIS.items():
        if known == api:
            return form
    raise MalformedError("history", "something that only one format has; name it with --format", "nothing")


def _is_neutral(one: object) -> bool:
    return isinstance(one, Mapping) and {"id", "role"} <= one.keys() <= _NEUTRAL_KEYS


def _body(value: object, form: str | None = None) -> object:
    """Return a list as the body that it stands in."""
    if not isinstance(value, list):
        return value
    if form is None:
        form = "openai-responses" if any(_is_item(one) for one in value) else None
    return {"input" if form == "openai-responses" else "messages": value}


def _is_item(one: object) -> bool:
    if not isinstance(one, Mapping):
        return False
    content = one.get("content")
    blocks = content if isinstance(content, list) else ()
    own = any(isinstance(b, Mapping) and b.get("type") in _ITEM_TEXTS for b in blocks)
    return own or ("role" not in one and isinstance(one.get("type"), str))


def _neutral(value: object) -> History:
    messages = from_json(value)
    taken = {message.id for message in messages}
    places = [f"messages[{n}]" for n in range(len(messages))]
    named = [m if m.id else evolve(m, id=_free(place, taken)) for m, place in zip(messages, places, strict=True)]
    return History(NEUTRAL, tuple(named), tuple(places))


def _native(value: object, form: str) -> History:
    api = APIS[form]
    adapter = for_api(api)
    body = _body(value, form)
    adapter.recognise(body)
    key = "input" if form == "openai-responses" else "messages"
    held = cast("Mapping[str, Any]", body)[key]
    items = [{"role": "user", "content": held}] if isinstance(held, str) and key == "input" else held
    messages = adapter.read(items)
    places = list(_places(messages, items, form, key))
    named, times = [], Counter[str]()
    for message, place in zip(messages, places, strict=True):
        named.append(evolve(message, id=f"{place}.{times[place]}" if times[place] else place))
        times[place] += 1
    return History(form, tuple(named), tuple(places))


def _places(messages: list[Message], items: list[Any], form: str, key: str) -> Iterator[str]:
    """Give the place of each message: an item may be several of them, or several items one."""
    if form == "anthropic":
        for n, item in enumerate(items):
            yield from (f"{key}[{n}]" for _ in for_api(APIS[form]).read([item]))
        return
    n = 0
    for message in messages:
        more = len(message.native) - 1 if isinstance(message.native, list) else 0
        yield f"{key}[{n}-{n + more}]" if more else f"{key}[{n}]"
        n += 1 + more


def _free(place: str, taken: set[str]) -> str:
    made, n = place, 0
    while made in taken:
        n += 1
        made = f"{place}.{n}"
    taken.add(made)
    return made
