"""The only place that knows MLflow: its process, our runs in its store, and the way to it through our address."""
