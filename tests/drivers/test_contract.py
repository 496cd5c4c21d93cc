"""Every kind in the registry keeps the contract. A new kind is tested by having its class here."""

from __future__ import annotations

import pytest

from shunter.drivers.registry import DRIVERS, driver_class
from shunter.sdk.workspace import Workspace
from shunter.testing.drivers import DriverContract


class TestLocal(DriverContract):
    @pytest.fixture
    def target(self, ws: Workspace) -> str:
        return "local"


@pytest.mark.parametrize("kind", sorted(DRIVERS))
def test_a_kind_says_what_it_is(kind: str) -> None:
    cls = driver_class(kind)
    assert cls.kind == kind
    assert cls.__name__.lower() == f"{kind}driver"
    assert cls.Config.model_json_schema()["properties"] is not None
