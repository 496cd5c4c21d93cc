"""The first SDK's names inside a run: always ours, over `shunter.run`."""
