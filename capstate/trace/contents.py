"""What no summary says: a full tool schema, or that a tool is permitted (CP-10, CP-11).

>>> schema = {"type": "object", "properties": {"path": {"type": "string"}}}
>>> holds_schema('The tool takes {"properties": {"path": {"type": "string"}}, "type": "object"}.', [schema])
True
>>> permissions("The model may now call bank/pay. It paid with bank/pay.", ["bank/pay"])
('The model may now call bank/pay.',)
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from capstate.digest import canonical
from capstate.errors import InvalidInputError

_IGNORED = re.compile(r"[\s\"'\\]+")
_SENTENCE = re.compile(r"[^.!?\n]*(?:[.!?](?!\s|$)[^.!?\n]*)*[.!?]?")
_PERMITS = re.compile(
    r"\b(allow(s|ed)?|permit(s|ted)?|permission|authori[sz](es?|ed)|authori[sz]ation|grant(s|ed)?|"
    r"(may|can|is free to) (now |again |also )*(call|use|run|be (called|used|run)))\b",
    re.IGNORECASE,
)


def holds_schema(text: str, schemas: Collection[Mapping[str, Any]]) -> bool:
    """Whether ``text`` holds a whole schema of ``schemas`` that has properties, or all of its properties.

    It is found as JSON in any order of names and with any spacing, and quoted or escaped in the order in which
    ``schemas`` has it.

    Raises:
        InvalidInputError: a schema is no mapping, or no JSON.
    """
    told = [part for n, schema in enumerate(schemas) for part in _telling(schema, f"schemas[{n}]")]
    if not told:
        return False
    bare = _bare(text)
    if any(_bare(json.dumps(part, ensure_ascii=ascii_)) in bare for part in told for ascii_ in (False, True)):
        return True
    wanted = {canonical(part, place="schema") for part in told}
    return any(_canonical(value) in wanted for value in _objects(text))


def permissions(text: str, tools: Collection[str]) -> tuple[str, ...]:
    """Return the sentences of ``text`` that name a tool and say that it is permitted."""
    if not tools:
        return ()
    named = re.compile("|".join(rf"(?<![\w/-]){re.escape(tool)}(?![\w/-])" for tool in sorted(tools) if tool))
    sentences = (found.group().strip() for found in _SENTENCE.finditer(text))
    return tuple(one for one in sentences if one and named.search(one) and _PERMITS.search(one))


def _telling(schema: object, place: str) -> Iterator[Mapping[str, Any]]:
    if not isinstance(schema, Mapping):
        raise InvalidInputError(place, "a mapping", type(schema).__name__)
    properties = schema.get("properties")
    canonical(dict(schema), place=place)
    if isinstance(properties, Mapping) and properties:
        yield schema
        yield properties


def _bare(text: str) -> str:
    return _IGNORED.sub("", text).casefold()


_TRIES = 1_000
"""How many braces may begin nothing. Behind more of them a schema is found by its spelling alone."""


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Give every JSON object in ``text``, those inside others as well."""
    decoder = json.JSONDecoder()
    at = text.find("{")
    failed = 0
    while at >= 0 and failed < _TRIES:
        try:
            found, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end, failed = at + 1, failed + 1  # it may have read all of the rest: this must not go on for ever
        else:
            values = [found]
            for value in values:
                if isinstance(value, dict):
                    yield value
                    values.extend(value.values())
                elif isinstance(value, list):
                    values.extend(value)
        at = text.find("{", end)


def _canonical(value: dict[str, Any]) -> bytes:
    try:
        return canonical(value)
    except InvalidInputError:
        return b""  # no schema of the catalog, which is JSON
