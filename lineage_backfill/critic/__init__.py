"""Judges declarations and plans: reviews, drafts and explains them."""
