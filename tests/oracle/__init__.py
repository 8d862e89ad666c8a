"""The obvious definition of a plan over single keys, and random graphs to hold the planner to."""
