from __future__ import annotations

import pytest

from tests.wrong import Plant


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Puts a wrong implementation in place until the test ends."""

    def put(owner: object, name: str, wrong: object) -> None:
        assert hasattr(owner, name), f"{owner} has no {name} to exchange"
        monkeypatch.setattr(owner, name, wrong)

    return put
