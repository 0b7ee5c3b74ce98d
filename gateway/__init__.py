"""vitalgate: the gateway, its edges and its composition."""
