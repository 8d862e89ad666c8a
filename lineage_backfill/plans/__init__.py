"""The request and the plan, as values and as documents."""
