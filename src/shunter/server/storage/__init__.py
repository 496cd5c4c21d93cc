"""One small store for each noun."""
