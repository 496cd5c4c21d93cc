"""Queue → admit → place → launch → watch. Deciding is pure; `loop.py` acts."""
