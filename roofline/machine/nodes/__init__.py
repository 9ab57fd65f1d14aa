"""Memory that is nearer to some cores than to others (NUMA)."""
