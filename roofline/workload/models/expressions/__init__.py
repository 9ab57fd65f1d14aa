"""Designs written as text: what reads them imports no torch, `building` makes modules of them."""
