"""Theoretical peaks: microarchitectures, clock × width × pipes, data sheets."""
