"""Language models: work and minimum time of prefill and decode, KV cache, memory."""
