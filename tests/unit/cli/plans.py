"""Plans made by hand, for what shows them."""

from __future__ import annotations
