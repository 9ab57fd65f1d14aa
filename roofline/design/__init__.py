"""Decisions between designs."""
