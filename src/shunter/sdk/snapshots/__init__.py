"""Freezing a source folder and sending what the server does not hold.

frozen = freeze(Path("."), cache_dir=home / "stat-cache")
missing = ...                                   # the server's answer to list(frozen.manifest.blobs)
send(frozen.pack(missing, compress=not on_loopback))
"""

from shunter.sdk.snapshots.freeze import Frozen, Progress, freeze
from shunter.sdk.snapshots.sizes import Sized, Suggestion, in_words
from shunter.sdk.snapshots.walk import Ignored

__all__ = ["Frozen", "Ignored", "Progress", "Sized", "Suggestion", "freeze", "in_words"]
