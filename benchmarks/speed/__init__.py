"""How fast BBKB is: beside its authors' code, beside peers, as A and T grow, and beside the least work there is."""
