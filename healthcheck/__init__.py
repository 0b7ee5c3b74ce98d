"""The health engine: it judges agents with or without a gateway."""
