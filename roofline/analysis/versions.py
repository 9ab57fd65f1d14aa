"""The version of saved analyses, and the steps to it from older ones (docs/file-formats.md)."""

from __future__ import annotations

from collections.abc import Mapping

from roofline.foundation import schema

SCHEMA_VERSION = 3
"""Of saved analyses: older ones are migrated, newer ones refused (docs/file-formats.md)."""

STEPS: Mapping[int, schema.Step] = {
    # Each embeds hardware of its own version, which has a version and steps of its own.
    1: lambda analysis: analysis,
    2: lambda analysis: analysis,
}
