"""Measurement of this host: pinned threads, bursts, interleaved rounds, estimates."""
