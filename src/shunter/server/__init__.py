"""The control plane: one process, one SQL database, one folder for blobs."""
