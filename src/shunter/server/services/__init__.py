"""One verb, one transaction: what callers may ask of the server."""
