"""`azureml.core.authentication`: accepted; who we are is said by SHUNTER_TOKEN, or the embedded server knows."""

from __future__ import annotations

from typing import Any

from shunter.azureml.exceptions import AuthenticationException

__all__ = [
    "AbstractAuthentication", "AuthenticationException", "AzureCliAuthentication", "InteractiveLoginAuthentication",
    "MsiAuthentication", "ServicePrincipalAuthentication", "TokenAuthentication",
]  # fmt: skip


class AbstractAuthentication:
    """Holds nothing: what is given is not kept."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def get_authentication_header(self) -> dict[str, str]:
        """The header for our own server."""
        from shunter.sdk.connect import connect

        return {"Authorization": f"Bearer {connect().token}"}


class InteractiveLoginAuthentication(AbstractAuthentication):
    pass


class AzureCliAuthentication(AbstractAuthentication):
    pass


class ServicePrincipalAuthentication(AbstractAuthentication):
    pass


class MsiAuthentication(AbstractAuthentication):
    pass


class TokenAuthentication(AbstractAuthentication):
    pass
