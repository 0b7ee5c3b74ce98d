"""The benchmark: vitalgate beside nginx, Envoy and the reference stack, in one interleaved run."""
