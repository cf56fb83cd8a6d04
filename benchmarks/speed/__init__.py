"""The speed of BBKB, compared with its authors' code and with goals, for growing A and T."""
