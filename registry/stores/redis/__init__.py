"""Registrations in Redis or Valkey, shared by all nodes that use the same URL and key prefix."""
