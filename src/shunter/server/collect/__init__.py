"""What comes home: logs, metrics, utilisation, outputs."""
