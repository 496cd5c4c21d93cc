"""Contents of snapshots and outputs, addressed by their BLAKE3 digests."""

from shunter.server.storage.blobs.base import BlobIndex, BlobStore, Compacted, Location, Received, Row
from shunter.server.storage.blobs.files import FileBlobs

__all__ = ["BlobIndex", "BlobStore", "Compacted", "FileBlobs", "Location", "Received", "Row"]
