"""Ledger work of the asynchronous guard: in a worker thread, and never lost to a cancellation."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")


async def begun(start: Callable[[], _T], *, undo: Callable[[_T], object]) -> _T:
    """Return what ``start`` returns, run in a worker thread; cancelled meanwhile, it is undone there first."""
    starting = _in_thread(start)
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await _done(starting)
        if not starting.cancelled() and starting.exception() is None:
            undoing = _in_thread(lambda: undo(starting.result()))
            await _done(undoing)
            undoing.exception()  # looked at: if it failed, the operation stays unsettled, which is the truth
        raise


async def ended(leave: Callable[[], object]) -> None:
    """Run ``leave`` in a worker thread; a cancellation waits for it, and goes on after it."""
    leaving = _in_thread(leave)
    cancelled = await _done(leaving)
    failed = leaving.exception()
    if cancelled:
        raise asyncio.CancelledError from failed
    if failed is not None:
        raise failed


def _in_thread(work: Callable[[], _T]) -> asyncio.Future[_T]:
    # No task of its own: what cancels all tasks at the end of a program must not lose a permit.
    return asyncio.get_running_loop().run_in_executor(None, copy_context().run, work)


async def _done(future: asyncio.Future[Any]) -> bool:
    """Wait until ``future`` is done, whatever cancels the waiting; return whether something did."""
    cancelled = False
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            cancelled = True
    return cancelled
