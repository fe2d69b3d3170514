"""The wire name of each tool: the name under which one provider lets the model see it.

One to one and a function of qualified id and provider alone, so that a name stands for the same tool in every
session. The rules are ``docs/spec/surface.md`` 1.6. :class:`NameRule` is imported from :mod:`capstate.capabilities`.
"""

from __future__ import annotations

import base64
import re
from functools import cached_property
from typing import TYPE_CHECKING

from attrs import frozen

from capstate.digest import Domain, fingerprint
from capstate.errors import InvalidInputError

if TYPE_CHECKING:
    from capstate.capabilities import Definition

_CLEAN = re.compile(r"[A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*\Z")
_SET = re.compile(r"(?!\^)(?!.*(?:--|&&|\|\||~~))(?:[^\[\]\\]|\\[^\n])+")
_ALPHABET = "_abcdefghijklmnopqrstuvwxyz234567"
"""What the end of a made name may consist of; all of it must be legal, so that no name hangs on luck."""
_TAIL = 19  # three underscores and sixteen characters


@frozen
class NameRule:
    """The legal tool names of one provider, and the one-to-one name of each qualified id under it.

    ``git/log`` is ``git__log`` where both parts are clean (letters, digits, ``-``, single inner ``_``) and the
    name is legal. Any other id gets its legal characters, ``___`` and sixteen characters of its digest. A clean
    name never holds ``___``, so the two forms cannot meet.

    Args:
        limit: longest name, in characters.
        chars: a regular-expression character set, without brackets.
    """

    limit: int = 64
    chars: str = "A-Za-z0-9_-"

    def __attrs_post_init__(self) -> None:
        # Nothing that ends the set: what follows it could be a pattern that never comes to an end.
        if not _SET.fullmatch(self.chars) or not self._compiles():
            raise InvalidInputError("name rule.chars", "the inside of a regular-expression character set", self.chars)

    def _compiles(self) -> bool:
        try:
            return bool(self._pattern)
        except re.error:
            return False

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(f"[{self.chars}]+")

    @cached_property
    def _has_digests(self) -> bool:
        return self.limit >= _TAIL and self._pattern.fullmatch(_ALPHABET) is not None

    def legal(self, name: str) -> bool:
        """Whether a provider with this rule takes ``name``."""
        return len(name) <= self.limit and self._pattern.fullmatch(name) is not None

    def name(self, definition: Definition) -> str | None:
        """Return the wire name of ``definition``, or None if it has no legal one."""
        tool = definition.tool
        if tool.wire_name is not None:
            return tool.wire_name if self.legal(tool.wire_name) else None
        group, name = definition.group, tool.name
        if _CLEAN.match(group) and _CLEAN.match(name):
            joined = f"{group}__{name}"
            if self.legal(joined):
                return joined
        if not self._has_digests:
            return None
        digest = bytes.fromhex(fingerprint(Domain.NAME, group.encode(), name.encode())[3:])
        head = re.sub(f"[^{self.chars}]", "_", f"{group}_{name}")[: self.limit - _TAIL]
        return f"{head}___{base64.b32encode(digest[:10]).decode().lower()}"
