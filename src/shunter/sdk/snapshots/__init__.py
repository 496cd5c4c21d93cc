"""Freezing a source folder and sending what the server does not hold.

`freeze` looks at the folder and hashes what is new; the server says which of `frozen.manifest.blobs` it misses;
`frozen.pack(missing)` streams just these.
"""

from shunter.sdk.snapshots.freeze import Frozen, Progress, freeze
from shunter.sdk.snapshots.sizes import Sized, Suggestion, in_words
from shunter.sdk.snapshots.walk import Ignored

__all__ = ["Frozen", "Ignored", "Progress", "Sized", "Suggestion", "freeze", "in_words"]
