"""The words we use, as frozen values. Imports nothing of ours."""
