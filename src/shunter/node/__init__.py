"""What runs on the compute target: standard library only, Python 3.8 or newer, shipped as it is."""
