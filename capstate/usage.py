"""Tokens that a provider reports for one request, in one form.

Figures are observations: as reported, never explained, never compared across an epoch boundary. What a provider
does not report is None and stays so; it is not zero, and nothing is made up from what is missing.
"""

from __future__ import annotations

from attrs import frozen


@frozen
class Usage:
    """Tokens of one request.

    Attributes:
        read: input read from a cache.
        write: input written to a cache.
        uncached: input that was neither read from nor written to a cache. Of a provider that reports a total with
            cached input in it, the rest; None if a part that is needed for that is not reported.
        output: tokens the model made.
    """

    read: int | None = None
    write: int | None = None
    uncached: int | None = None
    output: int | None = None
