"""Reading stored bytes back into values, strictly: the one converter, and the facts behind a receipt.

Nothing is coerced, no field is skipped, and whatever was read must have the same bytes when it is written again.
Bytes of any other kind end in :class:`~capstate.errors.MalformedError`.

Not here: writing, which is ``to_json`` of each value and :mod:`capstate.archive`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from operator import is_
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_args, get_origin

import orjson
from attrs import fields, frozen
from cattrs import BaseConverter, Converter
from cattrs.errors import BaseValidationError, ForbiddenExtraKeysError, StructureHandlerNotFoundError

from capstate.archive import PARTS, encode_group
from capstate.authority import FIRST_SIGHT, Authority, Ceiling, Grant, Pin, Pool, Source
from capstate.capabilities import Catalog, Group, NameRule, Tool
from capstate.digest import Domain, canonical, fingerprint
from capstate.epochs import NO_PROFILE, Boundary, Cause, Facts, reproject
from capstate.errors import InvalidInputError, MalformedError
from capstate.projection import Issuer, Profile
from capstate.surface import Load

if TYPE_CHECKING:
    from capstate.capabilities import ToolEffectName
    from capstate.receipts import Receipt

Blob = Callable[[str], bytes | None]
"""Looks up the bytes under a digest; None if there are none."""

_Value = TypeVar("_Value")


@frozen
class _Pool:
    """Authority as :meth:`~capstate.authority.Authority.to_json` writes it."""

    ceilings: tuple[Ceiling, ...]
    granted: tuple[Grant, ...]
    launch: bool
    parent: _Pool | str | None
    sources: tuple[Source, ...]
    want: tuple[str, ...] | None


@frozen
class _Profile:
    """A profile as :func:`~capstate.archive.profile_json` writes it."""

    account: str
    api: str
    call_id_chars: str | None
    call_id_limit: int | None
    chars: str
    defers: str
    limit: int
    model: str
    needs_immediate: bool
    provider: str


@frozen
class _Tool:
    """A definition as :attr:`~capstate.capabilities.Tool.encoded` holds it."""

    annotations: dict[str, Any]
    description: str
    effect: str
    idempotent: bool
    loads: bool
    name: str
    needs: tuple[str, ...]
    reaches: str | None
    schema: dict[str, Any]
    wire_name: str | None


_Group: Any = tuple[str, tuple[tuple[str | None, tuple[_Tool, ...]], ...]]
"""A group as :func:`~capstate.archive.encode_group` writes it."""


@frozen
class _Given:
    """What a receipt repeats of its facts: they are not among the blobs."""

    audit: str
    boundary: Boundary | None
    cause: Cause
    damage: tuple[str, ...]
    fork: dict[str, Any] | None
    ledger: str
    session: str
    state: tuple[tuple[str, str], ...]
    used: dict[str, int]


def _exactly(kind: type) -> Callable[[Any, Any], Any]:
    """Return the hook for one type that JSON has."""

    def check(value: Any, _: Any) -> Any:  # noqa: ANN401 - that is the question
        if type(value) is not kind:
            raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")
        return value

    return check


def _is_tuple(kind: Any) -> bool:  # noqa: ANN401 - any type
    return get_origin(kind) is tuple


def _tuple(kind: Any, made: BaseConverter) -> Callable[[Any, Any], Any]:  # noqa: ANN401 - a type of tuples
    """Return the hook for one type of tuples: they are arrays, and text is none."""
    kinds = get_args(kind)
    hooks = [made.get_structure_hook(inner) for inner in kinds if inner is not Ellipsis]
    array = _exactly(list)

    def same(value: Any, _: Any) -> tuple[Any, ...]:  # noqa: ANN401 - that is the question
        return tuple([hooks[0](item, kinds[0]) for item in array(value, kind)])

    def each(value: Any, _: Any) -> tuple[Any, ...]:  # noqa: ANN401 - that is the question
        members = zip(array(value, kind), hooks, kinds, strict=True)
        return tuple([hook(item, inner) for item, hook, inner in members])

    return same if kinds[-1] is Ellipsis else each


def _pin(value: object, _: object) -> Pin | str | None:
    if value is None or value == FIRST_SIGHT:
        return None if value is None else FIRST_SIGHT
    return frozenset(converter.structure(value, tuple[tuple[str, str], ...]))


def _parent(value: object, _: object) -> _Pool | str | None:
    if value is None or isinstance(value, str):
        return value
    return converter.structure(value, _Pool)


def _converter() -> Converter:
    made = Converter(forbid_extra_keys=True, detailed_validation=False)
    for kind in (int, str, bool):
        # By predicate: a hook for text by class would be taken for each StrEnum as well.
        made.register_structure_hook_func(partial(is_, kind), _exactly(kind))
    made.register_structure_hook_factory(_is_tuple, _tuple)
    made.register_structure_hook(_Pool | str | None, _parent)
    made.register_structure_hook(Pin | Literal["first-sight"] | None, _pin)
    return made


converter = _converter()
"""The one converter: no coercion, no unknown key."""

_REFUSED = (
    BaseValidationError,
    ForbiddenExtraKeysError,
    StructureHandlerNotFoundError,
    AttributeError,
    KeyError,
    RecursionError,
    TypeError,
    ValueError,
)


def structure(value: object, kind: type[_Value], place: str) -> _Value:
    """Return parsed JSON as a value of ``kind``.

    Raises:
        MalformedError: it is none.
    """
    try:
        return converter.structure(value, kind)
    except _REFUSED as error:
        raise MalformedError(place, kind.__name__, f"{type(error).__name__}: {error}") from error


def _profile(value: object) -> Profile:
    read = converter.structure(value, _Profile)
    return Profile(
        Issuer(read.provider, read.api, read.model, read.account),
        adapter=NO_PROFILE.adapter,  # nothing is rendered from an archive
        defers=read.defers,
        needs_immediate=read.needs_immediate,
        names=NameRule(read.limit, read.chars),
        call_id_limit=read.call_id_limit,
        call_id_chars=read.call_id_chars,
    )


def _authority(value: object) -> Authority:
    return _joined(converter.structure(value, _Pool))


def _joined(read: _Pool) -> Authority:
    parent: Any = read.parent
    if isinstance(parent, _Pool):
        parent = _joined(parent)
    elif parent not in (None, "missing", "ended"):
        raise ValueError(f"no parent is {parent!r}")
    return Authority(Pool(read.sources, read.granted, read.want, read.launch), read.ceilings, parent)


_READ: dict[str, Callable[[object], Any]] = {
    "authority": _authority,
    "loads": lambda value: converter.structure(value, tuple[Load, ...]),
    "opaque": lambda value: converter.structure(value, tuple[tuple[str, str], ...]),
    "path": lambda value: None if value is None else converter.structure(value, tuple[str, ...]),
    "profile": _profile,
    "retained": lambda value: converter.structure(value, tuple[int, ...]),
}


def decode_part(part: str, encoded: bytes) -> Any:  # noqa: ANN401 - each part is of a kind of its own
    """Return one component of archived facts.

    Raises:
        MalformedError: the bytes are none, or not its canonical ones.
    """
    try:
        value = _READ[part](orjson.loads(encoded))
        again = canonical(PARTS[part](value))
    except _REFUSED as error:
        raise MalformedError(f"archived {part}", "its canonical form", f"{type(error).__name__}: {error}") from error
    if again != encoded:
        raise MalformedError(f"archived {part}", "canonical bytes", "another encoding")
    return value


def decode_group(encoded: bytes, *, up: bool = True) -> Group:
    """Return one archived group.

    Raises:
        MalformedError: the bytes are none, or not its canonical ones.
    """
    try:
        id_, servers = converter.structure(orjson.loads(encoded), _Group)
        parts = [Group(id_, map(_tool, tools), server=server, up=up) for server, tools in servers]
        group = Group.united(parts or [Group(id_, up=up)])
        again = encode_group(group)
    except _REFUSED as error:
        raise MalformedError("archived group", "its canonical form", f"{type(error).__name__}: {error}") from error
    if again != encoded:
        raise MalformedError(f"archived group {id_!r}", "canonical bytes", "another encoding")
    return group


def _tool(read: _Tool) -> Tool:
    return Tool(
        read.name,
        description=read.description,
        schema=read.schema,
        annotations=read.annotations,
        effect=cast("ToolEffectName", read.effect),  # Tool refuses any other
        idempotent=read.idempotent,
        needs=read.needs,
        reaches=read.reaches,
        loads=read.loads,
        wire_name=read.wire_name,
    )


def _fetch(blob: Blob, digest: str, place: str) -> bytes:
    found = blob(digest)
    if found is None or fingerprint(Domain.BLOB, found) != digest:
        raise MalformedError(place, digest, "nothing" if found is None else "other bytes")
    return found


def _catalog(state: Mapping[str, str], blob: Blob) -> Catalog:
    listed = _fetch(blob, state["catalog"], "archived catalog")
    down = _fetch(blob, state["resources"], "archived resources")
    try:
        pairs = converter.structure(orjson.loads(listed), tuple[tuple[str, str], ...])
        lost = converter.structure(orjson.loads(down), tuple[str, ...])
    except _REFUSED as error:
        raise MalformedError("archived catalog", "its canonical form", f"{type(error).__name__}: {error}") from error
    ids = [id_ for id_, _ in pairs]
    if ids != sorted(set(ids)) or list(lost) != [id_ for id_ in ids if id_ in set(lost)]:
        raise MalformedError("archived catalog", "each group once, in order", ids)
    groups = []
    for id_, digest in pairs:
        group = decode_group(_fetch(blob, digest, f"archived group {id_!r}"), up=id_ not in lost)
        if group.id != id_:
            raise MalformedError("archived catalog", f"group {id_!r}", f"group {group.id!r}")
        groups.append(group)
    return Catalog.of(groups)


def facts_from_archive(receipt_body: Mapping[str, Any], blob: Blob) -> Facts:
    """Return the facts that a receipt's epoch rested on.

    Args:
        receipt_body: the parsed body of the receipt.
        blob: looks up archived bytes; what it returns is verified here.

    Raises:
        MalformedError: the body is none, or a blob that it names is missing, altered or of another form.
    """
    names = [attribute.name for attribute in fields(_Given) if attribute.name in receipt_body]
    given = structure({name: receipt_body[name] for name in names}, _Given, "receipt")
    state = dict(given.state)
    if state.keys() != PARTS.keys() | {"catalog", "resources"}:
        raise MalformedError("receipt.state", "a digest for each component", ", ".join(state))
    parts = {part: decode_part(part, _fetch(blob, state[part], f"archived {part}")) for part in PARTS}
    return Facts(
        catalog=_catalog(state, blob),
        **parts,
        cause=given.cause,
        session=given.session,
        ledger=given.ledger,
        boundary=given.boundary,
        used=given.used,
        audit=given.audit,
        damage=given.damage,
        fork=given.fork,
    )


def recompute(receipt_body: Mapping[str, Any], blob: Blob, previous: Receipt | None) -> Receipt:
    """Return the receipt that follows from the archived facts; the stored one is honest if its bytes are the same.

    Args:
        receipt_body: the parsed body of the stored receipt.
        blob: looks up archived bytes.
        previous: the receipt before it, of a fork's first receipt the origin's.

    Raises:
        MalformedError: as :func:`facts_from_archive`.
    """
    facts = facts_from_archive(receipt_body, blob)
    try:
        return reproject(facts, previous).receipt
    except InvalidInputError as error:
        raise MalformedError(error.place, error.expected, error.got) from error
