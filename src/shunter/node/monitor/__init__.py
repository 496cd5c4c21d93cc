"""What the run does with its machine."""
