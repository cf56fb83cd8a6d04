"""The speed of BBKB: compared with its authors' code, with peers and with a bound of the work, for
growing A and T."""
