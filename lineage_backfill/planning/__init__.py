"""From a change to runs: a pure function and the values around it."""
