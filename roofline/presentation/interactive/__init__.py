"""The interactive report: one HTML file that needs no other, for a browser without a network."""

from __future__ import annotations

from roofline.presentation.interactive.document import interactive_page as interactive_page

__all__ = ["interactive_page"]
