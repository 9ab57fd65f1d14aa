"""How this host is measured: threads, bursts, rounds, and what becomes of them."""
