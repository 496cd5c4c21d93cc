"""Environments on the server: locks are made here, for the node's platform, and installed there."""
