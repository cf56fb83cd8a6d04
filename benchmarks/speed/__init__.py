"""The speed of BBKB: compared with its authors' code, with peers and with the least work, and as A and T grow."""
