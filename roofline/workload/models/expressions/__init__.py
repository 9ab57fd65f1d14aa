"""Designs written as text: `reading` parses them without torch, `building` creates modules."""
