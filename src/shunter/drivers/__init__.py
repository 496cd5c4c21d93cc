"""Where runs run: one folder for each kind of compute target."""
