"""Ways to compute attention. `dense` is the definition; every other kernel must agree with it."""
