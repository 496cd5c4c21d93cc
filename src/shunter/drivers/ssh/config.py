"""The options of an SSH machine. CLI flags, the portal's form and the API's check are made from this."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

#: Marks in the schema, read by whoever shows or stores options:
#: sealed at rest, asked for and never shown; read by the client, its contents sent as another option; said once and not
#: kept; found out by the driver itself; where its runs are, so not to be changed under them.
SECRET: dict[str, Any] = {"secret": True}
ONCE: dict[str, Any] = {"once": True}
LEARNED: dict[str, Any] = {"learned": True}
PLACE: dict[str, Any] = {"place": True}


class SshConfig(BaseModel):
    """Options of an SSH machine."""

    model_config = ConfigDict(extra="forbid")

    address: str = Field(min_length=1, max_length=255, description="Host name, IP address, or a name in ~/.ssh/config.")
    port: int | None = Field(
        None, ge=1, le=65535, description="Port of its SSH server; 22 when nothing else is configured."
    )
    username: str | None = Field(None, max_length=255, json_schema_extra=PLACE, description="Who logs in there.")
    password: str | None = Field(None, repr=False, json_schema_extra=SECRET, description="Password of that user.")
    private_key_file: str | None = Field(
        None, json_schema_extra={"contents_to": "private_key"}, description="File with the private key to log in with."
    )
    private_key: str | None = Field(None, repr=False, json_schema_extra=SECRET, description="The private key itself.")
    passphrase: str | None = Field(
        None, repr=False, json_schema_extra=SECRET, description="Passphrase of the private key."
    )
    certificate_file: str | None = Field(
        None,
        json_schema_extra={"contents_to": "certificate"},
        description="File with the OpenSSH certificate of the key.",
    )
    certificate: str | None = Field(None, description="OpenSSH certificate that goes with the key.")
    jump: str | None = Field(
        None, description="Host to go through: [USER@]HOST[:PORT]; the same key or password is used."
    )
    known_hosts_file: str | None = Field(
        None,
        json_schema_extra={"format": "file-path"},
        description="Host keys to trust; ~/.ssh/known_hosts when not given.",
    )
    accept_host_key: bool = Field(False, json_schema_extra=ONCE, description="Trust the key that a new host shows now.")
    host_key_fingerprint: str | None = Field(
        None,
        pattern=r"^(SHA256:)?[A-Za-z0-9+/]{43}=?$",
        description="Trust a new host if its key is this one: SHA256:…",
    )
    host_key: str | None = Field(None, json_schema_extra=LEARNED, description="The host key that was accepted.")
    slots: int | None = Field(None, ge=1, description="How many runs at once; the number of its cores when not given.")
    price_per_hour: float | None = Field(None, ge=0, description="What an hour of this machine costs.")
    folder: str | None = Field(
        None, json_schema_extra=PLACE, description="Folder for our files there; ~/.shunter-node when not given."
    )
    python: str | None = Field(None, description="Python 3.8 or newer there, when python3 is not the one.")
    disk_limit_gb: float = Field(
        20, gt=0, description="How much is kept there at most: snapshots, environments, inputs, tools."
    )
    forwarding: Literal["auto", "never"] = Field(
        "auto", description="never: no tunnel, reports come over the session itself."
    )
    connect_timeout_seconds: float = Field(30, gt=0, le=600, description="A slow machine is given so long to answer.")

    @field_validator("address", "username", "jump", "folder", "python")
    @classmethod
    def _is_plain(cls, value: str | None) -> str | None:
        if value is not None and (any(ord(c) < 32 or ord(c) == 127 for c in value) or value.startswith("-")):
            raise ValueError("it has a character that cannot be there")
        return value
