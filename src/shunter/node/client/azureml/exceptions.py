"""`azureml.exceptions`, as far as a script meets them."""

from shunter.run import RunEnvironmentError as RunEnvironmentException
from shunter.run import RunUsageError as UserErrorException

__all__ = ["AzureMLException", "RunEnvironmentException", "UserErrorException"]

#: What `except AzureMLException` catches: all of these.
AzureMLException = (UserErrorException, RunEnvironmentException)
