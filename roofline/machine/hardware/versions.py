"""The version of hardware profiles, and the steps to it from older ones (docs/file-formats.md)."""

from __future__ import annotations

from collections.abc import Mapping

from roofline.foundation import schema

SCHEMA_VERSION = 2
"""Of hardware profiles: older ones are migrated, newer ones refused (docs/file-formats.md)."""

STEPS: Mapping[int, schema.Step] = {
    # Version 2 knows more devices; what version 1 says means the same in it.
    1: lambda profile: profile,
}
