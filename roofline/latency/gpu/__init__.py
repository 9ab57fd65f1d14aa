"""Predicted times on NVIDIA GPUs, from their data sheets and public measurements of others."""
